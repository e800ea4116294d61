/* A row is parsed each time that it is used, into a struct on the stack: rows are short, and each distinct call of a
 * program is looked at once. What follows the arguments stays text, which is read below and traffic.c asks for:
 * this file knows neither. A mark that is a prefix of another one stands after it in `marks`. */
#include "work/libraries/schema.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work/aten/sizes.h"

/* A recursive descent that computes as it reads; with no call it only checks. Each take_… function moves `at` behind
 * what it took, and clears *sound, never sets it. A size that is unknown is NaN through all operators but '|', which
 * then takes the next choice; a negative one is unknown too. */

static size_t word_size(const char *text)
{
    size_t size = 0;
    while (isalnum((unsigned char)text[size]) || text[size] == '_') size++;
    return size;
}

/* Return the place of the argument with the name at *at, which moves behind it; -1: none. */
static int take_argument(const char **at, const fs_schema *schema)
{
    char name[FS_SCHEMA_NAME] = "";
    size_t size = word_size(*at);
    if (size == 0 || size >= sizeof name) return -1;
    memcpy(name, *at, size);
    *at += size;
    return fs_schema_place(schema, name);
}

/* A flag is 0 or 1. */
static double number_at(const fs_torch_call *call, int place)
{
    const char *text = fs_sizes_text(call, (unsigned)place);
    if (fs_sizes_is_true(text)) return 1;
    if (strcmp(text, "False") == 0 || strcmp(text, "false") == 0) return 0;
    return fs_sizes_number(fs_sizes_text(call, (unsigned)place), NAN);
}

static double elements_at(const fs_torch_call *call, int place)
{
    const fs_torch_tensor *tensor = fs_sizes_tensor(call, (unsigned)place);
    if (tensor != NULL && (tensor->ndim > 0 || fs_sizes_text(call, (unsigned)place)[0] == 0))
        return fs_sizes_elements(tensor);
    return fs_schema_is_list(call, place) ? fs_sizes_list_elements(&call->arguments[place]) : number_at(call, place);
}

/* A dimension of a tensor, or a number of a list of numbers. */
static double dimension_at(const fs_torch_call *call, int place, double dimension)
{
    enum { MOST_NUMBERS = 16 };
    double numbers[MOST_NUMBERS];
    const fs_torch_tensor *tensor = fs_sizes_tensor(call, (unsigned)place);
    if (tensor == NULL) {
        int count = fs_sizes_numbers(fs_sizes_text(call, (unsigned)place), numbers, MOST_NUMBERS);
        return dimension >= 0 && dimension < count ? numbers[(int)dimension] : (double)NAN;
    }
    if (dimension < 0) dimension += tensor->ndim;
    return dimension >= 0 && dimension < tensor->ndim ? (double)tensor->shape[(int)dimension] : (double)NAN;
}

static double take_choice(const char **at, const fs_schema *schema, const fs_torch_call *call, bool *sound);

/* A term: in parentheses, a constant, an argument or a dimension of one. *sound: whether the text is one; call NULL:
 * only that. */
static double take_term(const char **at, const fs_schema *schema, const fs_torch_call *call, bool *sound)
{
    char *end;
    if (**at == '(') {
        (*at)++;
        double inner = take_choice(at, schema, call, sound);
        *sound = *sound && **at == ')';
        *at += **at == ')';
        return inner;
    }
    if (isdigit((unsigned char)**at)) {
        double constant = strtod(*at, &end);
        *at = end;
        return constant;
    }
    int place = take_argument(at, schema), selector = -1;
    long dimension = 0;
    *sound = *sound && place >= 0;
    bool one = **at == '.';
    if (one) {
        (*at)++;
        if (isdigit((unsigned char)**at) || **at == '-') {
            dimension = strtol(*at, &end, 10);
            *sound = *sound && end > *at;
            *at = end;
        } else {
            selector = take_argument(at, schema);
            *sound = *sound && selector >= 0;
        }
    }
    if (call == NULL || place < 0 || (uint32_t)place >= call->count) return NAN;
    if (!one) return elements_at(call, place);
    return dimension_at(call, place, selector >= 0 ? number_at(call, selector) : (double)dimension);
}

