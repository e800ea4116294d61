/* User-registered rules for torch's ops, which take precedence over the built-in ones. */
#ifndef FS_WORK_REGISTERED_H
#define FS_WORK_REGISTERED_H

#include "store/torch_signature.h"
#include "work/work.h"

/* Compute the work of a call; false if there is no rule for the name. call NULL: return only whether there is one.
 * Called by whatever thread builds a table. */
typedef bool (*fs_work_rule)(const char *name, const fs_torch_call *call, fs_work *work);

/* Compute the work of a kernel by the rule that is registered for its name; false if there is none. */
bool fs_work_of_registered(const char *name, const fs_torch_call *call, fs_work *work);

/* Set the function from now on; NULL: none. Not while a table is being built. */
void fs_work_set_rule(fs_work_rule rule);

/* Set a function that is called once, when the work of an op of a namespace other than torch's is first asked for: it
 * may set the rule. */
void fs_work_set_loader(void (*loader)(void));

#endif
