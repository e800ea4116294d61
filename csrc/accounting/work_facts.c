/* Blocks of works are looked at by any number of threads. What belongs to one work has a place of its own; the first
 * work of a name or a row is the least, whoever finds it; and the sums of the blocks are added in their order, so that
 * rows come in the order of the works. */
#include "accounting/work_facts.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/statistics.h"
#include "store/event.h"

enum { SMALLEST_BLOCK = FS_BLOCK(1 << 14, 1 << 3), MOST_BLOCKS = FS_BLOCK(64, 8) };

/* A block of works, and what is found in it. */
typedef struct {
    fs_sums sums;
    uint32_t begin, end, timed; /* timed: launches whose durations are known, which stand from `begin` on */
    uint32_t counts[FS_DEVICE_LIMIT];
    fs_status status;
    fs_error err;
} block;

typedef struct {
    fs_work_facts *facts;
    fs_host *host;
    const fs_api_calls *calls;
    fs_names *names;
    uint8_t *by_signature; /* an fs_copying + 1; 0: not yet known */
    block *blocks;
    uint32_t count;
} looking;

/* Return whether a compilation encloses a host event, or is it. */
static bool is_compiling(const looking *all, uint32_t event)
{
    const fs_store *store = all->facts->store;
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        uint8_t kind = FS_EVENT_AT(store, event, kind);
        bool named = kind == FS_EVENT_OP || kind == FS_EVENT_RANGE;
        if (named && fs_names_host_kind(all->names, FS_EVENT_AT(store, event, name)) == FS_HOST_COMPILES) return true;
        event = FS_EVENT_AT(store, event, parent);
    }
    return false;
}

static fs_work_class class_of(const looking *all, const fs_chunk *chunk, uint32_t at, uint32_t event)
{
    bool on_device = fs_event_kind_on_device[chunk->kind[at]];
    if (all->host->compiles && is_compiling(all, on_device ? chunk->launcher[at] : event)) return FS_WORK_COMPILATION;
    if (!on_device && fs_names_host_kind(all->names, chunk->name[at]) == FS_HOST_COMMUNICATES)
        return FS_WORK_COMMUNICATION;
    if (chunk->kind[at] != FS_EVENT_KERNEL) {
        const char *name = chunk->name[at] != FS_NONE ? fs_store_name_text(all->facts->store, chunk->name[at]) : NULL;
        return fs_event_is_transfer(chunk->kind[at], name) ? FS_WORK_COPY : FS_WORK_COMPUTATION;
    }
    bool communicates = fs_names_communicate(all->names, chunk->name[at]);
    return communicates ? FS_WORK_COMMUNICATION : FS_WORK_COMPUTATION;
}

