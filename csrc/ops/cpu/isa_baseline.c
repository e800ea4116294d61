/* The CPU loops for the compiler's default target: SSE2 on x86-64. */
#include "ops/cpu/isa.h"

#define FS_ISA baseline
#define FS_ISA_LEVEL 0

#include "ops/cpu/pointwise_loops.inc"
#include "ops/cpu/rows_loops.inc"
