/* Window ops: pooling, resizing, padding, sampling. Sizes refer to the last dimensions, as many as the op's own sizes
 * have. */
#include <math.h>

#include "work/aten/elements.h"

enum { MAX_SPACE = 3 };

/* Read the last `count` sizes of a tensor; false if it has fewer. */
static bool space_of(const fs_torch_tensor *tensor, int count, double *sizes)
{
    if (tensor == NULL || count < 1 || count > MAX_SPACE || tensor->ndim < (uint32_t)count) return false;
    for (int i = 0; i < count; i++) sizes[i] = (double)tensor->shape[tensor->ndim - (uint32_t)count + (uint32_t)i];
    return true;
}

static double product(const double *values, int count)
{
    double all = 1;
    for (int i = 0; i < count; i++) all *= values[i];
    return all;
}

/* Return the product of the sizes before the last `count` dimensions: batch and channels. */
static double planes_of(const fs_torch_tensor *tensor, int count)
{
    double planes = 1;
    for (uint32_t i = 0; i + (uint32_t)count < tensor->ndim; i++) planes *= (double)tensor->shape[i];
    return planes;
}

/* Read a list of `count` numbers at a place; a single number applies to all, and `missing` is used if there is none. */
static void numbers_at(const fs_torch_call *call, unsigned place, int count, double missing, double *numbers)
{
    int present = fs_sizes_numbers(fs_sizes_text(call, place), numbers, count);
    for (int i = present < 1 ? 0 : present; i < count; i++) numbers[i] = present < 1 ? missing : numbers[0];
}

/* Return the number of dimensions of the sizes at a place; 0: none. */
static int dimensions_at(const fs_torch_call *call, unsigned place)
{
    double numbers[MAX_SPACE];
    int count = fs_sizes_numbers(fs_sizes_text(call, place), numbers, MAX_SPACE);
    return count < 0 ? 0 : count;
}

/* Return the number of window positions along one axis (torch's pooling_output_shape); in ceil mode including a last
 * one that overhangs but begins inside. */
static double positions(double size, double kernel, double stride, double padding, double dilation, bool ceiling)
{
    double room = size + 2 * padding - dilation * (kernel - 1) - 1;
    double count = (ceiling ? ceil(room / stride) : floor(room / stride)) + 1;
    return ceiling && (count - 1) * stride >= size + padding ? count - 1 : count;
}

/* Pooling of self to a number of elements; if the arguments do not give it (NaN), its gradient may. */
static fs_work pooled(const fs_aten_rule *rule, const fs_torch_call *call, const fs_torch_tensor *self, double elements,
                      double flops)
{
    if (isnan(elements) && call->output != NULL) elements = fs_sizes_elements(call->output);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every caller checks self */
    fs_work work = fs_sizes_work(fs_flops_of(1, flops, self->dtype), fs_sizes_read(self),
                                 fs_result_bytes(rule, elements, self->dtype), fs_unit_of_plain(self->dtype));
    if (isnan(elements)) work.needs = FS_NEEDS_GRADIENT;
    return work;
}

/* pool(self, kernel, stride, padding, dilation, ceil mode) over PLACE dimensions; averages (OF_MEANS) have no dilation.
 * Each element of each window is one FLOP, as in a reduction. AND_INDICES. */
fs_work fs_count_pool(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double sizes[MAX_SPACE], kernel[MAX_SPACE], stride[MAX_SPACE], padding[MAX_SPACE], dilation[MAX_SPACE];
    int count = (int)fs_option(rule, FS_PLACE);
    if (!space_of(self, count, sizes)) return fs_work_unknown;
    bool mean = fs_has(rule, FS_OF_MEANS), ceiling = fs_sizes_is_true(fs_sizes_text(call, mean ? 4 : 5));
    numbers_at(call, 1, count, NAN, kernel);
    numbers_at(call, 2, count, NAN, stride);
    numbers_at(call, 3, count, 0, padding);
    numbers_at(call, mean ? call->count : 4, count, 1, dilation);
    double elements = planes_of(self, count);
    for (int i = 0; i < count; i++) {
        if (isnan(stride[i])) stride[i] = kernel[i];
        elements *= positions(sizes[i], kernel[i], stride[i], padding[i], dilation[i], ceiling);
    }
    return pooled(rule, call, self, elements, elements * product(kernel, count));
}

/* Return the number of elements in all windows of adaptive pooling along an axis: window i of `count` is from
 * floor(i size / count) to ceil((i + 1) size / count). The floors add up to `size`; of the ends, those that no division
 * makes whole reach one further. */