static void note_owner(fs_work_facts *facts, uint32_t own_row, uint32_t work)
{
    uint32_t *owner = &facts->owners[own_row];
    uint32_t seen = __atomic_load_n(owner, __ATOMIC_RELAXED);
    while (work < seen && !__atomic_compare_exchange_n(owner, &seen, work, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static fs_status look_at(const looking *all, block *of, fs_error *err)
{
    const fs_table *table = all->facts->table;
    int64_t *durations = all->facts->budgets + of->begin; /* of launches, until budgets are known */
    for (uint32_t i = of->begin; i < of->end; i++) {
        const fs_table_work *work = &table->works[i];
        uint32_t at;
        FS_POLL(i, err);
        const fs_chunk *chunk = fs_event_chunk(all->facts->store, work->event, &at);
        all->facts->classes[i] = (uint8_t)class_of(all, chunk, at, work->event);
        of->counts[fs_event_device(chunk, at)]++;
        all->facts->calls[i] = fs_api_calls_find(all->calls, chunk->correlation[at]);
        if (chunk->kind[at] == FS_EVENT_KERNEL) {
            int64_t duration = fs_host_note_kernel(all->host, all->facts->calls[i], chunk, at, work->event);
            if (duration != FS_MISSING) durations[of->timed++] = duration;
        }
        if (work->row == FS_NONE || work->own_row == FS_NONE) continue;
        FS_TRY(fs_sums_launched(&of->sums, work->row, work->own_row, 1, fs_work_length(work), err));
        note_owner(all->facts, work->own_row, i);
    }
    return FS_OK;
}

static void look_at_blocks(void *context, int64_t begin, int64_t end)
{
    const looking *all = context;
    for (int64_t i = begin; i < end; i++) all->blocks[i].status = look_at(all, &all->blocks[i], &all->blocks[i].err);
}

static fs_copying copying_of(const looking *all, const fs_table_work *work)
{
    const fs_store *store = all->facts->store;
    uint32_t signature = work->owner != FS_NONE ? FS_EVENT_AT(store, work->owner, signature) : FS_NONE;
    if (signature == FS_NONE) return FS_COPY_PLAIN;
    uint8_t seen = __atomic_load_n(&all->by_signature[signature], __ATOMIC_RELAXED);
    if (seen == 0) {
        fs_span bytes = fs_store_signature_bytes(store, signature);
        seen = (uint8_t)(fs_work_copying(bytes.bytes, bytes.size) + 1);
        __atomic_store_n(&all->by_signature[signature], seen, __ATOMIC_RELAXED);
    }
    return (fs_copying)(seen - 1);
}

int64_t fs_whole_ns(double ns)
{
    return (int64_t)fmax(fmin(ns, 9e18), 0);
}

static int64_t budget_of(const fs_table_work *work, const fs_table_work *model)
{
    if (work->counted && (model->counted || isnan(model->least_ns))) model = work;
    if (isnan(model->least_ns)) return -1;
    if (work == model) return fs_whole_ns(model->least_ns);
    double duration = (double)fs_work_length(model);
    return duration > 0 ? fs_whole_ns(fmin(model->least_ns / duration, 1) * (double)fs_work_length(work)) : 0;
}

/* Now that all owners are known. */
static void rate_blocks(void *context, int64_t begin, int64_t end)
{
    const looking *all = context;
    fs_work_facts *facts = all->facts;
    for (uint32_t i = all->blocks[begin].begin; i < all->blocks[end - 1].end; i++) {
        const fs_table_work *work = &facts->table->works[i];
        facts->budgets[i] = budget_of(work, fs_work_facts_model(facts, work));
        facts->copying[i] = (uint8_t)copying_of(all, work);
    }
}

/* Add up what the blocks found. */
static fs_status join(looking *all, fs_sums *sums, fs_error *err)
{
    uint32_t timed = 0;
    int64_t *durations = all->facts->budgets;
    for (uint32_t i = 0; i < all->count; i++) {
        const block *of = &all->blocks[i];
        FS_TRY(fs_status_of(of->status, &of->err, err));
        for (int device = 0; device < FS_DEVICE_LIMIT; device++) all->facts->counts[device] += of->counts[device];
        for (uint32_t j = 0; j < of->sums.launched_count; j++) {
            const fs_launched *row = &of->sums.launched[j];
            FS_TRY(fs_sums_launched(sums, (uint32_t)row->row, (uint32_t)row->kernel, row->count, row->busy, err));
        }
        memmove(durations + timed, durations + of->begin, of->timed * sizeof *durations);
        timed += of->timed;
    }
    all->host->launch_median = fs_median_of(durations, timed);
    return FS_OK;
}

static fs_status allocate(looking *all, fs_error *err)
{
    fs_work_facts *facts = all->facts;
    uint32_t count = facts->table->work_count, size = SMALLEST_BLOCK;
    size_t works = count + (size_t)1, rows = facts->table->row_count + (size_t)1;
    if (count / MOST_BLOCKS >= size) size = count / MOST_BLOCKS + 1;
    all->count = (uint32_t)((count + (size_t)size - 1) / size);
    FS_TRY(FS_NEW(&facts->budgets, works, err));
    FS_TRY(FS_NEW(&facts->classes, works, err));
    FS_TRY(FS_NEW(&facts->copying, works, err));
    FS_TRY(FS_NEW(&facts->calls, works, err));
    FS_TRY(FS_NEW(&facts->owners, rows, err));
    FS_TRY(FS_NEW_ZEROED(&all->by_signature, fs_store_signature_count(facts->store) + (size_t)1, err));
    FS_TRY(FS_NEW_ZEROED(&all->blocks, all->count, err));
    memset(facts->owners, 0xff, rows * sizeof *facts->owners); /* FS_NONE */
    for (uint32_t i = 0; i < all->count; i++) {
        all->blocks[i].begin = i * size;
        all->blocks[i].end = i + 1 < all->count ? (i + 1) * size : count;
    }
    return FS_OK;
}

fs_status fs_work_facts_find(fs_work_facts *facts, const fs_store *store, const fs_table *table, fs_host *host,
                             const fs_api_calls *calls, fs_names *names, fs_sums *sums, fs_error *err)
{
    looking all = {.facts = facts, .host = host, .calls = calls, .names = names};
    fs_status status;
    *facts = (fs_work_facts){.store = store, .table = table};
    FS_TRY_GOTO(status, allocate(&all, err), done);
    fs_parallel_for(all.count, 1, look_at_blocks, &all);
    FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
    FS_TRY_GOTO(status, join(&all, sums, err), done);
    fs_parallel_for(all.count, 1, rate_blocks, &all);
    status = fs_interrupt_poll(err);
done:
    for (uint32_t i = 0; all.blocks != NULL && i < all.count; i++) fs_sums_clear(&all.blocks[i].sums);
    fs_free(all.blocks);
    fs_free(all.by_signature);
    return status;
}

void fs_work_facts_cut(fs_work_facts *facts, const fs_step *window)
{
    for (uint32_t i = 0; i < facts->table->work_count; i++) {
        double share = fs_work_share(&facts->table->works[i], window);
        if (facts->budgets[i] > 0 && share < 1) facts->budgets[i] = fs_whole_ns(share * (double)facts->budgets[i]);
    }
}

void fs_work_facts_clear(fs_work_facts *facts)
{
    fs_free(facts->budgets);
    fs_free(facts->classes);
    fs_free(facts->copying);
    fs_free(facts->calls);
    fs_free(facts->owners);
}
