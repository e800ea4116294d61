/* Sizes are accepted only if they agree with each other: the grid must be a whole number of tiles, a weight must have
 * the width that its neighbour left, an argument must have K columns. One that does not fit makes the work unknown. The
 * second of two products of experts is read with what the first one found, which `context` carries from kernel to
 * kernel. */
#include "work/kernel_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work/aten/products.h"
#include "work/aten/sizes.h"

static const fs_torch_tensor *tensor_at(const fs_torch_call *call, uint32_t place)
{
    const fs_torch_tensor *tensor = call != NULL ? fs_sizes_tensor(call, place) : NULL;
    return tensor != NULL && tensor->ndim == 2 ? tensor : NULL;
}

/* Products of experts (triton_kernels' matmul_ogs) ------------------------------------------------------------------
 * "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu": dtypes of result, activations and weights; rows, columns and
 * depth of a tile, and in how many parts the depth is split. The grid is its tiles: (rows of all experts) x columns x
 * parts. */

typedef struct {
    double result, activations, weights; /* bytes of an element */
    double rows, columns, parts;         /* of a tile */
} product_name;

static double bytes_of(const char *dtype, size_t size)
{
    static const struct {
        fs_torch_dtype dtype;
        const char *name;
    } dtypes[] = {
#define TRITON_NAME(NAME, name) {FS_TORCH_##NAME, name},
        FS_DTYPE_TRITON_NAMES(TRITON_NAME)
#undef TRITON_NAME
    };
    static const char mxfp4[] = "mxfp4";
    if (size == sizeof mxfp4 - 1 && strncmp(dtype, mxfp4, size) == 0) return 0.53125; /* a byte of scale for 32 */
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strlen(dtypes[i].name) == size && strncmp(dtype, dtypes[i].name, size) == 0)
            return fs_torch_dtypes[dtypes[i].dtype].size;
    return NAN;
}

/* Parse the words after the layouts. */
static bool parse_product(const char *name, product_name *found)
{
    static const char prefix[] = "_matmul_ogs_", persistent[] = "_p_matmul_ogs_";
    double *bytes[] = {&found->result, &found->activations, &found->weights};
    double tile[4];
    if (strncmp(name, persistent, sizeof persistent - 1) == 0) return false; /* its grid is the device's size */
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    const char *at = strchr(name + sizeof prefix - 1, '_');
    if (at == NULL) return false;
    at++;
    for (int i = 0; i < 3; i++) {
        size_t size = strcspn(at, "x_");
        if (strncmp(at, "mx", 2) == 0) size = 2 + strcspn(at + 2, "x_");
        *bytes[i] = bytes_of(at, size);
        at += size;
        if (isnan(*bytes[i]) || *at != (i < 2 ? 'x' : '_')) return false;
        at++;
    }
    for (int i = 0; i < 4; i++) {
        char *end;
        tile[i] = (double)strtol(at, &end, 10);
        if (end == at || tile[i] < 1 || (i < 3 && *end != 'x')) return false;
        at = end + 1;
    }
    found->rows = tile[0];
    found->columns = tile[1];
    found->parts = tile[3];
    return true;
}

/* The number of tiles for rows that are sorted by expert: each expert may end with a part of a tile. */
static double row_tiles(double rows, double experts, double tile)
{
    return rows <= experts ? rows : ceil((rows - experts + 1) / tile) + experts - 1;
}

/* Return how many experts each of the tokens chose, such that the grid has whole columns of tiles; of several, the one
 * by which the result is as wide as the tokens. 0: unknown. */
static double chosen_experts(double grid, double tokens, double experts, const product_name *product, double width)
{
    int found = 0, count = 0;
    for (int chosen = 1; chosen <= 16 && chosen <= experts; chosen++) {
        double columns = grid / row_tiles(tokens * chosen, experts, product->rows);
        if (columns != floor(columns)) continue;
        if (columns == ceil(width / product->columns)) return chosen;
        found = chosen;
        count++;
    }
    return count == 1 ? found : 0;
}

