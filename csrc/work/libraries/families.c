/* The families of rules for other libraries' ops: libraries.h. */
#include <math.h>
#include <string.h>

#include "store/collective.h"
#include "base/search.h"
#include "store/event.h"
#include "work/aten/aten.h"
#include "work/aten/products.h"
#include "work/aten/sizes.h"
#include "work/collective_sizes.h"
#include "work/libraries/libraries.h"
#include "work/libraries/schema.h"
#include "work/libraries/traffic.h"

/* The dtype of the first argument of floats: that in which pointwise work is done. */
static unsigned float_dtype(const fs_torch_call *call)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (fs_schema_tensor_at(call, i) != NULL && fs_sizes_is_float(fs_schema_tensor_at(call, i)->dtype))
            return fs_schema_tensor_at(call, i)->dtype;
    return FS_TORCH_DTYPE_NONE;
}

static fs_work with_traffic(double flops, fs_traffic traffic, fs_unit_choice unit)
{
    return fs_sizes_work(flops, traffic.read, traffic.written, unit);
}

static fs_work bounded(fs_work work)
{
    work.at_most = true;
    return work;
}

/* Elementwise ------------------------------------------------------------------------------------------------------ */

fs_work fs_count_each(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    double elements = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        bool counts =
            rule->option == FS_ALL_MODIFIED ? schema.arguments[i].role == FS_ROLE_MODIFIED : rule->option == (int)i;
        if (counts && fs_schema_tensor_at(call, i) != NULL) elements += fs_sizes_elements(fs_schema_tensor_at(call, i));
    }
    if (rule->option == FS_NO_ELEMENTS || rule->flops == 0)
        return with_traffic(0, fs_schema_traffic(&schema, call), fs_unit_of_plain(FS_TORCH_DTYPE_NONE));
    return with_traffic(rule->flops * elements, fs_schema_traffic(&schema, call), fs_unit_of_plain(float_dtype(call)));
}

/* FLOPs by the size after "=". */
fs_work fs_count_formula(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    double flops = 0;
    unsigned dtype = float_dtype(call);
    if (rule->flops != 0 && schema.flops != NULL)
        flops = rule->flops * fs_expression_size(schema.flops + 2, &schema, call);
    static const char *const factors[] = {"a", "x", "q", "factor"};
    for (size_t i = 0; (rule->option & FS_ON_PRODUCTS) != 0 && i < sizeof factors / sizeof *factors; i++)
        if (fs_schema_tensor(&schema, call, factors[i]) != NULL)
            dtype = fs_schema_tensor(&schema, call, factors[i])->dtype;
    if (dtype == FS_TORCH_DTYPE_NONE) flops = 0;
    if ((rule->option & FS_FOUR_BITS) != 0) dtype = FS_TORCH_DTYPE_NONE;
    fs_unit_choice unit = (rule->option & FS_ON_PRODUCTS) != 0 ? fs_unit_of_product(dtype) : fs_unit_of_plain(dtype);
    fs_work work = with_traffic(flops, fs_schema_traffic(&schema, call), unit);
    work.at_most = (rule->option & FS_BOUND) != 0;
    work.between = (rule->option & FS_EXCHANGE) != 0;
    work.apart = (rule->option & FS_APART) != 0;
    return work;
}

fs_work fs_count_exchanged(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    fs_work work = with_traffic(NAN, fs_schema_traffic(&schema, call), fs_unit_of_plain(FS_TORCH_DTYPE_NONE));
    work.between = true;
    return work;
}

/* Products --------------------------------------------------------------------------------------------------------- */

static unsigned result_dtype(const fs_aten_rule *rule, const fs_schema *schema, const fs_torch_call *call,
                             unsigned inputs)
{
    int place = fs_schema_place(schema, "dtype");
    fs_torch_dtype named = place >= 0 && (uint32_t)place < call->count
                               ? fs_sizes_dtype_of(fs_sizes_text(call, (unsigned)place))
                               : FS_TORCH_DTYPE_NONE;
    if (named != FS_TORCH_DTYPE_NONE) return named;
    if ((rule->option & FS_GIVES_INT32) != 0) return FS_TORCH_INT32;
    if ((rule->option & FS_GIVES_HALF) != 0) return FS_TORCH_BFLOAT16;
    return inputs;
}

