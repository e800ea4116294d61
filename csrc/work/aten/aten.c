/* Lookup of the rule for a torch op. */
#include "work/aten/aten.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/search.h"
#include "base/text.h"
#include "ops/op.h"
#include "work/aten/elements.h"
#include "work/aten/products.h"
#include "work/aten/sizes.h"
#include "work/category.h"
#include "work/libraries/libraries.h"
#include "work/libraries/traffic.h"
#include "work/registered.h"

/* The name of a fused kernel lists its ops, joined by underscores that occur in ops' names too: the longest known op is
 * taken each time. If one word is unknown the FLOPs are unknown, never a part of them. What is found is an estimate,
 * since a name does not say how often an op was applied. */

/* Words of a name that are no rows of the tables. */
static const char *const without_flops[] = {
    "prepare_softmax_online", "lift_fresh", "iota", "scalar_tensor", "fill", "index_put", "index", "where",
    "constant_pad_nd"};

static bool is_listed(const char *word, size_t size)
{
    return FS_ANY(i, sizeof without_flops / sizeof *without_flops,
                  strlen(without_flops[i]) == size && strncmp(without_flops[i], word, size) == 0);
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
    return FS_ANY(i, call->count,
                  fs_sizes_tensor(call, i) != NULL && fs_sizes_is_float(fs_sizes_tensor(call, i)->dtype));
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

/* Add an estimate of the FLOPs to the work of a kernel: "triton_poi_fused_mul_silu_0" over `points`, or a template,
 * "triton_tem_fused_mm_1", by its tensors. The name has each op once, whatever the number of its uses. The work is
 * unchanged if some op of the name is unknown. */
static void generated_flops(const char *name, const fs_torch_call *call, double points, fs_work *work)
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

/* What a trace does not record is inferred from sizes and from the words of the kernel's name: how many points the grid
 * has, which tensor is read as well as written. Each table below is a list of words with one meaning. Bytes never
 * exceed what all points can touch unless the name allows several elements a point, and then they are a bound. When
 * nothing proves that a tensor is updated in place, it is counted once. */

/* The arguments of a kernel, as listed by Inductor (torch/_inductor/codegen/common.py, KernelArgs.python_argdefs):
 * buffers both read and written, buffers read, buffers written; then the sizes of dynamic shapes, offsets of random
 * numbers, and the sizes of the grid of points, with the reduced one last. A trace has no argument names, so the
 * written buffers are inferred from the sizes and from the ops in the kernel's name. */

/* Parts of a name that index a tensor: no more elements are accessed than the kernel has points. */
static const char *const picks[] = {"embedding", "gather", "index", "scatter", "nll_loss"};

/* Parts of a name that only move data: if a name has no others, each point reads and writes one element. The operands
 * of a product are prepared in kernels of its name. */
static const char *const moves[] = {
    "_to_copy", "_unsafe_view", "addmm",   "as_strided", "bmm",    "cat",       "clone", "copy",
    "expand",   "mm",           "permute", "reshape",    "select", "slice",     "split", "split_with_sizes",
    "squeeze",  "stack",        "t",       "transpose",  "unbind", "unsqueeze", "view"};

/* Parts of a name by which a point may read several elements of a tensor; and reductions, which are unrolled over a few
 * elements in a kernel without a reduced size. */
static const char *const several[] = {"slice",    "split",  "select", "unbind", "cat",  "stack", "glu",        "pool",
                                      "upsample", "unfold", "im2col", "col2im", "roll", "flip",  "as_strided", "grid"};
static const char *const reductions[] = {"sum",  "mean", "max",  "min",  "var",     "std",
                                         "prod", "any",  "_all", "norm", "softmax", "convolution"};

/* Parts of a name that create a tensor without inputs. */
static const char *const makes[] = {"full", "zero", "ones", "empty", "arange", "scalar_tensor",  "fill",
                                    "iota", "eye",  "rand", "seed",  "new_",   "dense_backward", "lift_fresh"};

/* Gradients that read the incoming gradient and a saved tensor, both with as many elements as the result. */
static const char *const gradients[] = {
    "elu_backward",      "gelu_backward",        "hardsigmoid_backward",    "hardswish_backward", "hardtanh_backward",
    "mish_backward",     "log_sigmoid_backward", "native_dropout_backward", "sigmoid_backward",   "silu_backward",
    "softplus_backward", "tanh_backward",        "threshold_backward"};

/* Parts of a name for which the incoming gradient may have fewer elements. */
static const char *const spreads[] = {"expand", "loss", "full", "scalar_tensor", "div"};

/* Parts of a name that may give a result of another dtype than that to which its operands promote. */
static const char *const casts[] = {"copy", "convert", "full", "zero", "ones",  "empty",
                                    "rand", "arange",  "iota", "norm", "quant", "softmax"};

/* Words of a name that may give bools, beside dropout and its mask. */
static const char *const bools[] = {
    "eq",          "ne",         "lt",          "le",          "gt",          "ge",
    "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or",
    "bitwise_not", "isnan",      "isinf",       "isfinite",    "signbit",     "threshold_backward"};

#define HAS(name, parts) FS_ANY(i, sizeof parts / sizeof *(parts), strstr(name, (parts)[i]) != NULL)

static bool triton_is_kernel(const char *name)
{
    return strncmp(name, "triton_", strlen("triton_")) == 0;
}

/* Return the length of the longest word of `moves` with which the text begins, up to its end or a "_"; 0: none. */
static size_t word_length(const char *text)
{
    size_t longest = 0;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        size_t size = strlen(moves[i]);
        if (strncmp(text, moves[i], size) == 0 && (text[size] == 0 || text[size] == '_') && size > longest)
            longest = size;
    }
    return longest;
}

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_pointwise(const char *name)
{
    return begins(name, "triton_poi_");
}

