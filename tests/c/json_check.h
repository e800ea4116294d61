/* A small strict JSON parser, and a search in JSON text by line. Define _GNU_SOURCE before the first include. */
#ifndef FS_TESTS_JSON_CHECK_H
#define FS_TESTS_JSON_CHECK_H

#include <string.h>

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \n\t\r");
}

/* Return the end of the string at `at`, or NULL. */
static const char *past_string(const char *at)
{
    if (*at++ != '"') return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at != '\\') continue;
        at++;
        if (*at == 'u' && strspn(at + 1, "0123456789abcdef") >= 4) at += 4;
        else if (*at == 0 || strchr("\"\\/bfnrt", *at) == NULL) return NULL;
    }
    return at + 1;
}

static const char *past_number(const char *at)
{
    at += *at == '-';
    size_t digits = strspn(at, "0123456789");
    if (digits == 0 || (digits > 1 && *at == '0')) return NULL;
    at += digits;
    if (*at != '.') return at;
    size_t part = strspn(at + 1, "0123456789");
    return part > 0 ? at + 1 + part : NULL;
}

/* Return the end of the JSON value (RFC 8259, without exponents) at `at`, or NULL. */
static const char *past_value(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    at = skip_space(at);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) return at + strlen(words[i]);
    }
    if (*at == '"') return past_string(at);
    if (*at != '{' && *at != '[') return past_number(at);
    char open = *at, close = open == '{' ? '}' : ']';
    at = skip_space(at + 1);
    if (*at == close) return at + 1;
    for (;; at = skip_space(at + 1)) {
        if (open == '{') {
            at = past_string(at);
            if (at == NULL || *(at = skip_space(at)) != ':') return NULL;
            at++;
        }
        at = past_value(at);
        if (at == NULL) return NULL;
        at = skip_space(at);
        if (*at == close) return at + 1;
        if (*at != ',') return NULL;
    }
}

/* Return the number of lines that contain both parts. */
static int lines_with(const char *text, const char *first, const char *second)
{
    int matches = 0;
    for (const char *line = text; *line != 0;) {
        size_t size = strcspn(line, "\n");
        const char *a = memmem(line, size, first, strlen(first));
        const char *b = second == NULL ? line : memmem(line, size, second, strlen(second));
        matches += a != NULL && b != NULL;
        line += size + (line[size] == '\n');
    }
    return matches;
}

#endif
