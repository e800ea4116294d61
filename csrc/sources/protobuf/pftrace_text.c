/* The buffer grows to the largest event between two hand-ons, each of which empties it. */
#include "sources/protobuf/pftrace_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { ENOUGH = FS_BLOCK(3 << 20, 64) };

fs_status fs_text_put(fs_pftrace_text *text, const char *bytes, size_t size, fs_error *err)
{
    if (text->size + size > text->capacity) {
        size_t capacity = 2 * (text->size + size) + 256;
        char *grown = fs_realloc(text->bytes, capacity);
        if (grown == NULL) return fs_no_memory(err);
        text->bytes = grown;
        text->capacity = capacity;
    }
    if (size > 0) memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return FS_OK;
}

fs_status fs_text_put_plain(fs_pftrace_text *text, const char *plain, fs_error *err)
{
    return fs_text_put(text, plain, strlen(plain), err);
}

fs_status fs_text_put_quoted(fs_pftrace_text *text, const void *bytes, size_t size, fs_error *err)
{
    const unsigned char *at = bytes, *end = at + size, *from = at;
    char escaped[8];
    FS_TRY(fs_text_put_plain(text, "\"", err));
    for (; at < end; at++) {
        if (*at >= 0x20 && *at != '"' && *at != '\\') continue;
        FS_TRY(fs_text_put(text, (const char *)from, (size_t)(at - from), err));
        snprintf(escaped, sizeof escaped, "\\u%04x", *at);
        FS_TRY(fs_text_put_plain(text, escaped, err));
        from = at + 1;
    }
    FS_TRY(fs_text_put(text, (const char *)from, (size_t)(end - from), err));
    return fs_text_put_plain(text, "\"", err);
}

fs_status fs_text_put_integer(fs_pftrace_text *text, int64_t value, fs_error *err)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    return fs_text_put_plain(text, digits, err);
}

fs_status fs_text_put_real(fs_pftrace_text *text, double value, fs_error *err)
{
    char digits[32] = "null";
    if (isfinite(value)) snprintf(digits, sizeof digits, "%.17g", value);
    return fs_text_put_plain(text, digits, err);
}

fs_status fs_text_put_time(fs_pftrace_text *text, uint64_t ns, fs_error *err)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%llu.%03llu", (unsigned long long)(ns / 1000), (unsigned long long)(ns % 1000));
    return fs_text_put_plain(text, digits, err);
}

fs_status fs_text_begin_event(fs_pftrace_text *text, uint64_t start, const uint64_t *end, int64_t process,
                              int64_t thread, fs_error *err)
{
    FS_TRY(fs_text_put_plain(text, text->some ? ",\n{\"ph\":" : "\n{\"ph\":", err));
    text->some = true;
    FS_TRY(fs_text_put_plain(text, end != NULL ? "\"X\",\"ts\":" : "\"i\",\"ts\":", err));
    FS_TRY(fs_text_put_time(text, start, err));
    if (end != NULL) {
        FS_TRY(fs_text_put_plain(text, ",\"dur\":", err));
        FS_TRY(fs_text_put_time(text, *end >= start ? *end - start : 0, err));
    }
    FS_TRY(fs_text_put_plain(text, ",\"pid\":", err));
    FS_TRY(fs_text_put_integer(text, process, err));
    FS_TRY(fs_text_put_plain(text, ",\"tid\":", err));
    return fs_text_put_integer(text, thread, err);
}

fs_status fs_text_put_member(fs_pftrace_text *text, const char *key, const void *bytes, size_t size, fs_error *err)
{
    FS_TRY(fs_text_put_plain(text, ",\"", err));
    FS_TRY(fs_text_put_plain(text, key, err));
    FS_TRY(fs_text_put_plain(text, "\":", err));
    return fs_text_put_quoted(text, bytes, size, err);
}

fs_status fs_text_hand_on(fs_pftrace_text *text, bool all, fs_error *err)
{
    if (text->size == 0 || (!all && text->size < ENOUGH)) return FS_OK;
    FS_TRY(text->write(text->context, text->bytes, text->size, err));
    text->size = 0;
    return FS_OK;
}