/* A reduction in one piece or in a loop. */
static bool is_reduction(const char *name)
{
    return begins(name, "triton_per_") || begins(name, "triton_red_");
}

/* Return whether the name is of pointwise work without computation: "triton_poi_fused_cat_split_5". */
static bool only_moves(const char *name)
{
    static const char prefix[] = "triton_poi_fused_";
    if (!begins(name, prefix)) return false;
    name += sizeof prefix - 1;
    while (*name != 0 && strspn(name, "0123456789") != strlen(name)) {
        size_t size = word_length(name);
        if (size == 0) return false;
        name += size;
        name += *name == '_';
    }
    return true;
}

/* The grid of points: all of them, and those left by a reduction (equal for a pointwise kernel). Infinite if the sizes
 * are unknown. */
typedef struct {
    double all, left;
    bool known;
} points;

static bool has_elements(const fs_torch_call *call, double elements)
{
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor != NULL && fs_sizes_elements(tensor) == elements) return true;
    }
    return false;
}

/* Return whether all arguments but the last `count` are tensors. */
static bool is_alone(const fs_torch_call *call, int count)
{
    for (uint32_t i = 0; i + (uint32_t)count < call->count; i++)
        if (fs_sizes_tensor(call, i) == NULL) return false;
    return true;
}

/* The numbers after the tensors end with the sizes of the grid. How many of them belong to it is inferred from a tensor
 * with as many elements as there are points, or as a reduction leaves. */
static points points_of(const char *name, const fs_torch_call *call)
{
    enum { MOST_SIZES = 4 };
    bool reduces = is_reduction(name);
    points found = {INFINITY, INFINITY, false};
    if (!reduces && !is_pointwise(name)) return found;
    double all = 1, reduced = 1;
    int count = 0;
    for (uint32_t i = call->count; i-- > 0 && count < MOST_SIZES;) {
        if (call->arguments[i].type != FS_TORCH_SCALAR) break;
        double size = fs_sizes_number(call->arguments[i].text, NAN);
        if (!(size >= 1)) break;
        all *= size;
        if (count++ == 0 && reduces) reduced = size;
        if (!has_elements(call, all) && !(reduces && count > 1 && has_elements(call, all / reduced))) continue;
        found = (points){all, all / reduced, true};
    }
    /* Without sizes of dynamic shapes, the numbers are those of the grid. */
    if (!found.known && count == (reduces ? 2 : 1) && is_alone(call, count)) found = (points){all, all / reduced, true};
    return found;
}