/* Return N if w has an axis of K in the layout, else NaN. */
static double width_of(int layout, const fs_torch_tensor *w, double k)
{
    if (w->ndim != 2) return NAN;
    double rows = (double)w->shape[0], columns = (double)w->shape[1];
    bool packed = (layout & FS_WEIGHT_PACKED) != 0;
    int order = layout & 3;
    if (packed) columns *= 2;
    if (order == FS_WEIGHT_NK || order == FS_WEIGHT_EITHER)
        if (columns == k) return rows;
    if (order == FS_WEIGHT_KN || order == FS_WEIGHT_EITHER)
        if (rows == k) return columns;
    return NAN;
}

fs_work fs_count_matrix(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *x = fs_schema_tensor(&schema, call, "x"), *w = fs_schema_tensor(&schema, call, "w");
    const fs_torch_tensor *out = fs_schema_tensor(&schema, call, "out");
    if (x == NULL || w == NULL) return fs_work_unknown;
    double k = fs_sizes_from_end(x, 1), n = width_of(rule->option, w, k);
    if (isnan(n) || k == 0) return fs_work_unknown;
    double rows = fs_sizes_elements(x) / k, packed = (rule->option & FS_HALF_BYTES) != 0 ? 2 : 1;
    if (out != NULL && (fs_sizes_from_end(out, 1) != n || fs_sizes_elements(out) != rows * n)) return fs_work_unknown;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.read += fs_sizes_read(x) + fs_sizes_read(w);
    if (out == NULL) traffic.written += rows * n * fs_sizes_item(result_dtype(rule, &schema, call, x->dtype));
    unsigned unit = packed == 2 ? (unsigned)FS_TORCH_DTYPE_NONE : x->dtype; /* two numbers a byte: 4 bits each */
    return with_traffic(2 * rows * n * k * packed, traffic, fs_unit_of_product(unit));
}

/* Return N of x [.., K] and its weight, found as the option says (fs_packed_width); NaN if they do not fit. */
static double packed_width(const fs_aten_rule *rule, const fs_schema *schema, const fs_torch_call *call, double m,
                           double k)
{
    const fs_torch_tensor *w = fs_schema_tensor(schema, call, "weight");
    double shape[2];
    switch ((fs_packed_width)rule->option) {
    case FS_WIDTH_NAMED:
        if (fs_schema_place(schema, "k") >= 0 && fs_schema_number(schema, call, "k") != k) return NAN;
        if (fs_schema_place(schema, "m") >= 0 && fs_schema_number(schema, call, "m") != m) return NAN;
        return fs_schema_number(schema, call, "n");
    case FS_WIDTH_COLUMNS:
        return w->ndim == 2 ? (double)w->shape[1] : (double)NAN;
    case FS_WIDTH_WORDS:
        return w->ndim == 2 && (double)w->shape[0] == k ? 8 * (double)w->shape[1] : (double)NAN;
    case FS_WIDTH_SHAPE: {
        const char *text = fs_sizes_text(call, (unsigned)fs_schema_place(schema, "shape"));
        return fs_sizes_numbers(text, shape, 2) == 2 && shape[1] == k ? shape[0] : (double)NAN;
    }
    case FS_WIDTH_BYTES:
        return 2 * fs_sizes_read(w) / k;
    }
    return NAN;
}

/* Weights of a few bits, in an order of the kernel. The result has the dtype of out, the dtype argument, or x; of x in
 * 8 bits it is bfloat16. */
fs_work fs_count_packed_product(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *x = fs_schema_tensor(&schema, call, "x"), *w = fs_schema_tensor(&schema, call, "weight");
    if (x == NULL || w == NULL) return fs_work_unknown;
    double k = fs_sizes_from_end(x, 1), m = fs_sizes_elements(x) / k, n = packed_width(rule, &schema, call, m, k);
    if (!(n > 0) || !(k > 0)) return fs_work_unknown;
    const fs_torch_tensor *out = fs_schema_tensor(&schema, call, "out");
    unsigned wide = fs_sizes_item(x->dtype) > 1 ? x->dtype : (unsigned)FS_TORCH_BFLOAT16;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.read += fs_sizes_read(x);
    traffic.written += m * n * fs_sizes_item(out != NULL ? out->dtype : result_dtype(rule, &schema, call, wide));
    return with_traffic(2 * m * n * k, traffic, fs_unit_of_product(x->dtype));
}

