/* Joins the rows of a database in a store. */
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/kineto/head.h"
#include "sources/kineto/join.h"
#include "sources/sqlite/allocations.h"
#include "sources/sqlite/graphs.h"
#include "sources/sqlite/nccl.h"
#include "sources/sqlite/rows.h"
#include "sources/sqlite/tables.h"
#include "store/accelerator.h"

/* Iterate over the records of a part, in order. */
#define EACH_RECORD(part, record)                                                              \
    for (fs_record_block *block_ = (part)->piece.first; block_ != NULL; block_ = block_->next) \
        for (fs_record *record = block_->records; record < block_->records + block_->count; record++)

/* Correlations ----------------------------------------------------------------------------------------------------- */

/* The correlations of a process, which counts its own. */
typedef struct {
    int64_t process;
    uint32_t least, largest, base;
} correlations;

typedef struct {
    correlations *items;
    uint32_t count, capacity;
    fs_id_map by_process;
} process_list;

static fs_status find_process(process_list *list, int64_t process, uint32_t *index, fs_error *err)
{
    *index = fs_id_map_get(&list->by_process, process, 0);
    if (*index != FS_NONE) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, 8, err));
    FS_TRY(fs_id_map_set(&list->by_process, process, 0, list->count, err));
    list->items[list->count] = (correlations){process, UINT32_MAX, 0, 0};
    *index = list->count++;
    return FS_OK;
}

/* List the processes, and for each lane of a part the index of its process. */
static fs_status list_processes(process_list *list, const fs_part *part, uint32_t **of_lanes, fs_error *err)
{
    uint32_t count = part->piece.lanes.count;
    uint32_t *indices = *of_lanes = fs_malloc((count + (size_t)1) * sizeof *indices);
    if (indices == NULL) return fs_no_memory(err);
    for (uint32_t id = 0; id < count; id++) {
        const fs_record_lane *lane = fs_intern_get(&part->piece.lanes, id).bytes;
        FS_TRY(find_process(list, lane->process, &indices[id], err));
    }
    return FS_OK;
}

static void find_ranges(const process_list *list, const fs_part *part, const uint32_t *of_lanes)
{
    EACH_RECORD(part, record)
    {
        if (record->correlation == FS_NONE) continue;
        correlations *of = &list->items[of_lanes[record->lane]];
        if (record->correlation < of->least) of->least = record->correlation;
        if (record->correlation > of->largest) of->largest = record->correlation;
    }
}

/* Place the processes' ranges one after the other; false if they do not fit 32 bits. */
static bool place_ranges(const process_list *list)
{
    uint64_t next = 1;
    for (uint32_t i = 0; i < list->count; i++) {
        correlations *of = &list->items[i];
        if (of->least > of->largest) continue;
        of->base = (uint32_t)next;
        next += (uint64_t)of->largest - of->least + 1;
        if (next >= FS_NONE) return false;
    }
    return true;
}

/* Make the correlations of several processes unique, so that each finds its own calls. */
static fs_status separate(fs_rows *rows, process_list *list, uint32_t **of_lanes, fs_error *err)
{
    for (uint32_t i = 0; i < rows->part_count; i++) FS_TRY(list_processes(list, rows->parts[i], &of_lanes[i], err));
    if (list->count < 2) return FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        find_ranges(list, rows->parts[i], of_lanes[i]);
        FS_TRY(fs_interrupt_poll(err));
    }
    if (!place_ranges(list)) return FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        EACH_RECORD(rows->parts[i], record)
        {
            if (record->correlation == FS_NONE) continue;
            const correlations *of = &list->items[of_lanes[i][record->lane]];
            record->correlation = record->correlation - of->least + of->base;
        }
        FS_TRY(fs_interrupt_poll(err));
    }
    return FS_OK;
}

