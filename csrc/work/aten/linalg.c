/* Matrix factorizations, solvers, eigenvalues and singular values. */
#include "work/aten/linalg.h"

#include <math.h>

#include "work/aten/products.h"
#include "work/aten/sizes.h"

static const struct {
    int matrix, right;
    double mn2, n3, n2k, written_mn, written_n2, written_nk;
} costs[] = {
#define COSTS(NAME, ...) [FS_FACTOR_##NAME] = {__VA_ARGS__},
    FS_FACTOR_LIST(COSTS)
#undef COSTS
};

/* Read a batch of matrices at a place; false if there is none. */
static bool matrices_at(const fs_torch_call *call, int place, const fs_torch_tensor **found, double *rows,
                        double *columns, double *batch)
{
    const fs_torch_tensor *a = *found = fs_sizes_tensor(call, (unsigned)place);
    if (a == NULL || a->ndim < 2) return false;
    *rows = (double)a->shape[a->ndim - 2];
    *columns = (double)a->shape[a->ndim - 1];
    *batch = 1;
    for (uint32_t d = 0; d + 2 < a->ndim; d++) *batch *= (double)a->shape[d];
    return true;
}

fs_work fs_count_factor(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option, right_at = costs[row].right;
    const fs_torch_tensor *a, *right = right_at < 0 ? NULL : fs_sizes_tensor(call, (unsigned)right_at);
    double rows, columns, batch;
    if (!matrices_at(call, costs[row].matrix, &a, &rows, &columns, &batch)) return fs_work_unknown;
    if (right_at >= 0 && right == NULL) return fs_work_unknown;
    double m = fmax(rows, columns), n = fmin(rows, columns);
    /* All right-hand sides, whether they share one matrix or each has its own. */
    double nk = right != NULL ? fs_sizes_elements(right) : 0;
    double flops = batch * (costs[row].mn2 * m * n * n + costs[row].n3 * n * n * n) + costs[row].n2k * n * nk;
    double elements =
        batch * (costs[row].written_mn * m * n + costs[row].written_n2 * n * n) + costs[row].written_nk * nk;
    double read = fs_sizes_read(a) + (right != NULL ? fs_sizes_read(right) : 0);
    return fs_sizes_work(fs_products_flops_each(a->dtype) / 2 * flops, read, elements * fs_sizes_item(a->dtype),
                         fs_unit_of_plain(a->dtype));
}

/* The algorithms iterate until convergence, so the FLOPs are unknown. The values and, if requested, the vectors are
 * written; both are complex for general matrices. */
fs_work fs_count_spectrum(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { FULL = 1, VECTORS = 2 };
    const fs_torch_tensor *a;
    double rows, columns, batch, vectors;
    if (!matrices_at(call, 0, &a, &rows, &columns, &batch)) return fs_work_unknown;
    bool is_complex = fs_torch_dtypes[a->dtype].kind == FS_TORCH_COMPLEX;
    double n = fmin(rows, columns), item = fs_sizes_item(a->dtype), real = is_complex ? item / 2 : item;
    double full = fs_products_flag(call, FULL);
    bool is_given = rule->option != FS_SPECTRUM_GENERAL && call->count > VECTORS;
    double wanted = is_given ? fs_products_flag(call, VECTORS) : 1;
    if (rule->option != FS_SPECTRUM_SINGULAR) vectors = n * n;
    else vectors = full * (rows * rows + columns * columns) + (1 - full) * n * (rows + columns);
    if (rule->option == FS_SPECTRUM_GENERAL) item = real = 2 * real;
    return fs_sizes_work(NAN, fs_sizes_read(a), batch * (n * real + (wanted == 0 ? 0 : wanted * vectors * item)),
                         fs_unit_of_plain(a->dtype));
}

/* Fourier transforms. */

/* Fourier transforms of n points: 5 n log2 n real operations by convention, half of that for real numbers (FFTW's
 * benchFFT, "mflops"). */
fs_work fs_count_fourier(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { MOST_DIMS = 16 };
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0);
    double dims[MOST_DIMS], points = 1, last = NAN, elements, written;
    int count = fs_sizes_numbers(fs_sizes_text(call, 1), dims, MOST_DIMS);
    if (input == NULL || count < 1) return fs_work_unknown;
    for (int i = 0; i < count; i++) {
        if (!(fabs(dims[i]) <= input->ndim)) return fs_work_unknown;
        if (!(fabs(dims[i]) <= input->ndim)) return fs_work_unknown;
        int dim = (int)dims[i] < 0 ? (int)dims[i] + (int)input->ndim : (int)dims[i];
        if (dim < 0 || dim >= (int)input->ndim) return fs_work_unknown;
        last = (double)input->shape[dim];
        points *= last;
    }
    elements = fs_sizes_elements(input);
    double item = fs_sizes_item(input->dtype);
    if (rule->option == 2) { /* half of the last axis, plus one */
        double whole = fs_sizes_number(fs_sizes_text(call, 3), NAN);
        elements *= whole / last;
        points *= whole / last;
        written = elements * item / 2;
    } else {
        bool half = rule->option == 1 && fs_sizes_is_true(fs_sizes_text(call, 3));
        written = (half ? elements / last * (floor(last / 2) + 1) : elements) * (rule->option == 1 ? 2 : 1) * item;
    }
    double flops = (rule->option == 0 ? 5 : 2.5) * elements * log2(fmax(points, 1));
    return fs_sizes_work(flops, fs_sizes_read(input), written, fs_unit_of_plain(input->dtype));
}
