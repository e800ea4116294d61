/* Fuzz target of the CPU ops on tensors of any layout. The input chooses an op, shapes, strides (dense, permuted,
 * negative, broadcast, overlapping), dtypes, whether arguments share memory, and in-place or out=. The result is that
 * of the op on dense copies, whose values are compared with NumPy's in tests/ops. Memory outside the output must not
 * change. The tests also run random inputs, on small tensors and on those of which threads compute parts. */
#include "base/parallel.h"
#include "ops/cpu/cpu.h"
#include "ops/op.h"
#include "tests/c/fuzz.h"

enum { MOST_NDIM = 5, SHARED_BYTES = 1 << 13 };

static const fs_device cpu = {FS_CPU, 0};

/* The input, read byte by byte; zeros follow its end. */
static struct {
    const uint8_t *at, *end;
} input;

static int choose(int below)
{
    return input.at < input.end ? *input.at++ % below : 0;
}

/* Of a tensor, before its last axis is made longer; how many times longer, and the axes of factors. */
static int64_t most_elements = 512, longer = 1, larger = 1;

/* Tensors ---------------------------------------------------------------------------------------------------------- */

/* The memory of a tensor: a block of its own, or the block that arguments share. */
typedef struct {
    char *bytes;
    size_t size;
} block;

static block shared;
static bool whole_numbers; /* an integer or bool dtype is involved: all values are 0 … 15 */

static void nothing(fs_storage *storage)
{
    (void)storage;
}

/* Convert dense elements. What the core converts, Python's tests compare with NumPy's conversions. */
static void convert(void *out, fs_dtype to, const void *in, fs_dtype from, int64_t count)
{
    fs_conversion all = {{.ndim = 1, .out = out, .in = {in}, .dtype = to, .count = count}, from};
    all.space.shape[0] = count;
    all.space.out_strides[0] = all.space.in_strides[0][0] = 1;
    FUZZ_CHECK(fs_cpu_convert(cpu, &all, NULL) == FS_OK, "%s to %s", fs_dtypes[from].name, fs_dtypes[to].name);
}

static void fill_block(block *of, fs_dtype dtype)
{
    int64_t count = (int64_t)(of->size / fs_dtypes[dtype].size);
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = whole_numbers ? (double)(random_bits() % 16) : (double)(random_bits() % 31) / 2 - 7.5;
        if (dtype == FS_BOOL) values[i] = (double)(random_bits() % 2);
    }
    if (count > 0) convert(of->bytes, dtype, values, FS_FLOAT64, count);
    free(values);
}

static int64_t offset_of(const fs_tensor *tensor, int64_t index)
{
    int64_t offset = 0;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        offset += index % tensor->shape[d] * tensor->strides[d];
        index /= tensor->shape[d];
    }
    return offset;
}

static double get(const fs_tensor *tensor, int64_t index)
{
    double value = 0;
    const char *at = (const char *)tensor->data + offset_of(tensor, index) * (int64_t)fs_dtypes[tensor->dtype].size;
    convert(&value, FS_FLOAT64, at, tensor->dtype, 1);
    return value;
}

static void choose_shape(int *ndim, int64_t *shape)
{
    static const int64_t sizes[] = {3, 1, 2, 4, 5, 7, 8, 16, 17, 33, 64, 100, 0};
    int64_t count = 1;
    *ndim = choose(MOST_NDIM + 1);
    for (int d = 0; d < *ndim; d++) {
        shape[d] = sizes[choose(13)];
        if (count * shape[d] > most_elements) shape[d] = 1;
        count *= shape[d] > 0 ? shape[d] : 1;
    }
    if (*ndim > 0) shape[*ndim - 1] *= longer;
}

static void choose_strides(int ndim, const int64_t *shape, int64_t *strides)
{
    int how = choose(5), order[FS_MAX_DIMS];
    for (int d = 0; d < ndim; d++) order[d] = ndim - 1 - d;
    for (int d = ndim - 1; how > 0 && d > 0; d--) {
        int other = choose(d + 1), held = order[d];
        order[d] = order[other];
        order[other] = held;
    }
    int64_t stride = how > 1 ? 1 + choose(3) : 1;
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        strides[d] = how > 2 && choose(3) == 0 ? -stride : stride;
        stride *= shape[d] > 0 ? shape[d] : 1;
        if (how > 2) stride += choose(4);
        if (how > 3) strides[d] = choose(24) - 8; /* may overlap or repeat elements */
    }
}

