/* The text is followed by FS_SCAN_PADDING bytes, so that scans read whole blocks and test for the end afterwards. A
 * value that reaches the end is FS_SCAN_MORE, with `at` where it was: the caller feeds more text and calls again. The
 * fast scans do not validate; the tokens of fs_scan_next do. Skipping tests 64 bytes at a time and goes byte by byte
 * only where a backslash may hide a quote. */
#include "sources/kineto/json_scan.h"

#include <string.h>

/* Decimal numbers of JSON, computed from their digits and never with a double. */

enum { MOST_EXPONENT = 9999, MOST_DIGITS = 19 /* 19 digits fit 64 bits */ };

static inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* A number read digit by digit: digits × 10^exponent, and the first digit that did not fit. */
typedef struct {
    uint64_t digits;
    int count, next, exponent;
} decimal;

static void take_digit(decimal *number, char c, bool fraction)
{
    int digit = c - '0';
    if (number->count < MOST_DIGITS) {
        number->digits = number->digits * 10 + (uint64_t)digit;
        number->count += number->digits != 0;
        number->exponent -= fraction;
        return;
    }
    if (number->next < 0) number->next = digit;
    number->exponent += !fraction;
}

/* Read the exponent after "e"; false if there is none. */
static bool take_exponent(const char *at, const char *end, int *exponent)
{
    int value = 0;
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    if (at == end) return false;
    for (; at < end && is_digit(*at); at++)
        if (value < MOST_EXPONENT) value = value * 10 + (*at - '0');
    *exponent += negative ? -value : value;
    return at == end;
}

/* Scale by 10^exponent; `half`: round to nearest, else toward zero. Returns false if the result does not fit. */
static bool scale_decimal(decimal *number, int scale, bool half)
{
    int exponent = number->exponent + scale, last = number->next > 0 ? number->next : 0;
    for (; exponent < 0 && number->digits != 0; exponent++) {
        last = (int)(number->digits % 10);
        number->digits /= 10;
    }
    if (exponent < 0) last = 0; /* all digits are below the rounding position */
    for (; exponent > 0 && number->digits != 0; exponent--)
        if (__builtin_mul_overflow(number->digits, UINT64_C(10), &number->digits)) return false;
    if (half && last >= 5) number->digits++;
    return number->digits <= INT64_MAX;
}

bool fs_scan_decimal(const char *text, size_t size, int scale, bool half, int64_t *value)
{
    const char *at = text, *end = text + size;
    decimal number = {0, 0, -1, 0};
    bool negative = at < end && *at == '-', any = false;
    if (negative) at++;
    for (; at < end && is_digit(*at); at++, any = true) take_digit(&number, *at, false);
    if (any && at < end && *at == '.')
        for (at++; at < end && is_digit(*at); at++) take_digit(&number, *at, true);
    if (!any) return false;
    if (at < end && (*at == 'e' || *at == 'E')) {
        if (!take_exponent(at + 1, end, &number.exponent)) return false;
    } else if (at != end) {
        return false;
    }
    if (!scale_decimal(&number, scale, half)) return false;
    *value = negative ? -(int64_t)number.digits : (int64_t)number.digits;
    return true;
}

/* Strings ---------------------------------------------------------------------------------------------------------- */

/* Find the first quote or backslash from `at`, or a position past `end`. */
static inline const char *find_quote(const char *at, const char *end)
{
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    for (; at < end; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)));
        if (found != 0) return at + __builtin_ctz((unsigned)found);
    }
#else
    while (at < end && *at != '"' && *at != '\\') at++;
#endif
    return at;
}

