/* Interned names, and the annotations of events as JSON. Private to the reader of Perfetto's traces. */
#ifndef FS_SOURCES_PROTOBUF_PFTRACE_VALUES_H
#define FS_SOURCES_PROTOBUF_PFTRACE_VALUES_H

#include <stdbool.h>

#include "base/id_map.h"
#include "base/wire.h"
#include "sources/protobuf/pftrace.h"

/* JSON of events, in a buffer that is handed on when it is full. Private to the reader of Perfetto's traces. */

typedef struct {
    char *bytes;
    size_t size, capacity;
    fs_pftrace_write write;
    void *context;
    bool some; /* an event was written */
} fs_pftrace_text;

fs_status fs_text_put_plain(fs_pftrace_text *text, const char *plain, fs_error *err);
/* Put a text in quotes, with escapes. */
fs_status fs_text_put_quoted(fs_pftrace_text *text, const void *bytes, size_t size, fs_error *err);
fs_status fs_text_put_integer(fs_pftrace_text *text, int64_t value, fs_error *err);
/* Put the beginning of an event, up to its thread; end: its end in ns, or NULL for an instant. */
fs_status fs_text_begin_event(fs_pftrace_text *text, uint64_t start, const uint64_t *end, int64_t process,
                              int64_t thread, fs_error *err);
/* Put a comma and "key": a text in quotes. */
fs_status fs_text_put_member(fs_pftrace_text *text, const char *key, const void *bytes, size_t size, fs_error *err);
/* Hand on what is in the buffer, once it is enough, or `all`. */
fs_status fs_text_hand_on(fs_pftrace_text *text, bool all, fs_error *err);

/* The kinds of interned names that are used, by their fields of InternedData. */
enum {
    FS_INTERNED_CATEGORY = 1,
    FS_INTERNED_NAME = 2,
    FS_INTERNED_ANNOTATION = 3,
    FS_INTERNED_STAGE = 24,
    FS_INTERNED_TEXT = 29
};

/* All-zero: none. An epoch is a sequence between two times that it forgets its names. */
typedef struct {
    fs_id_map ids;
    fs_text *texts;
    uint32_t count, capacity;
} fs_pftrace_names;

void fs_pftrace_names_clear(fs_pftrace_names *names);

/* Keep the names of an InternedData. FS_VALUE_ERROR; FS_OUT_OF_MEMORY. */
fs_status fs_pftrace_names_read(fs_pftrace_names *names, uint32_t epoch, fs_wire wire, fs_error *err);

/* Return the other name of a name in rows of both, or the same. */
fs_text fs_pftrace_renamed(fs_text name, const char *const (*rows)[2], size_t count);

/* Return the text of a field, or the one whose number it is. */
fs_text fs_pftrace_text_of(const fs_pftrace_names *names, uint32_t epoch, const fs_wire_field *field, int kind);

/* What the annotations of an event tell of its kind. */
typedef struct {
    bool grid, stream, called, op;
} fs_pftrace_signs;

/* Put the annotations of an event as an object. FS_VALUE_ERROR; FS_OUT_OF_MEMORY. */
fs_status fs_pftrace_put_annotations(fs_pftrace_text *text, const fs_pftrace_names *names, uint32_t epoch,
                                     fs_wire event, fs_pftrace_signs *signs, fs_error *err);

#endif
