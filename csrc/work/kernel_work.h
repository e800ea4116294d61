/* Work that the name and the launch of a kernel tell, with the arguments of the op that launched it. All are estimates
 * but those of registered rules. */
#ifndef FS_WORK_KERNEL_WORK_H
#define FS_WORK_KERNEL_WORK_H

#include "store/signature.h"
#include "store/torch_signature.h"
#include "work/work.h"

/* What an earlier kernel of the same op tells about later ones. Zero at the first. */
typedef struct {
    double rows, columns; /* of the result of the last product */
} fs_kernel_context;

/* Return whether fs_kernel_work may know a kernel of that name. */
bool fs_kernel_has_work(const char *name);

/* Compute the work of one kernel. launch: NULL if unknown; call: of its op, or NULL. Returns false if it is unknown. */
bool fs_kernel_work(const char *name, const fs_launch *launch, const fs_torch_call *call, fs_kernel_context *context,
                    fs_work *work);

#endif
