#include "kernels/convert.cuh"

FS_CONVERT_TO(int64)
FS_CONVERT_TO(int32)
FS_CONVERT_TO(int8)
FS_CONVERT_TO(uint8)
FS_CONVERT_TO(bool)
