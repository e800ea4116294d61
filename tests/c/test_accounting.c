/* Accounting below what Python's tests compare instant by instant (tests/answers): limits and threads.
 * Interrupts are tested in test_timeline.c; allocations fail in fuzz_tables.c. */
#include "accounting/accounting.h"
#include "base/parallel.h"
#include "tests/c/events.h"

typedef struct {
    fs_table *table;
    fs_accounting found;
} account;

static account take_account(fs_table_options options)
{
    account result = {0};
    fs_error err = {FS_OK, ""};
    options.works = true;
    result.table = build(&options);
    CHECK(fs_accounting_build(&result.found, store, result.table, &err) == FS_OK, "%s", err.message);
    return result;
}

static void clear(account *of)
{
    fs_accounting_clear(&of->found);
    fs_table_destroy(of->table);
}

/* Limits ----------------------------------------------------------------------------------------------------------- */

TEST(times_at_the_limits_of_their_type)
{
    static const int64_t times[] = {FS_MISSING + 1, FS_MISSING + 5, -1, 0, 1, INT64_MAX - 3, INT64_MAX, FS_MISSING};
    static const int64_t durations[] = {0, 1, INT64_MAX, INT64_MAX - 2, -5, FS_MISSING + 1, FS_MISSING};
    fs_peaks cuda = peaks(1e-300, 1e-300, 1e300);
    uint32_t parent = FS_NONE, signature = signature_id(FS_CUDA, INT32_MAX, INT32_MAX);
    for (size_t i = 0; i < COUNT_OF(times); i++) {
        for (size_t k = 0; k < COUNT_OF(durations); k++) {
            fs_event event = fs_event_missing;
            event.start = times[i];
            event.duration = durations[k];
            if (i % 2 == 0) host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, times[i], durations[k]);
            parent = op("flopscope::add", signature, k % 3 == 0 ? FS_NONE : parent, times[i], durations[k]);
            host(FS_EVENT_SYNC, "wait", parent, times[i], durations[k]);
            host(FS_EVENT_RUNTIME, "cudaLaunchKernel", parent, times[i], durations[k]);
            host(FS_EVENT_RANGE, "enumerate(DataLoader)#", parent, times[i], durations[k]);
            for (int kind = FS_EVENT_KERNEL; kind <= FS_EVENT_INTERVAL; kind++) {
                event.kind = (uint8_t)kind;
                event.device = (int8_t)(k % 2 == 0 ? -1 : 127);
                event.name = k % 2 == 0 ? FS_NONE : name_id("k");
                event.launcher = i % 3 == 0 ? FS_NONE : parent;
                event.correlation = (uint32_t)k;
                put(event);
            }
        }
    }
    account of = take_account((fs_table_options){.cuda_peaks[0] = &cuda});
    CHECK(of.found.cell_count > 0 && of.found.gap_count + of.found.pair_count > 0);
    for (uint32_t i = 0; i < of.found.cell_count; i++) {
        const fs_cell *cell = &of.found.cells[i];
        CHECK(cell->exclusive >= 0 && cell->busy >= 0 && cell->ideal >= -1 && cell->ideal <= cell->exclusive);
    }
    for (uint32_t i = 0; i < of.found.gap_count; i++) CHECK(of.found.gaps[i].time > 0);
    clear(&of);
}

/* Each takes many seconds if its time is the product of two of its numbers. */
TEST(the_time_is_linear_in_deeply_nested_waits)
{
    enum { COUNT = 20000 };
    uint32_t parent = FS_NONE;
    for (int i = 0; i < COUNT; i++) parent = host(FS_EVENT_RANGE, "range", parent, i, 10 * COUNT);
    for (int i = 0; i < COUNT; i++) {
        int64_t at = COUNT + 10 * i;
        call("cudaStreamSynchronize", (uint32_t)i, parent, at, at + 2);
        work(FS_EVENT_KERNEL, "k", 0, 7, (uint32_t)i, FS_NONE, at + 3, at + 5);
    }
    account of = take_account((fs_table_options){0});
    clear(&of);
}

TEST(the_time_is_linear_in_steps_visited_back_and_forth)
{
    enum { COUNT = 20000 };
    for (int i = 0; i < COUNT; i++) host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 10 * i, 10);
    for (int i = 0; i < COUNT; i++) op("op", FS_NONE, FS_NONE, 10 * (i % 2 == 0 ? i : COUNT - i), 1);
    kernel("k", FS_NONE, 0, 5);
    account of = take_account((fs_table_options){0});
    int64_t events = 0;
    for (uint32_t i = 0; i < of.found.steps.count; i++) events += of.found.hosts[i].events[FS_EVENT_OP];
    CHECK(events == COUNT && of.found.steps.count == COUNT);
    clear(&of);
}

