/* Scaled dot-product attention in all its variants, and its gradients. */
#include "work/aten/attention.h"

#include <math.h>

#include "work/aten/products.h"
#include "work/aten/sizes.h"

static const struct {
    int query, layout, bias, causal, lengths, longest, log_sum_exp, window;
    uint32_t fewest;
} places[] = {
#define PLACES(NAME, ...) [FS_ATTENTION_##NAME] = {__VA_ARGS__},
    FS_ATTENTION_LIST(PLACES)
#undef PLACES
};

static const int tables[] = {
#define TABLE(NAME, place) [FS_ATTENTION_##NAME] = (place),
    FS_PAGED_LIST(TABLE)
#undef TABLE
        [sizeof places / sizeof *places] = 0,
};

static const bool begins_top_left[] = {
#define TOP_LEFT(NAME) [FS_ATTENTION_##NAME] = true,
    FS_TOP_LEFT_LIST(TOP_LEFT)
#undef TOP_LEFT
        [sizeof places / sizeof *places] = false,
};

/* Queries of [batch, heads, rows, size], keys and values of `columns` rows each, values of `value_size`. */
typedef struct {
    const fs_torch_tensor *query, *key, *value;
    double batch, heads, rows, columns, size, value_size;
    double cached; /* rows of keys that are read from a cache at most; negative: no cache */
    bool bound;    /* lengths are only bounded */
} shapes;

static const fs_torch_tensor *tensor_at(const fs_torch_call *call, int place)
{
    const fs_torch_tensor *tensor = place < 0 ? NULL : fs_sizes_tensor(call, (unsigned)place);
    return tensor != NULL && tensor->ndim > 0 ? tensor : NULL;
}

static int row_of(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option;
    /* Of a call without its last arguments, a number after the values tells the version. */
    bool first = call->shortened && !(call->count > 3 && call->arguments[3].type == FS_TORCH_SCALAR);
    while (!first && call->count < places[row].fewest) row++;
    return row;
}

static bool find_shapes(const fs_torch_call *call, int row, shapes *found)
{
    int first = places[row].query;
    found->query = tensor_at(call, first);
    found->key = tensor_at(call, first + 1);
    found->value = tensor_at(call, first + 2);
    if (found->query == NULL || found->key == NULL || found->value == NULL) return false;
    if (found->query->ndim < 2 || found->key->ndim < 2 || found->value->ndim < 2) return false;
    found->size = fs_sizes_from_end(found->query, 1);
    found->value_size = fs_sizes_from_end(found->value, 1);
    bool heads_first = places[row].layout == FS_HEADS_FIRST && found->query->ndim != 3;
    if (!heads_first && (found->query->ndim < 3 || found->key->ndim < 3)) return false;
    found->rows = fs_sizes_from_end(found->query, heads_first ? 2 : 3);
    found->columns = fs_sizes_from_end(found->key, heads_first ? 2 : 3);
    found->batch = found->query->ndim > 3 ? (double)found->query->shape[0] : 1;
    double elements = found->batch * found->rows * found->size;
    found->heads = elements > 0 ? fs_sizes_elements(found->query) / elements : 0;
    if (places[row].layout == FS_HEADS_FIRST && found->query->ndim == 3 && places[row].lengths < 0) {
        /* [heads, sequence, size] without a batch */
        found->heads = fs_sizes_from_end(found->query, 3);
        found->rows = fs_sizes_from_end(found->query, 2);
        found->columns = fs_sizes_from_end(found->key, 2);
    }
    return true;
}

/* Handle concatenated sequences: if all have the longest length, they form a batch; otherwise their lengths are only
 * bounded. */
static void part_sequences(const fs_torch_call *call, int row, shapes *found)
{
    const fs_torch_tensor *offsets = tensor_at(call, places[row].lengths);
    double count = offsets != NULL ? fs_sizes_elements(offsets) - 1 : 0;
    if (count < 1) return;
    if (found->query->ndim < 3 || found->key->ndim < 3) {
        found->batch = NAN;
        return;
    }
    double rows = fs_sizes_number(fs_sizes_text(call, (unsigned)places[row].longest), NAN);
    double columns = fs_sizes_number(fs_sizes_text(call, (unsigned)places[row].longest + 1), NAN);
    bool even = count * rows == found->batch * found->rows && count * columns == found->batch * found->columns;
    found->batch = even ? count : (double)NAN;
    found->rows = rows;
    found->columns = columns;
    if (even || !(rows > 0) || !(columns > 0)) return;
    /* The sum over sequences of the products of their lengths is at most each total times the other's longest. */
    double queries = found->query->ndim > 3 ? (double)found->query->shape[0] * fs_sizes_from_end(found->query, 3)
                                            : fs_sizes_from_end(found->query, 3);
    double keys =
        found->cached >= 0 ? count * columns : fs_sizes_elements(found->key) / fs_sizes_from_end(found->key, 1);
    if (found->cached < 0) keys /= fs_sizes_from_end(found->key, 2);
    found->batch = fmin(queries / rows, keys / columns);
    found->bound = true;
}

/* Keys and values in blocks of a cache: the longest sequence bounds what is read. */
static void read_cache(const fs_torch_call *call, int row, shapes *found)
{
    const fs_torch_tensor *table = tables[row] > 0 ? tensor_at(call, tables[row]) : NULL;
    found->cached = -1;
    found->bound = false;
    if (table == NULL || table->ndim != 2 || found->key->ndim != 4) return;
    double longest = fs_sizes_number(fs_sizes_text(call, (unsigned)places[row].longest + 1), NAN);
    double most = (double)table->shape[1] * fs_sizes_from_end(found->key, 3);
    found->columns = longest > 0 ? fmin(longest, most) : most;
    found->cached = (double)table->shape[0] * found->columns;
    found->bound = true;
}

