/* Rules from outside: asked before the rows are, for torch's ops. */
#ifndef FS_WORK_REGISTERED_H
#define FS_WORK_REGISTERED_H

#include "store/torch_signature.h"
#include "work/work.h"

/* Fill in the work of a call; false where it has no rule for the name. Called by whatever thread builds a table. */
typedef bool (*fs_work_rule)(const char *name, const fs_torch_call *call, fs_work *work);

/* Ask this one from now on; NULL: none. Not while a table is built. */
void fs_work_set_rule(fs_work_rule rule);

#endif