static double in_windows(double size, double count)
{
    double a = size, b = count;
    while (b > 0) {
        double rest = fmod(a, b);
        a = b;
        b = rest;
    }
    return size + count - a; /* the greatest common divisor */
}

/* pool(self, output size): one FLOP for each element of each window. If PLACE, the place of the output size, is above
 * 1: pool(self, kernel, output size, …). */
fs_work fs_count_pool_to(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    unsigned place = fs_option(rule, FS_PLACE);
    int count = dimensions_at(call, place);
    double sizes[MAX_SPACE], result[MAX_SPACE], kernel[MAX_SPACE];
    if (self != NULL && count == 0 && place == 1) return pooled(rule, call, self, NAN, fs_sizes_elements(self));
    if (!space_of(self, count, sizes)) return fs_work_unknown;
    numbers_at(call, place, count, NAN, result);
    double elements = planes_of(self, count) * product(result, count), flops = planes_of(self, count);
    if (place > 1) {
        numbers_at(call, 1, count, NAN, kernel);
        flops = elements * product(kernel, count);
    } else {
        for (int i = 0; i < count; i++) flops *= in_windows(sizes[i], result[i]);
    }
    return pooled(rule, call, self, elements, flops);
}

/* backward(gradient, self, …): each element of the gradient is added to its source, `flops` times; for averages over a
 * kernel (OF_MEANS: at PLACE; 0: of adaptive pooling) as often as the kernel has elements. Only the shape of self is
 * used. AND_INDICES: the last tensor holds indices, which are read. */
fs_work fs_count_spread(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0), *self = fs_sizes_tensor(call, 1);
    if (gradient == NULL || self == NULL) return fs_work_unknown;
    double flops = fs_sizes_elements(gradient), read = fs_sizes_read(gradient), kernel[MAX_SPACE];
    unsigned place = fs_option(rule, FS_PLACE);
    int count = dimensions_at(call, place);
    if (fs_has(rule, FS_OF_MEANS) && place == 0) {
        flops = gradient->ndim == self->ndim ? 1 : (double)NAN;
        for (uint32_t i = 0; i < gradient->ndim && !isnan(flops); i++)
            flops *= in_windows((double)self->shape[i], (double)gradient->shape[i]);
    }
    if (fs_has(rule, FS_OF_MEANS) && place > 0) {
        numbers_at(call, place, count, NAN, kernel);
        flops *= count > 0 ? product(kernel, count) : (double)NAN;
    }
    for (unsigned i = 2; fs_has(rule, FS_AND_INDICES) && i < fs_inputs(rule, call); i++) {
        if (fs_sizes_tensor(call, i) == NULL) continue;
        read += fs_sizes_read(fs_sizes_tensor(call, i));
        break;
    }
    return fs_sizes_work(fs_flops_of(rule->flops, flops, self->dtype), read,
                         fs_sizes_elements(self) * fs_sizes_item(self->dtype), fs_unit_of_plain(self->dtype));
}

/* resize(self, output size, …): `flops` per element of the result; none for nearest neighbors. */
fs_work fs_count_resize(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    unsigned place = 1;
    bool scaled = *fs_sizes_text(call, place) == 0; /* without a size, factors are in a later list */
    if (scaled) {
        do place++;
        while (place < call->count && call->arguments[place].type != FS_TORCH_SCALAR_LIST);
    }
    int count = dimensions_at(call, place);
    double sizes[MAX_SPACE], result[MAX_SPACE];
    if (!space_of(self, count, sizes)) return fs_work_unknown;
    numbers_at(call, place, count, NAN, result);
    for (int d = 0; scaled && d < count; d++) result[d] = floor(result[d] * sizes[d]);
    double elements = planes_of(self, count) * product(result, count);
    return fs_sizes_work(fs_flops_of(rule->flops, elements, self->dtype), fs_sizes_read(self),
                         elements * fs_sizes_item(self->dtype), fs_unit_of_plain(self->dtype));
}

/* backward(gradient, output size, input size, …): `flops` per element of the gradient. */
fs_work fs_count_resize_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { MOST = MAX_SPACE + 2 };
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0);
    double sizes[MOST];
    int count = fs_sizes_numbers(fs_sizes_text(call, 2), sizes, MOST);
    if (gradient == NULL || count < 1) return fs_work_unknown;
    return fs_sizes_work(fs_flops_of(rule->flops, fs_sizes_elements(gradient), gradient->dtype),
                         fs_sizes_read(gradient), product(sizes, count) * fs_sizes_item(gradient->dtype),
                         fs_unit_of_plain(gradient->dtype));
}

