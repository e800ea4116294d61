/* A row is parsed each time that it is used, into a struct on the stack: rows are short, and each distinct call of a
 * program is looked at once. What follows the arguments stays text, which expression.c reads and traffic.c asks for:
 * this file knows neither. A mark that is a prefix of another one stands after it in `marks`. */
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

/* Access ----------------------------------------------------------------------------------------------------------- */

int fs_schema_place(const fs_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->most; i++)
        if (strcmp(schema->arguments[i].name, name) == 0) return (int)i;
    return -1;
}

const fs_torch_tensor *fs_schema_tensor_at(const fs_torch_call *call, uint32_t place)
{
    const fs_torch_tensor *tensor = fs_sizes_tensor(call, place);
    return tensor != NULL && tensor->ndim > 0 ? tensor : NULL;
}

const fs_torch_tensor *fs_schema_tensor(const fs_schema *schema, const fs_torch_call *call, const char *name)
{
    int place = fs_schema_place(schema, name);
    return place < 0 ? NULL : fs_schema_tensor_at(call, (uint32_t)place);
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
