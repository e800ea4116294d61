/* What the arguments of a call leave untold and others of the trace tell. Private to csrc/table. */
#ifndef FS_TABLE_UNTOLD_H
#define FS_TABLE_UNTOLD_H

#include "table/build.h"

/* Give calls whose arguments do not tell their work that which follows from what others tell: the kernels that they
 * launched, of dtypes; calls of their gradient, of the shape of their result. Where those disagree, nothing. */
void fs_build_find_untold(fs_build *build);

#endif