static double cache_bytes(const shapes *found, const fs_torch_tensor *cache)
{
    if (found->cached < 0) return fs_sizes_read(cache);
    double row = fs_sizes_from_end(cache, 1) * fs_sizes_from_end(cache, 2) * fs_sizes_item(cache->dtype);
    return fmin(found->cached * row, fs_sizes_read(cache));
}

/* The keys visible to a query, relative to its own: how many before and after; negative: all. A query's own key has its
 * number if top_left; else the last query and the last key belong together. */
typedef struct {
    double before, after;
    bool known, top_left;
} mask;

enum { FROM_TOP_LEFT = 1 }; /* the mask number of a causal mask; 2: from the bottom right */

static mask mask_of(const fs_torch_call *call, int row)
{
    bool by_number = places[row].layout == FS_MASKED;
    double causal =
        by_number ? fs_products_number(call, places[row].causal, 0) : fs_products_flag(call, places[row].causal);
    bool top_left = by_number ? causal == FROM_TOP_LEFT : begins_top_left[row];
    mask found = {-1, -1, !isnan(causal), top_left};
    int window = places[row].window;
    if (window >= 0) {
        found.before = fs_sizes_number(fs_sizes_text(call, (unsigned)window), -1) - by_number;
        if (!by_number) found.after = fs_sizes_number(fs_sizes_text(call, (unsigned)window + 1), -1);
    }
    if (causal > 0) found.after = 0;
    return found;
}

double fs_attention_reached(double rows, double columns, double shift)
{
    double sums[2], ends[2] = {shift - 1, shift + rows - 1};
    for (int i = 0; i < 2; i++) {
        double rising = fmin(fmax(ends[i], 0), columns);
        sums[i] = rising * (rising + 1) / 2 + columns * fmax(ends[i] - columns, 0);
    }
    return sums[1] - sums[0];
}

/* Return the number of query-key pairs that the mask leaves. */
static double pairs_of(const shapes *of, mask visible)
{
    double rows = of->rows, columns = of->columns, offset = visible.top_left ? 0 : columns - rows;
    if (!visible.known) return NAN;
    if (visible.before < 0 && visible.after < 0) return rows * columns;
    double until = visible.after < 0 ? rows * columns : fs_attention_reached(rows, columns, offset + visible.after + 1);
    return until - (visible.before < 0 ? 0 : fs_attention_reached(rows, columns, offset - visible.before));
}

static double bias_bytes(const fs_torch_call *call, int row)
{
    const fs_torch_tensor *bias = tensor_at(call, places[row].bias);
    return bias != NULL ? fs_sizes_read(bias) : 0;
}

/* Return the bytes of an element of the result: 8-bit attention returns bfloat16. */
static double item_of(const fs_torch_tensor *query)
{
    return fs_torch_dtypes[query->dtype].kind == FS_TORCH_FLOAT8 ? 2 : fs_sizes_item(query->dtype);
}

/* One float32 per query and head. */
static double log_sum_exp_bytes(const fs_torch_call *call, int row, const shapes *of)
{
    int place = places[row].log_sum_exp;
    bool here = place == FS_ALWAYS || (place >= 0 && fs_sizes_is_true(fs_sizes_text(call, (unsigned)place)));
    return here ? 4 * fs_sizes_elements(of->query) / of->size : 0;
}

/* 2 B H Sq Skv (D + Dv): queries with keys, and the weights with values. */
fs_work fs_count_attention(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = row_of(rule, call);
    shapes of;
    if (!find_shapes(call, row, &of) || of.size == 0) return fs_work_unknown;
    read_cache(call, row, &of);
    double read =
        fs_sizes_read(of.query) + cache_bytes(&of, of.key) + cache_bytes(&of, of.value) + bias_bytes(call, row);
    double output = fs_sizes_elements(of.query) / of.size * of.value_size * item_of(of.query);
    double written = output + log_sum_exp_bytes(call, row, &of);
    part_sequences(call, row, &of);
    double flops = 2 * of.batch * of.heads * pairs_of(&of, mask_of(call, row)) * (of.size + of.value_size);
    fs_work work = fs_sizes_work(flops, read, written, fs_unit_of_product(of.query->dtype));
    work.at_most = of.bound;
    return work;
}

/* Five products: queries with keys again, and the gradients of weights, values, queries and keys. */
fs_work fs_count_attention_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = row_of(rule, call);
    shapes of;
    if (!find_shapes(call, row, &of) || of.size == 0) return fs_work_unknown;
    of.cached = -1;
    of.bound = false;
    double item = item_of(of.query);
    double output = fs_sizes_elements(of.query) / of.size * of.value_size * item; /* the output and its gradient */
    double inputs = fs_sizes_read(of.query) + fs_sizes_read(of.key) + fs_sizes_read(of.value);
    double read = inputs + 2 * output + log_sum_exp_bytes(call, row, &of) + bias_bytes(call, row);
    double written = (fs_sizes_elements(of.query) + fs_sizes_elements(of.key) + fs_sizes_elements(of.value)) * item;
    part_sequences(call, row, &of);
    double pairs = of.batch * of.heads * pairs_of(&of, mask_of(call, row));
    fs_work work = fs_sizes_work(2 * pairs * (3 * of.size + 2 * of.value_size), read, written,
                                 fs_unit_of_product(of.query->dtype));
    work.at_most = of.bound;
    return work;
}