fs_scan_status fs_scan_long_string(fs_scan *scan, fs_scan_span *span)
{
    if (*scan->at != '"') return fs_scan_bad(scan, "a string");
    const char *first = scan->at + 1, *at = first;
    span->escaped = false;
    for (;;) {
        at = find_quote(at, scan->end);
        if (at >= scan->end) return FS_SCAN_MORE;
        if (*at == '"') break;
        span->escaped = true;
        at += 2;
    }
    span->text = first;
    span->size = (size_t)(at - first);
    scan->at = at + 1;
    return FS_SCAN_GOOD;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Return the code unit of "\uXXXX" at `at`, or -1. */
static int code_unit(const char *at, const char *end)
{
    int unit = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* Pairs of an escape's letter and its byte. */
static const char simple_escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";

static int simple_escape(char letter)
{
    for (const char *pair = simple_escapes; *pair != 0; pair += 2)
        if (*pair == letter) return pair[1];
    return -1;
}

/* Read one escape; if it is invalid, its backslash. */
static const char *take_escape(const char *at, const char *end, char **out)
{
    int unit = code_unit(at, end), simple = end - at < 2 ? -1 : simple_escape(at[1]);
    if (unit >= 0) {
        uint32_t code = (uint32_t)unit;
        at += 6;
        int low = code >= 0xd800 && code < 0xdc00 ? code_unit(at, end) : -1;
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
            at += 6;
        }
        *out = put_utf8(*out, code);
        return at;
    }
    *(*out)++ = simple >= 0 ? (char)simple : *at;
    return at + (simple >= 0 ? 2 : 1);
}

size_t fs_scan_unescape(const fs_scan_span *span, char *out)
{
    const char *at = span->text, *end = at + span->size;
    char *put = out;
    while (at < end) {
        if (*at == '\\') at = take_escape(at, end, &put);
        else *put++ = *at++;
    }
    *put = 0;
    return (size_t)(put - out);
}

/* Numbers and words ------------------------------------------------------------------------------------------------ */

#define DIGIT 1 /* the other bits: further characters of words */
#define OTHER 2
static const uint8_t word_bytes[256] = {
    ['0' ... '9'] = DIGIT, ['a' ... 'z'] = OTHER, ['A' ... 'Z'] = OTHER, ['+'] = OTHER, ['-'] = OTHER,
    ['.'] = OTHER,         ['/'] = OTHER,         ['_'] = OTHER,         ['#'] = OTHER,
};

static inline bool in_word(char c)
{
    return word_bytes[(unsigned char)c] != 0;
}

/* Read a number or a bare word: any sequence of letters, digits and "+-./_#". */
static fs_scan_status scan_word(fs_scan *scan, fs_scan_span *span)
{
    const char *at = scan->at;
    while (in_word(*at)) at++;
    if (at >= scan->end) return FS_SCAN_MORE; /* it may continue */
    if (at == scan->at) return fs_scan_bad(scan, "a value");
    *span = (fs_scan_span){scan->at, (size_t)(at - scan->at), false};
    scan->at = at;
    return FS_SCAN_GOOD;
}

/* Parse anything but plain decimals: exponents, words, many digits, numbers in quotes. */
static fs_scan_status slow_number(fs_scan *scan, int scale, int64_t *value, bool *known)
{
    fs_scan_span text;
    *known = false;
    if (*scan->at == '[' || *scan->at == '{') return fs_scan_skip(scan);
    fs_scan_status status = *scan->at == '"' ? fs_scan_string(scan, &text) : scan_word(scan, &text);
    if (status == FS_SCAN_GOOD) *known = fs_scan_decimal(text.text, text.size, scale, scale != 0, value);
    return status;
}

static const uint32_t powers_of_ten[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* Read the first 0 to 8 digits at once; returns their number. */
static inline unsigned eight_digits(const char *at, uint64_t *value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t digits;
    memcpy(&digits, at, sizeof digits);
    digits ^= 0x3030303030303030u; /* bytes above 9 are none; the sum carries only to the bytes after such a one */
    uint64_t others = ((digits + 0x0606060606060606u) | digits) & 0xf0f0f0f0f0f0f0f0u;
    unsigned count = others == 0 ? 8 : (unsigned)__builtin_ctzll(others) / 8;
    if (count == 0) return 0;
    digits <<= 64 - 8 * count;
    digits = digits * 10 + (digits >> 8); /* every second byte holds two digits, and so on */
    *value = ((digits & 0x000000ff000000ffu) * 0x000f424000000064u +
              (digits >> 16 & 0x000000ff000000ffu) * 0x0000271000000001u) >>
             32;
    return count;
#else
    unsigned count = 0;
    for (*value = 0; count < 8 && is_digit(at[count]); count++) *value = *value * 10 + (uint64_t)(at[count] - '0');
    return count;
#endif
}

/* Read up to 18 digits, which fit. *count: their number. */
static inline const char *take_digits(const char *at, uint64_t *value, int *count)
{
    const char *first = at;
    uint64_t sum = 0, part = 0;
    unsigned more;
    do {
        more = eight_digits(at, &part);
        if (more > 0) sum = sum * powers_of_ten[more] + part;
        at += more;
    } while (more == 8);
    *count = at - first > 18 ? 19 : (int)(at - first);
    *value = sum;
    return at;
}

fs_scan_status fs_scan_integer(fs_scan *scan, int64_t *value, bool *known)
{
    uint64_t whole;
    int digits;
    bool negative = *scan->at == '-';
    const char *at = take_digits(scan->at + negative, &whole, &digits);
    if (at >= scan->end) return FS_SCAN_MORE;
    if (digits == 0 || digits > 18 || in_word(*at)) return slow_number(scan, 0, value, known);
    *value = negative ? -(int64_t)whole : (int64_t)whole;
    *known = true;
    scan->at = at;
    return FS_SCAN_GOOD;
}

/* More µs than this overflow as ns. */
static const uint64_t most_microseconds = INT64_MAX / 1000 - 1;

fs_scan_status fs_scan_microseconds(fs_scan *scan, int64_t *ns, bool *known)
{
    uint64_t whole;
    int digits;
    bool negative = *scan->at == '-';
    const char *at = take_digits(scan->at + negative, &whole, &digits);
    if (digits == 0 || digits > 16 || whole > most_microseconds) return slow_number(scan, 3, ns, known);
    whole *= 1000;
    if (*at == '.') {
        uint64_t part = 0;
        unsigned count = eight_digits(++at, &part);
        if (count > 3) {
            part /= powers_of_ten[count - 4]; /* rounded by the fourth digit */
            part = part / 10 + (part % 10 >= 5);
        } else {
            part *= powers_of_ten[3 - count];
        }
        whole += part;
        for (at += count; is_digit(*at);) at++;
    }
    if (at >= scan->end) return FS_SCAN_MORE;
    if (in_word(*at)) return slow_number(scan, 3, ns, known);
    *ns = negative ? -(int64_t)whole : (int64_t)whole;
    *known = true;
    scan->at = at;
    return FS_SCAN_GOOD;
}

/* Skipping --------------------------------------------------------------------------------------------------------- */

enum { BLOCK = 64 };
_Static_assert((int)FS_SCAN_PADDING >= (int)BLOCK, "a block may be read past the end");

/* One bit for each of 64 bytes. */
typedef struct {
    uint64_t quotes, backslashes, openings, closings;
} block_marks;

static inline block_marks marks_of(const char *at)
{
    block_marks marks = {0, 0, 0, 0};
#if defined(__SSE2__)
    /* "[" and "{", "]" and "}" differ in one bit. */
    const __m128i fold = _mm_set1_epi8(0x20);
    for (int part = 0; part < BLOCK; part += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + part)), folded = _mm_or_si128(bytes, fold);
#define MARK(bytes, letter) \
    ((uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(letter))) << part)
        marks.quotes |= MARK(bytes, '"');
        marks.backslashes |= MARK(bytes, '\\');
        marks.openings |= MARK(folded, '{');
        marks.closings |= MARK(folded, '}');
#undef MARK
    }
