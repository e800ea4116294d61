/* FLOPs and bytes of flopscope's own ops, from the op table's rule and the recorded arguments. An input that shares its
 * memory with an earlier one is read once, and axes of stride 0 count one element. Unknown is NaN; 0 says that there is
 * no such work. */
#include "work/work.h"

#include <math.h>
#include <string.h>

#include "ops/op.h"

const fs_work fs_work_unknown = {
    .flops = NAN,
    .bytes_read = NAN,
    .bytes_written = NAN,
    .bytes_moved = NAN,
    .list_elements = NAN,
    .item = NAN,
    .most_read = NAN,
    .unit = {FS_UNIT_NONE, FS_UNIT_NONE},
};

/* NaN without an argument. */
static double element_count(const fs_argument *argument)
{
    if (argument == NULL) return NAN;
    double count = 1;
    for (int d = 0; d < argument->ndim; d++) count *= (double)argument->shape[d];
    return count;
}

/* Return the bytes of the elements with distinct memory: a broadcast axis (stride 0) counts one. NaN if unknown. */
static double distinct_bytes(const fs_argument *argument)
{
    double count = element_count(argument);
    if (argument->strides != NULL) {
        int64_t distinct = fs_distinct_count(argument->ndim, argument->shape, argument->strides);
        count = distinct == FS_COUNT_UNKNOWN ? (double)NAN : (double)distinct;
    }
    return count * (double)fs_dtypes[argument->dtype].size;
}

static void count_bytes(const fs_signature *signature, fs_work *work)
{
    work->bytes_read = work->bytes_written = 0;
    for (int i = 0; i < signature->argument_count; i++) {
        const fs_argument *argument = &signature->arguments[i];
        bool reads = argument->role == FS_ARGUMENT_IN || argument->role == FS_ARGUMENT_INOUT;
        bool writes = argument->role != FS_ARGUMENT_IN && argument->role != FS_ARGUMENT_SCALAR;
        bool read_before =
            argument->same_as != FS_SAME_AS_NONE && signature->arguments[argument->same_as].role != FS_ARGUMENT_TARGET;
        if (reads && !read_before) work->bytes_read += distinct_bytes(argument);
        if (writes) work->bytes_written += distinct_bytes(argument);
    }
    work->bytes_moved = work->bytes_read + work->bytes_written;
}

/* The first and the last argument read, and the one written. */
typedef struct {
    const fs_argument *first, *last, *written;
    int affine; /* arguments read after the first: weight, bias */
} arguments;

static arguments sort_arguments(const fs_signature *signature)
{
    arguments found = {NULL, NULL, NULL, 0};
    for (int i = 0; i < signature->argument_count; i++) {
        const fs_argument *argument = &signature->arguments[i];
        if (argument->role != FS_ARGUMENT_IN) {
            if (argument->role != FS_ARGUMENT_SCALAR) found.written = argument;
            if (argument->role != FS_ARGUMENT_INOUT) continue;
        }
        if (found.first != NULL) found.affine++;
        if (found.first == NULL) found.first = argument;
        found.last = argument;
    }
    return found;
}

static double count_flops(const fs_op *op, arguments tensors)
{
    switch (op->flops) {
    case FS_FLOPS_PER_OUTPUT:
        return op->flops_each * element_count(tensors.written);
    case FS_FLOPS_PER_INPUT:
        return (op->flops_each + tensors.affine) * element_count(tensors.first);
    case FS_FLOPS_MATMUL: /* m n elements of k multiply-adds each; k is the number of rows of the second factor */
        if (tensors.last == NULL) return NAN;
        return op->flops_each * element_count(tensors.written) * (double)tensors.last->shape[tensors.last->ndim - 2];
    case FS_FLOPS_NONE:
        break;
    }
    return 0;
}

fs_work fs_work_of(const char *name, const fs_signature *signature)
{
    const size_t namespace = sizeof FS_OP_NAMESPACE - 1;
    if (signature->argument_count == 0 || strncmp(name, FS_OP_NAMESPACE, namespace) != 0) return fs_work_unknown;
    const fs_op *op = fs_op_find(name + namespace);
    if (op == NULL) return fs_work_unknown;
    arguments tensors = sort_arguments(signature);
    if (tensors.written == NULL) return fs_work_unknown;
    fs_work work = {.flops = count_flops(op, tensors)};
    count_bytes(signature, &work);
    bool is_matmul = op->flops == FS_FLOPS_MATMUL; /* whose factors may be narrower than the product */
    const fs_argument *computed = is_matmul && tensors.last != NULL ? tensors.last : tensors.written;
    work.unit = fs_unit_choose((fs_dtype)computed->dtype, is_matmul, (signature->flags & FS_SIGNATURE_TF32) != 0,
                               (fs_device_kind)signature->device_kind);
    return work;
}

fs_work fs_work_stated(const fs_given_work *declared)
{
    fs_work work = fs_work_unknown;
    work.flops = declared->flops;
    work.bytes_moved = declared->bytes;
    work.unit.preferred = work.unit.fallback = fs_unit_find(declared->unit);
    work.at_most = declared->launch == FS_LAUNCH_AT_MOST;
    work.stated = !work.at_most;
    if (declared->launch != FS_LAUNCH_NONE) work.needs = FS_NEEDS_KERNELS; /* a rule for its kernel comes first */
    return work;
}
