/* A table as an Arrow stream (https://arrow.apache.org/docs/format/CStreamInterface.html), which pyarrow, polars and
 * duckdb read without a copy. The three structs are Arrow's ABI; what made them frees them, in `release`, which any
 * thread may call once.
 *
 * The stream holds one batch: a struct with a field for each column.
 */
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

/* What a column holds. X(id, name, Arrow's format, whether it may be unknown, what `values` of fs_arrow_column are) */
#define FS_ARROW_TYPES(X)                                                 \
    X(INT64, "int64", "l", 0, "int64_t[rows]")                            \
    X(FLOAT64, "float64", "g", 1, "double[rows]; NaN is not known: null") \
    X(BOOL, "bool", "b", 0, "uint8_t[rows], 0 or 1")                      \
    X(TEXT, "text", "U", 1, "fs_arrow_text[rows]; bytes of NULL: null")   \
    X(TEXTS, "texts", "+L", 0, "fs_arrow_text[ends[rows]], the lists of all rows in a row")

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
    const int64_t *ends; /* TEXTS: row r has the texts ends[r] to ends[r + 1] - 1; rows + 1 of them, ends[0] is 0 */
    /* INT64 and FLOAT64 are not copied: `values` must live until release(owner), which the stream or who reads it calls
     * once, on any thread. All else is copied, and these are not used. */
    void *owner;
    void (*release)(void *owner);
} fs_arrow_column;

/* A stream over the columns. Takes over their owners, also where it fails: FS_OUT_OF_MEMORY. */
fs_status fs_arrow_stream(struct ArrowArrayStream *stream, int64_t rows, const fs_arrow_column *columns, size_t count,
                          fs_error *err);

#endif