/* Each row is multiplied with one matrix of a group. Which rows are used at all is in the sizes: an upper bound. */
fs_work fs_count_grouped_rows(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *x = fs_schema_tensor(&schema, call, "x"), *w = fs_schema_tensor(&schema, call, "w");
    if (x == NULL || w == NULL || x->ndim != 2 || w->ndim != 3) return fs_work_unknown;
    double k = fs_sizes_from_end(x, 1), rows = (double)x->shape[0], n = NAN;
    if (fs_sizes_from_end(w, 2) == k) n = fs_sizes_from_end(w, 1);
    if (fs_sizes_from_end(w, 1) == k && (isnan(n) || rule->option == FS_GIVES_HALF)) n = fs_sizes_from_end(w, 2);
    if (isnan(n)) return fs_work_unknown;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.read += fs_sizes_read(x) + fs_sizes_read(w);
    traffic.written += rows * n * fs_sizes_item(result_dtype(rule, &schema, call, x->dtype));
    fs_work work = with_traffic(2 * rows * n * k, traffic, fs_unit_of_product(x->dtype));
    return rule->option == FS_GIVES_HALF ? bounded(work) : work;
}

/* Each row of x [M, K] is multiplied with one of the weights [N, K]; option FS_OF_GRADIENT: both gradients of that. */
fs_work fs_count_grouped_linear(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *x = fs_schema_tensor_at(call, 0);
    double n = NAN, weights = 0;
    if (x == NULL || x->ndim < 2) return fs_work_unknown;
    for (uint32_t i = 1; i < call->count; i++) {
        const fs_torch_tensor *w = fs_schema_tensor_at(call, i);
        if (w == NULL || w->ndim != 2 || (double)w->shape[1] != fs_sizes_from_end(x, 1)) continue;
        if (weights > 0 && (double)w->shape[0] != n) return fs_work_unknown;
        n = (double)w->shape[0];
        weights += fs_sizes_read(w);
    }
    double results = fs_sizes_elements(x) / fs_sizes_from_end(x, 1) * n * fs_sizes_item(x->dtype),
           read = fs_sizes_read(x) + weights;
    bool gradient = (rule->option & FS_OF_GRADIENT) != 0;
    return fs_sizes_work(rule->flops * fs_sizes_elements(x) * n, gradient ? read + results : read,
                         gradient ? read : results, fs_unit_of_product(x->dtype));
}

/* The sum over the pairs of two lists, x [M, K] and w. */
fs_work fs_count_products_of_lists(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    int places[] = {fs_schema_place(&schema, "x"), fs_schema_place(&schema, "w")};
    const fs_torch_argument *x = &call->arguments[places[0]], *w = &call->arguments[places[1]];
    const int64_t *x_at = x->list, *w_at = w->list;
    double flops = 0, results = 0;
    unsigned dtype = FS_TORCH_DTYPE_NONE;
    if (x->type != FS_TORCH_TENSOR_LIST || x->count == 0 || x->count != w->count) return fs_work_unknown;
    for (uint32_t i = 0; i < x->count; i++) {
        fs_torch_tensor a, b;
        fs_torch_next_tensor(&x_at, &a);
        fs_torch_next_tensor(&w_at, &b);
        double n = a.ndim == 2 ? width_of(rule->option, &b, fs_sizes_from_end(&a, 1)) : (double)NAN;
        if (isnan(n)) return fs_work_unknown;
        flops += rule->flops * fs_sizes_elements(&a) * n;
        results += (double)a.shape[0] * n;
        dtype = fs_schema_list_dtype(&schema, call, places[0]);
    }
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.written += results * fs_sizes_item(result_dtype(rule, &schema, call, dtype));
    return with_traffic(flops, traffic, fs_unit_of_product(dtype));
}

/* The rows between two numbers of indptr [.., S + 1] become one of the result, along the last axis of indptr. An upper
 * bound: it need not begin or end where src does. */
fs_work fs_count_segments(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *src = fs_schema_tensor(&schema, call, "src");
    const fs_torch_tensor *indptr = fs_schema_tensor(&schema, call, "indptr");
    if (src == NULL || indptr == NULL || indptr->ndim == 0 || indptr->ndim > src->ndim) return fs_work_unknown;
    double rows = (double)src->shape[indptr->ndim - 1], segments = (double)indptr->shape[indptr->ndim - 1] - 1;
    if (rows <= 0 || segments < 0) return fs_work_unknown;
    double results = fs_sizes_elements(src) / rows * segments;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.written +=
        results * (fs_sizes_item(src->dtype) + ((rule->option & FS_WITH_PLACES) != 0 ? sizeof(int64_t) : 0));
    return bounded(with_traffic(fs_sizes_elements(src), traffic, fs_unit_of_plain(src->dtype)));
}

/* Gate, up and down projections of k experts per token: 2 T k (2 I H + I H). At most as many experts' weights are read
 * as tokens choose; which ones is unknown: an upper bound. */
