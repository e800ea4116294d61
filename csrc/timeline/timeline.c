/* Blocks of a lane are in order and do not overlap; each is one item, or several short ones of one bucket of time. The
 * bucket doubles until the blocks are at most as many as the limit, or one bucket holds everything. A merged block
 * shows the longest of its events, and `busy` is the sum of all: what was merged is not lost, only drawn together.
 * Links are resolved last, when every event has its block. */
#include "timeline/timeline.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "timeline/lanes.h"

#define NAME_OF(NAME, name, prose) #name,
const char *const fs_lane_role_names[] = {FS_LANE_ROLE_LIST(NAME_OF)};

/* Times within which events are merged: doubled until the blocks are few enough. */
enum { FIRST_MERGED_NS = 1000 };

typedef struct {
    fs_lanes lanes;
    const fs_store *store;
    const fs_table *table;
    fs_timeline *timeline;
    fs_api_calls calls;
    uint32_t *blocks; /* by source: its block, or FS_NONE */
    uint32_t *rows;   /* by event: the row of the op to which the work belongs, or FS_NONE */
    fs_intern others; /* (kind, name) of events without a call; ids follow those of the calls */
} drawing;

/* Merging ------------------------------------------------------------------------------------------------------------
 */

/* Whether an item is merged with others of its time. */
static bool is_short(const fs_lane_item *item, int64_t within)
{
    return item->duration < within;
}

static uint64_t bucket_of(const drawing *all, const fs_lane_item *item, int64_t within)
{
    return ((uint64_t)item->start - (uint64_t)all->lanes.begin) / (uint64_t)within;
}

/* Whether an item goes into the block of the one before it in its lane. */
static bool joins(const drawing *all, const fs_lane_item *item, int64_t within)
{
    return within > 0 && is_short(item, within) && is_short(item - 1, within) &&
           bucket_of(all, item, within) == bucket_of(all, item - 1, within);
}

static fs_status count_blocks(const drawing *all, int64_t within, uint32_t *count, fs_error *err)
{
    const fs_timeline *timeline = all->timeline;
    *count = 0;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        for (uint32_t j = 0; j < lane->count; j++) {
            FS_POLL(j, err);
            *count += j == 0 || !joins(all, &all->lanes.items[lane->first + j], within);
        }
    }
    return FS_OK;
}

/* Find the time within which events are merged, 0: none are; and the number of blocks. */
static fs_status find_merged(drawing *all, uint32_t limit, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    timeline->block_count = all->lanes.item_count;
    int64_t span = all->lanes.item_count > 0 ? fs_sub_saturated(all->lanes.end, all->lanes.begin) : 0;
    for (int64_t within = FIRST_MERGED_NS; timeline->block_count > limit; within *= 2) {
        timeline->merged_ns = within;
        FS_TRY(count_blocks(all, within, &timeline->block_count, err));
        if (within > span || within > INT64_MAX / 2) break;
    }
    return FS_OK;
}

/* Blocks -------------------------------------------------------------------------------------------------------------
 */

static fs_status allocate(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    size_t blocks = timeline->block_count + (size_t)1, sources = all->lanes.event_count + (size_t)1;
    bool good = true;
#define ALLOCATE(type, name, prose)                              \
    timeline->name = fs_malloc(blocks * sizeof *timeline->name); \
    good = good && timeline->name != NULL;
    FS_TIMELINE_COLUMN_LIST(ALLOCATE)
#undef ALLOCATE
    all->blocks = fs_malloc(sources * sizeof *all->blocks);
    all->rows = fs_malloc(sources * sizeof *all->rows);
    if (!good || all->blocks == NULL || all->rows == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u blocks", timeline->block_count);
    memset(all->blocks, 0xff, sources * sizeof *all->blocks);
    memset(all->rows, 0xff, sources * sizeof *all->rows);
    for (uint32_t i = 0; i < all->table->work_count; i++) {
        FS_POLL(i, err);
        all->rows[all->table->works[i].event] = all->table->works[i].row;
    }
    return FS_OK;
}

static fs_status label_of(drawing *all, const fs_chunk *chunk, uint32_t at, uint32_t index, uint32_t *label,
                          fs_error *err)
{
    *label = all->table->event_calls[index];
    if (*label != FS_NONE) return FS_OK;
    uint32_t key[2] = {chunk->kind[at], chunk->name[at]}, id;
    FS_TRY(fs_intern_bytes(&all->others, key, sizeof key, &id, err));
    *label = all->table->call_count + id;
    return FS_OK;
}

/* Begin a block with an item. Its link is filled in when all blocks are known; until then it is the source. */
static fs_status begin_block(drawing *all, uint32_t block, const fs_lane_item *item, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    uint32_t at;
    timeline->start[block] = item->start;
    timeline->duration[block] = timeline->busy[block] = item->duration;
    timeline->count[block] = 1;
    timeline->link[block] = item->source;
    timeline->label[block] = timeline->row[block] = FS_NONE;
    timeline->bytes[block] = 0;
    if (item->source >= all->lanes.event_count) return FS_OK;
    const fs_chunk *chunk = fs_event_chunk(all->store, item->source, &at);
    FS_TRY(label_of(all, chunk, at, item->source, &timeline->label[block], err));
    if (fs_event_kind_on_device[chunk->kind[at]]) {
        timeline->row[block] = all->rows[item->source];
        timeline->bytes[block] = chunk->bytes[at];
    }
    all->blocks[item->source] = block;
    return FS_OK;
}

/* Add an item to a block, and to its longest event if the item is longer; `longest` is that event's duration. */
static fs_status extend_block(drawing *all, uint32_t block, const fs_lane_item *item, int64_t *longest, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    int64_t start = timeline->start[block], busy = timeline->busy[block];
    uint32_t count = timeline->count[block];
    if (item->duration > *longest) {
        *longest = item->duration;
        FS_TRY(begin_block(all, block, item, err));
    } else if (item->source < all->lanes.event_count) {
        all->blocks[item->source] = block;
    }
    timeline->start[block] = start;
    timeline->duration[block] = fs_sub_saturated(fs_add_saturated(item->start, item->duration), start);
    timeline->busy[block] = fs_add_saturated(busy, item->duration);
    timeline->count[block] = count + 1;
    return FS_OK;
}

static fs_status draw_blocks(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    uint32_t next = 0;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        fs_timeline_lane *lane = &timeline->lanes[i];
        uint32_t first = next;
        int64_t longest = 0;
        for (uint32_t j = 0; j < lane->count; j++) {
            FS_POLL(j, err);
            const fs_lane_item *item = &all->lanes.items[lane->first + j];
            if (j > 0 && joins(all, item, timeline->merged_ns)) {
                FS_TRY(extend_block(all, next - 1, item, &longest, err));
                continue;
            }
            longest = item->duration;
            FS_TRY(begin_block(all, next++, item, err));
        }
        timeline->event_count += lane->count;
        if (lane->role == FS_LANE_IDLE) timeline->idle_count += lane->count;
        lane->first = first;
        lane->count = next - first;
    }
    timeline->block_count = next;
    return FS_OK;
}

