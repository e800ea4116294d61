/* The modules (torch.nn.Module) around events. Private to csrc/table. */
#ifndef FS_TABLE_MODULES_H
#define FS_TABLE_MODULES_H

#include "table/build.h"

/* Fill in the index in table->modules of the module around each event, or FS_NONE. An op of the backward pass belongs
 * to the module of its op of the forward pass; device work belongs to the module of its launcher. FS_OUT_OF_MEMORY. */
fs_status fs_build_modules(fs_build *build, uint32_t *modules, fs_error *err);

#endif