fs_work fs_count_experts(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *x = fs_schema_tensor(&schema, call, "x"), *ids = fs_schema_tensor(&schema, call, "ids");
    const fs_torch_tensor *w1 = fs_schema_tensor(&schema, call, "w1"), *w2 = fs_schema_tensor(&schema, call, "w2");
    if (x == NULL || ids == NULL || w1 == NULL || w2 == NULL) return fs_work_unknown;
    if (x->ndim != 2 || ids->ndim != 2 || w1->ndim != 3 || w2->ndim != 3) return fs_work_unknown;
    double tokens = (double)x->shape[0], hidden = (double)x->shape[1], chosen = (double)ids->shape[1];
    double experts = (double)w1->shape[0], up = (double)w1->shape[1], inner = (double)w2->shape[2];
    double packed = (double)w1->shape[2] * 2 == hidden ? 2 : 1; /* two numbers a byte */
    if ((double)ids->shape[0] != tokens || (double)w1->shape[2] * packed != hidden) return fs_work_unknown;
    inner *= packed;
    if ((double)w2->shape[1] != hidden || (up != 2 * inner && up != inner)) return fs_work_unknown;
    double used = experts > 0 ? fmin(1, tokens * chosen / experts) : 0;
    unsigned factors = fs_torch_dtypes[w1->dtype].kind == FS_TORCH_FLOAT8 ? w1->dtype : x->dtype; /* x is quantized */
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.read += fs_sizes_read(x) + used * (fs_sizes_read(w1) + fs_sizes_read(w2));
    traffic.written += fs_sizes_elements(x) * fs_sizes_item(x->dtype);
    fs_work work = with_traffic(2 * tokens * chosen * hidden * (up + inner), traffic, fs_unit_of_product(factors));
    work.at_most = used < 1 || tokens * chosen < 8 * experts; /* beyond that all experts are used, but for chance */
    return work;
}

/* Rows that are already sorted by expert, and padded: an upper bound. */
fs_work fs_count_expert_rows(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *x = fs_schema_tensor(&schema, call, "x");
    const fs_torch_tensor *w1 = fs_schema_tensor(&schema, call, "w1"), *w2 = fs_schema_tensor(&schema, call, "w2");
    if (x == NULL || w1 == NULL || w2 == NULL || x->ndim != 2 || w1->ndim != 3 || w2->ndim != 3) return fs_work_unknown;
    double rows = (double)x->shape[0], hidden = (double)x->shape[1], up = (double)w1->shape[1],
           inner = (double)w2->shape[2];
    if ((double)w1->shape[2] != hidden || (double)w2->shape[1] != hidden || (up != 2 * inner && up != inner))
        return fs_work_unknown;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.read += fs_sizes_read(x) + fs_sizes_read(w1) + fs_sizes_read(w2);
    traffic.written += rows * hidden * fs_sizes_item(w1->dtype);
    return bounded(with_traffic(2 * rows * hidden * (up + inner), traffic, fs_unit_of_product(x->dtype)));
}

/* The weights are hidden: tokens in and out are a lower bound, unless the kernels tell (kernels.h). */
fs_work fs_count_hidden_experts(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    fs_work work = bounded(with_traffic(NAN, fs_schema_traffic(&schema, call), fs_unit_of_plain(FS_TORCH_DTYPE_NONE)));
    work.needs = FS_NEEDS_KERNELS;
    return work;
}

/* Attention -------------------------------------------------------------------------------------------------------- */

/* Sums over the sequences of a step: queries, keys, squared queries, products of both. */
typedef struct {
    double queries, keys, squares, products;
} step_lengths;

/* Add the numbers of "(sq8sk33sqsq8sqsk33)", as serving engines write them into the name of a step:
 * "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk33sqsq8sqsk33)". */
static bool add_lengths(const char *name, step_lengths *sums)
{
    bool any = false;
    *sums = (step_lengths){0, 0, 0, 0};
    if (name == NULL) return false;
    for (const char *at = name; (at = strstr(at, "(sq")) != NULL; at++) {
        long long numbers[4];
        static const char *const marks[] = {"(sq", "sk", "sqsq", "sqsk"};
        const char *next = at;
        int found = 0;
        for (; found < 4 && strncmp(next, marks[found], strlen(marks[found])) == 0; found++) {
            next += strlen(marks[found]);
            size_t digits = strspn(next, "0123456789");
            if (digits == 0 || digits > 17) break;
            numbers[found] = 0;
            for (size_t i = 0; i < digits; i++) numbers[found] = numbers[found] * 10 + (next[i] - '0');
            next += digits;
        }
        if (found < 4) continue;
        sums->queries += (double)numbers[0];
        sums->keys += (double)numbers[1];
        sums->squares += (double)numbers[2];
        sums->products += (double)numbers[3];
        any = true;
    }
    return any;
}