/* Return the event that a source is linked to: the launch of work, the op of the forward pass, the work after a gap. */
static uint32_t linked_event(const drawing *all, uint32_t source)
{
    uint32_t at;
    if (source >= all->lanes.event_count) return all->lanes.accounting->spans[source - all->lanes.event_count].event;
    const fs_chunk *chunk = fs_event_chunk(all->store, source, &at);
    if (!fs_event_kind_on_device[chunk->kind[at]]) return chunk->forward[at];
    uint32_t call = fs_api_calls_find(&all->calls, chunk->correlation[at]);
    return call != FS_NONE ? call : chunk->launcher[at];
}

static fs_status link_blocks(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    for (uint32_t i = 0; i < timeline->block_count; i++) {
        FS_POLL(i, err);
        uint32_t event = timeline->count[i] == 1 ? linked_event(all, timeline->link[i]) : FS_NONE;
        timeline->link[i] = event < all->lanes.event_count ? all->blocks[event] : FS_NONE;
    }
    return FS_OK;
}

static fs_status list_labels(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    uint32_t calls = all->table->call_count;
    timeline->label_count = calls + all->others.count;
    timeline->labels = fs_malloc((timeline->label_count + (size_t)1) * sizeof *timeline->labels);
    if (timeline->labels == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u labels of a timeline", timeline->label_count);
    if (calls > 0) memcpy(timeline->labels, all->table->calls, calls * sizeof *timeline->labels);
    for (uint32_t i = 0; i < all->others.count; i++) {
        const uint32_t *key = fs_intern_get(&all->others, i).bytes;
        timeline->labels[calls + i] = (fs_timeline_label){key[1], FS_NONE, FS_NONE, (uint8_t)key[0]};
    }
    return FS_OK;
}

static fs_status draw(drawing *all, uint32_t limit, fs_error *err)
{
    FS_TRY(fs_lanes_fill(&all->lanes, err));
    FS_TRY(find_merged(all, limit, err));
    FS_TRY(allocate(all, err));
    FS_TRY(draw_blocks(all, err));
    FS_TRY(fs_api_calls_create(&all->calls, all->store, err));
    FS_TRY(link_blocks(all, err));
    return list_labels(all, err);
}

fs_status fs_timeline_build(fs_timeline *timeline, const fs_store *store, const fs_table *table,
                            const fs_accounting *accounting, uint32_t limit, fs_error *err)
{
    *timeline = (fs_timeline){0};
    drawing all = {
        .lanes = {.store = store, .accounting = accounting, .timeline = timeline},
        .store = store,
        .table = table,
        .timeline = timeline,
    };
    fs_status status = draw(&all, limit, err);
    fs_lanes_clear(&all.lanes);
    fs_api_calls_clear(&all.calls);
    fs_intern_clear(&all.others);
    fs_free(all.blocks);
    fs_free(all.rows);
    if (status != FS_OK) fs_timeline_clear(timeline);
    return status;
}

void fs_timeline_clear(fs_timeline *timeline)
{
#define FREE(type, name, prose) fs_free(timeline->name);
    FS_TIMELINE_COLUMN_LIST(FREE)
#undef FREE
    fs_free(timeline->lanes);
    fs_free(timeline->labels);
    *timeline = (fs_timeline){0};
}
