/* Matrix products by cuBLASLt. FLOPS 2 m n k, BYTES of both inputs and the output.
 * https://docs.nvidia.com/cuda/cublas/#cublasltmatmul lists the dtypes and their layouts.
 *
 * cuBLASLt's matrices are column-major: the row-major out = a · b is its outᵀ = bᵀ · aᵀ, with b as its A and a as its
 * B. The plan of a product (descriptors, and the algorithm that cuBLASLt's heuristic chose) is cached by problem, so
 * that repeated products skip the heuristic.
 */
#include <pthread.h>
#include <string.h>

#include "kernels/cublaslt.h"

enum {
    PLANS = 256, /* per device; one per slot, the latest replaces the previous */
    WORKSPACE_BYTES = 32 << 20,
    CHOICES = 64 /* algorithms to ask the heuristic for at most */
};

/* Everything that the choice depends on. Compared as bytes, so it is zeroed before it is filled in. */
typedef struct {
    int64_t m, n, k, batch;
    int64_t a_ld, b_ld, out_ld, a_batch, b_batch, out_batch;
    uint32_t a_alignment, b_alignment, out_alignment;
    int32_t a_dtype, b_dtype, dtype, a_transposed, b_transposed;
    int32_t allow_tf32, fast_accumulation, accumulate, choice;
} problem;

typedef struct {
    problem key;
    bool ready;
    fs_lt_desc desc;
    fs_lt_layout a, b, out; /* cuBLASLt's A, B and C */
    fs_lt_algorithm algorithm;
    size_t workspace;
} plan;

typedef struct {
    pthread_mutex_t lock; /* held during a product: it guards the plans */
    fs_lt_handle handle;
    plan plans[PLANS];
} state;

static state states[FS_CUDA_MAX_DEVICES];

static void make_locks(void)
{
    for (int i = 0; i < FS_CUDA_MAX_DEVICES; i++) pthread_mutex_init(&states[i].lock, NULL);
}

static fs_status lt_fail(const fs_cublaslt *lt, int status, const fs_matmul *matmul, fs_device device,
                         const char *doing, fs_error *err)
{
    char where[16];
    cudaGetLastError();
    return fs_fail(err, FS_RUNTIME_ERROR,
                   "cuBLASLt failed while %s for a product of %s, m %lld, n %lld, k %lld, batch %lld, on %s: %s (%d)",
                   doing, fs_dtypes[matmul->a_dtype].name, (long long)matmul->m, (long long)matmul->n,
                   (long long)matmul->k, (long long)matmul->batch, fs_device_text(device, where),
                   lt->status_name(status), status);
}

/* The largest power of two up to 256 that divides the address. */
static uint32_t alignment_of(const void *data)
{
    uintptr_t address = (uintptr_t)data | 256;
    return (uint32_t)(address & -address);
}

static problem problem_of(const fs_matmul *matmul)
{
    problem key;

    memset(&key, 0, sizeof key);
    key.m = matmul->m;
    key.n = matmul->n;
    key.k = matmul->k;
    key.batch = matmul->batch;
    key.a_ld = matmul->a_ld;
    key.b_ld = matmul->b_ld;
    key.out_ld = matmul->out_ld;
    key.a_batch = matmul->a_batch;
    key.b_batch = matmul->b_batch;
    key.out_batch = matmul->out_batch;
    key.a_alignment = alignment_of(matmul->a);
    key.b_alignment = alignment_of(matmul->b);
    key.out_alignment = alignment_of(matmul->out);
    key.a_dtype = (int32_t)matmul->a_dtype;
    key.b_dtype = (int32_t)matmul->b_dtype;
    key.dtype = (int32_t)matmul->dtype;
    key.a_transposed = matmul->a_transposed;
    key.b_transposed = matmul->b_transposed;
    key.allow_tf32 = matmul->allow_tf32;
    key.fast_accumulation = matmul->fast_accumulation;
    key.accumulate = matmul->accumulate;
    key.choice = matmul->choice;
    return key;
}

static size_t slot_of(const problem *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i += 4) {
        uint32_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0x100000001B3u;
    }
    return (size_t)(hash >> 32) % PLANS;
}

static void plan_clear(const fs_cublaslt *lt, plan *p)
{
    if (p->desc) lt->desc_destroy(p->desc);
    if (p->a) lt->layout_destroy(p->a);
    if (p->b) lt->layout_destroy(p->b);
    if (p->out) lt->layout_destroy(p->out);
    memset(p, 0, sizeof *p);
}

/* The factors of the product and of the sum with what the output held, in the type of the scale. */
static const double one64 = 1, zero64 = 0;
static const float one32 = 1, zero32 = 0;
static const int32_t one_int = 1, zero_int = 0;