bool fs_work_is_annotation(const char *name)
{
    step_lengths sums;
    return add_lengths(name, &sums);
}

/* Queries [tokens, heads, size] against cached keys and values, causal. The lengths of the caches are known from the
 * annotation of the step, though not windows. Else they are at most max_len for a query of each sequence, if the op has
 * that argument; or new tokens are all that is sure: a lower bound. The cache is [.., heads, size], or in any order of
 * an op with the argument kv_heads. */
fs_work fs_count_attend_cached(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *q = fs_schema_tensor(&schema, call, "q"), *k = fs_schema_tensor(&schema, call, "k");
    if (k == NULL) k = fs_schema_tensor(&schema, call, "key_cache");
    if (q == NULL || k == NULL || q->ndim < 2 || k->ndim < 2) return fs_work_unknown;
    step_lengths sums;
    double tokens = (double)q->shape[0], size = fs_sizes_from_end(q, 1), width = fs_sizes_elements(q) / tokens;
    double heads = fs_schema_number(&schema, call, "kv_heads"), longest = fs_schema_number(&schema, call, "max_len");
    double row = k->ndim > 2 ? fs_sizes_from_end(k, 1) * fs_sizes_from_end(k, 2)
                             : fs_sizes_from_end(k, 1); /* of keys of one token */
    if (heads > 0) row = heads * size;
    row *= fs_sizes_item(k->dtype);
    if (fs_schema_place(&schema, "key_cache") >= 0 && !(heads > 0) && fs_sizes_from_end(k, 1) != size)
        return fs_work_unknown;
    if (!(tokens > 0)) return fs_work_unknown;
    bool known = add_lengths(call->annotation, &sums) && sums.queries <= tokens && sums.queries > 0;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    double keys = longest > 0 ? tokens * longest : tokens, pairs = keys;
    if (known) {
        keys = sums.keys;
        pairs = sums.products - (sums.squares - sums.queries) / 2;
    }
    traffic.read += fs_sizes_read(q) + 2 * keys * row;
    fs_work work = with_traffic(4 * width * pairs, traffic, fs_unit_of_product(q->dtype));
    if (call->annotation == NULL) work.needs = FS_NEEDS_ANNOTATION;
    return bounded(work);
}

/* Vision ----------------------------------------------------------------------------------------------------------- */

/* The gradient of samples is added to at most all points of the image, which an op inside has filled with 0. */
static fs_work spread(const fs_aten_rule *rule, const fs_schema *schema, const fs_torch_call *call, double points)
{
    static const char *const sizes[] = {"batch", "channels", "h", "w"};
    const fs_torch_tensor *grad = fs_schema_tensor(schema, call, "grad");
    fs_traffic traffic = fs_schema_traffic(schema, call);
    double image = 1, samples = fs_sizes_elements(grad) * points;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) image *= fs_schema_number(schema, call, sizes[i]);
    double touched = (isnan(samples) ? image : fmin(image, 4 * samples)) * fs_sizes_item(grad->dtype);
    traffic.read += touched;
    traffic.written += touched;
    fs_work work = bounded(with_traffic(rule->flops * samples, traffic, fs_unit_of_plain(grad->dtype)));
    work.apart = true;
    return work;
}

/* Regions of an image become [R, C, height, width], of ratio² samples each; a ratio of 0 or less adapts to the region
 * and is unknown, as are maxima and means of all that is in it. */
fs_work fs_count_sampled(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *input = fs_schema_tensor(&schema, call, "input"),
                          *rois = fs_schema_tensor(&schema, call, "rois"),
                          *grad = fs_schema_tensor(&schema, call, "grad");
    double height = fs_schema_number(&schema, call, "height"), width = fs_schema_number(&schema, call, "width");
    double ratio = fs_schema_number(&schema, call, "ratio"), points = ratio > 0 ? ratio * ratio : (double)NAN;
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    if (grad != NULL) return spread(rule, &schema, call, points);
    if (input == NULL || rois == NULL || input->ndim != 4 || rois->ndim != 2) return fs_work_unknown;
    double results = (double)rois->shape[0] * (double)input->shape[1];
    if ((rule->option & FS_BY_PLACE) == 0) results *= height * width; /* else each place has channels of its own */
    double item = fs_sizes_item(input->dtype), touched = 4 * results * points * item;
    traffic.read += isnan(touched) ? fs_sizes_read(input) : fmin(fs_sizes_read(input), touched);
    traffic.written += results * (item + ((rule->option & FS_WITH_PLACES) != 0 ? sizeof(int32_t) : 0));
    return bounded(with_traffic(rule->flops * results * points, traffic, fs_unit_of_plain(input->dtype)));
}

