/* Names, numbers, texts and shapes of HLO text. Blanks and comments may stand between any two of them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <stdarg.h>
#include <stdio.h>

#include "work/hlo/parser.h"

#define NAME FS_HLO_IN_NAME
#define DIGIT (FS_HLO_IN_NAME | FS_HLO_DIGIT)
const uint8_t fs_hlo_classes[256] = {
    ['a' ... 'z'] = NAME,  ['A' ... 'Z'] = NAME,  ['0' ... '9'] = DIGIT,
    ['_'] = NAME,          ['.'] = NAME,          ['-'] = NAME,
    ['$'] = NAME,          [':'] = NAME,          ['@'] = NAME,
    ['#'] = NAME,          [128 ... 255] = NAME,  [' '] = FS_HLO_BLANK,
    ['\t'] = FS_HLO_BLANK, ['\r'] = FS_HLO_BLANK, ['\n'] = FS_HLO_BLANK | FS_HLO_ENDS,
    ['('] = FS_HLO_OPENS,  ['['] = FS_HLO_OPENS,  ['{'] = FS_HLO_OPENS,
    [')'] = FS_HLO_CLOSES, [']'] = FS_HLO_CLOSES, ['}'] = FS_HLO_CLOSES,
    [','] = FS_HLO_ENDS,
};
#undef NAME
#undef DIGIT

fs_status fs_hlo_wrong(fs_hlo_parser *parser, const char *at, const char *format, ...)
{
    char what[256];
    size_t line = 1;
    va_list arguments;
    for (const char *from = parser->start; (from = memchr(from, '\n', (size_t)(at - from))) != NULL; from++) line++;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fs_fail(parser->err, FS_VALUE_ERROR, "line %zu of the HLO text: %s", line, what);
}

/* An unfinished comment ends with the text. */
void fs_hlo_pass_comment(fs_hlo_parser *parser)
{
    const char *at = parser->at, *end = parser->end;
    while (end - at >= 2 && *at == '/' && (at[1] == '*' || at[1] == '/')) {
        const char *stop =
            at[1] == '/' ? memchr(at, '\n', (size_t)(end - at)) : memmem(at + 2, (size_t)(end - at - 2), "*/", 2);
        at = stop == NULL ? end : at[1] == '/' ? stop : stop + 2;
        while (at < end && (fs_hlo_classes[(uint8_t)*at] & FS_HLO_BLANK)) at++;
    }
    parser->at = at;
}

int fs_hlo_shown(const fs_hlo_parser *parser)
{
    enum { MOST = 32 };
    int size = 0;
    while (size < MOST && parser->at + size < parser->end && (uint8_t)parser->at[size] >= ' ') size++;
    return size;
}

fs_status fs_hlo_expect(fs_hlo_parser *parser, char byte)
{
    if (fs_hlo_eat(parser, byte)) return FS_OK;
    if (parser->at == parser->end)
        return fs_hlo_wrong(parser, parser->at, "the text ends where '%c' is expected", byte);
    return fs_hlo_wrong(parser, parser->at, "expected '%c', not '%.*s'", byte, fs_hlo_shown(parser), parser->at);
}

fs_status fs_hlo_take_id(fs_hlo_parser *parser, uint32_t *text)
{
    fs_hlo_eat(parser, '%');
    fs_text name = fs_hlo_take_name(parser);
    if (name.size == 0) return fs_hlo_wrong(parser, parser->at, "a name is missing");
    return fs_intern_bytes(&parser->module->texts, name.bytes, name.size, text, parser->err);
}

fs_status fs_hlo_take_integer(fs_hlo_parser *parser, int64_t *value)
{
    bool negative = fs_hlo_eat(parser, '-');
    const char *from = parser->at, *at = from;
    int64_t number = 0;
    for (; at < parser->end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number))
            return fs_hlo_wrong(parser, from, "a number exceeds 64 bits");
    if (at == from) return fs_hlo_wrong(parser, from, "a number is missing");
    parser->at = at;
    *value = negative ? -number : number;
    return FS_OK;
}

/* Return the quote that ends a text, NULL if none does. A quote after an odd number of backslashes belongs to it. */
static const char *closing_quote(const char *at, const char *end)
{
    const char *from = at, *before;
    for (; (at = memchr(at, '"', (size_t)(end - at))) != NULL; from = ++at) {
        for (before = at; before > from && before[-1] == '\\';) before--;
        if ((at - before) % 2 == 0) return at;
    }
    return NULL;
}

static fs_status skip_text(fs_hlo_parser *parser)
{
    const char *quote = closing_quote(parser->at + 1, parser->end);
    if (quote == NULL) return fs_hlo_wrong(parser, parser->at, "the text that begins here does not end");
    parser->at = quote + 1;
    return FS_OK;
}

