/* What the rules for ops that multiply share: the unit that multiplies, and what they read of a call's arguments.
 * Private to csrc/work/aten. */
#ifndef FS_WORK_ATEN_MULTIPLY_H
#define FS_WORK_ATEN_MULTIPLY_H

#include "work/aten/aten.h"

/* The unit that multiplies numbers of a dtype: tensor cores where they take it. float32 may run as TF32, which only the
 * kernels that ran tell. */
fs_unit_choice fs_products_unit(unsigned dtype);

/* FLOPs of a multiply-add: a complex one is four of real numbers. */
double fs_products_flops_each(unsigned dtype);

/* The number at a place: `absent` where the call has no such argument, NaN where the trace does not tell it. */
double fs_products_number(const fs_torch_call *call, int place, double absent);

/* 1 or 0 of a flag; false where the call has no such argument, NaN where the trace does not tell it. */
double fs_products_flag(const fs_torch_call *call, int place);

/* Bytes of every tensor with dimensions from a place on, up to another. */
double fs_products_read(const fs_torch_call *call, unsigned from, unsigned to);

#endif