/* Compute the range of offsets, in elements, relative to element 0. */
static void span_of(int ndim, const int64_t *shape, const int64_t *strides, int64_t *low, int64_t *high)
{
    *low = 0;
    *high = 1;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 0) continue;
        int64_t reach = strides[d] * (shape[d] - 1);
        *(reach < 0 ? low : high) += reach;
    }
}

/* Return a tensor in the shared block, or in a block of exactly its size. */
static fs_tensor make_tensor(fs_dtype dtype, int ndim, const int64_t *shape, bool share, block *own)
{
    int64_t strides[FS_MAX_DIMS] = {0}, low, high, item = (int64_t)fs_dtypes[dtype].size;
    choose_strides(ndim, shape, strides);
    span_of(ndim, shape, strides, &low, &high);
    block *in = own;
    int64_t first = -low;
    *own = (block){NULL, 0};
    if (share && (high - low) * item <= (int64_t)shared.size) {
        int64_t most = (int64_t)shared.size / item - (high - low);
        int64_t moved = choose(16);
        in = &shared;
        first += moved < most ? moved : most;
    } else {
        own->size = (size_t)((high - low) * item);
        own->bytes = malloc(own->size);
        fill_block(own, dtype);
    }
    fs_tensor tensor;
    fs_error err;
    bool read_only = choose(64) == 63;
    fs_status status = fs_tensor_foreign(&tensor, dtype, cpu, ndim, shape, strides, in->bytes + first * item, read_only,
                                         nothing, NULL, &err);
    FUZZ_CHECK(status == FS_OK, "%s", err.message);
    return tensor;
}

/* Return whether two elements share an address. */
static bool overlaps_itself(const fs_tensor *tensor)
{
    int64_t low, high, count = fs_tensor_count(tensor);
    span_of(tensor->ndim, tensor->shape, tensor->strides, &low, &high);
    bool *taken = calloc((size_t)(high - low), 1), overlap = false;
    for (int64_t i = 0; i < count && !overlap; i++) {
        bool *place = &taken[offset_of(tensor, i) - low];
        overlap = *place;
        *place = true;
    }
    free(taken);
    return overlap;
}

/* Return a dense copy of a tensor in a block of exactly its size. */
static fs_tensor dense_copy(const fs_tensor *of)
{
    int64_t strides[FS_MAX_DIMS] = {0}, count = fs_tensor_count(of), item = (int64_t)fs_dtypes[of->dtype].size;
    char *bytes = malloc((size_t)(count * item));
    for (int64_t i = 0; i < count; i++)
        memcpy(bytes + i * item, (const char *)of->data + offset_of(of, i) * item, (size_t)item);
    for (int64_t d = of->ndim - 1, stride = 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= of->shape[d] > 0 ? of->shape[d] : 1;
    }
    fs_tensor copy;
    fs_error err;
    fs_status status =
        fs_tensor_foreign(&copy, of->dtype, cpu, of->ndim, of->shape, strides, bytes, false, nothing, NULL, &err);
    FUZZ_CHECK(status == FS_OK, "%s", err.message);
    return copy;
}

/* A call ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    fs_call call;
    fs_tensor tensors[4]; /* the inputs, then out */
    block blocks[4];
    int ndim; /* of the result */
    int64_t shape[FS_MAX_DIMS];
    fs_dtype dtype;
    bool in_place, has_out, random;
} trial;

static void add_input(trial *current, int at, fs_dtype dtype, int ndim, const int64_t *shape, bool share)
{
    current->tensors[at] = make_tensor(dtype, ndim, shape, share, &current->blocks[at]);
    current->call.in[at] = &current->tensors[at];
}

/* Choose a shape that broadcasts to `shape`: some axes become 1, some leading axes are dropped. */
static void choose_narrower(int ndim, const int64_t *shape, int *narrow_ndim, int64_t *narrow)
{
    int dropped = choose(3) == 0 ? choose(ndim + 1) : 0;
    *narrow_ndim = ndim - dropped;
    for (int d = dropped; d < ndim; d++) narrow[d - dropped] = choose(4) == 0 ? 1 : shape[d];
}

static void take_result(trial *current, fs_dtype dtype, int ndim, const int64_t *shape)
{
    current->dtype = dtype;
    current->ndim = ndim;
    memcpy(current->shape, shape, (size_t)ndim * sizeof *shape);
}

