/* Two kinds of intervals. That of a median of samples whose number was fixed is the bootstrap's, exact over all
 * resamples. That of a ratio is a confidence sequence: pairs are added until it is narrow enough, and each look at it
 * would err anew. Where successive samples are correlated, both count them as fewer samples. */
#include "base/confidence.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double middle_of(const double *ordered, size_t count)
{
    return (ordered[(count - 1) / 2] + ordered[count / 2]) / 2;
}

/* Of a sorted copy, which the caller frees. */
static fs_status sorted(const double *samples, size_t count, double **ordered, fs_error *err)
{
    *ordered = fs_malloc((count ? count : 1) * sizeof *samples);
    if (*ordered == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "out of memory for %zu samples", count);
    memcpy(*ordered, samples, count * sizeof *samples);
    return fs_sort(*ordered, count, sizeof *samples, compare_doubles, err);
}

/* The speed of a machine can change slowly compared with the length of a sample. Then the means of blocks of
 * successive samples vary more than those of shuffled samples (batch means; e.g. Alexopoulos and Seila, "Output data
 * analysis", 1998), and the sample size shrinks by that factor. The blocks contain the signs of samples, above or below
 * the median, since these determine the variance of the median. A factor below BY_CHANCE, which independent samples
 * exceed in one case of thirty (chi square with 9 degrees of freedom exceeds 9 * 2.0 in 3.5 % of cases), counts as 1.
 * So do blocks of a single sample. */
static size_t effective_size(const double *samples, size_t count, double median)
{
    enum { BLOCKS = 10 };
    const double BY_CHANCE = 2.0;
    size_t length = count / BLOCKS, signs = 0;
    double sums[BLOCKS] = {0}, mean = 0, squares = 0;
    if (length < 2) return count;
    for (size_t i = 0; i < count; i++) {
        int sign = (samples[i] > median) - (samples[i] < median);
        signs += sign != 0;
        if (i < length * BLOCKS) sums[i / length] += sign;
    }
    for (int i = 0; i < BLOCKS; i++) mean += sums[i] / BLOCKS;
    for (int i = 0; i < BLOCKS; i++) squares += (sums[i] - mean) * (sums[i] - mean);
    if (signs == 0) return count;
    double factor = squares / (BLOCKS - 1) / (double)length / ((double)signs / (double)count);
    if (factor < BY_CHANCE) return count;
    size_t fewer = (size_t)((double)count / factor);
    return fewer > 2 ? fewer : 2;
}

/* P(Binomial(n, p) >= m) for 0 < p < 1 and m >= 1. */
static double binomial_tail(size_t draws, double p, size_t least)
{
    double n = (double)draws, m = (double)least;
    double log_choices = lgamma(n + 1) - lgamma(m + 1) - lgamma(n - m + 1);
    double first = log_choices + m * log(p) + (n - m) * log1p(-p), term = 1, total = 1;
    for (size_t k = least; k < draws; k++) { /* terms relative to the first, which may be too small for a double */
        term *= (double)(draws - k) / (double)(k + 1) * p / (1 - p);
        total += term;
        if (term < 1e-17 * total) break;
    }
    return exp(fmin(first + log(total), 0));
}

/* The smallest k of 1 … n for which P(Binomial(n, k / n) >= m) reaches the probability. */
static size_t rank_of(size_t n, size_t m, double probability)
{
    size_t low = 1, high = n;
    while (low < high) {
        size_t k = (low + high) / 2;
        if (binomial_tail(n, (double)k / (double)n, m) >= probability) high = k;
        else low = k + 1;
    }
    return low;
}

/* The sample at a rank of 1 … n among n evenly spaced ones of all. */
static double at_rank(const double *ordered, size_t count, size_t n, size_t rank, double (*rounded)(double))
{
    return ordered[(size_t)rounded((double)(rank - 1) * ((double)(count - 1) / (double)(n - 1)))];
}

/* For odd n, the median of a resample is at most the k-th smallest sample if at least m = (n + 1) / 2 of its n draws
 * are, each with probability k / n: a tail of the binomial distribution (Efron, "Bootstrap methods", 1979, 3). For even
 * n, the lower of the two middle draws (m = n / 2) gives the lower end, and the upper one the upper end. */