/* By the dtype of a factor; of int32, the output of int8, only the first is used. */
static const struct {
    cudaDataType data;
    int compute;
    cudaDataType scale;
    const void *one, *zero;
} types[FS_DTYPE_COUNT] = {
    [FS_FLOAT64] = {CUDA_R_64F, FS_LT_COMPUTE_64F, CUDA_R_64F, &one64, &zero64},
    [FS_FLOAT32] = {CUDA_R_32F, FS_LT_COMPUTE_32F, CUDA_R_32F, &one32, &zero32},
    [FS_FLOAT16] = {CUDA_R_16F, FS_LT_COMPUTE_32F, CUDA_R_32F, &one32, &zero32},
    [FS_BFLOAT16] = {CUDA_R_16BF, FS_LT_COMPUTE_32F, CUDA_R_32F, &one32, &zero32},
    [FS_FLOAT8_E4M3FN] = {CUDA_R_8F_E4M3, FS_LT_COMPUTE_32F, CUDA_R_32F, &one32, &zero32},
    [FS_FLOAT8_E5M2] = {CUDA_R_8F_E5M2, FS_LT_COMPUTE_32F, CUDA_R_32F, &one32, &zero32},
    [FS_INT8] = {CUDA_R_8I, FS_LT_COMPUTE_32I, CUDA_R_32I, &one_int, &zero_int},
    [FS_INT32] = {CUDA_R_32I, 0, CUDA_R_32I, NULL, NULL},
};

/* The first failing cuBLASLt status, or success, for chained calls. */
#define LT_TRY(call)                                        \
    do {                                                    \
        int lt_status_ = (call);                            \
        if (lt_status_ != FS_LT_SUCCESS) return lt_status_; \
    } while (0)

