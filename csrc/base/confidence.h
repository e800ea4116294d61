/* Confidence intervals of medians and of ratios, from samples in the order of measurement, none of them NaN. */
#ifndef FS_BASE_CONFIDENCE_H
#define FS_BASE_CONFIDENCE_H

#include <stddef.h>

#include "base/status.h"

typedef struct {
    double value, low, high; /* NaN: unknown */
} fs_interval;

/* The median and its bootstrap percentile interval; NaN for one sample. For a number of samples fixed beforehand. */
fs_status fs_median_interval(const double *samples, size_t count, double confidence, fs_interval *found, fs_error *err);

/* The ratio of two times, by the positive ratios of pairs, and an interval that holds at any stop: with probability
 * `confidence`, all those of 1, 2, 3, … pairs contain it. NaN: too few pairs to exclude anything. */
fs_status fs_ratio_interval(const double *ratios, size_t count, double confidence, fs_interval *found, fs_error *err);

#endif