/* Return the last tensor, unless it is the buffer for partial sums of a reduction: that has one axis, with a size not
 * in the grid. */
static const fs_torch_tensor *last_tensor(const fs_torch_call *call, points of)
{
    const fs_torch_tensor *last = NULL;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor == NULL) continue;
        double elements = fs_sizes_elements(tensor);
        bool of_grid = elements == 1 || elements == of.all || elements == of.left || elements * of.left == of.all;
        if (of.all > of.left && tensor->ndim == 1 && !of_grid && last != NULL) continue;
        last = tensor;
    }
    return last;
}

/* Return whether the name has one of the words, between underscores. */
static bool has_word(const char *name, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(words[i]);
        for (const char *at = strstr(name, words[i]); at != NULL; at = strstr(at + 1, words[i]))
            if (at[-1] == '_' && (at[size] == '_' || at[size] == 0)) return true;
    }
    return false;
}

/* Return whether no result can have the dtype of the last tensor, so that it is read: a mask of an op that gives no
 * bools; or a float narrower than the first tensor, with which it promotes. */
static bool is_operand(const char *name, const fs_torch_tensor *first, const fs_torch_tensor *last)
{
    if (!fs_sizes_is_float(first->dtype)) return false;
    if (last->dtype == FS_TORCH_BOOL) {
        const char *dropout = strstr(name, "dropout");
        bool draws = dropout != NULL && strncmp(dropout, "dropout_backward", strlen("dropout_backward")) != 0;
        return !draws && !HAS(name, casts) && !has_word(name, bools, sizeof bools / sizeof *bools);
    }
    bool narrower = fs_sizes_is_float(last->dtype) && fs_sizes_item(last->dtype) < fs_sizes_item(first->dtype);
    return narrower && !HAS(name, casts);
}

/* Return whether the first tensor is both read and written. By the sizes: one tensor must be written, and the last one,
 * smaller than any result, cannot be. By the dtypes: likewise. By the name: a gradient reads two tensors and there is
 * no third for its result; or there is only one tensor, and the op reads it. */
static bool is_in_place(const char *name, const fs_torch_call *call, points of)
{
    const fs_torch_tensor *first = fs_sizes_tensor(call, 0), *last = last_tensor(call, of);
    if (!of.known || first == NULL || last == NULL || HAS(name, picks)) return false;
    double elements = fs_sizes_elements(first), of_last = fs_sizes_elements(last);
    if (elements != of.all && elements != of.left) return false;
    if (of_last < of.all && of_last != of.left) return true;
    if (is_pointwise(name) && last != first && is_operand(name, first, last)) return true;
    int whole = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        whole += tensor != NULL && fs_sizes_elements(tensor) >= of.all;
    }
    if (last == first) return elements == of.all && !HAS(name, makes);
    return is_pointwise(name) && whole == 2 && HAS(name, gradients) && !HAS(name, spreads);
}

/* Return the work of a kernel. Bytes moved: each distinct element of each tensor that the kernel's points reach counts
 * once, and once more for a tensor that sizes and name identify as both read and written; otherwise this is a lower
 * bound. If a point may read several elements of a tensor, the whole tensor counts, which is an upper bound. A trace
 * distinguishes neither bytes read from bytes written nor FLOPs: those are NaN. */
static fs_work triton_count(const char *name, const fs_torch_call *call)
{
    fs_work work = fs_work_unknown;
    points of = points_of(name, call);
    bool many = HAS(name, several) || (is_pointwise(name) && HAS(name, reductions));
    bool few = HAS(name, picks) || only_moves(name) || !many;
    double bytes = 0;
    int tensors = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor == NULL) continue;
        double elements = fs_sizes_distinct(tensor);
        if (elements > of.all && !few) work.at_most = true;
        bytes += (few ? fmin(elements, of.all) : elements) * fs_sizes_item(tensor->dtype);
        tensors++;
    }
    if (tensors == 0 || !call->whole) return fs_work_unknown;
    if (is_in_place(name, call, of)) bytes += fs_sizes_read(fs_sizes_tensor(call, 0));
    work.bytes_moved = bytes;
    generated_flops(name, call, of.all, &work);
    return work;
}