static void choose_second(trial *current, fs_dtype dtype, int ndim, const int64_t *shape, bool share)
{
    int narrow_ndim;
    int64_t narrow[FS_MAX_DIMS];
    if (current->call.op->form != FS_FORM_COPY_IN_PLACE && choose(4) == 0) {
        current->call.is_scalar[1] = true;
        current->call.scalar[1] = whole_numbers ? 2 : (double)choose(31) / 2 - 7.5;
        return;
    }
    choose_narrower(ndim, shape, &narrow_ndim, narrow);
    add_input(current, 1, dtype, narrow_ndim, narrow, share);
}

static void choose_factors(trial *current, fs_dtype dtype, int first, bool share)
{
    int ndim = 2 + choose(3), narrow_ndim;
    int64_t shape[FS_MAX_DIMS], other[FS_MAX_DIMS], k = choose(9) * larger, m = choose(9) * larger;
    int64_t n = choose(9) * larger;
    for (int d = 0; d < ndim - 2; d++) shape[d] = 1 + choose(4);
    choose_narrower(ndim - 2, shape, &narrow_ndim, other);
    other[narrow_ndim] = k, other[narrow_ndim + 1] = n;
    shape[ndim - 2] = m, shape[ndim - 1] = k;
    add_input(current, first, dtype, ndim, shape, share);
    add_input(current, first + 1, dtype, narrow_ndim + 2, other, share);
    shape[ndim - 1] = n;
    take_result(current, dtype, ndim, shape);
    if (first == 0) return;
    choose_narrower(ndim, shape, &narrow_ndim, other);
    add_input(current, 0, dtype, narrow_ndim, other, share);
}

/* What a form has besides one tensor of the chosen shape. */
static bool choose_rest(trial *current, fs_dtype dtype, int ndim, const int64_t *shape, bool share)
{
    fs_call *call = &current->call;
    fs_form form = call->op->form;
    switch (form) {
    case FS_FORM_BINARY:
    case FS_FORM_BINARY_IN_PLACE:
    case FS_FORM_COPY_IN_PLACE:
        choose_second(current, dtype, ndim, shape, share);
        return true;
    case FS_FORM_COPY:
        if (call->op->id == 0) return true;
        if (ndim < 2) return false;
        current->shape[ndim - 1] = shape[ndim - 2], current->shape[ndim - 2] = shape[ndim - 1];
        return true;
    case FS_FORM_REDUCE:
    case FS_FORM_VAR:
        if (form == FS_FORM_REDUCE && call->op->id == FS_ARGMAX) current->dtype = FS_INT64;
        call->over_everything = ndim == 0 || choose(2);
        call->keepdims = choose(2);
        for (int d = call->over_everything ? 0 : ndim - 1; d < ndim; d++) current->shape[d] = 1;
        if (!call->keepdims) current->ndim = call->over_everything ? 0 : ndim - 1;
        return true;
    case FS_FORM_LAYER_NORM:
    case FS_FORM_RMS_NORM:
        if (choose(2)) add_input(current, 1, dtype, 1, &shape[ndim - 1], share);
        if (form == FS_FORM_LAYER_NORM && choose(2)) add_input(current, 2, dtype, 1, &shape[ndim - 1], share);
        return true;
    default:
        return true;
    }
}

