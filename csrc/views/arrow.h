/* A table as an Arrow stream (https://arrow.apache.org/docs/format/CStreamInterface.html), which pyarrow, polars and
 * duckdb read without a copy. The three structs are Arrow's ABI. Their producer frees them in `release`, which any
 * thread may call once.
 *
 * The stream holds one batch: a struct with a field for each column. */
#ifndef FS_VIEWS_ARROW_H
#define FS_VIEWS_ARROW_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/* Types of columns. X(id, name, Arrow's format, nullable, content of fs_arrow_column.values) */
#define FS_ARROW_TYPES(X)                                                  \
    X(INT64, "int64", "l", 0, "int64_t[rows]")                             \
    X(FLOAT64, "float64", "g", 1, "double[rows]; NaN becomes null")        \
    X(BOOL, "bool", "b", 0, "uint8_t[rows], 0 or 1")                       \
    X(TEXT, "text", "U", 1, "fs_arrow_text[rows]; NULL bytes become null") \
    X(TEXTS, "texts", "+L", 0, "fs_arrow_text[ends[rows]], the lists of all rows concatenated")

typedef enum {
#define FS_ARROW_ENUM(id, name, format, nullable, values) FS_ARROW_##id,
    FS_ARROW_TYPES(FS_ARROW_ENUM)
#undef FS_ARROW_ENUM
        FS_ARROW_TYPE_COUNT
} fs_arrow_type;

extern const char *const fs_arrow_type_names[FS_ARROW_TYPE_COUNT];

typedef struct {
    const char *bytes; /* UTF-8 */
    int64_t size;
} fs_arrow_text;

typedef struct {
    const char *name; /* copied */
    fs_arrow_type type;
    const void *values;
    const int64_t *ends; /* TEXTS: row r has the texts ends[r] to ends[r + 1] - 1; length rows + 1, ends[0] is 0 */
    /* INT64 and FLOAT64 values are not copied: they must live until release(owner), which the stream or its consumer
     * calls once, on any thread. Other types are copied and do not use these members. */
    void *owner;
    void (*release)(void *owner);
} fs_arrow_column;

/* Create a stream over the columns. Takes ownership of their owners, even on failure. FS_OUT_OF_MEMORY. */
fs_status fs_arrow_stream(struct ArrowArrayStream *stream, int64_t rows, const fs_arrow_column *columns, size_t count,
                          fs_error *err);

#endif
