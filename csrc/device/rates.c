/* A row holds FLOP per clock and SM, by unit, for a compute capability and a class of tensor cores; rates.def has them.
 * NaN stays NaN in the product, so that a unit that the chip lacks has no peak. */
#include "device/rates.h"

#include <math.h>
#include <stddef.h>

const char *const fs_tensor_class_names[FS_TENSOR_CLASS_COUNT] = {
#define FS_TENSOR_CLASS_NAME(NAME, name, prose) #name,
    FS_TENSOR_CLASS_LIST(FS_TENSOR_CLASS_NAME)
#undef FS_TENSOR_CLASS_NAME
};

static const fs_rates all_rates[] = {
#define FS_RATES(major, minor, class, ...) {major, minor, FS_TENSOR_##class, {__VA_ARGS__}},
#include "device/rates.def"
#undef FS_RATES
};

const fs_rates *fs_rates_find(int major, int minor, fs_tensor_class tensor_class)
{
    for (size_t i = 0; i < sizeof all_rates / sizeof *all_rates; i++) {
        const fs_rates *rates = &all_rates[i];
        if (rates->major == major && rates->minor == minor && rates->tensor_class == tensor_class) return rates;
    }
    return NULL;
}

void fs_rates_flops(const fs_rates *rates, int sm_count, double clock_mhz, double tensor_clock_mhz, double *flops)
{
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) {
        double megahertz = fs_units[unit].tensor_clock ? tensor_clock_mhz : clock_mhz;
        flops[unit] = sm_count * rates->per_clock[unit] * megahertz * 1e6;
    }
}
