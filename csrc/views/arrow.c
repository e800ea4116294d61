/* Ownership follows Arrow's ABI: whoever holds a struct calls its `release` once, and that releases all children that
 * were not moved out (a moved one has no release). Numbers are handed over without a copy and keep their owner alive;
 * texts, lists and booleans are copied. Every failure in between releases what was built, and the owners of columns
 * that were not reached. */
#include "views/arrow.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

static const struct {
    const char *format;
    int64_t flags;
} types[] = {
#define ARROW_ROW(id, name, format, nullable, values) {format, (nullable) ? 2 /* ARROW_FLAG_NULLABLE */ : 0},
    FS_ARROW_TYPES(ARROW_ROW)
#undef ARROW_ROW
};

const char *const fs_arrow_type_names[] = {
#define ARROW_NAME(id, name, format, nullable, values) name,
    FS_ARROW_TYPES(ARROW_NAME)
#undef ARROW_NAME
};

/* Arrays ----------------------------------------------------------------------------------------------------------- */

/* Memory owned by an array. Children are in one block, with the pointers to them that Arrow requires. */
typedef struct {
    const void *buffers[3];
    void *blocks[3];
    void *owner;
    void (*release)(void *owner);
    struct ArrowArray *children;
    struct ArrowArray **pointers;
} array_memory;

static void release_array(struct ArrowArray *array)
{
    array_memory *memory = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = &memory->children[i];
        if (child->release != NULL) child->release(child);
    }
    for (size_t i = 0; i < sizeof memory->blocks / sizeof *memory->blocks; i++) fs_free(memory->blocks[i]);
    if (memory->release != NULL) memory->release(memory->owner);
    fs_free(memory->children);
    fs_free(memory->pointers);
    fs_free(memory);
    array->release = NULL;
}

/* Begin an array without values, whose children are filled in later; NULL: out of memory. */
static array_memory *begin_array(struct ArrowArray *array, int64_t length, int64_t buffers, size_t children)
{
    array_memory *memory = fs_calloc(1, sizeof *memory);
    if (memory == NULL) return NULL;
    *array = (struct ArrowArray){.length = length,
                                 .n_buffers = buffers,
                                 .buffers = memory->buffers,
                                 .release = release_array,
                                 .private_data = memory};
    if (children == 0) return memory;
    memory->children = fs_calloc(children, sizeof *memory->children);
    memory->pointers = fs_calloc(children, sizeof(struct ArrowArray *));
    if (memory->children == NULL || memory->pointers == NULL) {
        release_array(array);
        return NULL;
    }
    for (size_t i = 0; i < children; i++) memory->pointers[i] = &memory->children[i];
    array->children = memory->pointers;
    array->n_children = (int64_t)children;
    return memory;
}

/* Allocate a buffer of the array; never empty, because Arrow's pointers should not be NULL. */
static void *add_block(array_memory *memory, int buffer, size_t size)
{
    void *block = fs_calloc(1, size ? size : 1);
    memory->blocks[buffer] = block;
    memory->buffers[buffer] = block;
    return block;
}

static void set_bit(uint8_t *bits, int64_t at)
{
    bits[at / 8] = (uint8_t)(bits[at / 8] | 1U << (at % 8));
}

static bool is_known(const fs_arrow_column *column, int64_t row)
{
    if (column->type == FS_ARROW_TEXT) return ((const fs_arrow_text *)column->values)[row].bytes != NULL;
    return !isnan(((const double *)column->values)[row]);
}

static bool add_validity(struct ArrowArray *array, array_memory *memory, const fs_arrow_column *column)
{
    for (int64_t i = 0; i < array->length; i++) array->null_count += !is_known(column, i);
    if (array->null_count == 0) return true; /* no bitmap: all values are known */
    uint8_t *bits = add_block(memory, 0, (size_t)(array->length + 7) / 8);
    for (int64_t i = 0; bits != NULL && i < array->length; i++) {
        if (is_known(column, i)) set_bit(bits, i);
    }
    return bits != NULL;
}

static bool add_bits(array_memory *memory, int64_t rows, const uint8_t *values)
{
    uint8_t *bits = add_block(memory, 1, (size_t)(rows + 7) / 8);
    for (int64_t i = 0; bits != NULL && i < rows; i++) {
        if (values[i]) set_bit(bits, i);
    }
    return bits != NULL;
}

static bool add_texts(array_memory *memory, int64_t count, const fs_arrow_text *texts)
{
    int64_t *ends = add_block(memory, 1, (size_t)(count + 1) * sizeof *ends);
    if (ends == NULL) return false;
    for (int64_t i = 0; i < count; i++) ends[i + 1] = ends[i] + texts[i].size;
    char *bytes = add_block(memory, 2, (size_t)ends[count]);
    for (int64_t i = 0; bytes != NULL && i < count; i++) {
        if (texts[i].size > 0) memcpy(bytes + ends[i], texts[i].bytes, (size_t)texts[i].size);
    }
    return bytes != NULL;
}

static bool add_lists(array_memory *memory, int64_t rows, const fs_arrow_column *column)
{
    size_t size = (size_t)(rows + 1) * sizeof *column->ends;
    int64_t *ends = add_block(memory, 1, size);
    if (ends == NULL) return false;
    memcpy(ends, column->ends, size);
    array_memory *texts = begin_array(&memory->children[0], ends[rows], 3, 0);
    return texts != NULL && add_texts(texts, ends[rows], column->values);
}

