/* Order statistics of samples. */
#ifndef FS_BASE_STATISTICS_H
#define FS_BASE_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Median and p95 interpolate linearly between the two nearest samples. */
typedef struct {
    double min, median, p95, max;
    double std; /* with n - 1 */
} fs_statistics;

/* All NaN for no sample, std NaN for one. Puts the samples in another order. */
fs_statistics fs_statistics_of(int64_t *samples, size_t count);

/* Their median alone. */
double fs_median_of(int64_t *samples, size_t count);

#endif
