#include "kernels/convert.cuh"

FS_CONVERT_TO(float8_e4m3fn)
FS_CONVERT_TO(float8_e5m2)
