/* Fourier transforms. */
#include <math.h>

#include "work/aten/products.h"
#include "work/aten/sizes.h"

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
