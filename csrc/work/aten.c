#include "work/aten.h"

fs_work fs_work_of_torch(const char *name, const fs_torch_call *call)
{
    (void)name, (void)call;
    return fs_work_unknown;
}
