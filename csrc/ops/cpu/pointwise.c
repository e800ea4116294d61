/* Unary and binary ops: the op's loop, run over blocks. */
#include "base/search.h"
#include "base/unused.h"
#include "ops/cpu/blocks.h"
#include "ops/cpu/cpu.h"

/* Exponents for which another op gives exactly the power. */
static const struct {
    double exponent;
    fs_unary_id op;
} powers[] = {{2, FS_UNARY_square}, {-1, FS_UNARY_reciprocal}};

static void compute_unary(const fs_block_job *job, void *out, const void *const *in, unsigned FS_UNUSED(singles),
                          int64_t count)
{
    job->unary(out, in[0], count);
}

static void compute_binary(const fs_block_job *job, void *out, const void *const *in, unsigned singles, int64_t count)
{
    job->binary[singles](out, in[0], in[1], count);
}

/* float16 and bfloat16 are computed as float, in parts small enough for the L1 cache. */
enum { PART = 512 };

/* Elements [at, at + count) as float, or the single value of all of them, which a scalar already is. */
static const void *part_widen(const fs_block_job *job, int input, const void *in, bool single, float *buffer,
                              int64_t at, int64_t count)
{
    const fs_elementwise *space = job->space;
    if (space->in[input] == NULL) return in;
    const uint16_t *from = in;
    job->loops->convert[FS_FLOAT32][space->dtype](buffer, single ? from : from + at, single ? 1 : count);
    return buffer;
}

static void compute_unary_half(const fs_block_job *job, void *out, const void *const *in, unsigned singles,
                               int64_t count)
{
    _Alignas(64) float wide[PART];
    for (int64_t at = 0; at < count; at += PART) {
        int64_t part = count - at < PART ? count - at : PART;
        job->unary(wide, part_widen(job, 0, in[0], singles & 1u, wide, at, part), part);
        job->loops->convert[job->space->dtype][FS_FLOAT32]((uint16_t *)out + at, wide, part);
    }
}

static void compute_binary_half(const fs_block_job *job, void *out, const void *const *in, unsigned singles,
                                int64_t count)
{
    _Alignas(64) float wide[2][PART];
    for (int64_t at = 0; at < count; at += PART) {
        int64_t part = count - at < PART ? count - at : PART;
        const void *a = part_widen(job, 0, in[0], singles & 1u, wide[0], at, part);
        const void *b = part_widen(job, 1, in[1], singles & 2u, wide[1], at, part);
        /* Into a's buffer or, if a is a single value, into b's. */
        float *result = wide[singles & 1u];
        job->binary[singles](result, a, b, part);
        job->loops->convert[job->space->dtype][FS_FLOAT32]((uint16_t *)out + at, result, part);
    }
}

static fs_compute compute_of(fs_dtype dtype)
{
    return dtype == FS_FLOAT64 ? FS_COMPUTE_F64 : FS_COMPUTE_F32;
}

/* One contiguous block of float or double, except for a scalar: no walk is needed. */
static bool space_is_one_block(const fs_elementwise *space, int inputs)
{
    if (space->ndim != 1 || space->count > FS_BLOCK_ELEMENTS || space->dtype > FS_FLOAT32) return false;
    if (space->out_strides[0] != 1) return false;
    return !FS_ANY(i, inputs, space->in[i] != NULL && space->in_strides[i][0] != 1);
}

static void job_run(fs_block_job *job, fs_block_compute compute, fs_block_compute compute_half)
{
    const fs_elementwise *space = job->space;
    /* A scalar in the compute type: float for the 16-bit dtypes, to which it is never rounded. */
    for (int i = 0; i < job->inputs; i++) {
        job->narrow[i] = (float)space->scalar[i];
        job->scalar[i] = space->dtype == FS_FLOAT64 ? (const void *)&space->scalar[i] : &job->narrow[i];
    }
    if (space_is_one_block(space, job->inputs)) {
        const void *in[2];
        unsigned singles = 0;
        for (int i = 0; i < job->inputs; i++) {
            if (space->in[i] == NULL) singles |= 1u << i;
            in[i] = space->in[i] == NULL ? job->scalar[i] : space->in[i];
        }
        compute(job, space->out, in, singles, space->count);
        return;
    }
    job->compute = space->dtype <= FS_FLOAT32 ? compute : compute_half;
    job->out_size = job->in_size[0] = job->in_size[1] = fs_dtypes[space->dtype].size;
    fs_blocks_run(job);
}

fs_status fs_cpu_unary(fs_device FS_UNUSED(device), fs_unary_id op, const fs_elementwise *space,
                       fs_error *FS_UNUSED(err))
{
    const fs_cpu_pointwise_loops *loops = FS_ISA_SELECT(fs_cpu_pointwise_loops);
    fs_block_job job = {.space = space, .inputs = 1, .loops = loops};
    job.unary = loops->unary[op][compute_of(space->dtype)];
    job_run(&job, compute_unary, compute_unary_half);
    return FS_OK;
}

fs_status fs_cpu_binary(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err)
{
    if (op == FS_BINARY_pow && space->in[1] == NULL) {
        for (size_t i = 0; i < sizeof powers / sizeof *powers; i++) {
            if (space->scalar[1] == powers[i].exponent) return fs_cpu_unary(device, powers[i].op, space, err);
        }
    }
    const fs_cpu_pointwise_loops *loops = FS_ISA_SELECT(fs_cpu_pointwise_loops);
    fs_block_job job = {.space = space, .inputs = 2, .takes_singles = true, .loops = loops};
    job.binary = loops->binary[op][compute_of(space->dtype)];
    job_run(&job, compute_binary, compute_binary_half);
    return FS_OK;
}
