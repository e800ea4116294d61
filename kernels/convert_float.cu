#include "kernels/convert.cuh"

FS_CONVERT_TO(float64)
FS_CONVERT_TO(float32)
FS_CONVERT_TO(float16)
FS_CONVERT_TO(bfloat16)
