#include "kernels/types.cuh"

typedef double S;
#define FS_POINTWISE_TABLE fs_pointwise_float64
#include "kernels/pointwise_table.inc"