static double take_size(const char **at, const fs_schema *schema, const fs_torch_call *call, bool *sound)
{
    double size = take_term(at, schema, call, sound);
    while (**at != 0 && strchr("*/+-", **at) != NULL) {
        char sign = *(*at)++;
        double term = take_term(at, schema, call, sound);
        if (sign == '*') size *= term;
        if (sign == '/') size = term != 0 ? size / term : (double)NAN;
        if (sign == '+') size += term;
        if (sign == '-') size -= term;
    }
    return size;
}

static double take_choice(const char **at, const fs_schema *schema, const fs_torch_call *call, bool *sound)
{
    double size = take_size(at, schema, call, sound);
    while (**at == '|') {
        (*at)++;
        double other = take_size(at, schema, call, sound);
        if (isnan(size)) size = other;
    }
    return size;
}

/* The dtype at *at: of an argument, named by one, or by the text. */
static fs_torch_dtype take_dtype(const char **at, const fs_schema *schema, const fs_torch_call *call, bool *sound)
{
    const char *begin = *at;
    int place = take_argument(at, schema);
    if (place >= 0) {
        const fs_torch_tensor *tensor = call != NULL ? fs_sizes_tensor(call, (unsigned)place) : NULL;
        if (tensor != NULL && tensor->ndim > 0) return (fs_torch_dtype)tensor->dtype;
        if (call != NULL && fs_schema_is_list(call, place)) return fs_schema_list_dtype(schema, call, place);
        return call != NULL ? fs_sizes_dtype_of(fs_sizes_text(call, (unsigned)place)) : FS_TORCH_DTYPE_NONE;
    }
    fs_torch_dtype named = fs_torch_dtype_named(begin, (size_t)(*at - begin));
    *sound = *sound && named != FS_TORCH_DTYPE_NONE;
    return named;
}

static double take_result(const char **at, const fs_schema *schema, const fs_torch_call *call, bool *sound)
{
    double elements = take_choice(at, schema, call, sound);
    *sound = *sound && **at == ':';
    if (**at != ':') return NAN;
    fs_torch_dtype dtype;
    do {
        (*at)++;
        dtype = take_dtype(at, schema, call, sound);
        if (dtype != FS_TORCH_DTYPE_NONE) break;
    } while (**at == '|');
    while (**at == '|') { /* the rest, unused */
        (*at)++;
        take_dtype(at, schema, NULL, sound);
    }
    return elements * fs_sizes_item(dtype);
}

double fs_expression_size(const char *text, const fs_schema *schema, const fs_torch_call *call)
{
    bool sound = true;
    double size = take_choice(&text, schema, call, &sound);
    return sound && size >= 0 ? size : (double)NAN;
}

double fs_expression_bytes(const char *text, const fs_schema *schema, const fs_torch_call *call)
{
    bool sound = true;
    double bytes = take_result(&text, schema, call, &sound);
    return sound && bytes >= 0 ? bytes : (double)NAN;
}

static bool ends(const char *text)
{
    return *text == ' ' || *text == 0;
}

/* Results, then "= FLOPs", then "? a=b" conditions. */
bool fs_expression_is_sound(const char *text, const fs_schema *schema)
{
    bool sound = true;
    enum { RESULTS, FLOPS, CONDITIONS } part = RESULTS;
    while (sound && *text != 0) {
        if (*text != 0 && strchr(" <>=?", *text) != NULL) {
            if (*text == '=') part = FLOPS;
            if (*text == '?') part = CONDITIONS;
            text++;
            continue;
        }
        const char *rest = text + strspn(text, "0123456789");
        if (part == RESULTS && rest > text && ends(rest)) {
            sound = strtol(text, NULL, 10) < (long)schema->most;
            text = rest;
        } else if (part == RESULTS) {
            take_result(&text, schema, NULL, &sound);
        } else {
            take_choice(&text, schema, NULL, &sound);
            if (part == CONDITIONS) {
                sound = sound && *text == '=';
                text += *text == '=';
                take_choice(&text, schema, NULL, &sound);
            }
        }
        sound = sound && ends(text);
    }
    return sound;
}

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

fs_torch_dtype fs_schema_list_dtype(const fs_schema *schema, const fs_torch_call *call, int place)
{
    fs_torch_tensor tensor;
    const int64_t *at = call->arguments[place].list;
    fs_torch_dtype dtype = (fs_torch_dtype)schema->arguments[place].dtype;
    if (call->arguments[place].count == 0) return dtype;
    fs_torch_next_tensor(&at, &tensor);
    return tensor.dtype != FS_TORCH_DTYPE_NONE ? (fs_torch_dtype)tensor.dtype : dtype;
}