#else
    for (int i = 0; i < BLOCK; i++) {
        uint64_t bit = UINT64_C(1) << i;
        if (at[i] == '"') marks.quotes |= bit;
        if (at[i] == '\\') marks.backslashes |= bit;
        if (at[i] == '{' || at[i] == '[') marks.openings |= bit;
        if (at[i] == '}' || at[i] == ']') marks.closings |= bit;
    }
#endif
    return marks;
}

/* Replace each bit by the parity of the bits up to it, which sets the bits between two quotes. */
static inline uint64_t between(uint64_t quotes)
{
    for (int shift = 1; shift < BLOCK; shift *= 2) quotes ^= quotes << shift;
    return quotes;
}

/* State of a search for the bracket that closes the open ones. */
typedef struct {
    uint64_t depth;
    bool in_string, escaped;
} leaving;

/* Return the byte after the last closing bracket within the 64 bytes at `at`, or NULL. */
static const char *leave_slowly(leaving *state, const char *at)
{
    for (const char *end = at + BLOCK; at < end; at++) {
        if (state->escaped) {
            state->escaped = false;
        } else if (state->in_string) {
            state->in_string = *at != '"';
            state->escaped = *at == '\\';
        } else if (*at == '"') {
            state->in_string = true;
        } else if (*at == '[' || *at == '{') {
            state->depth++;
        } else if ((*at == ']' || *at == '}') && --state->depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

static inline const char *leave_block(leaving *state, const char *at)
{
    block_marks marks = marks_of(at);
    if (marks.backslashes != 0 || state->escaped) return leave_slowly(state, at);
    uint64_t inside = between(marks.quotes) ^ (state->in_string ? UINT64_MAX : 0);
    state->in_string = inside >> (BLOCK - 1) != 0;
    marks.openings &= ~inside;
    marks.closings &= ~inside;
    for (uint64_t left = marks.openings | marks.closings; left != 0; left &= left - 1) {
        uint64_t bit = left & -left;
        if ((marks.openings & bit) != 0) state->depth++;
        else if (--state->depth == 0) return at + __builtin_ctzll(bit) + 1;
    }
    return NULL;
}

static fs_scan_status leave(fs_scan *scan, uint64_t depth)
{
    leaving state = {depth, false, false};
    for (const char *at = scan->at; at < scan->end; at += BLOCK) {
        const char *found = leave_block(&state, at);
        if (found == NULL) continue;
        if (found > scan->end) break;
        scan->at = found;
        return FS_SCAN_GOOD;
    }
    return FS_SCAN_MORE;
}

fs_scan_status fs_scan_leave(fs_scan *scan)
{
    return leave(scan, 1);
}

fs_scan_status fs_scan_skip(fs_scan *scan)
{
    fs_scan_span span;
    if (*scan->at == '"') return fs_scan_string(scan, &span);
    if (*scan->at != '[' && *scan->at != '{') return scan_word(scan, &span);
    scan->at++;
    fs_scan_status status = leave(scan, 1);
    if (status != FS_SCAN_GOOD) scan->at--;
    return status;
}

/* Tokens ----------------------------------------------------------------------------------------------------------- */

enum { WANTS_VALUE, WANTS_VALUE_OR_END, WANTS_KEY, WANTS_KEY_OR_END, WANTS_COMMA_OR_END };

void fs_scan_pull_begin(fs_scan_pull *pull, const char *text, size_t size)
{
    pull->scan = (fs_scan){.at = text, .end = text + size};
    pull->depth = 0;
    pull->wants = WANTS_VALUE;
}

static bool is_in_object(const fs_scan_pull *pull)
{
    return pull->depth > 0 && (pull->objects[(pull->depth - 1) / 64] >> (pull->depth - 1) % 64 & 1) != 0;
}

static fs_scan_status open_nested(fs_scan_pull *pull, bool object)
{
    if (pull->depth == FS_SCAN_MAX_DEPTH) return fs_scan_bad(&pull->scan, "no more than 1024 nested values");
    uint64_t bit = UINT64_C(1) << pull->depth % 64, *bits = &pull->objects[pull->depth / 64];
    *bits = object ? *bits | bit : *bits & ~bit;
    pull->depth++;
    pull->wants = object ? WANTS_KEY_OR_END : WANTS_VALUE_OR_END;
    pull->scan.at++;
    return FS_SCAN_GOOD;
}

/* Return whether every escape of a string is valid; *wrong is the first that is not. */
static bool escapes_are_good(const fs_scan_span *span, const char **wrong)
{
    const char *end = span->text + span->size;
    for (const char *at = span->text; span->escaped && at < end; at++) {
        if (*at != '\\') continue;
        *wrong = at;
        if (simple_escape(at[1]) < 0 && code_unit(at, end) < 0) return false;
        at++;
    }
    return true;
}

static fs_scan_status take_string(fs_scan_pull *pull, fs_scan_span *span)
{
    const char *wrong;
    fs_scan_status status = fs_scan_string(&pull->scan, span);
    if (status != FS_SCAN_GOOD || escapes_are_good(span, &wrong)) return status;
    pull->scan.at = wrong;
    return fs_scan_bad(&pull->scan, "an escape of JSON");
}

/* Return whether a word is a number by JSON's grammar. */
static bool is_number(const fs_scan_span *word)
{
    const char *at = word->text, *end = at + word->size;
    if (*at == '-') at++;
    if (!is_digit(*at)) return false;
    if (*at == '0') at++;
    else
        while (is_digit(*at)) at++;
    if (at < end && *at == '.') {
        if (!is_digit(*++at)) return false;
        while (is_digit(*at)) at++;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (*at == '+' || *at == '-') at++;
        if (!is_digit(*at)) return false;
        while (is_digit(*at)) at++;
    }
    return at == end;
}

static fs_scan_status take_value(fs_scan_pull *pull, fs_scan_token *token, fs_scan_span *span)
{
    char first = *pull->scan.at;
    if (first == '{' || first == '[') {
        *token = first == '{' ? FS_SCAN_OBJECT : FS_SCAN_ARRAY;
        return open_nested(pull, first == '{');
    }
    fs_scan_status status = first == '"' ? take_string(pull, span) : scan_word(&pull->scan, span);
    if (status != FS_SCAN_GOOD) return status;
    *token = first == '"' ? FS_SCAN_STRING : is_number(span) ? FS_SCAN_NUMBER : FS_SCAN_WORD;
    pull->wants = WANTS_COMMA_OR_END;
    return FS_SCAN_GOOD;
}

static fs_scan_status take_key(fs_scan_pull *pull, fs_scan_token *token, fs_scan_span *span)
{
    if (*pull->scan.at != '"') return fs_scan_bad(&pull->scan, "a key, in quotes");
    fs_scan_status status = take_string(pull, span);
    if (status != FS_SCAN_GOOD) return status;
    fs_scan_space(&pull->scan);
    if (*pull->scan.at != ':') return fs_scan_bad(&pull->scan, "':'");
    pull->scan.at++;
    pull->wants = WANTS_VALUE;
    *token = FS_SCAN_KEY;
    return FS_SCAN_GOOD;
}

static fs_scan_status take_end(fs_scan_pull *pull, fs_scan_token *token)
{
    *token = is_in_object(pull) ? FS_SCAN_OBJECT_END : FS_SCAN_ARRAY_END;
    pull->depth--;
    pull->wants = WANTS_COMMA_OR_END;
    pull->scan.at++;
    return FS_SCAN_GOOD;
}

fs_scan_status fs_scan_next(fs_scan_pull *pull, fs_scan_token *token, fs_scan_span *span)
{
    bool object = is_in_object(pull);
    fs_scan_space(&pull->scan);
    bool may_end =
        pull->wants == WANTS_COMMA_OR_END || pull->wants == WANTS_KEY_OR_END || pull->wants == WANTS_VALUE_OR_END;
    if (may_end && pull->depth > 0 && *pull->scan.at == (object ? '}' : ']')) return take_end(pull, token);
    if (pull->wants == WANTS_COMMA_OR_END) {
        if (pull->depth == 0) return fs_scan_bad(&pull->scan, "the end of the text");
        if (*pull->scan.at != ',') return fs_scan_bad(&pull->scan, object ? "',' or '}'" : "',' or ']'");
        pull->scan.at++;
        pull->wants = object ? WANTS_KEY : WANTS_VALUE;
        fs_scan_space(&pull->scan);
    }
    if (pull->wants == WANTS_KEY || pull->wants == WANTS_KEY_OR_END) return take_key(pull, token, span);
    return take_value(pull, token, span);
}
