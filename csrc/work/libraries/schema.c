#include "work/libraries/schema.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work/aten/sizes.h"

/* Parsing ---------------------------------------------------------------------------------------------------------- */

static bool parse_mark(const char **at, fs_schema_argument *argument)
{
    static const struct {
        const char *mark;
        fs_role role;
    } marks[] = {
        {"[]!", FS_ROLE_TABLE_WRITTEN}, {"[]", FS_ROLE_TABLE}, {"!", FS_ROLE_WRITTEN},
        {"&", FS_ROLE_MODIFIED},        {"@", FS_ROLE_INDEX},  {"#", FS_ROLE_NUMBER},
        {"~", FS_ROLE_IGNORED},         {"/", FS_ROLE_SHAPE},  {"%", FS_ROLE_LIST},
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
    argument->optional = false;
    *at += size;
    return parse_mark(at, argument);
}

static bool parse_results(const char *at, fs_schema *schema)
{
    while (*at == ' ') at++;
    while (*at != 0) {
        char *end;
        long place = strtol(at, &end, 10);
        if (end == at || place < 0 || (uint32_t)place >= schema->most || schema->result_count == FS_SCHEMA_RESULTS)
            return false;
        schema->results[schema->result_count++] = (uint8_t)place;
        at = end;
        while (*at == ' ') at++;
    }
    return true;
}

bool fs_schema_parse(const char *text, fs_schema *schema)
{
    bool later = false;
    schema->least = schema->most = schema->result_count = 0;
    for (const char *at = text; *at != 0;) {
        if (*at == ' ') {
            at++;
        } else if (*at == '|') {
            later = true;
            at++;
        } else if (*at == '>') {
            return parse_results(at + 1, schema);
        } else if (strncmp(at, "...", 3) == 0) {
            while (schema->most < FS_SCHEMA_MOST)
                schema->arguments[schema->most++] = (fs_schema_argument){"", FS_ROLE_IGNORED, 0, true};
            at += 3;
            later = true;
        } else {
            if (!parse_argument(&at, schema)) return false;
            if (!later) schema->least = schema->most;
        }
    }
    return true;
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
        return given->type == FS_TORCH_TENSOR_LIST || tensor_of(call, place) == NULL;
    default:
        if (given->type == FS_TORCH_TENSOR) return true;
        return argument->optional && given->type == FS_TORCH_NOTHING;
    }
}

bool fs_schema_fits(const fs_schema *schema, const fs_torch_call *call)
{
    if (call->count < schema->least || call->count > schema->most) return false;
    for (uint32_t i = 0; i < call->count; i++)
        if (!argument_fits(&schema->arguments[i], call, i)) return false;
    return true;
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

fs_traffic fs_schema_traffic(const fs_schema *schema, const fs_torch_call *call)
{
    fs_traffic traffic = {0, 0};
    double rows = rows_of(schema, call);
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_schema_argument *argument = &schema->arguments[i];
        const fs_torch_tensor *tensor = tensor_of(call, i);
        if (tensor == NULL) continue;
        fs_role role = (fs_role)argument->role;
        if (role == FS_ROLE_READ || role == FS_ROLE_MODIFIED || role == FS_ROLE_INDEX)
            traffic.read += fs_sizes_read(tensor);
        if (role == FS_ROLE_WRITTEN || role == FS_ROLE_MODIFIED) traffic.written += fs_sizes_read(tensor);
        if (role == FS_ROLE_TABLE) traffic.read += touched(tensor, rows);
        if (role == FS_ROLE_TABLE_WRITTEN) traffic.written += touched(tensor, rows);
        if (role == FS_ROLE_CACHE) traffic.written += cached(argument, call, tensor);
    }
    for (uint32_t i = 0; i < schema->result_count; i++) {
        const fs_torch_tensor *like = schema->results[i] < call->count ? tensor_of(call, schema->results[i]) : NULL;
        traffic.written += like != NULL ? fs_sizes_elements(like) * fs_sizes_item(like->dtype) : (double)NAN;
    }
    return traffic;
}