TEST(every_device_is_accounted)
{
    for (int on = 0; on < 128; on++) {
        for (int i = 0; i < 50; i++) work(FS_EVENT_KERNEL, "k", on, 7, FS_NONE, FS_NONE, 10 * i + on, 10 * i + on + 5);
    }
    account of = take_account((fs_table_options){0});
    CHECK(of.found.cell_count == 128);
    for (uint32_t i = 0; i < of.found.cell_count; i++)
        CHECK(of.found.cells[i].device == i && of.found.cells[i].exclusive == 250);
    clear(&of);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

static void fill(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) { /* newest first, so that lists grow and are sorted */
        int64_t start = 1000 * (int64_t)(count - i);
        char name[32];
        snprintf(name, sizeof name, "k%u", i);
        uint32_t step = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, start, 900);
        uint32_t around = op(name, FS_NONE, step, start, 500);
        host(FS_EVENT_RANGE, "enumerate(DataLoader)#", step, start, 5);
        call("cudaLaunchKernel", 1000000 * i, around, start + 10, start + 20); /* far apart: a hash table */
        call("cudaDeviceSynchronize", FS_NONE, around, start + 20, start + 30);
        work(FS_EVENT_KERNEL, name, 0, 7, 1000000 * i, around, start + 30, start + 400);
        work(FS_EVENT_KERNEL, "ncclDevKernel", 0, 8, FS_NONE, around, start + 200, start + 600);
        work(FS_EVENT_MEMSET, "Memset", (int)(i % 3), 9, FS_NONE, around, start + 300, start + 700);
    }
}

#define SAME(a, b, rows)                          \
    CHECK((a).rows##_count == (b).rows##_count && \
          memcmp((a).rows##s, (b).rows##s, (a).rows##_count * sizeof *(a).rows##s) == 0)

/* Works that last into later steps are of two shares of the steps, ops of two blocks of events. */
TEST(any_number_of_threads_accounts_alike)
{
    static const int threads[] = {1, 2, 3, 16};
    fill(300);
    for (int i = 0; i < 300; i += 7) /* over several steps, and waits that later idle times are due to */
        work(FS_EVENT_KERNEL, "long", i % 2, 7, FS_NONE, FS_NONE, 1000 * i + 650, 1000 * i + 2800);
    for (int i = 0; i < 300; i += 50) host(FS_EVENT_SYNC, "wait", FS_NONE, 1000 * i, 700);
    fs_table *table = build(&(fs_table_options){.works = true});
    fs_accounting first, found;
    fs_error err;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        fs_accounting *of = i == 0 ? &first : &found;
        CHECK_OK(fs_parallel_set_threads(threads[i], &err));
        CHECK_OK(fs_accounting_list(of, store, table, &err));
        CHECK(of->span_count > 300 && of->span_count == first.span_count, "%u", of->span_count);
        for (uint32_t j = 0; j < of->span_count; j++)
            CHECK(of->spans[j].begin == first.spans[j].begin && of->spans[j].cause == first.spans[j].cause);
        SAME(*of, first, cell);
        SAME(*of, first, gap);
        SAME(*of, first, pair);
        CHECK(of->launching_count == 3 && memcmp(of->launching, first.launching, 3 * sizeof *first.launching) == 0);
        if (of == &found) fs_accounting_clear(&found);
    }
    fs_accounting_clear(&first);
    fs_table_destroy(table);
}

TEST(a_brief_table_has_the_same_rows_and_works)
{
    fs_peaks cuda = peaks(1e9, 1e12, 1);
    uint32_t owner = op("flopscope::add", signature_id(FS_CUDA, 4, 1024), FS_NONE, 500, 100);
    kernel("add", owner, 2000, 12000);
    fs_table *whole = build(&(fs_table_options){.works = true, .cuda_peaks[0] = &cuda});
    fs_table *brief = build(&(fs_table_options){.works = true, .brief = true, .cuda_peaks[0] = &cuda});
    CHECK(whole->row_count == brief->row_count && whole->work_count == brief->work_count);
    for (uint32_t i = 0; i < whole->row_count; i++) {
        const fs_row *a = &whole->rows[i], *b = &brief->rows[i];
        CHECK(strcmp(a->key, b->key) == 0 && a->count == b->count && a->bound == b->bound);
        CHECK(a->device_busy_time == b->device_busy_time && a->cpu_time_total == b->cpu_time_total);
        CHECK(a->time_median > 0 && isnan(b->time_median) &&
              !(a->pct_roofline != b->pct_roofline && a->pct_roofline > 0));
    }
    CHECK(memcmp(whole->works, brief->works, sizeof *whole->works) == 0);
    CHECK(whole->modelled_base_ns > 0 && brief->modelled_base_ns == 0 && brief->unmodelled_count == 0);
    fs_table_destroy(whole);
    fs_table_destroy(brief);
}
