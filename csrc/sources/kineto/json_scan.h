/* A scanner for JSON texts that are read once, front to back, and never become a tree.
 *
 *   begin … at ─────────── end | zero bytes
 *              not yet read      FS_SCAN_PADDING of them, so that reading ahead needs no bounds
 *
 * The text may be a piece of a longer one: what runs into `end` is FS_SCAN_MORE, and can be read again from where it
 * began when more is there. It takes what real files hold: bytes that are no UTF-8, raw control characters in strings,
 * bare words (NaN, Infinity, N/A) where a value stands.
 */
#ifndef FS_SOURCES_KINETO_JSON_SCAN_H
#define FS_SOURCES_KINETO_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { FS_SCAN_PADDING = 64, FS_SCAN_MAX_DEPTH = 1024 };

typedef enum { FS_SCAN_GOOD, FS_SCAN_MORE, FS_SCAN_BAD } fs_scan_status;

typedef struct {
    const char *at, *end;
    const char *expected; /* after FS_SCAN_BAD: what should stand at `at` */
} fs_scan;

typedef struct {
    const char *text; /* of a string: without its quotes, escapes as they stand */
    size_t size;
    bool escaped; /* there are escapes in it */
} fs_scan_span;

static inline fs_scan_status fs_scan_bad(fs_scan *scan, const char *expected)
{
    scan->expected = expected;
    return scan->at >= scan->end ? FS_SCAN_MORE : FS_SCAN_BAD;
}

static inline void fs_scan_space(fs_scan *scan)
{
    while (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t') scan->at++;
}

/* Each of these reads what stands at `at`, which is no space. On FS_SCAN_BAD `at` is where it is wrong. */

fs_scan_status fs_scan_long_string(fs_scan *scan, fs_scan_span *span);

/* A string. Most are keys of a few letters, whose end one step finds. */
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
/* A number or a bare word: whatever letters, digits and "+-./_#" follow each other. */
fs_scan_status fs_scan_word(fs_scan *scan, fs_scan_span *span);
/* Any value. Of objects and arrays only strings and brackets are looked at. */
fs_scan_status fs_scan_skip(fs_scan *scan);
/* To the end of the object or array that `at` is in, past its bracket. */
fs_scan_status fs_scan_leave(fs_scan *scan);
/* The decimal number in the text, times 10^scale, as an integer: computed from its digits, of which the first 19 count,
 * never by way of a double. `half`: rounded to the nearest, else toward zero. False where the whole text is no number,
 * or where the result does not fit; *value is unchanged then. */
bool fs_scan_decimal(const char *text, size_t size, int scale, bool half, int64_t *value);
/* A value as an integer: a number, or a string that holds one. Digits after the point are rounded toward zero. *known
 * is false, and the value skipped, for anything else and for what does not fit. */
fs_scan_status fs_scan_integer(fs_scan *scan, int64_t *value, bool *known);
/* A number of µs, or a string that holds one, as ns: exact to the nearest. *known as above. */
fs_scan_status fs_scan_microseconds(fs_scan *scan, int64_t *ns, bool *known);

/* The string that a span stands for, as UTF-8, into `out` of span->size + 1 bytes, ended by a zero byte; its size. A
 * surrogate alone becomes three bytes, an escape that JSON has not stays as it is. */
size_t fs_scan_unescape(const fs_scan_span *span, char *out);

/* Token by token, by JSON's grammar in full ----------------------------------------------------------------------- */

/* X(NAME, name) */
#define FS_SCAN_TOKEN_LIST(X)                                                               \
    X(OBJECT, object)                                                                       \
    X(OBJECT_END, object_end)                                                               \
    X(ARRAY, array) X(ARRAY_END, array_end) X(KEY, key) X(STRING, string) X(NUMBER, number) \
        X(WORD, word) /* true, false, null too */

typedef enum {
#define FS_SCAN_TOKEN_ENUM(NAME, name) FS_SCAN_##NAME,
    FS_SCAN_TOKEN_LIST(FS_SCAN_TOKEN_ENUM)
#undef FS_SCAN_TOKEN_ENUM
        FS_SCAN_TOKEN_COUNT
} fs_scan_token;

typedef struct {
    fs_scan scan;
    uint32_t depth; /* of open objects and arrays; 0 after a value: the text's value is over */
    uint64_t objects[FS_SCAN_MAX_DEPTH / 64]; /* a bit for each open one: it is an object */
    uint8_t wants;                            /* private */
} fs_scan_pull;

/* Begin with one value of the text. */
void fs_scan_pull_begin(fs_scan_pull *pull, const char *text, size_t size);
/* The next token; span: of keys, strings, numbers and words. After the value's last token `depth` is 0. */
fs_scan_status fs_scan_next(fs_scan_pull *pull, fs_scan_token *token, fs_scan_span *span);

#endif
