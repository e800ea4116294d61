/* `size` never exceeds `capacity`; where a sink exists the text is handed over whenever it is full, otherwise it grows.
 * After the first error everything is discarded, and the text is unusable. Strings that are not UTF-8 get U+FFFD for
 * each wrong part, so the output is always valid. Numbers are formatted eight digits at a time by arithmetic in one
 * 64-bit word; doubles that are not whole are rounded at a fixed number of decimals, not to the shortest text. */
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
    return fs_no_memory(err);
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
        json->status = fs_no_memory(json->err);
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

/* The longest number, 38 digits and a sign, and what is written past the end of a part. */
enum { LONGEST = 48, EIGHT_DIGITS = 100000000 };

/* Return where to write a number: into the text if there is room for the longest, else into `aside`. */
static char *begin_number(fs_json *json, char aside[LONGEST])
{
    return json->capacity - json->size >= LONGEST ? json->bytes + json->size : aside;
}

static void end_number(fs_json *json, const char aside[LONGEST], const char *from, const char *end)
{
    if (from == aside) fs_json_put_slowly(json, from, (size_t)(end - from));
    else json->size += (size_t)(end - from);
}

/* Return the eight decimal digits of a number below EIGHT_DIGITS, the first in the lowest byte. The number is divided
 * into parts of four, two and one digit, all of a step at once. */
static uint64_t digits_of(uint32_t value)
{
    uint64_t fours = value / 10000 | (uint64_t)(value % 10000) << 32;
    uint64_t hundreds = (fours * 10486 >> 20) & 0x0000007f0000007f;
    uint64_t twos = hundreds | (fours - 100 * hundreds) << 16;
    uint64_t tens = (twos * 103 >> 10) & 0x000f000f000f000f;
    return tens | (twos - 10 * tens) << 8;
}

/* Write the digits but the first `skipped`; returns their end. Eight bytes are written. */
static char *put_part(char *to, uint64_t digits, unsigned skipped)
{
    uint64_t text = (digits | 0x3030303030303030) >> 8 * skipped;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    text = __builtin_bswap64(text);
#endif
    memcpy(to, &text, sizeof text);
    return to + sizeof text - skipped;
}

static char *put_eight(char *to, uint32_t value)
{
    return put_part(to, digits_of(value), 0);
}

/* Write exactly 1 … 9 digits. */
static char *put_fixed(char *to, uint32_t value, int count)
{
    if (count > 8) *to++ = (char)('0' + value / EIGHT_DIGITS), value %= EIGHT_DIGITS, count = 8;
    return put_part(to, digits_of(value), (unsigned)(8 - count));
}

/* Write a number below EIGHT_DIGITS without leading zeros. */
static char *put_few(char *to, uint32_t value)
{
    uint64_t digits = digits_of(value), last = UINT64_C(1) << 56; /* a zero has one digit */
    return put_part(to, digits, (unsigned)__builtin_ctzll(digits | last) / 8);
}

static char *put_digits(char *to, uint64_t value)
{
    uint64_t high = value / EIGHT_DIGITS, highest = high / EIGHT_DIGITS;
    if (high == 0) return put_few(to, (uint32_t)value);
    if (highest == 0) to = put_few(to, (uint32_t)high);
    else to = put_eight(put_few(to, (uint32_t)highest), (uint32_t)(high % EIGHT_DIGITS));
    return put_eight(to, (uint32_t)(value % EIGHT_DIGITS));
}

void fs_json_integer(fs_json *json, int64_t value)
{
    char aside[LONGEST], *from = begin_number(json, aside), *to = from;
    if (value < 0) *to++ = '-';
    to = put_digits(to, value < 0 ? -(uint64_t)value : (uint64_t)value);
    end_number(json, aside, from, to);
}

void fs_json_time(fs_json *json, uint64_t ns)
{
    char aside[LONGEST], *from = begin_number(json, aside), *to = put_digits(from, ns / 1000);
    *to++ = '.';
    end_number(json, aside, from, put_fixed(to, (uint32_t)(ns % 1000), 3));
}

void fs_json_decimal(fs_json *json, double value, int decimals)
{
    static const double scales[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    double scale = scales[decimals], size = fabs(value);
    if (!(size < 1e18)) { /* also NaN */
        FS_JSON_LITERAL(json, "null");
        return;
    }
    uint64_t whole = (uint64_t)size, part = (uint64_t)((size - (double)whole) * scale + 0.5);
    if ((double)part >= scale) whole++, part = 0;
    char aside[LONGEST], *from = begin_number(json, aside), *to = from;
    if (value < 0) *to++ = '-';
    to = put_digits(to, whole);
    *to++ = '.';
    end_number(json, aside, from, put_fixed(to, (uint32_t)part, decimals));
}

/* Write 18 digits. */
static char *put_group(char *to, uint64_t value)
{
    to = put_fixed(to, (uint32_t)(value / EIGHT_DIGITS / EIGHT_DIGITS), 2);
    to = put_eight(to, (uint32_t)(value / EIGHT_DIGITS % EIGHT_DIGITS));
    return put_eight(to, (uint32_t)(value % EIGHT_DIGITS));
}

void fs_json_number(fs_json *json, double value)
{
    const uint64_t split = 1000000000000000000; /* 18 digits */
    double size = fabs(value);
    if (!(size < 1e38) || size != floor(size)) {
        fs_json_decimal(json, value, 6);
        return;
    }
    char aside[LONGEST], *from = begin_number(json, aside), *to = from;
    if (value < 0) *to++ = '-';
    if (size < 1e18) {
        to = put_digits(to, (uint64_t)size);
    } else {
        unsigned __int128 whole = (unsigned __int128)size;
        uint64_t high = (uint64_t)(whole / split / split), middle = (uint64_t)(whole / split % split);
        if (high > 0) to = put_group(put_digits(to, high), middle);
        else to = put_digits(to, middle);
        to = put_group(to, (uint64_t)(whole % split));
    }
    end_number(json, aside, from, to);
}
