/* A row is parsed each time that it is used, into a struct on the stack: rows are short, and each distinct call of a
 * program is looked at once. The part after the arguments stays text, for expression.c. A mark that is a prefix of
 * another one stands after it in `marks`. Everything is counted by role, in one loop; NaN for one argument makes the
 * sum NaN. */
#include "work/libraries/schema.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work/aten/sizes.h"
#include "work/libraries/expression.h"

/* Parsing ---------------------------------------------------------------------------------------------------------- */

static bool parse_mark(const char **at, fs_schema_argument *argument)
{
    static const struct {
        const char *mark;
        fs_role role;
    } marks[] = {
        {"[]!", FS_ROLE_TABLE_WRITTEN}, {"[]", FS_ROLE_TABLE},         {"!", FS_ROLE_WRITTEN}, {"&", FS_ROLE_MODIFIED},
        {"@", FS_ROLE_INDEX},           {"#", FS_ROLE_NUMBER},         {"~", FS_ROLE_IGNORED}, {"/", FS_ROLE_SHAPE},
        {"%!", FS_ROLE_LIST_WRITTEN},   {"%&", FS_ROLE_LIST_MODIFIED}, {"%", FS_ROLE_LIST},
    };
    argument->role = FS_ROLE_READ;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t size = strlen(marks[i].mark);
        if (strncmp(*at, marks[i].mark, size) != 0) continue;
        argument->role = (uint8_t)marks[i].role;
        *at += size;
        break;
    }
    if (**at == '=') {
        char *end;
        argument->role = FS_ROLE_CACHE;
        argument->like = (uint8_t)strtol(*at + 1, &end, 10);
        *at = end;
    }
    if (**at == ':') {
        size_t size = strcspn(++*at, " ");
        argument->dtype = (uint8_t)fs_torch_dtype_named(*at, size);
        *at += size;
        if (argument->dtype == FS_TORCH_DTYPE_NONE) return false;
    }
    if (**at == '?') argument->optional = *(*at)++ == '?';
    return **at == ' ' || **at == 0;
}

static bool parse_argument(const char **at, fs_schema *schema)
{
    size_t size = 0;
    if (schema->most == FS_SCHEMA_MOST) return false;
    fs_schema_argument *argument = &schema->arguments[schema->most++];
    while (isalnum((unsigned char)(*at)[size]) || (*at)[size] == '_') size++;
    if (size == 0 || size >= FS_SCHEMA_NAME) return false;
    memcpy(argument->name, *at, size);
    argument->name[size] = 0;
    argument->like = 0;
    argument->dtype = FS_TORCH_DTYPE_NONE;
    argument->optional = false;
    *at += size;
    return parse_mark(at, argument);
}

bool fs_schema_parse(const char *text, fs_schema *schema)
{
    bool later = false;
    *schema = (fs_schema){.of_forward = *text == '^'};
    for (const char *at = text + schema->of_forward; *at != 0;) {
        if (*at == ' ') {
            at++;
        } else if (*at == '|') {
            later = true;
            at++;
        } else if (*at == '<' || *at == '>' || *at == '=' || *at == '?') {
            if (*at == '<') schema->reads = at;
            schema->results = strstr(at, "> ");
            schema->flops = strstr(at, "= ");
            schema->conditions = strstr(at, "? ");
            return true;
        } else if (strncmp(at, "...", 3) == 0) {
            while (schema->most < FS_SCHEMA_MOST)
                schema->arguments[schema->most++] =
                    (fs_schema_argument){"", FS_ROLE_IGNORED, 0, FS_TORCH_DTYPE_NONE, true};
            at += 3;
            later = true;
        } else {
            if (!parse_argument(&at, schema)) return false;
            if (!later) schema->least = schema->most;
        }
    }
    return true;
}

fs_schema fs_schema_of(const char *text)
{
    fs_schema schema;
    if (!fs_schema_parse(text, &schema)) schema = (fs_schema){.least = 0};
    return schema;
}