/* Namespaces whose ops match aten's ops of the same name; an op of another namespace needs a row with its full name. */
static const char *const namespaces[] = {"aten::", "prims::", "quantized::", "mkldnn::", "onednn::"};

/* The rows by name: open addressing, at most half full. */
enum { SLOT_COUNT = 4096 };

static const fs_aten_rule *slots[SLOT_COUNT];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static unsigned slot_of(const char *name, size_t size)
{
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)name[i]) * UINT32_C(16777619);
    return (hash ^ hash >> 16) % SLOT_COUNT;
}

static void place(const fs_aten_rule *rules)
{
    for (; rules->name != NULL; rules++) {
        unsigned slot = slot_of(rules->name, strlen(rules->name));
        while (slots[slot] != NULL) slot = (slot + 1) % SLOT_COUNT;
        slots[slot] = rules;
    }
}

static void place_all(void)
{
    place(fs_aten_product_rules);
    place(fs_aten_element_rules);
    place(fs_library_rules);
}

static const fs_aten_rule *find(const char *name, size_t size)
{
    for (unsigned slot = slot_of(name, size); slots[slot] != NULL; slot = (slot + 1) % SLOT_COUNT)
        if (strncmp(slots[slot]->name, name, size) == 0 && slots[slot]->name[size] == 0) return slots[slot];
    return NULL;
}

const fs_aten_rule *fs_aten_find(const char *name, size_t size)
{
    pthread_once(&slots_once, place_all);
    return find(name, size);
}

/* Find a name verbatim, or without "_out" or "_": the out-of-place and in-place forms of an op. */
static const fs_aten_rule *find_form(const char *name, size_t size)
{
    const fs_aten_rule *rule = find(name, size);
    if (rule == NULL && fs_text_ends((fs_text){name, size}, "_out")) rule = find(name, size - strlen("_out"));
    if (rule == NULL && fs_text_ends((fs_text){name, size}, "_")) rule = find(name, size - 1);
    return rule;
}

static const char *without(const char *name, const char *prefix)
{
    size_t size = strlen(prefix);
    return strncmp(name, prefix, size) == 0 ? name + size : NULL;
}

/* Find the row of an op without its namespace, or derive one from the row of a related op. */
static fs_aten_rule find_like(const char *name)
{
    static const char foreach[] = "_foreach_", special[] = "special_", backward[] = "_backward";
    const fs_aten_rule nothing = {.name = NULL};
    size_t size = strcspn(name, "."); /* the rest is the overload */
    const fs_aten_rule *rule = find_form(name, size);
    if (rule != NULL) return *rule;
    const char *rest = without(name, foreach);
    if (rest != NULL) {
        rule = find_form(rest, size - strlen(foreach));
        return rule != NULL ? fs_aten_foreach(rule) : nothing;
    }
    if ((rest = without(name, special)) != NULL && (rule = find_form(rest, size - strlen(special))) != NULL)
        return *rule;
    if (fs_text_ends((fs_text){name, size}, backward) && (rule = find(name, size - strlen(backward))) != NULL)
        return fs_aten_backward(rule);
    return nothing;
}

/* SGLang's profiler appends a line number to the names of its wrappers: "sglang_profiler::…_109". */
static const fs_aten_rule *find_wrapper(const char *name)
{
    static const char prefix[] = "sglang_profiler::";
    size_t size = strlen(name), digits = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return NULL;
    while (digits < size && name[size - 1 - digits] >= '0' && name[size - 1 - digits] <= '9') digits++;
    return digits > 0 && name[size - 1 - digits] == '_' ? find(name, size - 1 - digits) : NULL;
}