/* State spaces ----------------------------------------------------------------------------------------------------- */

fs_work fs_count_convolved(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *x = fs_schema_tensor(&schema, call, "x"), *w = fs_schema_tensor(&schema, call, "w");
    if (x == NULL || w == NULL || w->ndim != 2) return fs_work_unknown;
    if (!FS_ANY(d, x->ndim, x->shape[d] == w->shape[0])) return fs_work_unknown; /* the channels */
    fs_traffic traffic = fs_schema_traffic(&schema, call);
    traffic.read += fs_sizes_read(x) + fs_sizes_read(w);
    return with_traffic(rule->flops * fs_sizes_elements(x) * (double)w->shape[1], traffic, fs_unit_of_plain(x->dtype));
}

fs_work fs_count_scanned(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    const fs_torch_tensor *u = fs_schema_tensor(&schema, call, "u"), *a = fs_schema_tensor(&schema, call, "A");
    if (u == NULL || a == NULL || a->ndim != 2) return fs_work_unknown;
    return with_traffic(rule->flops * fs_sizes_elements(u) * (double)a->shape[1], fs_schema_traffic(&schema, call),
                        fs_unit_of_plain(u->dtype));
}

/* Collectives, as torch records them: record_param_comms. */

static double bytes_of(int64_t elements, int size)
{
    return elements != FS_MISSING && size > 0 ? (double)elements * size : (double)NAN;
}

/* What this device reads and writes of its own memory. FLOPs: 0 without a reduction; where sums are made depends on
 * the algorithm and the network. */
static fs_work work_of(fs_collective_kind kind, double sent, double received)
{
    fs_work work = fs_work_unknown;
    bool reduces = kind == FS_COLLECTIVE_ALLREDUCE || kind == FS_COLLECTIVE_REDUCESCATTER ||
                   kind == FS_COLLECTIVE_REDUCE || kind == FS_COLLECTIVE_OTHER;
    work.between = true;
    work.flops = reduces ? (double)NAN : 0;
    switch (kind) {
    case FS_COLLECTIVE_BROADCAST: /* the root reads, the others write */
        work.bytes_moved = sent;
        break;
    case FS_COLLECTIVE_SEND:
        work = fs_sizes_work(work.flops, sent, 0, work.unit);
        break;
    case FS_COLLECTIVE_RECV:
        work = fs_sizes_work(work.flops, 0, received, work.unit);
        break;
    default:
        work = fs_sizes_work(work.flops, sent, received, work.unit);
    }
    work.between = true;
    /* Only the root of these has both sizes. */
    work.at_most = kind == FS_COLLECTIVE_REDUCE || kind == FS_COLLECTIVE_GATHER || kind == FS_COLLECTIVE_SCATTER;
    if (isnan(work.bytes_moved)) work.flops = NAN;
    return work;
}

static fs_work of_callers(const fs_torch_call *call)
{
    fs_collective_sizes sizes = fs_collective_no_sizes;
    fs_collective_kind kind = FS_COLLECTIVE_OTHER;
    int32_t ranks = 0;
    fs_work work = fs_work_unknown;
    if (call->outer_name != NULL && fs_collective_is_caller(call->outer_name)) {
        kind = fs_collective_kind_of(call->outer_name);
        fs_collective_read_caller(call->outer_name, call->outer, &sizes);
        fs_collective_read_caller("record_param_comms", call, &sizes);
        bool both = sizes.sent != FS_MISSING && sizes.received != FS_MISSING;
        fs_torch_dtype dtype =
            sizes.dtype != NULL ? fs_torch_dtype_named(sizes.dtype, strlen(sizes.dtype)) : FS_TORCH_DTYPE_NONE;
        if (fs_collective_complete(kind, &sizes, &ranks)) {
            int size = fs_torch_dtypes[dtype].size;
            work = work_of(kind, bytes_of(sizes.sent, size), bytes_of(sizes.received, size));
            work.at_most = work.at_most || (kind == FS_COLLECTIVE_ALLTOALL && !both); /* parts may differ */
        }
    }
    if (isnan(work.bytes_moved)) work.needs = FS_NEEDS_CALLER;
    return work;
}

