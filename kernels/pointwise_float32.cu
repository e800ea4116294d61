#include "kernels/types.cuh"

typedef float S;
#define FS_POINTWISE_TABLE fs_pointwise_float32
#include "kernels/pointwise_table.inc"
