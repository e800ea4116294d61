/* The name of a fused kernel lists its ops, joined by underscores that occur in ops' names too: the longest known op is
 * taken each time. If one word is unknown the FLOPs are unknown, never a part of them. What is found is an estimate,
 * since a name does not say how often an op was applied. */
#include "work/aten/generated.h"

#include <math.h>
#include <string.h>

#include "work/aten/elements.h"
#include "work/aten/multiply.h"
#include "work/aten/products.h"

/* Words of a name that are no rows of the tables. */
static const char *const without_flops[] = {
    "prepare_softmax_online", "lift_fresh", "iota", "scalar_tensor", "fill", "index_put", "index", "where",
    "constant_pad_nd"};

static bool is_listed(const char *word, size_t size)
{
    for (size_t i = 0; i < sizeof without_flops / sizeof *without_flops; i++)
        if (strlen(without_flops[i]) == size && strncmp(without_flops[i], word, size) == 0) return true;
    return false;
}

/* Return the FLOPs of an op per point; a product is in the name of a kernel that prepares or ends it. NaN: unknown. */
static double flops_of(const char *word, size_t size)
{
    static const fs_aten_count products[] = {
        fs_count_product,           fs_count_summed_product, fs_count_linear,
        fs_count_convolution,       fs_count_attention,      fs_count_convolution_backward,
        fs_count_attention_backward};
    static const char backward[] = "_backward";
    const fs_aten_rule *rule = fs_aten_find(word, size);
    if (is_listed(word, size)) return 0;
    if (rule != NULL) {
        for (size_t i = 0; i < sizeof products / sizeof *products; i++)
            if (rule->count == products[i]) return 0;
        return rule->flops;
    }
    size_t length = sizeof backward - 1;
    if (size > length && strncmp(word + size - length, backward, length) == 0 &&
        (rule = fs_aten_find(word, size - length)) != NULL && rule->count == fs_count_pointwise)
        return rule->flops > 0 ? 1 : 0;
    return NAN;
}

/* Return the FLOPs per point of the ops in the words of a name; NaN if a word is unknown or there is none. */
static double flops_of_words(const char *words)
{
    double sum = NAN;
    while (*words != 0 && strspn(words, "0123456789") != strlen(words)) {
        double flops = NAN;
        size_t taken = 0;
        for (size_t size = strlen(words); size > 0 && taken == 0; size--) { /* the longest word */
            if (words[size] != 0 && words[size] != '_') continue;
            flops = flops_of(words, size);
            if (!isnan(flops)) taken = size;
        }
        if (taken == 0) return NAN;
        sum = (isnan(sum) ? 0 : sum) + flops;
        words += taken;
        words += *words == '_';
    }
    return sum;
}

static const char *after(const char *name, const char *prefix)
{
    size_t size = strlen(prefix);
    return strncmp(name, prefix, size) == 0 ? name + size : NULL;
}

static bool has_floats(const fs_torch_call *call)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (fs_sizes_tensor(call, i) != NULL && fs_sizes_is_float(fs_sizes_tensor(call, i)->dtype)) return true;
    return false;
}

/* The n-th tensor with so many axes. */
static const fs_torch_tensor *nth(const fs_torch_call *call, uint32_t ndim, int n)
{
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor != NULL && tensor->ndim == ndim && n-- == 0) return tensor;
    }
    return NULL;
}

/* a[…, m, k] times b[…, k, n], and a result [m, n] among the other tensors. */
static double product_flops(const fs_torch_call *call, uint32_t ndim)
{
    const fs_torch_tensor *a = nth(call, ndim, 0), *b = nth(call, ndim, 1), *result;
    if (a == NULL || b == NULL || a->shape[ndim - 1] != b->shape[ndim - 2]) return NAN;
    double m = (double)a->shape[ndim - 2], k = (double)a->shape[ndim - 1], n = (double)b->shape[ndim - 1];
    double batch = ndim > 2 ? (double)a->shape[0] : 1;
    if (ndim > 2 && b->shape[0] != a->shape[0]) return NAN;
    for (int i = 2; (result = nth(call, ndim, i)) != NULL; i++)
        if (result->shape[ndim - 2] == a->shape[ndim - 2] && result->shape[ndim - 1] == b->shape[ndim - 1])
            return 2 * batch * m * n * k;
    return NAN;
}

/* Queries, keys and values of [batch, heads, rows, size]; which blocks the mask leaves out is unknown. */
static double attention_flops(const fs_torch_call *call, bool backward)
{
    const fs_torch_tensor *q = nth(call, 4, 0), *k = nth(call, 4, 1), *v = nth(call, 4, 2);
    if (q == NULL || k == NULL || v == NULL || q->shape[3] != k->shape[3] || k->shape[2] != v->shape[2]) return NAN;
    double pairs = (double)q->shape[0] * (double)q->shape[1] * (double)q->shape[2] * (double)k->shape[2];
    double size = (double)q->shape[3], value_size = (double)v->shape[3];
    return 2 * pairs * (backward ? 3 * size + 2 * value_size : size + value_size);
}

static double template_flops(const char *words, const fs_torch_call *call)
{
    if (strstr(words, "flex_attention") != NULL) return attention_flops(call, strstr(words, "backward") != NULL);
    if (strstr(words, "bmm") != NULL) return product_flops(call, 3);
    return strstr(words, "mm") != NULL ? product_flops(call, 2) : (double)NAN;
}

void fs_generated_flops(const char *name, const fs_torch_call *call, double points, fs_work *work)
{
    static const char *const prefixes[] = {"triton_poi_fused_", "triton_per_fused_", "triton_red_fused_"};
    const char *words = after(name, "triton_tem_fused_");
    if (words != NULL) {
        const fs_torch_tensor *first = nth(call,
                                           strstr(words, "flex") != NULL  ? 4
                                           : strstr(words, "bmm") != NULL ? 3
                                                                          : 2,
                                           0);
        work->flops = template_flops(words, call);
        if (first != NULL) work->unit = fs_unit_of_product(first->dtype);
        work->flops_estimated = !isnan(work->flops);
        return;
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && words == NULL; i++) words = after(name, prefixes[i]);
    if (words == NULL || isinf(points)) return;
    double each = flops_of_words(words);
    if (isnan(each)) return;
    work->flops = has_floats(call) ? each * points : 0;
    work->unit = fs_unit_of_plain(FS_TORCH_FLOAT32);
    work->flops_estimated = each > 0;
}