fs_status fs_median_interval(const double *samples, size_t count, double confidence, fs_interval *found, fs_error *err)
{
    double *ordered, rest = (1 - confidence) / 2;
    fs_status status = sorted(samples, count, &ordered, err);
    *found = (fs_interval){NAN, NAN, NAN};
    if (status == FS_OK && count > 0) {
        found->value = middle_of(ordered, count);
        size_t n = effective_size(samples, count, found->value);
        if (n > 1) {
            found->low = at_rank(ordered, count, n, rank_of(n, (n + 1) / 2, rest), floor);
            found->high = at_rank(ordered, count, n, rank_of(n, n / 2 + 1, 1 - rest), ceil);
        }
    }
    fs_free(ordered);
    return status;
}

/* Half of the interval of a mean, in standard errors, that n looks at it together exceed with probability `rest`:
 * Student's t as a mixture over effects of variance EFFECTS, in standard deviations (Robbins' method of mixtures in the
 * form of Lai, "On confidence sequences", Annals of Statistics 4, 1976; this proper mixture in Wang and Ramdas,
 * "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance", Sequential Analysis 44,
 * 2025). A large EFFECTS serves few pairs. Infinite while n is too small. */
static double mixture_t(double n, double rest)
{
    const double EFFECTS = 30;
    double prior = 1 + n * EFFECTS, bound = pow(sqrt(prior) / rest, 2 / n);
    return bound < prior ? sqrt((n - 1) * (bound - 1) / (1 - bound / prior)) : INFINITY;
}

/* The fewest of n samples below a value for which that is no unlikely median: the number below the median is that of
 * heads of a fair coin. The mixture of the likelihoods of all coins by a beta distribution with both parameters 1/2,
 * over that of the fair one, exceeds 1 / rest at any n with probability `rest` (Ville's inequality; Howard and Ramdas,
 * "Sequential estimation of quantiles with applications to A/B testing and best-arm identification", Bernoulli 28,
 * 2022). It falls towards n / 2. */
static size_t least_below(size_t n, double rest)
{
    size_t low = 0, high = n / 2;
    while (low < high) {
        size_t k = (low + high) / 2;
        double other = (double)(n - k), below = (double)k;
        double mixture = lgamma(below + 0.5) + lgamma(other + 0.5) - lgamma((double)n + 1) - log(acos(-1.0));
        if (mixture + (double)n * log(2) < -log(rest)) high = k;
        else low = k + 1;
    }
    return low;
}

/* The narrower of two confidence sequences, each with half of the error, so that both hold at once. Where head is
 * slower by a constant factor, the logarithms are symmetric around it, which is their mean and their median. Student's
 * t needs few pairs, and widens with outliers; the ranks of the median need about ten, and no shape at all. Pairs that
 * are all equal prove nothing to the former. */
fs_status fs_ratio_interval(const double *ratios, size_t count, double confidence, fs_interval *found, fs_error *err)
{
    double *ordered, rest = (1 - confidence) / 2, mean = 0, squares = 0;
    fs_status status = sorted(ratios, count, &ordered, err);
    *found = (fs_interval){NAN, NAN, NAN};
    if (status == FS_OK && count > 0) {
        found->value = middle_of(ordered, count);
        size_t n = effective_size(ratios, count, found->value), below = least_below(n, rest);
        for (size_t i = 0; i < count; i++) mean += log(ratios[i]) / (double)count;
        for (size_t i = 0; i < count; i++) squares += (log(ratios[i]) - mean) * (log(ratios[i]) - mean);
        double half = mixture_t((double)n, rest) * sqrt(squares / (double)(count - 1) / (double)n);
        if (n > 1 && below > 0) {
            found->low = at_rank(ordered, count, n, below, floor);
            found->high = at_rank(ordered, count, n, n - below + 1, ceil);
        }
        if (n > 1 && isfinite(half) && half > 0 && !(2 * half >= log(found->high / found->low)))
            *found = (fs_interval){exp(mean), exp(mean - half), exp(mean + half)};
    }
    fs_free(ordered);
    return status;
}