static fs_status separate_processes(fs_rows *rows, fs_rows_report *report, fs_error *err)
{
    process_list list = {.items = NULL};
    uint32_t **of_lanes = fs_calloc(rows->part_count + (size_t)1, sizeof *of_lanes);
    if (of_lanes == NULL) return fs_no_memory(err);
    fs_status status = separate(rows, &list, of_lanes, err);
    report->processes = list.count;
    for (uint32_t i = 0; i < rows->part_count; i++) fs_free(of_lanes[i]);
    fs_free(of_lanes);
    fs_free(list.items);
    fs_id_map_clear(&list.by_process);
    return status;
}

/* Open ranges ------------------------------------------------------------------------------------------------------ */

/* End the ranges that were open when recording ended, at the end of the last event. */
static void end_open_ranges(const fs_rows *rows)
{
    int64_t end = INT64_MIN;
    bool any = false;
    for (uint32_t i = 0; i < rows->part_count; i++) any = any || rows->parts[i]->open_count > 0;
    if (!any) return;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        EACH_RECORD(rows->parts[i], record)
        {
            int64_t until = record->start + (record->duration != FS_MISSING ? record->duration : 0);
            if (until > end) end = until;
        }
    }
    for (uint32_t i = 0; i < rows->part_count; i++)
        for (uint32_t at = 0; at < rows->parts[i]->open_count; at++)
            rows->parts[i]->open[at]->duration = end - rows->parts[i]->open[at]->start;
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

static void add_reports(const fs_rows *rows, fs_rows_report *report)
{
    report->process = -1;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        const fs_part *part = rows->parts[i];
        report->events += part->report.events;
        report->without_time += part->report.without_time;
        report->too_many += part->report.too_many;
        report->ops += part->report.ops;
        report->marks += part->report.marks;
        report->unnamed += part->report.unnamed;
        report->replays += part->report.replays;
        report->graph_work += part->report.graph_work;
        report->changes += part->report.changes;
        for (uint32_t id = 0; id < part->piece.lanes.count && report->process < 0; id++) {
            const fs_record_lane *lane = fs_intern_get(&part->piece.lanes, id).bytes;
            if (lane->device < 0) report->process = lane->process;
        }
    }
}

static fs_status join(fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err)
{
    fs_kineto_report joined = {.bytes = 0};
    /* The join takes an array of pieces. They go back to their parts, which own them, with their records. */
    fs_piece *pieces = fs_malloc((rows->part_count + (size_t)1) * sizeof *pieces);
    if (pieces == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < rows->part_count; i++) pieces[i] = rows->parts[i]->piece;
    fs_join_options options = {.keeps_alike = !rows->unites, .own_memory = true};
    fs_status status = fs_join_pieces(pieces, rows->part_count, options, store, &joined, err);
    for (uint32_t i = 0; i < rows->part_count; i++) rows->parts[i]->piece = pieces[i];
    fs_free(pieces);
    report->overlapping = joined.overlapping;
    return status;
}

/* Whether work names the instructions that it runs: then no captures tell its ops. */
static bool any_ties(const fs_rows *rows)
{
    bool any = false;
    for (uint32_t i = 0; i < rows->part_count; i++) any = any || rows->parts[i]->tie_count > 0;
    return any;
}

fs_status fs_rows_finish(fs_rows *rows, const char *head, size_t head_size, fs_store **store, fs_rows_report *report,
                         fs_error *err)
{
    fs_kineto_head_facts facts = {0, false, 0};
    memset(report, 0, sizeof *report);
    add_reports(rows, report);
    FS_TRY(separate_processes(rows, report, err));
    FS_TRY(fs_rows_match_frees(rows, report, err));
    end_open_ranges(rows);
    FS_TRY(fs_kineto_read_head(head, head_size, *store, &facts, err));
    FS_TRY(join(rows, *store, report, err));
    FS_TRY(fs_store_set_accelerator(*store, fs_accelerator_told(facts.accelerators), err));
    report->kept = fs_store_count(*store);
    FS_TRY(fs_rows_join_nccl(rows, *store, report, err));
    return any_ties(rows) ? FS_OK : fs_rows_join_graphs(rows, store, report, err);
}
