/* JSON of events, in a buffer that is handed on when it is full. Private to the reader of Perfetto's traces. */
#ifndef FS_SOURCES_PROTOBUF_PFTRACE_TEXT_H
#define FS_SOURCES_PROTOBUF_PFTRACE_TEXT_H

#include <stdbool.h>

#include "sources/protobuf/pftrace.h"

typedef struct {
    char *bytes;
    size_t size, capacity;
    fs_pftrace_write write;
    void *context;
    bool some; /* an event was written */
} fs_pftrace_text;

fs_status fs_text_put(fs_pftrace_text *text, const char *bytes, size_t size, fs_error *err);
fs_status fs_text_put_plain(fs_pftrace_text *text, const char *plain, fs_error *err);
/* Put a text in quotes, with escapes. */
fs_status fs_text_put_quoted(fs_pftrace_text *text, const void *bytes, size_t size, fs_error *err);
fs_status fs_text_put_integer(fs_pftrace_text *text, int64_t value, fs_error *err);
/* A number that is none is null. */
fs_status fs_text_put_real(fs_pftrace_text *text, double value, fs_error *err);
/* ns as µs with three decimals. */
fs_status fs_text_put_time(fs_pftrace_text *text, uint64_t ns, fs_error *err);
/* Put the beginning of an event, up to its thread; end: its end in ns, or NULL for an instant. */
fs_status fs_text_begin_event(fs_pftrace_text *text, uint64_t start, const uint64_t *end, int64_t process,
                              int64_t thread, fs_error *err);
/* Put a comma and "key": a text in quotes. */
fs_status fs_text_put_member(fs_pftrace_text *text, const char *key, const void *bytes, size_t size, fs_error *err);
/* Hand on what is in the buffer, once it is enough, or `all`. */
fs_status fs_text_hand_on(fs_pftrace_text *text, bool all, fs_error *err);

#endif
