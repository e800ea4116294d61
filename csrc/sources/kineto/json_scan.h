/* A scanner for JSON texts that are read once, front to back, without building a tree.
 *
 *   begin … at ─────────── end | zero bytes
 *              not yet read      FS_SCAN_PADDING of them, so that reading ahead needs no bounds checks
 *
 * The text may be a piece of a longer one: a value that reaches `end` gives FS_SCAN_MORE and can be read again from its
 * start when more text is available. The scanner accepts what real files contain: invalid UTF-8, raw control characters
 * in strings, and bare words (NaN, Infinity, N/A) as values. */
#ifndef FS_SOURCES_KINETO_JSON_SCAN_H
#define FS_SOURCES_KINETO_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { FS_SCAN_PADDING = 64, FS_SCAN_MAX_DEPTH = 1024 };

typedef enum { FS_SCAN_GOOD, FS_SCAN_MORE, FS_SCAN_BAD } fs_scan_status;

typedef struct {
    const char *at, *end;
    const char *expected; /* after FS_SCAN_BAD: what was expected at `at` */
} fs_scan;

typedef struct {
    const char *text; /* of a string: without its quotes, escapes unprocessed */
    size_t size;
    bool escaped; /* the string contains escapes */
} fs_scan_span;

/* Field by field: a copy of a struct waits for the stores into its parts. */
static inline void fs_scan_no_text(fs_scan_span *span)
{
    span->text = "";
    span->size = 0;
    span->escaped = false;
}

static inline bool fs_scan_is(const fs_scan_span *span, const char *text)
{
    return fs_text_is((fs_text){span->text, span->size}, text);
}

static inline bool fs_scan_begins(const fs_scan_span *span, const char *start)
{
    return fs_text_begins((fs_text){span->text, span->size}, start);
}

static inline fs_scan_status fs_scan_bad(fs_scan *scan, const char *expected)
{
    scan->expected = expected;
    return scan->at >= scan->end ? FS_SCAN_MORE : FS_SCAN_BAD;
}

/* Return where white space that begins at `at` ends. */
static inline const char *fs_scan_behind_space(const char *at)
{
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
    return at;
}

static inline void fs_scan_space(fs_scan *scan)
{
    scan->at = fs_scan_behind_space(scan->at);
}

/* Each of these functions reads the token at `at`, which must not be white space. On FS_SCAN_BAD `at` is the position
 * of the error. */

fs_scan_status fs_scan_long_string(fs_scan *scan, fs_scan_span *span);

/* Read a string. Most are short keys, whose end is found in one step. */
static inline fs_scan_status fs_scan_string(fs_scan *scan, fs_scan_span *span)
{
#if defined(__SSE2__)
    const char *first = scan->at + 1;
    __m128i bytes = _mm_loadu_si128((const __m128i *)first), quote = _mm_set1_epi8('"');
    __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    unsigned size = (unsigned)__builtin_ctz((unsigned)_mm_movemask_epi8(ends) | 1u << 16);
    if (*scan->at == '"' && first[size] == '"' && size < 16 && first + size < scan->end) {
        *span = (fs_scan_span){first, size, false};
        scan->at = first + size + 1;
        return FS_SCAN_GOOD;
    }
#endif
    return fs_scan_long_string(scan, span);
}

/* Step to the next member of an object and read its key, up to its value, which the caller reads. Start after the '{'
 * with key->text NULL, which it is again after the '}'. */
static inline fs_scan_status fs_scan_member(fs_scan *scan, fs_scan_span *key)
{
    fs_scan_space(scan);
    if (key->text != NULL && *scan->at == ',') {
        scan->at++;
        fs_scan_space(scan);
    } else if (key->text != NULL && *scan->at != '}') {
        return fs_scan_bad(scan, "',' or '}'");
    }
    if (*scan->at == '}') {
        scan->at++;
        key->text = NULL;
        return FS_SCAN_GOOD;
    }
    fs_scan_status status = fs_scan_string(scan, key);
    if (status != FS_SCAN_GOOD) return status;
    fs_scan_space(scan);
    if (*scan->at != ':') return fs_scan_bad(scan, "':'");
    scan->at++;
    fs_scan_space(scan);
    return FS_SCAN_GOOD;
}

/* Skip any value. Inside objects and arrays only strings and brackets are checked. */
fs_scan_status fs_scan_skip(fs_scan *scan);
/* Skip to the end of the object or array that contains `at`, past its bracket. */
fs_scan_status fs_scan_leave(fs_scan *scan);
/* Parse a decimal number, multiplied by 10^scale, as an integer, using its first 19 digits and never a double. `half`:
 * round to nearest, else toward zero. Returns false, with *value unchanged, if the text is not entirely a number or the
 * result does not fit. */
bool fs_scan_decimal(const char *text, size_t size, int scale, bool half, int64_t *value);
/* Read a value as an integer: a number, or a string that contains one. Fractions are rounded toward zero. For anything
 * else, or a result that does not fit, *known is false and the value is skipped. */
fs_scan_status fs_scan_integer(fs_scan *scan, int64_t *value, bool *known);
/* Read a number of µs, or a string that contains one, as ns, rounded to nearest. *known as above. */
fs_scan_status fs_scan_microseconds(fs_scan *scan, int64_t *ns, bool *known);

/* Write the string that a span represents as UTF-8, ended by a zero byte, to `out` of span->size + 1 bytes; returns its
 * size. A lone surrogate becomes three bytes; an invalid escape is kept verbatim. */
size_t fs_scan_unescape(const fs_scan_span *span, char *out);

/* Tokens, by the full grammar of JSON ------------------------------------------------------------------------------ */

/* X(NAME, name) */
#define FS_SCAN_TOKEN_LIST(X) \
    X(OBJECT, object)         \
    X(OBJECT_END, object_end) \
    X(ARRAY, array)           \
    X(ARRAY_END, array_end) X(KEY, key) X(STRING, string) X(NUMBER, number) X(WORD, word) /* true, false, null too */

typedef enum {
#define FS_SCAN_TOKEN_ENUM(NAME, name) FS_SCAN_##NAME,
    FS_SCAN_TOKEN_LIST(FS_SCAN_TOKEN_ENUM)
#undef FS_SCAN_TOKEN_ENUM
        FS_SCAN_TOKEN_COUNT
} fs_scan_token;

typedef struct {
    fs_scan scan;
    uint32_t depth; /* number of open objects and arrays; 0 after a value: the text's value has ended */
    uint64_t objects[FS_SCAN_MAX_DEPTH / 64]; /* one bit per open one: it is an object */
    uint8_t wants;                            /* private: expected token */
} fs_scan_pull;

/* Begin to read one value. */
void fs_scan_pull_begin(fs_scan_pull *pull, const char *text, size_t size);
/* Read the next token; `span` is set for keys, strings, numbers and words. After the last token `depth` is 0. */
fs_scan_status fs_scan_next(fs_scan_pull *pull, fs_scan_token *token, fs_scan_span *span);

#endif
