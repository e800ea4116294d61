/* JSON text: strings compared with the examples of the Unicode standard, numbers with printf. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/c/check.h"
#include "tests/c/json_check.h"
#include "views/json.h"

static fs_json json;

/* Return the text written since the last call. */
static const char *written(void)
{
    FS_JSON_LITERAL(&json, "\0");
    json.size = 0;
    CHECK(json.status == FS_OK);
    return json.bytes;
}

static void test_strings_are_escaped(void)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "\"\""},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\""},
        {"\x01\x1f\n\t\r\x7f", "\"\\u0001\\u001f\\n\\t\\u000d\x7f\""},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
         "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\""},
        {"\x80 \xbf \xff \xc1", "\"\xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd\""},
        {"overlong \xe0\x80\x80.", "\"overlong \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd.\""},
        {"half a pair \xed\xa0\x80.", "\"half a pair \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd.\""},
        {"too far \xf4\x90\x80\x80.", "\"too far \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd.\""},
        {"cut \xe2\x82", "\"cut \xef\xbf\xbd\""},
        {"cut \xf0\x9f\x98\"", "\"cut \xef\xbf\xbd\\\"\""},
        /* Unicode 15, tables 3-8 and 3-11: one U+FFFD for each maximal subpart of an ill-formed sequence. */
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41",
         "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\""},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fs_json_string(&json, cases[i].text);
        const char *text = written();
        CHECK(strcmp(text, cases[i].expected) == 0, "%zu: %s", i, text);
    }
}

static int64_t random_integer(void)
{
    uint64_t bits = (uint64_t)rand() << 42 ^ (uint64_t)rand() << 21 ^ (uint64_t)rand();
    return (int64_t)bits >> rand() % 64;
}

static void test_integers_and_times(void)
{
    static const int64_t edges[] = {0, 9, 10, 99, 100, 999, 1000, 999999, 1000000, INT64_MAX, INT64_MIN, -1, -10, -100};
    enum { EDGES = sizeof edges / sizeof *edges };
    char expected[64];
    for (int i = 0; i < 100000; i++) {
        int64_t value = i < EDGES ? edges[i] : random_integer();
        fs_json_integer(&json, value);
        snprintf(expected, sizeof expected, "%lld", (long long)value);
        const char *text = written();
        CHECK(strcmp(text, expected) == 0, "%s for %s", text, expected);
        fs_json_time(&json, (uint64_t)value);
        unsigned long long ns = (unsigned long long)value;
        snprintf(expected, sizeof expected, "%llu.%03llu", ns / 1000, ns % 1000);
        text = written();
        CHECK(strcmp(text, expected) == 0, "%s for %s", text, expected);
    }
}

static void test_numbers(void)
{
    static const struct {
        double value;
        int decimals; /* 0: an integer if the value is one */
        const char *expected;
    } cases[] = {
        {0, 0, "0"},
        {-0.0, 0, "0"},
        {1.5, 0, "1.500000"},
        {-3, 0, "-3"},
        {1e18, 0, "1000000000000000000"},
        {NAN, 0, "null"},
        {-INFINITY, 0, "null"},
        {1e38, 0, "null"},
        {0.9999999, 6, "1.000000"},
        {-0.25, 1, "-0.3"},
        {2, 3, "2.000"},
        {1e18, 6, "null"},
        {NAN, 6, "null"},
        {4e-10, 9, "0.000000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].decimals > 0) fs_json_decimal(&json, cases[i].value, cases[i].decimals);
        else fs_json_number(&json, cases[i].value);
        const char *text = written();
        CHECK(strcmp(text, cases[i].expected) == 0, "%zu: %s", i, text);
    }
    for (int i = 0; i < 100000; i++) {
        char expected[64];
        double value = ldexp((double)rand() / RAND_MAX - 0.5, rand() % 125);
        fs_json_number(&json, value);
        if (fabs(value) >= 0x1p53) {
            snprintf(expected, sizeof expected, "%.0f", value); /* an integer, exactly */
            CHECK(strcmp(written(), expected) == 0);
        } else {
            CHECK(fabs(strtod(written(), NULL) - value) <= 5.1e-7 + fabs(value) * 1e-15);
        }
    }
}

/* Pieces ----------------------------------------------------------------------------------------------------------- */

static size_t handed_on, largest;

static fs_status count(void *context, const char *bytes, size_t size, fs_error *err)
{
    (void)context, (void)err;
    for (size_t i = 0; i < size; i++) CHECK(bytes[i] == (char)('a' + (handed_on + i) % 23));
    handed_on += size;
    if (size > largest) largest = size;
    return FS_OK;
}

static void test_text_is_handed_on_in_order_and_in_pieces(void)
{
    static char text[3 * FS_JSON_PIECE];
    size_t total = 0;
    fs_json out;
    CHECK(fs_json_init(&out, count, NULL, NULL) == FS_OK);
    for (int i = 0; i < 2000; i++) {
        size_t size = i % 500 == 7 ? sizeof text : (size_t)rand() % 2000;
        for (size_t j = 0; j < size; j++) text[j] = (char)('a' + (total + j) % 23);
        fs_json_put(&out, text, size);
        total += size;
    }
    CHECK(fs_json_flush(&out) == FS_OK && handed_on == total && largest == FS_JSON_PIECE);
    CHECK(fs_json_flush(&out) == FS_OK && handed_on == total);
    fs_json_clear(&out);
}

static void test_a_failed_allocation_is_remembered(void)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    fs_error err = {FS_OK, ""};
    fs_json out;
    CHECK(fs_json_init(&out, NULL, NULL, &err) == FS_OK);
    fs_memory_fail_at(1);
    fs_json_put(&out, text, sizeof text);
    fs_memory_fail_at(0);
    fs_json_put(&out, text, sizeof text);
    CHECK(out.status == FS_OUT_OF_MEMORY && err.message[0] != 0 && out.size == 0);
    fs_json_clear(&out);
    fs_memory_fail_at(1);
    CHECK(fs_json_init(&out, NULL, NULL, &err) == FS_OUT_OF_MEMORY);
    fs_memory_fail_at(0);
    fs_json_put(&out, text, 1);
    fs_json_clear(&out);
}

static void test_the_test_parser_rejects_invalid_text(void)
{
    static const char *const bad[] = {"{\"a\": 1,}", "[1 2]",  "01",  "1.", "\"\n\"",
                                      "\"\\x\"",     "{a: 1}", "nul", "[",  ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(past_value(bad[i]) == NULL, "%s", bad[i]);
    CHECK(lines_with("ab\ncd\nad", "a", "d") == 1);
}

int main(void)
{
    int64_t live = fs_memory_live();
    CHECK(fs_json_init(&json, NULL, NULL, NULL) == FS_OK);
    test_strings_are_escaped();
    test_integers_and_times();
    test_numbers();
    test_text_is_handed_on_in_order_and_in_pieces();
    test_a_failed_allocation_is_remembered();
    test_the_test_parser_rejects_invalid_text();
    fs_json_clear(&json);
    CHECK(fs_memory_live() == live);
    return failures != 0;
}
