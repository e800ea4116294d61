/* Decimal numbers of JSON, computed from their digits and never with a double. */
#include "sources/kineto/json_scan.h"

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
