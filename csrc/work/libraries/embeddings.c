/* Families of rules for FBGEMM's tables of embeddings: libraries.h. */
#include <math.h>
#include <string.h>

#include "work/aten/generated.h"
#include "work/aten/sizes.h"
#include "work/libraries/libraries.h"
#include "work/libraries/traffic.h"

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
