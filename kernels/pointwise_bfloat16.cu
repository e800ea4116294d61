#include "kernels/types.cuh"

typedef fs_bfloat16 S;
#define FS_SHORT_FTZ ""
#define FS_POINTWISE_TABLE fs_pointwise_bfloat16
#include "kernels/pointwise_table.inc"