fs_work fs_count_collective(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    fs_collective recorded;
    if (!fs_collective_read(call->end, call->rest, &recorded)) return of_callers(call);
    fs_collective_kind kind = fs_collective_kind_of(recorded.name.text);
    int64_t sent = recorded.in_elements, received = recorded.out_elements;
    if (kind == FS_COLLECTIVE_RECV && received <= 0) received = sent;
    if (kind == FS_COLLECTIVE_SEND && sent <= 0) sent = received;
    return work_of(kind, bytes_of(sent, recorded.element_size), bytes_of(received, recorded.element_size));
}

/* Families of rules for FBGEMM's tables of embeddings: libraries.h. */

/* Each index reads a row of total_D / T numbers on average; each bag writes its sum. Which table an index is of is
 * unknown, so that tables of different widths give an estimate. Older traces have no numbers: then the shape of the
 * result tells total_D and the pooling. */
typedef struct {
    const fs_torch_tensor *indices, *offsets;
    double tables, total, batch, count; /* count of indices */
    bool pooled;                        /* each bag gives a sum; else each index a row */
} bags;

static bool find_bags(const fs_schema *schema, const fs_torch_call *call, bags *found)
{
    enum { NOT_POOLED = 2 }; /* fbgemm_gpu's PoolingMode.NONE */
    const fs_torch_tensor *widths = fs_schema_tensor(schema, call, "D_offsets");
    bool rows = fs_schema_place(schema, "D") >= 0; /* no bags: each index gives a row of D */
    found->indices = fs_schema_tensor(schema, call, "indices");
    found->offsets = fs_schema_tensor(schema, call, "offsets");
    if (found->indices == NULL || found->offsets == NULL || (widths == NULL && !rows)) return false;
    found->tables = rows ? 1 : fs_sizes_elements(widths) - 1;
    found->total = fs_schema_number(schema, call, rows ? "D" : "total_D");
    found->count = fs_sizes_elements(found->indices);
    found->batch = found->tables > 0 ? (fs_sizes_elements(found->offsets) - 1) / found->tables : (double)NAN;
    found->pooled = !rows && fs_schema_number(schema, call, "pooling") != NOT_POOLED;
    const fs_torch_tensor *result = call->output;
    if (isnan(found->total) && result != NULL && result->ndim == 2) {
        found->pooled = (double)result->shape[0] == found->batch;
        found->total = (double)result->shape[1] * (found->pooled ? 1 : found->tables);
    }
    return found->batch >= 0;
}

static double given_indices(const bags *of)
{
    return fs_sizes_read(of->indices) + fs_sizes_read(of->offsets);
}

/* fbgemm_gpu's SparseType, as the argument "output" has it; the default is float16. */
static double item_of_output(double output)
{
    static const double items[] = {[0] = 4, [1] = 2, [2] = 1, [5] = 2};
    if (isnan(output)) return 2;
    bool known = output >= 0 && (size_t)output < sizeof items / sizeof *items && items[(int)output] > 0;
    return known ? items[(int)output] : (double)NAN;
}

/* Return the bytes of a number of the weights that are not empty. */
static double item_of_weights(const fs_torch_call *call)
{
    double item = 4;
    for (uint32_t i = 0; i < 3 && i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor != NULL && tensor->ndim > 0 && fs_sizes_elements(tensor) > 0) item = fs_sizes_item(tensor->dtype);
    }
    return item;
}

/* Unknown, unless the gradient tells the shape of the result. */
static fs_work of_result(void)
{
    fs_work work = fs_work_unknown;
    work.needs = FS_NEEDS_GRADIENT;
    return work;
}

fs_work fs_count_embedding_bags(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    bool rows = fs_schema_place(&schema, "D") >= 0;
    double most = fs_schema_number(&schema, call, rows ? "D" : "max_D");
    bags of;
    if (!find_bags(&schema, call, &of)) return fs_work_unknown;
    if (!(of.total > 0)) return of_result();
    double width = of.total / of.tables, item = item_of_weights(call),
           read = of.count * width * item + given_indices(&of);
    if (isnan(most)) most = width;
    double written = of.pooled ? of.batch * of.total : of.count * most;
    double flops = of.pooled ? rule->flops * of.count * width : 0;
    written *= fs_schema_place(&schema, "output") >= 0 ? item_of_output(fs_schema_number(&schema, call, "output")) : 4;
    fs_work work = fs_sizes_work(flops, read, written, fs_unit_of_plain(FS_TORCH_FLOAT32));
    work.at_most = most * of.tables != of.total || isnan(fs_schema_number(&schema, call, rows ? "D" : "max_D"));
    return work;
}

