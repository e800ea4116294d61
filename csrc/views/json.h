/* A JSON writer, into memory or to a sink, fast enough for gigabytes. Numbers are formatted without printf and so do
 * not depend on the locale.
 *
 * The first error is kept in `status` and later output is discarded: check it occasionally and at the end. The writer
 * does not validate the structure; braces and commas are up to the caller. */
#ifndef FS_VIEWS_JSON_H
#define FS_VIEWS_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

enum { FS_JSON_PIECE = 1 << 19 };

/* Receives a piece of the text, at most FS_JSON_PIECE bytes; not called again after it failed. */
typedef fs_status (*fs_json_sink)(void *context, const char *bytes, size_t size, fs_error *err);

typedef struct {
    char *bytes;
    size_t size, capacity;
    fs_json_sink sink; /* NULL: the text stays in `bytes` */
    void *context;
    fs_status status;
    fs_error *err;
} fs_json;

/* `err` (may be NULL) also receives later errors. FS_OUT_OF_MEMORY. fs_json_clear also accepts a zeroed writer. */
fs_status fs_json_init(fs_json *json, fs_json_sink sink, void *context, fs_error *err);
void fs_json_clear(fs_json *json);
/* Pass the remaining text to the sink; returns the status. */
fs_status fs_json_flush(fs_json *json);

/* Append text verbatim. */
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

/* Write a string with quotes and escapes. Invalid UTF-8 becomes U+FFFD, one for each maximal subpart of a character
 * (the recommendation of Unicode, and Python's "replace"). */
void fs_json_string(fs_json *json, const char *text);

void fs_json_integer(fs_json *json, int64_t value);
/* Nanoseconds as microseconds, with three decimals. */
void fs_json_time(fs_json *json, uint64_t ns);
/* Write a number with 1 … 9 decimals. A value that is not finite or not below 1e18 becomes null. */
void fs_json_decimal(fs_json *json, double value, int decimals);
/* Write an integer if the value is one, else six decimals. A value that is not finite or not below 1e38 becomes
 * null. */
void fs_json_number(fs_json *json, double value);

/* Members of an object, with automatic commas. */
typedef struct {
    fs_json *json;
    const char *before; /* text before the first member; NULL after it */
} fs_json_members;

static inline void fs_json_key_text(fs_json_members *members, const char *key, size_t size)
{
    if (members->before == NULL) FS_JSON_LITERAL(members->json, ", ");
    else fs_json_put(members->json, members->before, strlen(members->before));
    members->before = NULL;
    fs_json_put(members->json, key, size);
}

/* Begin a member; its value must follow. The name is a literal that needs no escape. */
#define FS_JSON_KEY(members, name) fs_json_key_text(members, "\"" name "\": ", sizeof("\"" name "\": ") - 1)

#endif