/* Choose valid arguments for the op and set the shape of the result. Return false for ops outside this target. */
static bool choose_arguments(trial *current)
{
    static const fs_dtype floats[] = {FS_FLOAT32, FS_FLOAT64, FS_FLOAT16, FS_BFLOAT16};
    fs_call *call = &current->call;
    fs_form form = call->op->form;
    bool casts = form == FS_FORM_CAST || form == FS_FORM_COPY_IN_PLACE, along = false;
    bool creates = form == FS_FORM_CREATE || form == FS_FORM_CREATE_FULL;
    bool moves = casts || creates || form == FS_FORM_COPY || form == FS_FORM_FILL_IN_PLACE;
    current->random = (form == FS_FORM_CREATE && call->op->id >= 2) || form == FS_FORM_RANDOM_IN_PLACE;
    fs_dtype dtype = moves && !current->random ? (fs_dtype)choose(FS_DTYPE_COUNT) : floats[choose(4)], to = dtype;
    if (casts) to = (fs_dtype)choose(FS_DTYPE_COUNT);
    bool share = choose(3) == 0 && to == dtype;
    whole_numbers = !fs_dtype_is_float(dtype) || !fs_dtype_is_float(to);
    random_state = 88172645463325252u + (uint64_t)choose(256);
    if (share) fill_block(&shared, dtype);
    int ndim;
    int64_t shape[FS_MAX_DIMS] = {0};
    choose_shape(&ndim, shape);
    take_result(current, to, ndim, shape);
    call->dtype = to;
    call->device = cpu;
    call->eps = 1e-5;
    switch (form) {
    case FS_FORM_MATMUL:
    case FS_FORM_ADDMM:
        choose_factors(current, dtype, form == FS_FORM_ADDMM, share);
        break;
    case FS_FORM_CREATE:
    case FS_FORM_CREATE_FULL:
        call->ndim = ndim;
        memcpy(call->shape, shape, sizeof shape);
        break;
    case FS_FORM_CUMSUM:
    case FS_FORM_SOFTMAX:
    case FS_FORM_LAYER_NORM:
    case FS_FORM_RMS_NORM:
        along = true;
        /* fallthrough */
    default:
        if (along && ndim == 0) return false;
        add_input(current, 0, form == FS_FORM_COPY_IN_PLACE ? to : dtype, ndim, shape, share);
        if (!choose_rest(current, dtype, ndim, shape, share)) return false;
    }
    if (form == FS_FORM_CREATE_FULL || form == FS_FORM_FILL_IN_PLACE || form == FS_FORM_RANDOM_IN_PLACE) {
        call->is_scalar[1] = true;
        call->scalar[1] = choose(2);
        call->is_scalar[2] = form == FS_FORM_RANDOM_IN_PLACE;
        call->scalar[2] = 3;
    }
    current->in_place = strchr(call->op->name, 0)[-1] == '_';
    current->has_out = !current->in_place && choose(2);
    if (current->has_out) {
        current->tensors[3] = make_tensor(current->dtype, current->ndim, current->shape, share, &current->blocks[3]);
        call->out = &current->tensors[3];
    }
    return true;
}

/* Run the call on dense copies of its inputs, without out=. The caller releases the result and the copies. */
static fs_status run_dense(const trial *current, fs_tensor copies[3], fs_tensor *result)
{
    fs_call call = current->call;
    call.out = NULL;
    for (int i = 0; i < 3; i++) {
        if (call.in[i] == NULL) continue;
        copies[i] = dense_copy(call.in[i]);
        call.in[i] = &copies[i];
    }
    return fs_op_run(&call, result, NULL);
}

/* The error allowed where the order of a sum depends on the layout, in units of the dtype's precision. */
static double slack_of(const fs_call *call)
{
    switch (call->op->form) {
    case FS_FORM_REDUCE:
    case FS_FORM_VAR:
    case FS_FORM_CUMSUM:
    case FS_FORM_SOFTMAX:
    case FS_FORM_LAYER_NORM:
    case FS_FORM_RMS_NORM:
    case FS_FORM_MATMUL:
    case FS_FORM_ADDMM:
        return 1000 + 8 * (double)fs_tensor_count(call->in[0]);
    default:
        return 0;
    }
}

static void check_result(const trial *current, const fs_tensor *result, const fs_tensor *want)
{
    static const double precision[] = {[FS_FLOAT64] = 0x1p-50, [FS_FLOAT32] = 0x1p-21,      [FS_FLOAT16] = 0x1p-10,
                                       [FS_BFLOAT16] = 0x1p-7, [FS_FLOAT8_E4M3FN] = 0x1p-4, [FS_FLOAT8_E5M2] = 0x1p-3,
                                       [FS_DTYPE_COUNT] = 0};
    const char *op = current->call.op->name, *dtype = fs_dtypes[current->dtype].name;
    bool rounds = fs_dtype_is_float(current->dtype) || fs_dtype_is_float8(current->dtype);
    double slack = slack_of(&current->call), compute = !rounds ? 0 : current->dtype == FS_FLOAT64 ? 0x1p-50 : 0x1p-21;
    FUZZ_CHECK(result->dtype == current->dtype && result->ndim == current->ndim, "%s", op);
    for (int64_t i = 0; i < fs_tensor_count(result); i++) {
        double got = get(result, i), exact = get(want, i);
        if (current->random) {
            FUZZ_CHECK(isfinite(got), "%s: element %lld: %g", op, (long long)i, got);
            continue;
        }
        double error = precision[current->dtype] * fabs(exact) + compute * (4 + slack + 8 * fabs(exact));
        /* A value at the end of the dtype's range may round either way. */
        double most = current->dtype == FS_FLOAT16 ? 65504 : 3.38e38;
        bool right = isnan(exact) ? isnan(got) : got == exact || fabs(got - exact) <= error;
        if (isinf(got) || isinf(exact))
            right = fmin(fabs(got), fabs(exact)) > 0.99 * most && signbit(got) == signbit(exact);
        FUZZ_CHECK(right, "%s %s: element %lld: %.9g, not %.9g", op, dtype, (long long)i, got, exact);
    }
}

