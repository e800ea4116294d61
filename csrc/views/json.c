#include "views/json.h"

#include <math.h>
#include <stdbool.h>

#include "base/memory.h"

fs_status fs_json_init(fs_json *json, fs_json_sink sink, void *context, fs_error *err)
{
    *json = (fs_json){.capacity = sink != NULL ? FS_JSON_PIECE : 1 << 12, .sink = sink, .context = context, .err = err};
    json->bytes = fs_malloc(json->capacity);
    if (json->bytes != NULL) return FS_OK;
    json->capacity = 0;
    return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to write JSON");
}

void fs_json_clear(fs_json *json)
{
    fs_free(json->bytes);
    *json = (fs_json){.bytes = NULL};
}

fs_status fs_json_flush(fs_json *json)
{
    if (json->status == FS_OK && json->sink != NULL && json->size > 0) {
        json->status = json->sink(json->context, json->bytes, json->size, json->err);
    }
    if (json->sink != NULL) json->size = 0;
    return json->status;
}

static bool grow(fs_json *json, size_t size)
{
    size_t capacity = json->capacity * 2 > json->size + size ? json->capacity * 2 : json->size + size;
    char *bytes = fs_realloc(json->bytes, capacity);
    if (bytes == NULL) {
        json->status = fs_fail(json->err, FS_OUT_OF_MEMORY, "no memory for %zu bytes of JSON", capacity);
        return false;
    }
    json->bytes = bytes;
    json->capacity = capacity;
    return true;
}

void fs_json_put_slowly(fs_json *json, const char *text, size_t size)
{
    if (json->status != FS_OK) return;
    if (json->sink == NULL && !grow(json, size)) return;
    while (size > 0) {
        size_t room = json->capacity - json->size, part = size < room ? size : room;
        memcpy(json->bytes + json->size, text, part);
        json->size += part;
        text += part;
        size -= part;
        if (size > 0 && fs_json_flush(json) != FS_OK) return;
    }
}

/* Strings ---------------------------------------------------------------------------------------------------------- */

/* The first bytes of characters of two to four bytes, and the valid range of the next byte (Unicode, table 3-7). */
static const struct {
    unsigned char first, last, second_from, second_to, size;
} sequences[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
    {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

/* Return the length of the character at `text`, beyond ASCII; if it is incomplete, minus the length of its valid
 * start. */
static int character_size(const unsigned char *text)
{
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        if (text[0] < sequences[i].first || text[0] > sequences[i].last) continue;
        if (text[1] < sequences[i].second_from || text[1] > sequences[i].second_to) return -1;
        for (int at = 2; at < sequences[i].size; at++) {
            if ((text[at] & 0xc0) != 0x80) return -at;
        }
        return sequences[i].size;
    }
    return -1;
}

static void put_escaped(fs_json *json, unsigned char byte)
{
    static const char hex[] = "0123456789abcdef";
    char code[] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
    switch (byte) {
    case '"':
        FS_JSON_LITERAL(json, "\\\"");
        break;
    case '\\':
        FS_JSON_LITERAL(json, "\\\\");
        break;
    case '\n':
        FS_JSON_LITERAL(json, "\\n");
        break;
    case '\t':
        FS_JSON_LITERAL(json, "\\t");
        break;
    default:
        fs_json_put(json, code, sizeof code);
    }
}

void fs_json_string(fs_json *json, const char *text)
{
    const char *plain = text; /* from here to `text` nothing needs escaping */
    FS_JSON_LITERAL(json, "\"");
    while (*text != 0) {
        unsigned char byte = (unsigned char)*text;
        int size = byte < 0x80 ? 1 : character_size((const unsigned char *)text);
        bool good = size > 0 && byte >= 0x20 && byte != '"' && byte != '\\';
        if (!good) fs_json_put(json, plain, (size_t)(text - plain));
        if (size < 0) FS_JSON_LITERAL(json, "\xef\xbf\xbd");
        else if (!good) put_escaped(json, byte);
        text += size < 0 ? -size : size;
        if (!good) plain = text;
    }
    fs_json_put(json, plain, (size_t)(text - plain));
    FS_JSON_LITERAL(json, "\"");
}

/* Numbers ---------------------------------------------------------------------------------------------------------- */

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                            "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                            "8081828384858687888990919293949596979899";

/* Write the digits of value before `end`, at least `least`; returns where they begin. */
static char *digits_before(char *end, uint64_t value, int least)
{
    char *at = end;
    for (; value >= 100; value /= 100) memcpy(at -= 2, &pairs[value % 100 * 2], 2);
    if (value >= 10) memcpy(at -= 2, &pairs[value * 2], 2);
    else if (value > 0) *--at = (char)('0' + value);
    while (end - at < least) *--at = '0';
    return at;
}

void fs_json_integer(fs_json *json, int64_t value)
{
    char text[24], *end = text + sizeof text;
    char *at = digits_before(end, value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
    if (value < 0) *--at = '-';
    fs_json_put(json, at, (size_t)(end - at));
}

void fs_json_time(fs_json *json, uint64_t ns)
{
    char text[32], *end = text + sizeof text;
    char *at = digits_before(end, ns % 1000, 3);
    *--at = '.';
    at = digits_before(at, ns / 1000, 1);
    fs_json_put(json, at, (size_t)(end - at));
}

void fs_json_decimal(fs_json *json, double value, int decimals)
{
    double scale = 1, size = fabs(value);
    for (int i = 0; i < decimals; i++) scale *= 10;
    if (!(size < 1e18)) { /* also NaN */
        FS_JSON_LITERAL(json, "null");
        return;
    }
    char text[48], *end = text + sizeof text;
    uint64_t whole = (uint64_t)size, part = (uint64_t)((size - (double)whole) * scale + 0.5);
    if ((double)part >= scale) whole++, part = 0;
    char *at = digits_before(end, part, decimals);
    *--at = '.';
    at = digits_before(at, whole, 1);
    if (value < 0) *--at = '-';
    fs_json_put(json, at, (size_t)(end - at));
}

void fs_json_number(fs_json *json, double value)
{
    const uint64_t split = 1000000000000000000; /* 18 digits */
    double size = fabs(value);
    if (!(size < 1e38) || size != floor(size)) {
        fs_json_decimal(json, value, 6);
        return;
    }
    char text[48], *end = text + sizeof text;
    unsigned __int128 whole = (unsigned __int128)size;
    uint64_t low = (uint64_t)(whole % split), middle = (uint64_t)(whole / split % split);
    uint64_t high = (uint64_t)(whole / split / split);
    char *at = digits_before(end, low, high > 0 || middle > 0 ? 18 : 1);
    if (high > 0 || middle > 0) at = digits_before(at, middle, high > 0 ? 18 : 1);
    if (high > 0) at = digits_before(at, high, 1);
    if (value < 0) *--at = '-';
    fs_json_put(json, at, (size_t)(end - at));
}
