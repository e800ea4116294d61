/* The CPU backend's pointwise functions: unary and binary ops, conversion, fill. Arguments as in ops/backend.h. */
#ifndef FS_OPS_CPU_CPU_H
#define FS_OPS_CPU_CPU_H

#include "ops/backend.h"

fs_status fs_cpu_unary(fs_device device, fs_unary_id op, const fs_elementwise *space, fs_error *err);
fs_status fs_cpu_binary(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err);
fs_status fs_cpu_convert(fs_device device, const fs_conversion *conversion, fs_error *err);

#endif