/* Write a text without the escapes of C, and return its length. */
static size_t unescape(const char *at, const char *end, char *to)
{
    static const char NAMES[] = "nrtabfv", MEANT[] = "\n\r\t\a\b\f\v";
    char *from = to;
    while (at < end) {
        char byte = *at++;
        if (byte == '\\' && at < end) {
            const char *name = memchr(NAMES, *at, sizeof NAMES - 1);
            if (name != NULL) {
                byte = MEANT[name - NAMES];
                at++;
            } else if (*at >= '0' && *at <= '7') {
                int value = 0;
                for (int digits = 0; digits < 3 && at < end && *at >= '0' && *at <= '7'; digits++)
                    value = 8 * value + (*at++ - '0');
                byte = (char)value;
            } else {
                byte = *at++;
            }
        }
        *to++ = byte;
    }
    return (size_t)(to - from);
}

fs_status fs_hlo_take_text(fs_hlo_parser *parser, uint32_t *text)
{
    FS_TRY(fs_hlo_expect(parser, '"'));
    const char *from = parser->at--;
    FS_TRY(skip_text(parser));
    size_t size = (size_t)(parser->at - 1 - from);
    if (memchr(from, '\\', size) != NULL) {
        FS_TRY(FS_LIST_ROOM(&parser->unescaped, size, &parser->unescaped_capacity, 256, parser->err));
        size = unescape(from, from + size, parser->unescaped);
        from = parser->unescaped;
    }
    return fs_intern_bytes(&parser->module->texts, from, size, text, parser->err);
}

/* Move on to a byte of these classes outside of brackets and texts, or, for `one`, past the brackets that open here. */
static fs_status skip(fs_hlo_parser *parser, uint8_t ends, bool one)
{
    const char *from = parser->at;
    size_t depth = 0;
    while (parser->at < parser->end) {
        uint8_t class = fs_hlo_classes[(uint8_t)*parser->at];
        if (depth == 0 && (class & ends)) return FS_OK;
        if (*parser->at == '"') {
            FS_TRY(skip_text(parser));
            continue;
        }
        depth += (class & FS_HLO_OPENS) != 0;
        depth -= (class & FS_HLO_CLOSES) != 0;
        parser->at++;
        if (one && depth == 0) return FS_OK;
    }
    return depth == 0 && !one ? FS_OK : fs_hlo_wrong(parser, from, "the brackets that open here do not close");
}

fs_status fs_hlo_skip_value(fs_hlo_parser *parser, bool to_blank)
{
    return skip(parser, FS_HLO_ENDS | FS_HLO_CLOSES | (to_blank ? FS_HLO_BLANK : 0), false);
}

fs_status fs_hlo_skip_brackets(fs_hlo_parser *parser)
{
    return skip(parser, 0, true);
}

/* Shapes ------------------------------------------------------------------------------------------------------------*/

/* Return the end of an array's shape, f32[8,<=16]{1,0:T(8,128)}, whose brackets hold no others of their kind. */
static const char *array_end(const fs_hlo_parser *parser)
{
    const char *at = parser->at, *end = parser->end;
    while (at < end && (fs_hlo_classes[(uint8_t)*at] & FS_HLO_IN_NAME)) at++;
    if (at == end || *at != '[') return NULL;
    while (at < end && *at != ']' && *at != '\n') at++;
    if (at == end || *at != ']') return NULL;
    at++;
    if (at == end || *at != '{') return at;
    while (at < end && *at != '}' && *at != '\n') at++;
    return at == end || *at != '}' ? NULL : at + 1;
}

static fs_status take_sizes(fs_hlo_parser *parser, fs_hlo_shape *shape)
{
    shape->sizes.first = parser->module->number_count;
    FS_TRY(fs_hlo_expect(parser, '['));
    while (fs_hlo_peek(parser) != ']') {
        int64_t size = -1;
        if (fs_hlo_eat(parser, '<')) FS_TRY(fs_hlo_expect(parser, '='));
        const char *at = parser->at;
        bool known = !fs_hlo_eat(parser, '?');
        if (known) FS_TRY(fs_hlo_take_integer(parser, &size));
        if (known && size < 0) return fs_hlo_wrong(parser, at, "a shape has a negative size");
        if (shape->sizes.count++ == FS_HLO_MOST_RANK)
            return fs_hlo_wrong(parser, at, "a shape has more than %d dimensions", FS_HLO_MOST_RANK);
        FS_TRY(fs_hlo_put_number(parser->module, size, parser->err));
        if (!fs_hlo_eat(parser, ',')) break;
    }
    return fs_hlo_expect(parser, ']');
}