/* At most each index touches a row of its own. */
fs_work fs_count_embedding_bags_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    bags of;
    if (!find_bags(&schema, call, &of) || !(of.total > 0) || call->output == NULL) return fs_work_unknown;
    double width = of.total / of.tables, item = item_of_weights(call), state = sizeof(float);
    int of_number = rule->option / FS_NUMBER_STATE, of_row = rule->option % FS_NUMBER_STATE;
    double updated = of.count * (width * (item + (of_number - 1) * state) + of_row * state);
    double read = fs_sizes_read(call->output) + given_indices(&of);
    bool dense = of_number == 0;
    fs_work work = fs_sizes_work(rule->flops * of.count * width, read + (dense ? 0 : updated),
                                 dense ? of.count * width * item : updated, fs_unit_of_plain(FS_TORCH_FLOAT32));
    work.at_most = true;
    work.apart = dense; /* an op inside fills the gradient with zeros */
    return work;
}

static const struct {
    const char *before, *after;
} node_name = {"torch::autograd::CppNode<SplitLookupFunction_", "_Op>"},
  lookup_name = {"fbgemm::split_embedding_codegen_lookup_", "_function"};

bool fs_bags_is_gradient(const char *node)
{
    return strncmp(node, node_name.before, strlen(node_name.before)) == 0;
}

bool fs_bags_is_gradient_of(const char *node, const char *lookup)
{
    if (!fs_bags_is_gradient(node)) return false;
    const char *optimizer = node + strlen(node_name.before);
    if (strcmp(optimizer, "Dense_Op>") == 0)
        return strcmp(lookup, "fbgemm::dense_embedding_codegen_lookup_function") == 0;
    size_t size = strcspn(optimizer, ">") + 1, after = strlen(node_name.after), begin = strlen(lookup_name.before);
    if (size <= after || strncmp(lookup, lookup_name.before, begin) != 0) return false;
    size -= after;
    return strcmp(optimizer + size, node_name.after) == 0 && strncmp(lookup + begin, optimizer, size) == 0 &&
           strcmp(lookup + begin + size, lookup_name.after) == 0;
}

bool fs_bags_fit(const char *lookup, const fs_torch_call *call, const fs_torch_tensor *gradient)
{
    bags of;
    const fs_aten_rule *rule = fs_aten_find(lookup, strlen(lookup));
    if (rule == NULL || rule->count != fs_count_embedding_bags || gradient == NULL || gradient->ndim != 2) return false;
    fs_schema schema = fs_schema_of(rule->arguments);
    if (!fs_schema_fits(&schema, call) || !find_bags(&schema, call, &of)) return false;
    double rows = (double)gradient->shape[0], columns = (double)gradient->shape[1];
    if (isnan(of.total)) return rows == of.batch || rows == of.count;
    return of.pooled ? rows == of.batch && columns == of.total : rows == of.count && columns * of.tables == of.total;
}

/* The types of rows, by the argument that has the widest one: bits of a number, bytes of a row's scale and bias. */
static const struct {
    const char *widest;
    double bits, extra;
} row_types[] = {{"int2", 2, 4},   {"int4", 4, 4},     {"int8", 8, 4},
                 {"float8", 8, 0}, {"float16", 16, 0}, {"float32", 32, 0}};

fs_work fs_count_quantized_bags(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema = fs_schema_of(rule->arguments);
    double row = NAN, widest = 0;
    int types = 0;
    bags of;
    if (!find_bags(&schema, call, &of) || !(of.total > 0)) return fs_work_unknown;
    double width = of.total / of.tables;
    for (size_t i = 0; i < sizeof row_types / sizeof *row_types; i++) {
        double most = fs_schema_number(&schema, call, row_types[i].widest);
        if (!(most > 0)) continue;
        row = fmax(row, width * row_types[i].bits / 8 + row_types[i].extra); /* of several types the widest */
        widest = fmax(widest, most);
        types++;
    }
    const fs_torch_tensor *weights = fs_schema_tensor(&schema, call, "weights");
    double read = of.count * row + given_indices(&of) + (weights != NULL ? fs_sizes_read(weights) : 0);
    double written = of.pooled ? of.batch * of.total : of.count * widest;
    double flops = of.pooled ? rule->flops * (weights != NULL ? 2 : 1) * of.count * width : 0;
    written *= item_of_output(fs_schema_number(&schema, call, "output"));
    fs_work work = fs_sizes_work(flops, read, written, fs_unit_of_plain(FS_TORCH_FLOAT32));
    work.at_most = types > 1 || widest * of.tables != of.total;
    return work;
}
