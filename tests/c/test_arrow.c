/* Arrow streams: the contents of their structs, moved children, and every failing allocation. */
#include "tests/c/check.h"
#include "views/arrow.h"

enum { ROWS = 10, COLUMNS = 5 };

static int released;

static void count_release(void *owner)
{
    released += *(int *)owner;
}

static int one = 1;
static int64_t counts[ROWS];
static double times[ROWS];
static uint8_t flags[ROWS];
static fs_arrow_text names[ROWS], dtypes[ROWS];
static int64_t ends[ROWS + 1];

__attribute__((constructor)) static void fill(void)
{
    for (int i = 0; i < ROWS; i++) {
        counts[i] = i - 3;
        times[i] = i % 4 == 2 ? NAN : i * 0.5;
        flags[i] = i % 3 == 0;
        names[i] = (fs_arrow_text){i == 0 ? NULL : "abcdefghij", i};
        dtypes[i] = (fs_arrow_text){"float", 5};
        ends[i + 1] = i < 4 ? 0 : i - 3;
    }
}

static const fs_arrow_column columns[COLUMNS] = {
    {.name = "count", .type = FS_ARROW_INT64, .values = counts, .owner = &one, .release = count_release},
    {.name = "time", .type = FS_ARROW_FLOAT64, .values = times, .owner = &one, .release = count_release},
    {.name = "flag", .type = FS_ARROW_BOOL, .values = flags},
    {.name = "name", .type = FS_ARROW_TEXT, .values = names},
    {.name = "dtypes", .type = FS_ARROW_TEXTS, .values = dtypes, .ends = ends},
};

static void test_schema(struct ArrowArrayStream *stream)
{
    static const char *const formats[COLUMNS] = {"l", "g", "b", "U", "+L"};
    struct ArrowSchema schema;
    for (int time = 0; time < 2; time++) { /* a reader may request the schema twice */
        CHECK(stream->get_schema(stream, &schema) == 0);
        CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == COLUMNS);
        for (int i = 0; i < COLUMNS; i++) {
            CHECK(strcmp(schema.children[i]->format, formats[i]) == 0, "column %d", i);
            CHECK(strcmp(schema.children[i]->name, columns[i].name) == 0, "column %d", i);
            CHECK(schema.children[i]->flags == (i == 1 || i == 3 ? 2 : 0), "column %d", i);
        }
        CHECK(strcmp(schema.children[4]->children[0]->format, "U") == 0);
        schema.release(&schema);
        CHECK(schema.release == NULL);
    }
}

static int bit(const void *bits, int at)
{
    return ((const uint8_t *)bits)[at / 8] >> (at % 8) & 1;
}

static void test_values(const struct ArrowArray *batch)
{
    CHECK(batch->length == ROWS && batch->n_children == COLUMNS && batch->null_count == 0);
    struct ArrowArray *const *column = batch->children;
    CHECK(column[0]->buffers[1] == counts && column[1]->buffers[1] == times, "numbers are not copied");
    CHECK(column[0]->buffers[0] == NULL && column[1]->null_count == 2 && column[3]->null_count == 1);
    const int64_t *text_ends = column[3]->buffers[1];
    const char *text = column[3]->buffers[2];
    for (int i = 0; i < ROWS; i++) {
        CHECK(bit(column[1]->buffers[0], i) == (i % 4 != 2), "row %d", i);
        CHECK(bit(column[2]->buffers[1], i) == (i % 3 == 0), "row %d", i);
        CHECK(bit(column[3]->buffers[0], i) == (i != 0), "row %d", i);
        CHECK(text_ends[i + 1] - text_ends[i] == i, "row %d", i);
        CHECK(memcmp(text + text_ends[i], "abcdefghij", (size_t)i) == 0, "row %d", i);
    }
    CHECK(memcmp(column[4]->buffers[1], ends, sizeof ends) == 0 && column[4]->children[0]->length == ends[ROWS]);
}

TEST(stream)
{
    struct ArrowArrayStream stream;
    struct ArrowArray batch, moved, end;
    fs_error err;
    released = 0;
    CHECK(fs_arrow_stream(&stream, ROWS, columns, COLUMNS, &err) == FS_OK);
    test_schema(&stream);
    CHECK(stream.get_next(&stream, &batch) == 0 && batch.release != NULL);
    CHECK(stream.get_next(&stream, &end) == 0 && end.release == NULL, "one batch");
    CHECK(stream.get_last_error(&stream) == NULL);
    stream.release(&stream);
    test_values(&batch); /* the batch outlives the stream */
    moved = *batch.children[1];
    batch.children[1]->release = NULL; /* a reader moved this child */
    batch.release(&batch);
    CHECK(released == 1 && batch.release == NULL);
    moved.release(&moved);
    CHECK(released == 2);
}

TEST(an_unread_stream_releases_its_data)
{
    struct ArrowArrayStream stream;
    released = 0;
    CHECK(fs_arrow_stream(&stream, ROWS, columns, COLUMNS, NULL) == FS_OK);
    stream.release(&stream);
    CHECK(released == 2 && stream.release == NULL);
    CHECK(fs_arrow_stream(&stream, 0, columns, COLUMNS, NULL) == FS_OK, "no rows");
    stream.release(&stream);
}

TEST(memory_runs_out)
{
    int64_t live = fs_memory_live();
    fs_status status = FS_OUT_OF_MEMORY;
    int n = 0;
    while (status != FS_OK && n++ < 100) {
        struct ArrowArrayStream stream;
        fs_error err;
        released = 0;
        fs_memory_fail_at(n);
        status = fs_arrow_stream(&stream, ROWS, columns, COLUMNS, &err);
        fs_memory_fail_at(0);
        if (status == FS_OK) stream.release(&stream);
        else CHECK(strstr(err.message, "5 columns and 10 rows") && stream.release == NULL, "%s", err.message);
        CHECK(released == 2, "allocation %d", n);
        CHECK(fs_memory_live() == live, "allocation %d", n);
    }
    CHECK(n > 10 && n < 100, "%d", n);
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    CHECK(fs_arrow_stream(&stream, ROWS, columns, COLUMNS, NULL) == FS_OK);
    for (n = 1; n < 10; n++) {
        fs_memory_fail_at(n);
        CHECK(stream.get_schema(&stream, &schema) != 0 && schema.release == NULL, "allocation %d", n);
        fs_memory_fail_at(0);
        CHECK(strcmp(stream.get_last_error(&stream), "no memory for the schema") == 0);
    }
    stream.release(&stream);
    CHECK(fs_memory_live() == live);
}
