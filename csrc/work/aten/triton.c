/* What a trace does not record is inferred from sizes and from the words of the kernel's name: how many points the grid
 * has, which tensor is read as well as written. Each table below is a list of words with one meaning. Bytes never
 * exceed what all points can touch unless the name allows several elements a point, and then they are a bound. When
 * nothing proves that a tensor is updated in place, it is counted once. */
#include "work/aten/triton.h"

#include <math.h>
#include <string.h>

#include "work/aten/generated.h"
#include "work/aten/sizes.h"

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

#define HAS(name, parts) has_any(name, parts, sizeof parts / sizeof *(parts))

static bool has_any(const char *name, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(name, parts[i]) != NULL) return true;
    return false;
}

bool fs_triton_is_kernel(const char *name)
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

fs_work fs_triton_count(const char *name, const fs_torch_call *call)
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
    fs_generated_flops(name, call, of.all, &work);
    return work;
}