bool fs_schema_is_sound(const fs_schema *schema)
{
    const char *rest = schema->reads != NULL     ? schema->reads
                       : schema->results != NULL ? schema->results
                       : schema->flops != NULL   ? schema->flops
                                                 : schema->conditions;
    return rest == NULL || fs_expression_is_sound(rest, schema);
}

/* Fitting ---------------------------------------------------------------------------------------------------------- */

static const fs_torch_tensor *tensor_of(const fs_torch_call *call, uint32_t place)
{
    const fs_torch_tensor *tensor = fs_sizes_tensor(call, place);
    return tensor != NULL && tensor->ndim > 0 ? tensor : NULL;
}

static bool argument_fits(const fs_schema_argument *argument, const fs_torch_call *call, uint32_t place)
{
    const fs_torch_argument *given = &call->arguments[place];
    switch ((fs_role)argument->role) {
    case FS_ROLE_IGNORED:
        return true;
    case FS_ROLE_NUMBER: /* an integer tensor without dimensions may be a number */
        return given->type != FS_TORCH_TENSOR_LIST && tensor_of(call, place) == NULL;
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
    for (uint32_t i = 0; i < call->count; i++)
        if (!argument_fits(&schema->arguments[i], call, i)) return false;
    return meets_conditions(schema, call);
}

/* Access ----------------------------------------------------------------------------------------------------------- */

int fs_schema_place(const fs_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->most; i++)
        if (strcmp(schema->arguments[i].name, name) == 0) return (int)i;
    return -1;
}

const fs_torch_tensor *fs_schema_tensor(const fs_schema *schema, const fs_torch_call *call, const char *name)
{
    int place = fs_schema_place(schema, name);
    return place < 0 ? NULL : tensor_of(call, (uint32_t)place);
}

double fs_schema_number(const fs_schema *schema, const fs_torch_call *call, const char *name)
{
    int place = fs_schema_place(schema, name);
    if (place < 0 || (uint32_t)place >= call->count) return NAN;
    return fs_sizes_number(fs_sizes_text(call, (unsigned)place), NAN);
}

bool fs_schema_is_list(const fs_torch_call *call, int place)
{
    return place >= 0 && (uint32_t)place < call->count && call->arguments[place].type == FS_TORCH_TENSOR_LIST;
}

double fs_schema_list_elements(const fs_torch_call *call, int place)
{
    double elements = 0;
    fs_torch_tensor tensor;
    const int64_t *at = call->arguments[place].list;
    for (uint32_t i = 0; i < call->arguments[place].count; i++) {
        fs_torch_next_tensor(&at, &tensor);
        elements += fs_sizes_elements(&tensor);
    }
    return call->arguments[place].count > 0 ? elements : (double)NAN;
}

fs_torch_dtype fs_schema_list_dtype(const fs_schema *schema, const fs_torch_call *call, int place)
{
    fs_torch_tensor tensor;
    const int64_t *at = call->arguments[place].list;
    fs_torch_dtype dtype = (fs_torch_dtype)schema->arguments[place].dtype;
    if (call->arguments[place].count == 0) return dtype;
    fs_torch_next_tensor(&at, &tensor);
    return tensor.dtype != FS_TORCH_DTYPE_NONE ? (fs_torch_dtype)tensor.dtype : dtype;
}

/* Bytes ------------------------------------------------------------------------------------------------------------ */

/* Return the number of rows that the indices select; NaN without an index. */
static double rows_of(const fs_schema *schema, const fs_torch_call *call)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (schema->arguments[i].role == FS_ROLE_INDEX && tensor_of(call, i) != NULL)
            return fs_sizes_elements(tensor_of(call, i));
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
    const fs_torch_tensor *from = argument->like < call->count ? tensor_of(call, argument->like) : NULL;
    return from != NULL ? fs_sizes_elements(from) * fs_sizes_item(cache->dtype) : (double)NAN;
}

static double list_bytes(const fs_schema *schema, const fs_torch_call *call, uint32_t place)
{
    return fs_schema_list_elements(call, (int)place) * fs_sizes_item(fs_schema_list_dtype(schema, call, (int)place));
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
    const fs_torch_tensor *tensor = tensor_of(call, place);
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
    const fs_torch_tensor *like = tensor_of(call, (uint32_t)place);
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