static fs_aten_rule find_rule(const char *name)
{
    pthread_once(&slots_once, place_all);
    const fs_aten_rule *rule = find(name, strlen(name));
    /* torch itself uses these names without a namespace. */
    bool bare = strcmp(name, "detach") == 0 || strcmp(name, "detach_") == 0;
    if (rule != NULL && (strchr(name, ':') != NULL || bare || rule->arguments != NULL)) return *rule;
    if ((rule = find_wrapper(name)) != NULL) return *rule;
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++) {
        const char *rest = without(name, namespaces[i]);
        if (rest != NULL) return find_like(rest);
    }
    return (fs_aten_rule){.name = NULL};
}

fs_aten_rule fs_aten_rule_of(const char *name)
{
    fs_aten_rule rule = find_rule(name);
    const char *native = without(name, FS_OP_NAMESPACE);
    if (rule.count != NULL || (native == NULL && strchr(name, ':') != NULL)) return rule;
    return find_like(native != NULL ? native : name);
}

bool fs_work_has_one_dtype(const char *name)
{
    static const fs_aten_count families[] = {fs_count_product,
                                             fs_count_summed_product,
                                             fs_count_linear,
                                             fs_count_convolution,
                                             fs_count_convolution_part,
                                             fs_count_convolution_backward,
                                             fs_count_norm,
                                             fs_count_norm_backward,
                                             fs_count_pointwise,
                                             fs_count_reduce,
                                             fs_count_pool,
                                             fs_count_pool_to};
    fs_aten_rule rule = find_rule(name);
    bool masks = strstr(name, "mask") != NULL || strstr(name, "dropout") != NULL;
    bool copies = rule.count == fs_count_pointwise && rule.flops == 0;
    if (masks || copies) return false; /* boolean selections, copies and casts */
    return FS_ANY(i, sizeof families / sizeof *families, rule.count == families[i]);
}

/* Return NaN for a result that no valid arguments give. */
static double sound(double number)
{
    return number >= 0 && number <= FS_MOST_WORK ? number : (double)NAN;
}

static _Atomic(fs_work_rule) registered;

void fs_work_set_rule(fs_work_rule rule)
{
    atomic_store(&registered, rule);
}

static _Atomic(void (*)(void)) rule_loader;

void fs_work_set_loader(void (*loader)(void))
{
    atomic_store(&rule_loader, loader);
}

/* Return whether the op is of another library: "mylib::scale". */
static bool is_foreign(const char *name)
{
    static const char *const own[] = {"c10d::", "autograd::", "torch::", "profiler::", "nccl:", "std::"};
    if (strstr(name, "::") == NULL) return false;
    return !FS_ANY(i, sizeof own / sizeof *own, without(name, own[i]) != NULL) &&
           !FS_ANY(i, sizeof namespaces / sizeof *namespaces, without(name, namespaces[i]) != NULL);
}

static void load_rules(const char *name)
{
    if (atomic_load(&rule_loader) == NULL || !is_foreign(name)) return;
    void (*loader)(void) = atomic_exchange(&rule_loader, NULL);
    if (loader != NULL) loader();
}

bool fs_work_of_registered(const char *name, const fs_torch_call *call, fs_work *work)
{
    fs_work_rule rule = atomic_load(&registered);
    *work = fs_work_unknown;
    return rule != NULL && rule(name, call, work);
}

/* Return whether a library's op was called with the arguments of its rule. */
static bool fits(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema;
    return rule->arguments == NULL || (fs_schema_parse(rule->arguments, &schema) && fs_schema_fits(&schema, call));
}

/* Return whether the rule is for a gradient, by the arguments of the op of the forward pass. */
static bool is_of_forward(const fs_aten_rule *rule)
{
    return rule->arguments != NULL && *rule->arguments == '^';
}

/* Return whether an op is the gradient of another one: "LigerRMSNormFunctionBackward". */
static bool is_gradient_of(const char *name, const char *forward)
{
    static const char backward[] = "Backward";
    if (fs_bags_is_gradient_of(name, forward)) return true;
    size_t size = strlen(forward);
    return strncmp(name, forward, size) == 0 && strcmp(name + size, backward) == 0;
}

