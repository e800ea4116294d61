/* What an element of a result may be off by follows from what the exact result moves by if the inputs are rounded: a
 * kernel that is as good as its dtype allows is off by about as much. docs/checking.md has the formula in words. */
#include "base/tolerance.h"

#include <float.h>
#include <math.h>

#include "base/lock.h"
#include "base/parallel.h"

static const double OUTPUT_ULPS = 4; /* of an element, as results are rounded themselves */
static const double ROW_ULPS = 4;    /* of the typical element of its row, as what is added up before is rounded too */
/* Times what rounding the inputs once changes: another order of a sum of n terms differs by about the root of n. */
static const double ROUNDINGS = 64;
static const double SHARED = 0.5;      /* of what a rounding changes in a row, the least in each element */
static const double OF_REFERENCE = 4;  /* times the error of the reference itself in the dtype … */
static const double MOST = 1.0 / 16.0; /* … but no more than this part of an element and of a typical one */

enum { PIECE = 1 << 16 /* elements for a thread */ };

typedef struct {
    const fs_exact *exact;
    double *allowed, *unit;
    const double *found;
    fs_lock lock;
    /* Of all elements: the largest error of the reference over what is allowed, the squares of the finite ones. */
    double own, squares;
    int64_t finite;
    fs_deviation deviation;
} comparison;

static int64_t rows_of_piece(const fs_exact *exact)
{
    return exact->columns >= PIECE ? 1 : PIECE / (exact->columns > 0 ? exact->columns : 1);
}

/* Return the root mean square of the finite elements of a row. */
static double typical_of(const double *values, int64_t count)
{
    double squares = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        finite++;
        squares += values[i] * values[i];
    }
    return finite > 0 ? sqrt(squares / (double)finite) : 0;
}

/* Return the mean square of what rounding changes in a row, whose roots go to unit. */
static double add_units(const fs_exact *exact, int64_t first, double *unit)
{
    double sum = 0;
    for (int64_t i = first; i < first + exact->columns; i++) {
        double squares = 0;
        for (int k = 0; k < exact->changed_count; k++) {
            double moved = exact->changed[k][i] - exact->values[i];
            squares += moved * moved;
        }
        squares /= exact->changed_count > 0 ? exact->changed_count : 1;
        if (!isfinite(squares)) squares = 0;
        sum += squares;
        unit[i] = sqrt(squares);
    }
    return sum / (double)exact->columns;
}

static void tolerate_rows(void *context, int64_t begin, int64_t end)
{
    comparison *of = context;
    const fs_exact *exact = of->exact;
    double own = 0, squares = 0, smallest = exact->ulp < FLT_EPSILON ? DBL_MIN : FLT_MIN;
    int64_t finite = 0;
    for (int64_t row = begin; row < end; row++) {
        int64_t first = row * exact->columns;
        double least = SHARED * sqrt(add_units(exact, first, of->unit));
        double always = smallest + ROW_ULPS * exact->ulp * typical_of(exact->values + first, exact->columns);
        for (int64_t i = first; i < first + exact->columns; i++) {
            double value = exact->values[i];
            bool known = isfinite(value);
            of->unit[i] = fmax(of->unit[i], least);
            of->allowed[i] = always + ROUNDINGS * of->unit[i] + (known ? OUTPUT_ULPS * exact->ulp * fabs(value) : 0);
            if (!known) continue;
            finite++;
            squares += value * value;
            double error = fabs(exact->given[i] - value) / of->allowed[i];
            if (isfinite(exact->given[i]) && error > own) own = error;
        }
    }
    fs_lock_take(&of->lock);
    of->own = fmax(of->own, own);
    of->squares += squares;
    of->finite += finite;
    fs_lock_give(&of->lock);
}

static void allow_errors_of_reference(void *context, int64_t begin, int64_t end)
{
    comparison *of = context;
    const fs_exact *exact = of->exact;
    double typical = of->finite > 0 ? sqrt(of->squares / (double)of->finite) : 0;
    for (int64_t i = begin * exact->columns; i < end * exact->columns; i++) {
        double most = MOST * (fabs(exact->values[i]) + typical);
        if (isfinite(most)) of->allowed[i] = fmax(of->allowed[i], fmin(of->allowed[i] * OF_REFERENCE * of->own, most));
    }
}

void fs_tolerance(const fs_exact *exact, double *allowed, double *unit)
{
    comparison of = {.exact = exact, .allowed = allowed, .unit = unit};
    fs_parallel_for(exact->rows, rows_of_piece(exact), tolerate_rows, &of);
    fs_parallel_for(exact->rows, rows_of_piece(exact), allow_errors_of_reference, &of);
}

/* float64 does not overflow where the dtype does. */
static bool is_met(double found, double value, double given)
{
    return found == value || found == given || (isnan(found) && (isnan(value) || isnan(given)));
}

static void compare_rows(void *context, int64_t begin, int64_t end)
{
    comparison *of = context;
    const fs_exact *exact = of->exact;
    fs_deviation most = {0, -1, -1};
    for (int64_t i = begin * exact->columns; i < end * exact->columns; i++) {
        double found = of->found[i], value = exact->values[i], error;
        if (isfinite(found) && isfinite(value)) error = fabs(found - value) / of->allowed[i];
        else error = is_met(found, value, exact->given[i]) ? 0 : INFINITY;
        most.wrong += error > 1;
        if (error > most.error) most.error = error, most.place = i;
    }
    fs_lock_take(&of->lock);
    of->deviation.wrong += most.wrong;
    bool first = most.error == of->deviation.error && most.place < of->deviation.place;
    if (most.error > of->deviation.error || first) of->deviation.error = most.error, of->deviation.place = most.place;
    fs_lock_give(&of->lock);
}

fs_deviation fs_deviation_of(const fs_exact *exact, const double *allowed, const double *found)
{
    comparison of = {.exact = exact, .allowed = (double *)allowed, .found = found, .deviation = {0, -1, -1}};
    fs_parallel_for(exact->rows, rows_of_piece(exact), compare_rows, &of);
    return of.deviation;
}
