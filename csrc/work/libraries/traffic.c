/* The whole row is used here, arguments and expressions, on top of schema.c. A call fits, or it has no
 * work; conditions on sizes that are unknown hold. Bytes are added up by role in one loop; NaN for one argument makes
 * the sum NaN. */
#include "work/libraries/traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "work/aten/sizes.h"
#include "work/libraries/schema.h"

bool fs_schema_is_sound(const fs_schema *schema)
{
    const char *rest = schema->reads != NULL     ? schema->reads
                       : schema->results != NULL ? schema->results
                       : schema->flops != NULL   ? schema->flops
                                                 : schema->conditions;
    return rest == NULL || fs_expression_is_sound(rest, schema);
}

/* Fitting ---------------------------------------------------------------------------------------------------------- */

static bool argument_fits(const fs_schema_argument *argument, const fs_torch_call *call, uint32_t place)
{
    const fs_torch_argument *given = &call->arguments[place];
    switch ((fs_role)argument->role) {
    case FS_ROLE_IGNORED:
        return true;
    case FS_ROLE_NUMBER: /* an integer tensor without dimensions may be a number */
        return given->type != FS_TORCH_TENSOR_LIST && fs_schema_tensor_at(call, place) == NULL;
    case FS_ROLE_LIST:
    case FS_ROLE_LIST_WRITTEN:
    case FS_ROLE_LIST_MODIFIED:
        return given->type == FS_TORCH_TENSOR_LIST || (argument->optional && given->type == FS_TORCH_NOTHING);
    default:
        if (given->type == FS_TORCH_TENSOR) return true;
        return argument->optional && given->type == FS_TORCH_NOTHING;
    }
}

/* A size that is unknown meets any condition. */
static bool meets_conditions(const fs_schema *schema, const fs_torch_call *call)
{
    for (const char *at = schema->conditions; at != NULL; at = strchr(at, ' ')) {
        at += strspn(at, "? ");
        const char *other = strchr(at, '=');
        if (other == NULL) return true;
        double a = fs_expression_size(at, schema, call), b = fs_expression_size(other + 1, schema, call);
        if (!isnan(a) && !isnan(b) && a != b) return false;
    }
    return true;
}

bool fs_schema_fits(const fs_schema *schema, const fs_torch_call *call)
{
    if (call->count < schema->least || call->count > schema->most) return false;
    return !FS_ANY(i, call->count, !argument_fits(&schema->arguments[i], call, i)) && meets_conditions(schema, call);
}

/* Bytes ------------------------------------------------------------------------------------------------------------ */

/* Return the number of rows that the indices select; NaN without an index. */
static double rows_of(const fs_schema *schema, const fs_torch_call *call)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (schema->arguments[i].role == FS_ROLE_INDEX && fs_schema_tensor_at(call, i) != NULL)
            return fs_sizes_elements(fs_schema_tensor_at(call, i));
    return NAN;
}

/* The rows of a table that are touched, at most all. */
static double touched(const fs_torch_tensor *table, double rows)
{
    double size = (double)table->shape[0];
    return size > 0 ? fs_sizes_read(table) / size * fmin(rows, size) : 0;
}

static double cached(const fs_schema_argument *argument, const fs_torch_call *call, const fs_torch_tensor *cache)
{
    const fs_torch_tensor *from = argument->like < call->count ? fs_schema_tensor_at(call, argument->like) : NULL;
    return from != NULL ? fs_sizes_elements(from) * fs_sizes_item(cache->dtype) : (double)NAN;
}

static double list_bytes(const fs_schema *schema, const fs_torch_call *call, uint32_t place)
{
    return fs_sizes_list_elements(&call->arguments[place]) *
           fs_sizes_item(fs_schema_list_dtype(schema, call, (int)place));
}

static void add_argument(const fs_schema *schema, const fs_torch_call *call, uint32_t place, double rows,
                         fs_traffic *traffic)
{
    const fs_schema_argument *argument = &schema->arguments[place];
    fs_role role = (fs_role)argument->role;
    bool read = role == FS_ROLE_READ || role == FS_ROLE_INDEX, both = role == FS_ROLE_MODIFIED;
    if (fs_schema_is_list(call, (int)place)) {
        both = role == FS_ROLE_LIST_MODIFIED;
        if (role == FS_ROLE_LIST || both) traffic->read += list_bytes(schema, call, place);
        if (role == FS_ROLE_LIST_WRITTEN || both) traffic->written += list_bytes(schema, call, place);
        return;
    }
    const fs_torch_tensor *tensor = fs_schema_tensor_at(call, place);
    if (tensor == NULL) return;
    if (read || both) traffic->read += fs_sizes_read(tensor);
    if (role == FS_ROLE_WRITTEN || both) traffic->written += fs_sizes_read(tensor);
    if (role == FS_ROLE_TABLE) traffic->read += touched(tensor, rows);
    if (role == FS_ROLE_TABLE_WRITTEN) traffic->written += touched(tensor, rows);
    if (role == FS_ROLE_CACHE) traffic->written += cached(argument, call, tensor);
}

/* Return the bytes of the result that the text describes: "0", or "rows*x.-1:x". */
static double result_bytes(const char *text, const fs_schema *schema, const fs_torch_call *call)
{
    char *end;
    long place = strtol(text, &end, 10);
    if (end == text || (*end != ' ' && *end != 0)) return fs_expression_bytes(text, schema, call);
    const fs_torch_tensor *like = fs_schema_tensor_at(call, (uint32_t)place);
    if (like != NULL) return fs_sizes_elements(like) * fs_sizes_item(like->dtype);
    return fs_schema_is_list(call, (int)place) ? list_bytes(schema, call, (uint32_t)place) : (double)NAN;
}

/* Return the bytes of all that a mark is followed by, up to the next mark. */
static double sum_of(const char *at, const fs_schema *schema, const fs_torch_call *call)
{
    double bytes = 0;
    if (at == NULL) return 0;
    for (at += strspn(at, "<> "); *at != 0 && strchr(">=?", *at) == NULL; at += strspn(at, " ")) {
        bytes += result_bytes(at, schema, call);
        at += strcspn(at, " ");
    }
    return bytes;
}

fs_traffic fs_schema_traffic(const fs_schema *schema, const fs_torch_call *call)
{
    fs_traffic traffic = {0, 0};
    double rows = rows_of(schema, call);
    for (uint32_t i = 0; i < call->count; i++) add_argument(schema, call, i, rows, &traffic);
    traffic.read += sum_of(schema->reads, schema, call);
    traffic.written += sum_of(schema->results, schema, call);
    return traffic;
}
