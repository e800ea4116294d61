/* Matrix products by cuBLASLt. FLOPS 2 m n k, BYTES of both inputs and the output.
 *
 * cuBLASLt's matrices are column-major: the row-major out = a · b is its outᵀ = bᵀ · aᵀ, with b as its A and a as its
 * B. The plan of a product (descriptors, and the algorithm that cuBLASLt's heuristic chose) is cached by problem, so
 * that repeated products skip the heuristic.
 */
#include <pthread.h>
#include <string.h>

#include "kernels/cublaslt.h"

enum { PLANS = 256 /* per device; one per slot, the latest replaces the previous */, WORKSPACE_BYTES = 32 << 20 };

/* Everything that the choice depends on. Compared as bytes, so it is zeroed before it is filled in. */
typedef struct {
    int64_t m, n, k, batch;
    int64_t a_ld, b_ld, out_ld, a_batch, b_batch, out_batch;
    uint32_t a_alignment, b_alignment, out_alignment;
    int32_t dtype, a_transposed, b_transposed, allow_tf32, accumulate;
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
                   doing, fs_dtypes[matmul->dtype].name, (long long)matmul->m, (long long)matmul->n,
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
    key.dtype = (int32_t)matmul->dtype;
    key.a_transposed = matmul->a_transposed;
    key.b_transposed = matmul->b_transposed;
    key.allow_tf32 = matmul->allow_tf32;
    key.accumulate = matmul->accumulate;
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

static const struct {
    cudaDataType data;
    int compute;
} types[] = {
    [FS_FLOAT64] = {CUDA_R_64F, FS_LT_COMPUTE_64F},
    [FS_FLOAT32] = {CUDA_R_32F, FS_LT_COMPUTE_32F},
    [FS_FLOAT16] = {CUDA_R_16F, FS_LT_COMPUTE_32F},
    [FS_BFLOAT16] = {CUDA_R_16BF, FS_LT_COMPUTE_32F},
};

/* The first failing cuBLASLt status, or success, for chained calls. */
#define LT_TRY(call)                                        \
    do {                                                    \
        int lt_status_ = (call);                            \
        if (lt_status_ != FS_LT_SUCCESS) return lt_status_; \
    } while (0)

static int layout_make(const fs_cublaslt *lt, fs_lt_layout *layout, const problem *key, int64_t rows, int64_t columns,
                       int64_t ld, int64_t stride)
{
    int32_t count = (int32_t)key->batch;

    /* The stride of a single column has no meaning, but cuBLASLt checks it. */
    if (columns == 1 && ld < rows) ld = rows;
    LT_TRY(lt->layout_create(layout, types[key->dtype].data, (uint64_t)rows, (uint64_t)columns, ld));
    if (count == 1) return FS_LT_SUCCESS;
    LT_TRY(lt->layout_set(*layout, FS_LT_LAYOUT_BATCH_COUNT, &count, sizeof count));
    return lt->layout_set(*layout, FS_LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
}

static int describe(const fs_cublaslt *lt, plan *p, const problem *key)
{
    bool tf32 = key->dtype == FS_FLOAT32 && key->allow_tf32;
    cudaDataType scale = key->dtype == FS_FLOAT64 ? CUDA_R_64F : CUDA_R_32F;
    int32_t a_op = key->b_transposed ? FS_LT_OP_T : FS_LT_OP_N, b_op = key->a_transposed ? FS_LT_OP_T : FS_LT_OP_N;

    LT_TRY(lt->desc_create(&p->desc, tf32 ? FS_LT_COMPUTE_32F_FAST_TF32 : types[key->dtype].compute, scale));
    LT_TRY(lt->desc_set(p->desc, FS_LT_DESC_TRANSA, &a_op, sizeof a_op));
    LT_TRY(lt->desc_set(p->desc, FS_LT_DESC_TRANSB, &b_op, sizeof b_op));
    LT_TRY(layout_make(lt, &p->a, key, key->b_transposed ? key->k : key->n, key->b_transposed ? key->n : key->k,
                       key->b_ld, key->b_batch));
    LT_TRY(layout_make(lt, &p->b, key, key->a_transposed ? key->m : key->k, key->a_transposed ? key->k : key->m,
                       key->a_ld, key->a_batch));
    return layout_make(lt, &p->out, key, key->n, key->m, key->out_ld, key->out_batch);
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

/* Ask the heuristic for its first choice. */
static int choose(const fs_cublaslt *lt, fs_lt_handle handle, plan *p, const problem *key)
{
    fs_lt_preference preference = NULL;
    fs_lt_heuristic result;
    int returned = 0;

    memset(&result, 0, sizeof result);
    LT_TRY(lt->preference_create(&preference));
    int status = prefer(lt, preference, key);
    if (status == FS_LT_SUCCESS)
        status = lt->heuristic(handle, p->desc, p->a, p->b, p->out, p->out, preference, 1, &result, &returned);
    lt->preference_destroy(preference);
    if (status == FS_LT_SUCCESS) status = returned ? result.state : FS_LT_NOT_SUPPORTED;
    p->algorithm = result.algorithm;
    p->workspace = result.workspace;
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
    static const double one64 = 1, zero64 = 0;
    static const float one32 = 1, zero32 = 0;
    bool is_double = matmul->dtype == FS_FLOAT64;
    const void *one = is_double ? (const void *)&one64 : &one32, *zero = is_double ? (const void *)&zero64 : &zero32;
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

fs_status fs_cuda_matmul(fs_device device, const fs_matmul *matmul, fs_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const fs_cublaslt *lt;
    state *s = &states[device.index];

    FS_TRY(fs_cublaslt_get(&lt, err));
    pthread_once(&once, make_locks);
    pthread_mutex_lock(&s->lock);
    fs_status status = multiply(lt, s, matmul, device, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}
