#include "kernels/types.cuh"

typedef fs_float16 S;
#define FS_SHORT_FTZ ".ftz"
#define FS_POINTWISE_TABLE fs_pointwise_float16
#include "kernels/pointwise_table.inc"
