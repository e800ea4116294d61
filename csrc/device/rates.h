/* Peaks by formula: SMs × FLOP per clock per SM × clock. */
#ifndef FS_DEVICE_RATES_H
#define FS_DEVICE_RATES_H

#include "device/units.h"

/* Cards of the same compute capability differ in which share of their tensor cores is enabled, and AMD's numbers of
 * compute capability overlap NVIDIA's. X(NAME, name, description) */
#define FS_TENSOR_CLASS_LIST(X)                                                                             \
    X(FULL, full, "every type at full rate: data centre and workstation cards")                             \
    X(HALF_FLOAT, half_float, "floats that accumulate in float32 at half rate, int8 at full: GeForce")      \
    X(HALF, half, "floats that accumulate in float32 and int8 at half rate: A10G, L20, L40")                \
    X(LESS_DOUBLE, less_double, "float64 as on a GeForce card, every other type at full rate: H800")        \
    X(QUARTER, quarter, "every type of tensor core at a quarter of the full rate, hardly any float64: H20") \
    X(CDNA2, cdna2, "AMD's matrix cores of CDNA 2: MI200")                                                  \
    X(CDNA3, cdna3, "AMD's matrix cores of CDNA 3: MI300")                                                  \
    X(CDNA4, cdna4, "AMD's matrix cores of CDNA 4: MI350")

typedef enum {
#define FS_TENSOR_CLASS_ENUM(NAME, name, prose) FS_TENSOR_##NAME,
    FS_TENSOR_CLASS_LIST(FS_TENSOR_CLASS_ENUM)
#undef FS_TENSOR_CLASS_ENUM
        FS_TENSOR_CLASS_COUNT
} fs_tensor_class;

extern const char *const fs_tensor_class_names[FS_TENSOR_CLASS_COUNT];

typedef struct {
    int major, minor; /* compute capability */
    fs_tensor_class tensor_class;
    double per_clock[FS_UNIT_COUNT]; /* dense FLOP per clock per SM; NaN: no such unit, or unknown */
} fs_rates;

/* The row of that compute capability and class, or NULL: unknown ones are not extrapolated. */
const fs_rates *fs_rates_find(int major, int minor, fs_tensor_class tensor_class);

/* Compute the FLOP/s of sm_count SMs in flops[FS_UNIT_COUNT]; NaN if the rate is. Tensor units run at tensor_clock_mhz,
 * CUDA cores and float64 tensor cores at clock_mhz. For the peaks at an observed clock, pass it as both. */
void fs_rates_flops(const fs_rates *rates, int sm_count, double clock_mhz, double tensor_clock_mhz, double *flops);

#endif
