/* Ops on parts of their arguments, or with result sizes that follow from numbers. */
#include <math.h>

#include "work/aten/elements.h"

/* Pointwise work of this op alone: a loss is written before nested ops sum it; a scan reads its input as converted by a
 * nested op to the dtype of the result (LIKE). */
fs_work fs_count_apart(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_work work = fs_count_pointwise(rule, call);
    if (fs_option(rule, FS_LIKE) > 0) {
        work.bytes_read = work.bytes_written;
        work.bytes_moved = work.bytes_read + work.bytes_written;
    }
    work.apart = true;
    return work;
}

/* Return the sum of min(i, most) for i up to n. */
static double sum_up_to(double n, double most)
{
    if (n <= 0) return 0;
    return n <= most ? n * (n + 1) / 2 : most * (most + 1) / 2 + (n - most) * most;
}

/* Return the number of elements of a matrix on or below the diagonal. */
static double below(double rows, double columns, double diagonal)
{
    return sum_up_to(rows + diagonal, columns) - sum_up_to(diagonal, columns);
}

/* On or below the diagonal if PLACE is 0, on or above it if PLACE is 1. */
static double kept(const fs_aten_rule *rule, double rows, double columns, double diagonal)
{
    if (fs_option(rule, FS_PLACE) == 0) return below(rows, columns, diagonal);
    return rows * columns - below(rows, columns, diagonal - 1);
}

/* tril(self, diagonal): reads the part that is kept and writes everything; in place, writes only the other part.
 * PLACE. */
fs_work fs_count_triangle(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    if (self == NULL || self->ndim < 2) return fs_work_unknown;
    double rows = (double)self->shape[self->ndim - 2], columns = (double)self->shape[self->ndim - 1];
    double diagonal = call->count > 1 ? fs_sizes_number(fs_sizes_text(call, 1), NAN) : 0;
    double item = fs_sizes_item(self->dtype), all = fs_sizes_elements(self) * item;
    double part = rows * columns > 0 ? kept(rule, rows, columns, diagonal) / (rows * columns) : 0;
    fs_unit_choice unit = fs_unit_of_plain(self->dtype);
    if (isnan(part)) return fs_at_most(fs_sizes_work(0, all, all, unit));
    if (fs_is_in_place(rule)) return fs_sizes_work(0, 0, all * (1 - part), unit);
    return fs_sizes_work(0, all * part, all, unit);
}

/* tril_indices(rows, columns, diagonal, dtype): two numbers for each element of the triangle. PLACE. */
fs_work fs_count_triangle_indices(const fs_aten_rule *rule, const fs_torch_call *call)
{
    double rows = fs_sizes_number(fs_sizes_text(call, 0), NAN), columns = fs_sizes_number(fs_sizes_text(call, 1), NAN);
    double diagonal = call->count > 2 ? fs_sizes_number(fs_sizes_text(call, 2), NAN) : 0;
    unsigned dtype = fs_sizes_dtype_of(fs_sizes_text(call, 3));
    if (dtype == FS_TORCH_DTYPE_NONE) dtype = FS_TORCH_INT64;
    return fs_sizes_work(0, 0, 2 * kept(rule, rows, columns, diagonal) * fs_sizes_item(dtype), fs_unit_of_plain(dtype));
}

/* histc(self, bins at PLACE). */
fs_work fs_count_histogram(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    if (self == NULL) return fs_work_unknown;
    double bins = fs_sizes_number(fs_sizes_text(call, fs_option(rule, FS_PLACE)), NAN);
    return fs_sizes_work(0, fs_sizes_read(self), bins * fs_sizes_item(self->dtype), fs_unit_of_plain(self->dtype));
}

/* nonzero(self): for each nonzero element, one number per axis. With PLACE, the number of those elements is the
 * argument there. */
fs_work fs_count_nonzero(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    unsigned place = fs_option(rule, FS_PLACE);
    if (self == NULL) return fs_work_unknown;
    double found = place > 0 ? fs_sizes_number(fs_sizes_text(call, place), NAN) : fs_sizes_elements(self);
    fs_work work = fs_sizes_work(0, fs_sizes_read(self), found * self->ndim * fs_sizes_item(FS_TORCH_INT64),
                                 fs_unit_of_plain(self->dtype));
    return place > 0 ? work : fs_at_most(work);
}

/* masked_select(self, mask): at most as many elements as both broadcast to. */
fs_work fs_count_select(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0), *mask = fs_sizes_tensor(call, 1);
    if (self == NULL || mask == NULL) return fs_work_unknown;
    fs_work work = fs_count_pointwise(rule, call);
    return fs_at_most(fs_sizes_work(0, work.bytes_read, work.bytes_written, fs_unit_of_plain(self->dtype)));
}

/* unique(self, …): at most all elements, and for each of the ARGUMENTS flags from PLACE on that is set, an int64 per
 * element: inverse indices, counts. */