static bool product_of_experts(const char *name, const fs_launch *launch, const fs_torch_call *call,
                               fs_kernel_context *context, fs_work *work)
{
    product_name product;
    const fs_torch_tensor *tokens = tensor_at(call, 0), *logits = tensor_at(call, 1);
    if (!parse_product(name, &product) || launch == NULL || tokens == NULL || logits == NULL) return false;
    if (tokens->shape[0] != logits->shape[0] || launch->grid[1] > 1 || launch->grid[2] > 1) return false;
    double count = (double)tokens->shape[0], width = (double)tokens->shape[1], experts = (double)logits->shape[1];
    double grid = launch->grid[0] / product.parts, rows = context->rows;
    bool first = rows == 0;
    if (first) rows = count * chosen_experts(grid, count, experts, &product, width);
    if (!(rows > 0)) return false;
    double columns = grid / row_tiles(rows, experts, product.rows) * product.columns;
    double depth = first ? width : context->columns;
    if (columns != floor(columns) || !(columns > 0)) return false;
    if (!first && ceil(width / product.columns) * product.columns != columns) return false;
    bool gated = strstr(name, "swiglu") != NULL;
    double used = fmin(experts, rows), results = rows * columns / (gated ? 2 : 1);
    double read = (first ? count : rows) * depth * product.activations + used * columns * depth * product.weights;
    unsigned dtype = product.activations == 1 ? FS_TORCH_FLOAT8_E4M3FN : FS_TORCH_BFLOAT16;
    *work = fs_sizes_work(2 * rows * columns * depth, read, results * product.result, fs_unit_of_product(dtype));
    context->rows = rows;
    context->columns = columns / (gated ? 2 : 1);
    return true;
}

/* DeepGEMM -----------------------------------------------------------------------------------------------------------
 * "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 7168u, 2048u, 1u, 64u, …>(…)": the sizes of M, N
 * and K are among the first unsigned constants; 0: known at run time only. The op's argument of K columns has M rows.
 */

/* X(kernel, constants before M, place of the number of groups): deep_gemm/include/deep_gemm/impls. Names are compared
 * in this order. Those of fp8_fp4 have 2 or 3 constants first, by version: M must be 0 to tell. */
static const struct {
    const char *kernel;
    int before, groups;
} constants[] = {{"fp8_fp4_gemm_1d1d", -1, 6},
                 {"sm100_fp8_gemm", 0, 6},
                 {"sm100_bf16_gemm", 0, 6},
                 {"sm90_fp8_gemm", 0, 3},
                 {"sm90_bf16_gemm", 0, 3}};

enum { MOST_CONSTANTS = 10 };

static int take_constants(const char *at, double *numbers)
{
    int found = 0;
    while (found < MOST_CONSTANTS && (at = strpbrk(at + 1, "0123456789")) != NULL) {
        char *end;
        double number = (double)strtoul(at, &end, 10);
        if (*end == 'u') numbers[found++] = number;
        at = end;
        if (*at == 0) break;
    }
    return found;
}

static bool product_of_constants(const char *name, const fs_torch_call *call, fs_work *work)
{
    double numbers[MOST_CONSTANTS];
    size_t row = 0;
    const char *at = strstr(name, "deep_gemm::");
    if (at == NULL || call == NULL) return false;
    while (row < sizeof constants / sizeof *constants && strstr(at, constants[row].kernel) == NULL) row++;
    if (row == sizeof constants / sizeof *constants || (at = strchr(at, '<')) == NULL) return false;
    int count = take_constants(at, numbers), before = constants[row].before;
    if (before < 0) before = count > 3 && numbers[2] == 0 ? 2 : count > 3 && numbers[3] == 0 ? 3 : MOST_CONSTANTS;
    if (before + constants[row].groups >= count || strstr(name, "e2m1") != NULL) return false; /* 4 bits */
    double n = numbers[before + 1], k = numbers[before + 2], groups = fmax(numbers[before + constants[row].groups], 1);
    if (n < 1 || k < 1) return false;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *x = tensor_at(call, i);
        if (x == NULL || (double)x->shape[1] != k || (double)x->shape[0] == n) continue;
        double m = (double)x->shape[0];
        bool narrow = strstr(name, "fp8") != NULL;
        double item = narrow ? 1 : 2;
        unsigned dtype = narrow ? FS_TORCH_FLOAT8_E4M3FN : FS_TORCH_BFLOAT16;
        *work = fs_sizes_work(2 * m * n * k, (m * k + fmin(groups, m) * n * k) * item, m * n * 2,
                              fs_unit_of_product(dtype));
        return true;
    }
    return false;
}

bool fs_kernel_has_work(const char *name)
{
    return strncmp(name, "_matmul_ogs_", strlen("_matmul_ogs_")) == 0 ||
           (strstr(name, "deep_gemm::") != NULL && strstr(name, "gemm_") != NULL);
}

bool fs_kernel_work(const char *name, const fs_launch *launch, const fs_torch_call *call, fs_kernel_context *context,
                    fs_work *work)
{
    *work = fs_work_unknown;
    return product_of_experts(name, launch, call, context, work) || product_of_constants(name, call, work);
}
