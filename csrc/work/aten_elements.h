/* The rules for ops that go over elements: pointwise, reductions, copies, indexing, … Private to csrc/work. */
#ifndef FS_WORK_ATEN_ELEMENTS_H
#define FS_WORK_ATEN_ELEMENTS_H

#include "work/aten.h"

/* The rule of an op over lists of tensors (`_foreach_add_`), from that of the op over one. */
fs_aten_rule fs_aten_foreach(const fs_aten_rule *rule);

/* The rule of the gradient of a pointwise op that has no row of its own; count is NULL where nothing can be said. */
fs_aten_rule fs_aten_backward(const fs_aten_rule *rule);

#endif
