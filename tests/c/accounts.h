/* Stores built by hand for tests of the accounting, and sums of their accounts. */
#ifndef FS_TESTS_ACCOUNTS_H
#define FS_TESTS_ACCOUNTS_H

#include "accounting/accounting.h"
#include "base/saturate.h"
#include "tests/c/events.h"

static inline uint32_t call(const char *name, uint32_t correlation, uint32_t parent, int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_RUNTIME;
    event.name = name_id(name);
    event.parent = parent;
    event.correlation = correlation;
    event.start = start;
    event.duration = end - start;
    return put(event);
}

static inline void work(fs_event_kind kind, const char *name, int on, uint64_t stream, uint32_t correlation,
                        uint32_t launcher, int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.device = (int8_t)on;
    event.correlation = correlation;
    event.launcher = launcher;
    event.start = start;
    event.duration = end - start;
    event.timing = FS_TIMING_CUPTI;
    CHECK_OK(fs_store_device_lane(store, on, stream, &event.lane, NULL));
    put(event);
}

static inline void kernel(const char *name, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, name, 0, 7, FS_NONE, FS_NONE, start, end);
}

typedef struct {
    fs_table *table;
    fs_accounting found;
} account;

static inline account take_account(fs_table_options options)
{
    account result = {0};
    fs_error err = {FS_OK, ""};
    options.works = true;
    result.table = build(&options);
    CHECK(fs_accounting_build(&result.found, store, result.table, &err) == FS_OK, "%s", err.message);
    return result;
}

static inline void clear(account *of)
{
    fs_accounting_clear(&of->found);
    fs_table_destroy(of->table);
}

/* Sum of a field of the cells of a kernel or op (NULL: any) in a step (-1: any). */
#define SUM_CELLS(of, field, name, in) sum_cells(&(of), offsetof(fs_cell, field), name, in)

static inline int64_t sum_cells(const account *of, size_t field, const char *name, int64_t step)
{
    int64_t sum = 0, value;
    for (uint32_t i = 0; i < of->found.cell_count; i++) {
        const fs_cell *cell = &of->found.cells[i];
        int64_t row = cell->kernel >= 0 ? cell->kernel : cell->row;
        const char *key = row >= 0 ? of->table->rows[row].key : "";
        if ((name != NULL && strcmp(key, name) != 0) || (step >= 0 && cell->step != step)) continue;
        memcpy(&value, (const char *)cell + field, sizeof value);
        fs_add_to(&sum, value);
    }
    return sum;
}

static inline int64_t idle(const account *of, fs_idle_cause cause, int64_t step)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < of->found.gap_count; i++) {
        const fs_gap *gap = &of->found.gaps[i];
        if (gap->cause == (int64_t)cause && (step < 0 || gap->step == step)) fs_add_to(&sum, gap->time);
    }
    return sum;
}

/* Check that the parts of each device and step are not negative, and that they add up to the step. */
static inline void check_sums(const account *of)
{
    for (uint32_t step = 0; step < of->found.steps.count; step++) {
        const fs_step *in = &of->found.steps.steps[step];
        for (int on = -1; on < 128; on++) {
            int64_t sum = 0;
            bool worked = false;
            for (uint32_t i = 0; i < of->found.cell_count; i++) {
                const fs_cell *cell = &of->found.cells[i];
                if (cell->device != on) continue;
                worked = true;
                if (cell->step != step) continue;
                CHECK(cell->exclusive >= 0 && cell->busy >= 0 && cell->count >= 0);
                CHECK(cell->ideal >= -1 && cell->ideal <= cell->exclusive);
                fs_add_to(&sum, cell->exclusive);
            }
            for (uint32_t i = 0; i < of->found.gap_count; i++) {
                const fs_gap *gap = &of->found.gaps[i];
                if (gap->device != on) continue;
                worked = true;
                if (gap->step != step) continue;
                CHECK(gap->time > 0 && gap->count > 0);
                fs_add_to(&sum, gap->time);
            }
            if (worked)
                CHECK(sum == fs_sub_saturated(in->end, in->begin), "device %d, step %u: %lld", on, step,
                      (long long)sum);
        }
    }
}

#endif
