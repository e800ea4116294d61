/* Fuzz target of what a rank's digest takes from its trace: the communication kernels and the calls of collectives on
 * the host. Occurrences and exposed times are computed again, by plain loops over all pairs. */
#include "base/saturate.h"
#include "summaries/collective_calls.h"
#include "summaries/collectives.h"
#include "tests/c/fuzz_load.h"

CORPORA("data/corpus", "fuzz/corpus/ranks")

enum { MOST_PAIRED = 256 }; /* events and rows that plain loops over all pairs are run for */

/* Python reads the texts up to their zero byte. */
static void check_text(const fs_collective_text *text)
{
    FUZZ_CHECK(text->size == (text->text == NULL ? 0 : strlen(text->text)), "%zu bytes", text->size);
}

static void check_texts(const fs_collective *recorded)
{
#define CHECK_TEXT(name, longest, prose) check_text(&recorded->name);
    FS_COLLECTIVE_TEXT_LIST(CHECK_TEXT)
#undef CHECK_TEXT
    FUZZ_CHECK(recorded->group.size <= 127 && recorded->ranks.size <= 511, "group %s", recorded->group.text);
    FUZZ_CHECK(recorded->element_size >= 0 && recorded->element_size <= 16, "%d", recorded->element_size);
}

static bool same_text(const fs_collective_text *a, const fs_collective_text *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->text, b->text, a->size) == 0);
}

static bool same_class(const fs_collective_row *a, const fs_collective_row *b)
{
    bool sizes = a->message_bytes == b->message_bytes || (isnan(a->message_bytes) && isnan(b->message_bytes));
    return sizes && a->device == b->device && a->kind == b->kind && same_text(&a->recorded.group, &b->recorded.group) &&
           same_text(&a->recorded.ranks, &b->recorded.ranks);
}

/* Return the time of [begin, end) that the computing kernels of a device cover: from each of their ends and begins to
 * the next, all ns are covered or none. */
static double covered(const fs_store *store, fs_names *names, int device, int64_t begin, int64_t end)
{
    double time = 0;
    for (int64_t from = begin; from < end;) {
        int64_t next = end;
        bool busy = false;
        for (uint32_t i = 0; i < fs_store_count(store); i++) {
            uint32_t at;
            const fs_chunk *chunk = fs_event_chunk(store, i, &at);
            if (!fs_event_is_placed_work(chunk, at) || !fs_computes_at(names, chunk, at)) continue;
            if (fs_event_device(chunk, at) != device) continue;
            int64_t first = chunk->start[at], last = fs_event_end(chunk, at);
            if (first <= from && from < last) busy = true;
            if (first > from && first < next) next = first;
            if (last > from && last < next) next = last;
        }
        if (busy) time += (double)fs_sub_saturated(next, from);
        from = next;
    }
    return time;
}

static void check_exposed(const fs_store *store, fs_names *names, const fs_collective_row *row)
{
    int64_t end = isnan(row->duration) ? row->start : fs_add_saturated(row->start, (int64_t)row->duration);
    double expected = row->duration - covered(store, names, row->device, row->start, end);
    bool same = isnan(expected) ? isnan(row->exposed) : fabs(row->exposed - expected) <= 1 + 1e-9 * row->duration;
    FUZZ_CHECK(same, "exposed %g ns, not %g", row->exposed, expected);
}

static void check_rows(const fs_store *store, const fs_collective_row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const fs_collective_row *row = &rows[i];
        FUZZ_CHECK(i == 0 || row->start >= row[-1].start, "row %u", i);
        FUZZ_CHECK((unsigned)row->kind < FS_COLLECTIVE_KIND_COUNT, "row %u: kind %d", i, (int)row->kind);
        FUZZ_CHECK(row->device >= 0 && row->device < FS_DEVICE_LIMIT, "row %u: device %d", i, row->device);
        FUZZ_CHECK(isnan(row->duration) || row->duration >= 0, "row %u: %g ns", i, row->duration);
        FUZZ_CHECK(isnan(row->message_bytes) || row->message_bytes >= 0, "row %u: %g bytes", i, row->message_bytes);
        FUZZ_CHECK(!(row->algorithm_gbytes_per_s < 0) && !isinf(row->algorithm_gbytes_per_s), "row %u", i);
        FUZZ_CHECK(!(row->bus_gbytes_per_s < 0) && !isinf(row->bus_gbytes_per_s), "row %u", i);
        FUZZ_CHECK(row->occurrence < count, "row %u: occurrence %u", i, row->occurrence);
        check_texts(&row->recorded);
    }
    if (count > MOST_PAIRED || fs_store_count(store) > MOST_PAIRED) return;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = 0;
        for (uint32_t j = 0; j < i; j++) before += same_class(&rows[j], &rows[i]);
        FUZZ_CHECK(rows[i].occurrence == before, "row %u: occurrence %u, not %u", i, rows[i].occurrence, before);
    }
    fs_names names;
    if (!done(fs_names_create(&names, store, &fuzz_error))) return;
    for (uint32_t i = 0; i < count; i++) check_exposed(store, &names, &rows[i]);
    fs_names_clear(&names);
}

static void check_calls(const fs_store *store, const fs_collective_call *calls, uint32_t count)
{
    uint32_t ran = 0, work = 0;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint8_t kind = FS_EVENT_AT(store, i, kind);
        work += fs_event_kind_on_device[kind] && FS_EVENT_AT(store, i, launcher) != FS_NONE;
    }
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK((unsigned)calls[i].kind < FS_COLLECTIVE_KIND_COUNT, "call %u: kind %d", i, (int)calls[i].kind);
        FUZZ_CHECK(calls[i].start != FS_MISSING, "call %u", i);
        check_texts(&calls[i].recorded);
        ran += calls[i].ran;
    }
    FUZZ_CHECK(ran <= work, "%u calls ran, but %u kernels were launched", ran, work);
}

static void take_rows(const fs_store *store)
{
    fs_collective_row *rows;
    uint32_t count;
    if (!done(fs_collectives_of(store, &rows, &count, &fuzz_error))) return;
    check_rows(store, rows, count);
    fs_free(rows);
}

static void take_calls(const fs_store *store)
{
    fs_collective_call *calls;
    uint32_t count;
    if (!done(fs_collective_calls_of(store, &calls, &count, &fuzz_error))) return;
    check_calls(store, calls, count);
    fs_free(calls);
}

static fuzz_stage *const stages[] = {take_rows, take_calls, NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text text = {data, size};
    fs_store *store;
    fs_kineto_report report;
    fuzz_set_up();
    if (fuzz_load(&text, FUZZ_WHOLE, &store, &report, &fuzz_error) != FS_OK) return 0;
    for (size_t i = 0; stages[i] != NULL; i++) stages[i](store);
    fs_store_destroy(store);
    return 0;
}

static void fail_on(const void *bytes, size_t size)
{
    fuzz_fail_stages(bytes, size, stages);
}

TEST(memory_that_runs_out_is_an_error_and_leaks_nothing)
{
    CHECK(each_file("fuzz/corpus/ranks", fail_on) > 2);
}