/* After the dimensions and a colon: tiles T(8,128), the element's size E(4), a space of memory S(5), and others. */
static fs_status take_layout(fs_hlo_parser *parser, fs_hlo_shape *shape)
{
    shape->layout.first = parser->module->number_count;
    if (parser->at == parser->end || *parser->at != '{') return FS_OK;
    parser->at++;
    while (fs_hlo_peek(parser) >= '0' && *parser->at <= '9') {
        int64_t dimension = 0;
        const char *at = parser->at;
        FS_TRY(fs_hlo_take_integer(parser, &dimension));
        if (dimension >= shape->sizes.count || shape->layout.count++ == shape->sizes.count)
            return fs_hlo_wrong(parser, at, "a layout has a dimension that its shape lacks");
        FS_TRY(fs_hlo_put_number(parser->module, dimension, parser->err));
        if (!fs_hlo_eat(parser, ',')) break;
    }
    for (char byte; (byte = fs_hlo_peek(parser)) != '}' && byte != 0; parser->at++) {
        if (byte != 'S' || parser->at[-1] == '(' || parser->end - parser->at < 2 || parser->at[1] != '(') continue;
        parser->at += 2;
        FS_TRY(fs_hlo_take_integer(parser, &shape->space));
        parser->at--;
    }
    return fs_hlo_expect(parser, '}');
}

static fs_status take_array(fs_hlo_parser *parser, uint32_t *id)
{
    const char *from = parser->at, *end = array_end(parser);
    if (end == NULL) return fs_hlo_wrong(parser, from, "a shape is missing or unfinished");
    uint32_t known = parser->shapes.count, text;
    FS_TRY(fs_intern_bytes(&parser->shapes, from, (size_t)(end - from), &text, parser->err));
    if (text < known) {
        *id = parser->shape_ids[text];
        parser->at = end;
        return FS_OK;
    }
    fs_text type = fs_hlo_take_name(parser);
    fs_hlo_shape shape = {.type = fs_hlo_type_of(type.bytes, type.size)};
    if (type.size == 0) return fs_hlo_wrong(parser, from, "a shape has no type");
    FS_TRY(take_sizes(parser, &shape));
    FS_TRY(take_layout(parser, &shape));
    if (!fs_hlo_countable(parser->module, &shape))
        return fs_hlo_wrong(parser, from, "a shape has more than 2^62 elements");
    *id = parser->module->shape_count;
    FS_TRY(FS_LIST_ROOM(&parser->shape_ids, text, &parser->shape_id_capacity, 64, parser->err));
    parser->shape_ids[text] = *id;
    return fs_hlo_put_shape(parser->module, shape, parser->err);
}

/* The parts of a tuple are listed one after the other, so each waits until those nested in the others are listed. */
static fs_status take_nested(fs_hlo_parser *parser, int depth, uint32_t *id)
{
    fs_hlo_module *module = parser->module;
    const char *from = parser->at;
    bool buffer = fs_hlo_peek(parser) == 'b' && parser->end - parser->at > 1 && parser->at[1] == '(';
    if (buffer) parser->at++;
    if (fs_hlo_peek(parser) != '(') return take_array(parser, id);
    if (depth == FS_HLO_MOST_DEPTH)
        return fs_hlo_wrong(parser, from, "tuples are nested deeper than %d", FS_HLO_MOST_DEPTH);
    fs_hlo_shape shape = {.type = buffer ? FS_HLO_BUFFER : FS_HLO_TUPLE};
    uint32_t first = parser->waiting_count, part = 0;
    parser->at++;
    while (fs_hlo_peek(parser) != ')') {
        FS_TRY(take_nested(parser, depth + 1, &part));
        FS_TRY(FS_LIST_ADD(&parser->waiting, &parser->waiting_count, &parser->waiting_capacity, 64, parser->err, part));
        if (!fs_hlo_eat(parser, ',')) break;
    }
    FS_TRY(fs_hlo_expect(parser, ')'));
    shape.parts = (fs_hlo_list){module->shape_part_count, parser->waiting_count - first};
    for (uint32_t i = first; i < parser->waiting_count; i++)
        FS_TRY(fs_hlo_put_part(module, parser->waiting[i], parser->err));
    parser->waiting_count = first;
    *id = module->shape_count;
    return fs_hlo_put_shape(module, shape, parser->err);
}

fs_status fs_hlo_take_shape(fs_hlo_parser *parser, uint32_t *shape)
{
    fs_hlo_pass_blanks(parser);
    return take_nested(parser, 0, shape);
}