/* Check that bytes of a block outside the tensor's elements are unchanged. */
static void check_rest(const block *after, const char *before, const fs_tensor *tensor)
{
    if (after->bytes == NULL) return;
    bool *written = calloc(after->size + 1, 1);
    size_t item = fs_dtypes[tensor != NULL ? tensor->dtype : FS_FLOAT32].size;
    for (int64_t i = 0; tensor != NULL && i < fs_tensor_count(tensor); i++) {
        const char *element = (const char *)tensor->data + offset_of(tensor, i) * (int64_t)item;
        if (element < after->bytes || element >= after->bytes + after->size) break; /* the tensor is in another block */
        memset(written + (element - after->bytes), 1, item);
    }
    for (size_t i = 0; i < after->size; i++) {
        FUZZ_CHECK(written[i] || after->bytes[i] == before[i], "byte %zu of %zu changed", i, after->size);
    }
    free(written);
}

static char *copy_of(const block *from)
{
    char *copy = malloc(from->size + 1);
    if (from->bytes != NULL) memcpy(copy, from->bytes, from->size);
    return copy;
}

/* Return whether the call must fail: the output is read-only or overlaps itself, or an extreme is that of an empty
 * axis. */
static bool must_fail(const trial *current, const fs_tensor *target)
{
    const fs_call *call = &current->call;
    int id = call->op->id;
    if (call->op->form == FS_FORM_REDUCE && (id == FS_AMAX || id == FS_AMIN || id == FS_ARGMAX)) {
        const fs_tensor *x = call->in[0];
        if (call->over_everything ? fs_tensor_count(x) == 0 : x->shape[x->ndim - 1] == 0) return true;
    }
    return target != NULL && (target->storage->read_only || overlaps_itself(target));
}

static void run_trial(trial *current)
{
    fs_tensor *target = current->in_place ? &current->tensors[0] : current->has_out ? &current->tensors[3] : NULL;
    fs_tensor result, want, copies[3] = {{.data = NULL}};
    fs_error err = {.message = ""};
    char *before[5];
    for (int i = 0; i < 4; i++) before[i] = copy_of(&current->blocks[i]);
    before[4] = copy_of(&shared);
    bool fails = must_fail(current, target), known = !fails && run_dense(current, copies, &want) == FS_OK;
    fs_status status = fs_op_run(&current->call, &result, &err);
    FUZZ_CHECK(status == FS_OUT_OF_MEMORY || (status != FS_OK) == fails, "%s: %s", current->call.op->name, err.message);
    const fs_tensor *changed = status == FS_OK ? target : NULL;
    for (int i = 0; i < 4; i++)
        check_rest(&current->blocks[i], before[i], changed == &current->tensors[i] ? changed : NULL);
    check_rest(&shared, before[4], changed);
    if (status == FS_OK) {
        if (known) check_result(current, &result, &want);
        fs_tensor_release(&result);
    }
    if (known) fs_tensor_release(&want);
    for (int i = 0; i < 3; i++) {
        free(copies[i].data);
        fs_tensor_release(&copies[i]);
    }
    for (int i = 0; i < 5; i++) free(before[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char bytes[SHARED_BYTES];
    shared = (block){bytes, sizeof bytes};
    FS_IGNORE(fs_parallel_set_threads(3, NULL));
    memset(bytes, 0, sizeof bytes);
    input.at = data;
    input.end = data + size;
    trial current = {.call = {.op = &fs_ops[choose(fs_op_count)]}};
    if (choose_arguments(&current)) run_trial(&current);
    for (int i = 0; i < 4; i++) {
        fs_tensor_release(&current.tensors[i]);
        free(current.blocks[i].bytes);
    }
    return 0;
}

CORPORA("fuzz/corpus/ops")

static void run_random_inputs(int count)
{
    uint64_t seed = 88172645463325252u;
    uint8_t bytes[64];
    for (int i = 0; i < count; i++) {
        random_state = seed;
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)random_below(256);
        bytes[0] = (uint8_t)(i % fs_op_count);
        seed = random_bits();
        LLVMFuzzerTestOneInput(bytes, sizeof bytes);
    }
}

TEST(random_calls)
{
    run_random_inputs(3000);
}

TEST(random_calls_of_large_tensors)
{
    most_elements = 128, longer = 701, larger = 17;
    run_random_inputs(2 * fs_op_count);
    most_elements = 512, longer = larger = 1;
}