/* Return the rule, or the one of the same name that fits the call. The rows of an op whose versions differ follow one
 * another. */
static fs_aten_rule find_fitting(fs_aten_rule rule, const fs_torch_call *call)
{
    if (rule.arguments == NULL || fits(&rule, call)) return rule;
    const fs_aten_rule *first = find(rule.name, strlen(rule.name));
    for (const fs_aten_rule *row = first + 1; row->name != NULL && strcmp(row->name, rule.name) == 0; row++)
        if (fits(row, call)) return *row;
    return rule;
}

bool fs_work_has_rule(const char *name)
{
    return triton_is_kernel(name) || find_rule(name).count != NULL;
}

const char *fs_work_expected(const char *name, const fs_torch_call *call)
{
    if (triton_is_kernel(name)) return NULL;
    fs_aten_rule rule = find_rule(name);
    if (is_of_forward(&rule)) {
        call = call->outer;
        if (call == NULL) return NULL;
    }
    rule = find_fitting(rule, call);
    return rule.count != NULL && rule.arguments != NULL && !fits(&rule, call) ? rule.arguments : NULL;
}

/* Return whether a tensor is sparse: of a call with strides, it alone has none. How many elements it holds is not
 * recorded. */
static bool has_sparse(const fs_torch_call *call)
{
    bool strided = false, sparse = false;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_argument *argument = &call->arguments[i];
        if (argument->type != FS_TORCH_TENSOR || argument->tensor.ndim == 0) continue;
        strided = strided || argument->tensor.strides != NULL;
        sparse = sparse || argument->tensor.strides == NULL;
    }
    return strided && sparse;
}

static fs_work work_by_rule(const char *name, const fs_torch_call *call)
{
    fs_work work = fs_work_unknown;
    load_rules(name);
    fs_work_rule custom_rule = atomic_load(&registered);
    if (custom_rule != NULL && custom_rule(name, call, &work)) return work;
    if (triton_is_kernel(name)) return triton_count(name, call);
    fs_aten_rule rule = find_rule(name);
    fs_torch_call forward;
    if (is_of_forward(&rule)) {
        if (call->outer == NULL) work.needs = FS_NEEDS_FORWARD;
        if (call->outer == NULL || !is_gradient_of(name, call->outer_name)) return work;
        forward = *call->outer;
        forward.output = fs_sizes_tensor(call, 0); /* the gradient of its result */
        call = &forward;
    }
    rule = find_fitting(rule, call);
    if (rule.count == NULL || !call->whole || !fits(&rule, call)) return fs_work_unknown;
    if (rule.count != fs_count_view && has_sparse(call)) return fs_work_unknown;
    rule.name = name;
    work = rule.count(&rule, call);
    work.flops = sound(work.flops);
    work.bytes_read = sound(work.bytes_read);
    work.bytes_written = sound(work.bytes_written);
    work.bytes_moved = sound(work.bytes_moved);
    return work;
}

/* Numbers that no rule gives are taken from the trace. */
fs_work fs_work_of_torch(const char *name, const fs_torch_call *call)
{
    const fs_torch_recorded *recorded = &call->recorded;
    fs_work work = work_by_rule(name, call);
    if (work.needs == FS_NEEDS_ELEMENTS) return work;
    if (isnan(work.flops) && !isnan(recorded->flops)) {
        work.flops = recorded->flops;
        work.unit.preferred = work.unit.fallback = fs_unit_find(recorded->unit);
        work.stated = true;
    }
    if (strcmp(recorded->category, fs_categories[FS_CATEGORY_COMMUNICATION].name) == 0) work.between = true;
    if (isnan(work.bytes_read)) work.bytes_read = recorded->bytes_read;
    if (isnan(work.bytes_written)) work.bytes_written = recorded->bytes_written;
    if (isnan(work.bytes_moved))
        work.bytes_moved = isnan(recorded->bytes) ? recorded->bytes_read + recorded->bytes_written : recorded->bytes;
    return work;
}
