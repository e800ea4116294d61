/* Math for the CPU loops: branch-free inline C that the compiler vectorises for any instruction set. Included by the
 * .inc files that isa_*.c compile once per instruction set.
 *
 *   vecmath_half.h   float16 and bfloat16 to and from float
 *   vecmath_f32.h    fs_exp_f32, fs_log_f32, …: about 1 ulp
 *   vecmath_f64.h    fs_exp_f64, fs_log_f64, …: about 1 ulp, erf 3
 *
 * Selects are `condition ? a : b` on values that are both computed, and a conditional never guards a load or a call, so
 * that loops vectorise. Integer steps are logical shifts, adds and compares only, which every vector instruction set
 * has for 32 and 64 bits. fs_sin and fs_cos are accurate only within FS_TRIG_LIMIT_F32 and FS_TRIG_LIMIT_F64; beyond
 * these the caller uses libm.
 */
#ifndef FS_OPS_CPU_VECMATH_H
#define FS_OPS_CPU_VECMATH_H

#include <math.h>
#include <stdint.h>

#include "ops/cpu/vecmath_half.h"

#include "ops/cpu/vecmath_f32.h"
#include "ops/cpu/vecmath_f64.h"

#endif
