/* The errors that elements of a result may have, and where a result exceeds them. Arrays are rows of `columns`. */
#ifndef FS_BASE_TOLERANCE_H
#define FS_BASE_TOLERANCE_H

#include <stdint.h>

/* What is known of the exact result. */
typedef struct {
    const double *values;         /* exact, as far as is known */
    const double *given;          /* as the reference has them in its dtype */
    const double *const *changed; /* `values` for inputs that differ by a rounding */
    int changed_count;
    int64_t rows, columns;
    double ulp; /* distance of 1 to the next number of the dtype */
} fs_exact;

/* Write the largest error that is allowed for each element, and what rounding the inputs once changes in it. */
void fs_tolerance(const fs_exact *exact, double *allowed, double *unit);

typedef struct {
    int64_t wrong; /* elements that exceed what is allowed */
    int64_t place; /* of the element that exceeds it most */
    double error;  /* there, over what is allowed; infinite where one alone is NaN or infinite */
} fs_deviation;

/* Compare a result with an exact one, whose non-finite elements must be met. */
fs_deviation fs_deviation_of(const fs_exact *exact, const double *allowed, const double *found);

#endif
