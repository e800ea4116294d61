/* JSON text, built in memory or handed on in pieces, fast enough for gigabytes: numbers are made without printf, so
 * they do not depend on the locale.
 *
 * The first failure is kept in `status`, and what is written after it is lost: look at it once in a while and at the
 * end. Nothing here checks that the text is JSON as a whole: braces and commas are the caller's. */
#ifndef FS_VIEWS_JSON_H
#define FS_VIEWS_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

enum { FS_JSON_PIECE = 1 << 18 };

/* Takes a piece of the text, at most FS_JSON_PIECE bytes; not called again once it failed. */
typedef fs_status (*fs_json_sink)(void *context, const char *bytes, size_t size, fs_error *err);

typedef struct {
    char *bytes;
    size_t size, capacity;
    fs_json_sink sink; /* NULL: the text stays in `bytes` */
    void *context;
    fs_status status;
    fs_error *err;
} fs_json;

/* FS_OUT_OF_MEMORY. `err` (NULL: not told) receives what fails later, too. fs_json_clear takes a zeroed one too. */
fs_status fs_json_init(fs_json *json, fs_json_sink sink, void *context, fs_error *err);
void fs_json_clear(fs_json *json);
/* Hand on what is left; the status. */
fs_status fs_json_flush(fs_json *json);

/* Text as it is. */
void fs_json_put_slowly(fs_json *json, const char *text, size_t size);

static inline void fs_json_put(fs_json *json, const char *text, size_t size)
{
    if (size > json->capacity - json->size) {
        fs_json_put_slowly(json, text, size);
        return;
    }
    memcpy(json->bytes + json->size, text, size);
    json->size += size;
}

#define FS_JSON_LITERAL(json, literal) fs_json_put(json, literal, sizeof(literal) - 1)

/* A string with its quotes, escaped. Bytes that are no UTF-8 become U+FFFD, one for each longest piece that begins a
 * character (as Unicode recommends and Python's "replace" does). */
void fs_json_string(fs_json *json, const char *text);

void fs_json_integer(fs_json *json, int64_t value);
/* Nanoseconds as microseconds, with three decimals. */
void fs_json_time(fs_json *json, uint64_t ns);
/* With as many decimals (1 … 9). What is not finite or not below 1e18 is null. */
void fs_json_decimal(fs_json *json, double value, int decimals);
/* An integer where it is one, else six decimals. What is not finite or not below 1e38 is null. */
void fs_json_number(fs_json *json, double value);

/* Members of an object, whose commas come by themselves. */
typedef struct {
    fs_json *json;
    const char *before; /* the next member */
} fs_json_members;

static inline void fs_json_key_text(fs_json_members *members, const char *key, size_t size)
{
    fs_json_put(members->json, members->before, strlen(members->before));
    members->before = ", ";
    fs_json_put(members->json, key, size);
}

/* Begin a member: its value is to follow. The name is a literal that needs no escape. */
#define FS_JSON_KEY(members, name) fs_json_key_text(members, "\"" name "\": ", sizeof("\"" name "\": ") - 1)

#endif