static int layout_make(const fs_cublaslt *lt, fs_lt_layout *layout, int32_t dtype, int64_t batch, int64_t rows,
                       int64_t columns, int64_t ld, int64_t stride)
{
    int32_t count = (int32_t)batch;

    /* The stride of a single column has no meaning, but cuBLASLt checks it. */
    if (columns == 1 && ld < rows) ld = rows;
    LT_TRY(lt->layout_create(layout, types[dtype].data, (uint64_t)rows, (uint64_t)columns, ld));
    if (count == 1) return FS_LT_SUCCESS;
    LT_TRY(lt->layout_set(*layout, FS_LT_LAYOUT_BATCH_COUNT, &count, sizeof count));
    return lt->layout_set(*layout, FS_LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
}

static int describe(const fs_cublaslt *lt, plan *p, const problem *key)
{
    bool tf32 = key->a_dtype == FS_FLOAT32 && key->allow_tf32;
    int8_t fast = 1;
    int32_t a_op = key->b_transposed ? FS_LT_OP_T : FS_LT_OP_N, b_op = key->a_transposed ? FS_LT_OP_T : FS_LT_OP_N;

    LT_TRY(lt->desc_create(&p->desc, tf32 ? FS_LT_COMPUTE_32F_FAST_TF32 : types[key->a_dtype].compute,
                           types[key->a_dtype].scale));
    LT_TRY(lt->desc_set(p->desc, FS_LT_DESC_TRANSA, &a_op, sizeof a_op));
    LT_TRY(lt->desc_set(p->desc, FS_LT_DESC_TRANSB, &b_op, sizeof b_op));
    if (key->fast_accumulation) LT_TRY(lt->desc_set(p->desc, FS_LT_DESC_FAST_ACCUMULATION, &fast, sizeof fast));
    LT_TRY(layout_make(lt, &p->a, key->b_dtype, key->batch, key->b_transposed ? key->k : key->n,
                       key->b_transposed ? key->n : key->k, key->b_ld, key->b_batch));
    LT_TRY(layout_make(lt, &p->b, key->a_dtype, key->batch, key->a_transposed ? key->m : key->k,
                       key->a_transposed ? key->k : key->m, key->a_ld, key->a_batch));
    return layout_make(lt, &p->out, key->dtype, key->batch, key->n, key->m, key->out_ld, key->out_batch);
}

static int prefer(const fs_cublaslt *lt, fs_lt_preference preference, const problem *key)
{
    const struct {
        int name;
        uint32_t bytes;
    } alignments[] = {
        {FS_LT_PREF_ALIGNMENT_A, key->b_alignment},
        {FS_LT_PREF_ALIGNMENT_B, key->a_alignment},
        {FS_LT_PREF_ALIGNMENT_C, key->out_alignment},
        {FS_LT_PREF_ALIGNMENT_D, key->out_alignment},
    };
    uint64_t workspace = WORKSPACE_BYTES;

    LT_TRY(lt->preference_set(preference, FS_LT_PREF_MAX_WORKSPACE, &workspace, sizeof workspace));
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        LT_TRY(lt->preference_set(preference, alignments[i].name, &alignments[i].bytes, sizeof alignments[i].bytes));
    return FS_LT_SUCCESS;
}

/* Ask the heuristic for its list, best first by its estimate, and take the algorithm at the place `choice`: the first,
 * unless a measurement compares them. */
static int choose(const fs_cublaslt *lt, fs_lt_handle handle, plan *p, const problem *key)
{
    fs_lt_preference preference = NULL;
    fs_lt_heuristic results[CHOICES];
    int returned = 0, choice = key->choice;

    if (choice < 0 || choice >= CHOICES) return FS_LT_NOT_SUPPORTED;
    memset(results, 0, sizeof *results * (size_t)(choice + 1));
    LT_TRY(lt->preference_create(&preference));
    int status = prefer(lt, preference, key);
    if (status == FS_LT_SUCCESS)
        status = lt->heuristic(handle, p->desc, p->a, p->b, p->out, p->out, preference, choice + 1, results, &returned);
    lt->preference_destroy(preference);
    if (status == FS_LT_SUCCESS) status = returned > choice ? results[choice].state : FS_LT_NOT_SUPPORTED;
    p->algorithm = results[choice].algorithm;
    p->workspace = results[choice].workspace;
    return status;
}

static fs_status plan_get(const fs_cublaslt *lt, state *s, const fs_matmul *matmul, fs_device device, plan **found,
                          fs_error *err)
{
    problem key = problem_of(matmul);
    plan *p = &s->plans[slot_of(&key)];

    *found = p;
    if (p->ready && memcmp(&p->key, &key, sizeof key) == 0) return FS_OK;
    plan_clear(lt, p);
    int status = describe(lt, p, &key);
    if (status == FS_LT_SUCCESS) status = choose(lt, s->handle, p, &key);
    if (status != FS_LT_SUCCESS) {
        plan_clear(lt, p);
        return lt_fail(lt, status, matmul, device, "choosing an algorithm", err);
    }
    p->key = key;
    p->ready = true;
    return FS_OK;
}

static fs_status multiply(const fs_cublaslt *lt, state *s, const fs_matmul *matmul, fs_device device, fs_error *err)
{
    const void *one = types[matmul->a_dtype].one, *zero = types[matmul->a_dtype].zero;
    plan *p;
    void *workspace; /* shared by all products of the device, whose kernels are on one stream */

    if (!s->handle) {
        int created = lt->create(&s->handle);
        if (created != FS_LT_SUCCESS) return lt_fail(lt, created, matmul, device, "starting", err);
    }
    FS_TRY(plan_get(lt, s, matmul, device, &p, err));
    FS_TRY(fs_cuda_scratch_take(device, FS_CUDA_WORKSPACE, WORKSPACE_BYTES, &workspace, NULL, err));
    int status = lt->matmul(s->handle, p->desc, one, matmul->b, p->a, matmul->a, p->b, matmul->accumulate ? one : zero,
                            matmul->out, p->out, matmul->out, p->out, &p->algorithm, workspace, p->workspace,
                            fs_cuda_stream(device));
    fs_cuda_scratch_give(device, FS_CUDA_WORKSPACE);
    return status == FS_LT_SUCCESS ? FS_OK : lt_fail(lt, status, matmul, device, "launching", err);
}

/* Tensor cores multiply float8 since compute capability 8.9. */
static fs_status check_float8(fs_device device, fs_error *err)
{
    int major, minor;

    FS_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index), device,
                "asking for the compute capability", err);
    FS_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index), device,
                "asking for the compute capability", err);
    if (10 * major + minor >= 89) return FS_OK;
    return fs_fail(err, FS_RUNTIME_ERROR,
                   "products of float8 need compute capability 8.9 or later, and cuda:%d has %d.%d; cast the factors "
                   "with x.to(\"bfloat16\")",
                   device.index, major, minor);
}

fs_status fs_cuda_matmul(fs_device device, const fs_matmul *matmul, fs_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const fs_cublaslt *lt;
    state *s = &states[device.index];

    if (fs_dtype_is_float8(matmul->a_dtype)) FS_TRY(check_float8(device, err));
    FS_TRY(fs_cublaslt_get(&lt, err));
    pthread_once(&once, make_locks);
    pthread_mutex_lock(&s->lock);
    fs_status status = multiply(lt, s, matmul, device, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}
