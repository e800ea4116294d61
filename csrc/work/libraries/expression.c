/* A recursive descent that computes as it reads; with no call it only checks. Each take_… function moves `at` behind
 * what it took, and clears *sound, never sets it. A size that is unknown is NaN through all operators but '|', which
 * then takes the next choice; a negative one is unknown too. */
#include "work/libraries/expression.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work/aten/sizes.h"

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
    return fs_schema_is_list(call, place) ? fs_schema_list_elements(call, place) : number_at(call, place);
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
