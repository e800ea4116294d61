/* Text: parts of files, which no zero byte ends, and strings. */
#ifndef FS_BASE_TEXT_H
#define FS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct {
    const char *bytes; /* NULL: none */
    size_t size;
} fs_text;

static inline fs_text fs_text_of(const char *string)
{
    return (fs_text){string, strlen(string)};
}

static inline bool fs_text_is(fs_text text, const char *other)
{
    size_t size = strlen(other);
    return text.size == size && memcmp(text.bytes, other, size) == 0;
}

static inline bool fs_text_begins(fs_text text, const char *start)
{
    size_t size = strlen(start);
    return text.size >= size && memcmp(text.bytes, start, size) == 0;
}

static inline bool fs_text_ends(fs_text text, const char *end)
{
    size_t size = strlen(end);
    return text.size >= size && memcmp(text.bytes + text.size - size, end, size) == 0;
}

/* Whether a string, not NULL, begins so. */
static inline bool fs_begins(const char *string, const char *start)
{
    return string != NULL && strncmp(string, start, strlen(start)) == 0;
}

#endif
