/* Helpers shared by the rules for multiply-adds: the unit that multiplies, and access to arguments. Private to
 * csrc/work/aten. */
#ifndef FS_WORK_ATEN_MULTIPLY_H
#define FS_WORK_ATEN_MULTIPLY_H

#include "work/aten/aten.h"

/* Return the FLOPs of a multiply-add; a complex one takes four real ones. */
double fs_products_flops_each(unsigned dtype);

/* Return the number at a place: `absent` if the call has no such argument, NaN if the trace does not record it. */
double fs_products_number(const fs_torch_call *call, int place, double absent);

/* Return a flag as 1 or 0: 0 if the call has no such argument, NaN if the trace does not record it. */
double fs_products_flag(const fs_torch_call *call, int place);

/* Return the bytes of all tensors with dimensions at places from `from` up to `to`. */
double fs_products_read(const fs_torch_call *call, unsigned from, unsigned to);

#endif