/* pad(self, widths, …): before and after each axis, from the last axis on. */
fs_work fs_count_pad(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { MOST = 32 };
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double widths[MOST], elements = 1;
    int count = fs_sizes_numbers(fs_sizes_text(call, 1), widths, MOST);
    if (self == NULL || count < 0 || (uint32_t)count > 2 * self->ndim) return fs_work_unknown;
    for (uint32_t back = 1; back <= self->ndim; back++) {
        double size = (double)self->shape[self->ndim - back];
        int at = 2 * ((int)back - 1);
        elements *= at + 1 < count ? size + widths[at] + widths[at + 1] : size;
    }
    return fs_sizes_work(rule->flops, fs_sizes_read(self), elements * fs_sizes_item(self->dtype),
                         fs_unit_of_plain(self->dtype));
}

/* sample(input, grid, mode, …), with a grid of shape (N, *space, dimensions): `flops` per element of the result for the
 * linear mode (0), none for nearest neighbors (1), four times as many for cubic (2). */
static double sampled(const fs_aten_rule *rule, const fs_torch_call *call, const fs_torch_tensor *input,
                      const fs_torch_tensor *grid, double *each)
{
    double mode = fs_sizes_number(fs_sizes_text(call, fs_option(rule, FS_PLACE)), 0), points = 1;
    *each = mode == 1 ? 0 : mode == 2 ? 4 * rule->flops : rule->flops;
    if (input->ndim < 2) return NAN;
    for (uint32_t i = 0; i + 1 < grid->ndim; i++) points *= (double)grid->shape[i];
    return points * (double)input->shape[1];
}

fs_work fs_count_grid_sample(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0), *grid = fs_sizes_tensor(call, 1);
    if (input == NULL || grid == NULL) return fs_work_unknown;
    double each, elements = sampled(rule, call, input, grid, &each);
    return fs_sizes_work(fs_flops_of(each, elements, input->dtype), fs_sizes_read(input) + fs_sizes_read(grid),
                         elements * fs_sizes_item(input->dtype), fs_unit_of_plain(input->dtype));
}

/* backward(gradient, input, grid, …): the gradients of both. */
fs_work fs_count_grid_sample_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0), *input = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *grid = fs_sizes_tensor(call, 2);
    if (gradient == NULL || input == NULL || grid == NULL) return fs_work_unknown;
    double each, elements = sampled(rule, call, input, grid, &each);
    double both = fs_sizes_read(input) + fs_sizes_read(grid);
    return fs_sizes_work(fs_flops_of(2 * each, elements, input->dtype), fs_sizes_read(gradient) + both, both,
                         fs_unit_of_plain(input->dtype));
}

/* unfold(self, kernel, dilation, padding, stride): copies the windows of the last two dimensions. */
fs_work fs_count_unfold(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double sizes[2], kernel[2], dilation[2], padding[2], stride[2];
    if (!space_of(self, 2, sizes)) return fs_work_unknown;
    numbers_at(call, 1, 2, NAN, kernel);
    numbers_at(call, 2, 2, 1, dilation);
    numbers_at(call, 3, 2, 0, padding);
    numbers_at(call, 4, 2, 1, stride);
    double elements = planes_of(self, 2) * product(kernel, 2);
    for (int i = 0; i < 2; i++) elements *= positions(sizes[i], kernel[i], stride[i], padding[i], dilation[i], false);
    return fs_sizes_work(rule->flops, fs_sizes_read(self), elements * fs_sizes_item(self->dtype),
                         fs_unit_of_plain(self->dtype));
}

/* fold(self, output size, kernel, …): columns (N, C kernel, positions) summed into an image, one FLOP each. */
fs_work fs_count_fold(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double size[2], kernel[2];
    if (self == NULL || self->ndim < 2) return fs_work_unknown;
    numbers_at(call, 1, 2, NAN, size);
    numbers_at(call, 2, 2, NAN, kernel);
    double elements = planes_of(self, 1) / product(kernel, 2) * product(size, 2);
    return fs_sizes_work(fs_flops_of(rule->flops, fs_sizes_elements(self), self->dtype), fs_sizes_read(self),
                         elements * fs_sizes_item(self->dtype), fs_unit_of_plain(self->dtype));
}