static bool make_column(struct ArrowArray *array, int64_t rows, const fs_arrow_column *column)
{
    array_memory *memory =
        begin_array(array, rows, column->type == FS_ARROW_TEXT ? 3 : 2, column->type == FS_ARROW_TEXTS);
    bool numbers = column->type == FS_ARROW_INT64 || column->type == FS_ARROW_FLOAT64;
    if (memory == NULL) {
        if (numbers && column->release != NULL) column->release(column->owner);
        return false;
    }
    if (numbers) {
        memory->owner = column->owner;
        memory->release = column->release;
        memory->buffers[1] = column->values;
    }
    switch (column->type) {
    case FS_ARROW_FLOAT64:
        return add_validity(array, memory, column);
    case FS_ARROW_BOOL:
        return add_bits(memory, rows, column->values);
    case FS_ARROW_TEXT:
        return add_validity(array, memory, column) && add_texts(memory, rows, column->values);
    case FS_ARROW_TEXTS:
        return add_lists(memory, rows, column);
    default:
        return true;
    }
}

/* Schemas ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    char *name;
    struct ArrowSchema *children;
    struct ArrowSchema **pointers;
} schema_memory;

static void release_schema(struct ArrowSchema *schema)
{
    schema_memory *memory = schema->private_data;
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = &memory->children[i];
        if (child->release != NULL) child->release(child);
    }
    fs_free(memory->name);
    fs_free(memory->children);
    fs_free(memory->pointers);
    fs_free(memory);
    schema->release = NULL;
}

static char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = fs_malloc(size);
    if (copy != NULL) memcpy(copy, text, size);
    return copy;
}

/* Begin a schema whose children are filled in later; NULL: out of memory. */
static schema_memory *begin_schema(struct ArrowSchema *schema, const char *format, const char *name, int64_t flags,
                                   size_t children)
{
    schema_memory *memory = fs_calloc(1, sizeof *memory);
    if (memory == NULL) return NULL;
    *schema = (struct ArrowSchema){.format = format, .flags = flags, .release = release_schema, .private_data = memory};
    schema->name = memory->name = copy_text(name);
    if (children > 0) {
        memory->children = fs_calloc(children, sizeof *memory->children);
        memory->pointers = fs_calloc(children, sizeof(struct ArrowSchema *));
    }
    if (memory->name == NULL || (children > 0 && (memory->children == NULL || memory->pointers == NULL))) {
        release_schema(schema);
        return NULL;
    }
    for (size_t i = 0; i < children; i++) memory->pointers[i] = &memory->children[i];
    schema->children = memory->pointers;
    schema->n_children = (int64_t)children;
    return memory;
}

static bool make_field(struct ArrowSchema *schema, const char *name, fs_arrow_type type)
{
    schema_memory *memory =
        begin_schema(schema, types[type].format, name, types[type].flags, type == FS_ARROW_TEXTS ? 1 : 0);
    if (memory == NULL || type != FS_ARROW_TEXTS) return memory != NULL;
    return begin_schema(&memory->children[0], types[FS_ARROW_TEXT].format, "item", 0, 0) != NULL;
}

/* The stream ------------------------------------------------------------------------------------------------------- */

typedef struct {
    struct ArrowArray batch; /* released once handed out */
    const char *error;
    size_t count;
    struct {
        char *name;
        fs_arrow_type type;
    } fields[];
} stream_memory;

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    stream_memory *memory = stream->private_data;
    out->release = NULL;
    schema_memory *root = begin_schema(out, "+s", "", 0, memory->count);
    bool good = root != NULL;
    for (size_t i = 0; good && i < memory->count; i++) {
        good = make_field(&root->children[i], memory->fields[i].name, memory->fields[i].type);
    }
    memory->error = good ? NULL : "no memory for the schema";
    if (good) return 0;
    if (out->release != NULL) out->release(out);
    return ENOMEM;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    stream_memory *memory = stream->private_data;
    *out = memory->batch; /* a released array, which marks the end, after the first call */
    memory->batch = (struct ArrowArray){.release = NULL};
    memory->error = NULL;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    return ((stream_memory *)stream->private_data)->error;
}

static void release_stream(struct ArrowArrayStream *stream)
{
    stream_memory *memory = stream->private_data;
    if (memory->batch.release != NULL) memory->batch.release(&memory->batch);
    for (size_t i = 0; i < memory->count; i++) fs_free(memory->fields[i].name);
    fs_free(memory);
    stream->release = NULL;
}

static void drop_owners(const fs_arrow_column *columns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool numbers = columns[i].type == FS_ARROW_INT64 || columns[i].type == FS_ARROW_FLOAT64;
        if (numbers && columns[i].release != NULL) columns[i].release(columns[i].owner);
    }
}

fs_status fs_arrow_stream(struct ArrowArrayStream *stream, int64_t rows, const fs_arrow_column *columns, size_t count,
                          fs_error *err)
{
    size_t filled = 0;
    array_memory *root = NULL;
    stream_memory *memory = fs_calloc(1, sizeof *memory + count * sizeof *memory->fields);
    if (memory != NULL) root = begin_array(&memory->batch, rows, 1, count);
    bool good = root != NULL;
    if (memory != NULL) memory->count = count;
    for (; good && filled < count; filled++) {
        memory->fields[filled].type = columns[filled].type;
        memory->fields[filled].name = copy_text(columns[filled].name);
        good = make_column(&root->children[filled], rows, &columns[filled]) && memory->fields[filled].name != NULL;
    }
    *stream = (struct ArrowArrayStream){get_schema, get_next, get_last_error, release_stream, memory};
    if (good) return FS_OK;
    drop_owners(columns + filled, count - filled);
    if (memory != NULL) release_stream(stream);
    stream->release = NULL;
    return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for an Arrow table of %zu columns and %lld rows", count,
                   (long long)rows);
}