fs_work fs_count_unique(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    unsigned first = fs_option(rule, FS_PLACE), count = fs_option(rule, FS_ARGUMENTS);
    if (self == NULL) return fs_work_unknown;
    double each = fs_sizes_item(self->dtype);
    for (unsigned i = first; i < first + count; i++)
        if (fs_sizes_is_true(fs_sizes_text(call, i))) each += fs_sizes_item(FS_TORCH_INT64);
    double written = fs_sizes_elements(self) * each;
    return fs_at_most(fs_sizes_work(0, fs_sizes_read(self), written, fs_unit_of_plain(self->dtype)));
}

/* repeat_interleave(repeats, output size), the form that launches: it reads the repeats and their sums. */
fs_work fs_count_repeat(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *repeats = fs_sizes_tensor(call, 0);
    if (repeats == NULL || call->count > 2 || fs_sizes_tensor(call, 1) != NULL) return fs_count_moves(rule, call);
    double elements = fs_sizes_number(fs_sizes_text(call, 1), NAN);
    fs_work work = fs_sizes_work(0, 2 * fs_sizes_read(repeats), elements * fs_sizes_item(repeats->dtype),
                                 fs_unit_of_plain(repeats->dtype));
    work.apart = true;
    return work;
}

/* narrow_copy(self, axis, start, length). */
fs_work fs_count_narrow(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double axis = fs_sizes_number(fs_sizes_text(call, 1), NAN), length = fs_sizes_number(fs_sizes_text(call, 3), NAN);
    if (self == NULL) return fs_work_unknown;
    if (axis < 0) axis += self->ndim;
    if (!(axis >= 0 && axis < self->ndim) || self->shape[(int)axis] == 0) return fs_work_unknown;
    double bytes = fs_sizes_elements(self) / (double)self->shape[(int)axis] * length * fs_sizes_item(self->dtype);
    return fs_sizes_work(0, bytes, bytes, fs_unit_of_plain(self->dtype));
}

/* permute_2D_sparse_data(permutation, lengths [features, batch], values, weights, sum of lengths): reorders features,
 * possibly omitting or repeating some. If the sum is not recorded, the number of values is assumed unchanged. */
fs_work fs_count_permute(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *permutation = fs_sizes_tensor(call, 0), *lengths = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *values = fs_sizes_tensor(call, 2), *weights = fs_sizes_tensor(call, 3);
    if (permutation == NULL || lengths == NULL || values == NULL || lengths->ndim != 2) return fs_work_unknown;
    double sum = fs_sizes_number(fs_sizes_text(call, 4), NAN), each = fs_sizes_item(values->dtype);
    if (weights != NULL) each += fs_sizes_item(weights->dtype);
    double count = isnan(sum) ? fs_sizes_elements(values) : sum;
    double permuted = fs_sizes_elements(permutation) * (double)lengths->shape[1] * fs_sizes_item(lengths->dtype);
    double read = fs_sizes_read(permutation) + fs_sizes_read(lengths) + fmin(count, fs_sizes_elements(values)) * each;
    fs_work work = fs_sizes_work(0, read, permuted + count * each, fs_unit_of_plain(FS_TORCH_DTYPE_NONE));
    return isnan(sum) ? fs_at_most(work) : work;
}

/* Conversion to one-byte numbers with a one-byte scale per block; the block size is at PLACE. */
fs_work fs_count_blocks(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double block = fs_sizes_number(fs_sizes_text(call, fs_option(rule, FS_PLACE)), NAN);
    if (self == NULL || !(block >= 1)) return fs_work_unknown;
    double elements = fs_sizes_elements(self);
    return fs_sizes_work(fs_flops_of(rule->flops, elements, self->dtype), fs_sizes_read(self),
                         elements + elements / block, fs_unit_of_plain(self->dtype));
}

/* Reordering of scales for tensor cores, in padded tiles of 128 rows and 4 columns (cuBLAS, "1D block scaling factors
 * layout"). With PLACE, the place of group offsets, each group is padded separately, by an amount that the arguments do
 * not give. */
fs_work fs_count_swizzle(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *scales = fs_sizes_tensor(call, 0);
    unsigned place = fs_option(rule, FS_PLACE);
    if (scales == NULL || scales->ndim < 2) return fs_work_unknown;
    double rows = (double)scales->shape[scales->ndim - 2], columns = (double)scales->shape[scales->ndim - 1];
    if (!(rows * columns > 0)) return fs_work_unknown;
    const fs_torch_tensor *offsets = place > 0 ? fs_sizes_tensor(call, place) : NULL;
    double tiles = ceil(rows / 128) + (offsets != NULL ? fs_sizes_elements(offsets) : 0);
    double written = fs_sizes_elements(scales) / (rows * columns) * tiles * 128 * ceil(columns / 4) * 4;
    fs_work work = fs_sizes_work(0, fs_sizes_read(scales), written * fs_sizes_item(scales->dtype),
                                 fs_unit_of_plain(scales->dtype));
    return place > 0 ? fs_at_most(work) : work;
}
