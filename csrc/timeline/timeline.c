/* Blocks of a lane are in order and do not overlap; each is one item, or several short ones of one bucket of time. The
 * bucket doubles until the blocks are at most as many as the limit, or one bucket holds everything. An item that joins
 * the one before it at some bucket joins it at all larger ones, so one pass finds at which doubling each does, its
 * level, and the number of blocks follows for every bucket. A merged block shows the longest of its events, and `busy`
 * is the sum of all: what was merged is not lost, only drawn together. Links are resolved last, when every event has
 * its block.
 *
 * The threads take stretches of the lanes; the blocks that begin in a stretch are its own, to their ends. */
#include "timeline/timeline.h"

#include <stdatomic.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "store/api_calls.h"
#include "timeline/lanes.h"

#define NAME_OF(NAME, name, prose) #name,
const char *const fs_lane_role_names[] = {FS_LANE_ROLE_LIST(NAME_OF)};

/* Times within which events are merged: FIRST_MERGED_NS << level. */
enum { FIRST_MERGED_NS = 1000, MOST_LEVEL = 53, NEVER = 255 };

enum { STRETCH = FS_BLOCK(1 << 15, 32), LINK_GRAIN = 1 << 12 };

/* Places [begin, end) of the sources, in one lane that ends at `limit`; and the first of its blocks. */
typedef struct {
    uint32_t begin, end, limit, block;
} stretch;

typedef struct {
    fs_lanes lanes;
    const fs_store *store;
    const fs_table *table;
    fs_timeline *timeline;
    fs_api_calls calls;
    uint32_t *blocks; /* by source: its block, or FS_NONE */
    uint32_t *rows;   /* by event: the row of the op to which the work belongs, or FS_NONE */
    fs_intern others; /* (kind, name) of events without a call; ids follow those of the calls */
    uint8_t *levels;  /* by place in the sources: from which on it joins the item before it; NULL: none does */
    int merged;       /* the level within which events are merged; -1: none */
    stretch *stretches;
    uint32_t stretch_count, stretch_capacity;
    _Atomic uint32_t by_level[NEVER + 1];
} drawing;

/* Merging ------------------------------------------------------------------------------------------------------------
 */

static fs_status divide(drawing *all, fs_error *err)
{
    const fs_timeline *timeline = all->timeline;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        uint32_t limit = lane->first + lane->count;
        for (uint32_t begin = lane->first; begin < limit;) {
            uint32_t end = limit - begin > STRETCH ? begin + STRETCH : limit;
            FS_TRY(
                FS_LIST_ROOM(&all->stretches, all->stretch_count, &all->stretch_capacity, 64, "parts of lanes", err));
            all->stretches[all->stretch_count++] = (stretch){begin, end, limit, 0};
            begin = end;
        }
    }
    return FS_OK;
}

static bool begins_lane(const drawing *all, uint32_t i)
{
    return i == 0 || all->stretches[i].limit != all->stretches[i - 1].limit;
}

/* Times in units of the first bucket: the bits of what they differ in tell the level. */
typedef struct {
    uint64_t start, duration;
} in_buckets;

static in_buckets buckets_of(const drawing *all, uint32_t place)
{
    fs_lane_item item = fs_lanes_item(&all->lanes, all->lanes.sources[place]);
    uint64_t since = (uint64_t)item.start - (uint64_t)all->lanes.begin;
    return (in_buckets){since / FIRST_MERGED_NS, (uint64_t)item.duration / FIRST_MERGED_NS};
}

/* Two items join if both are shorter than a bucket, and begin in the same one. */
static uint8_t level_of(in_buckets before, in_buckets item)
{
    uint64_t bits = before.duration | item.duration | (before.start ^ item.start);
    return bits == 0 ? 0 : (uint8_t)(64 - __builtin_clzll(bits));
}

static void find_levels(void *context, int64_t begin, int64_t end)
{
    drawing *all = context;
    uint32_t by_level[NEVER + 1] = {0};
    for (int64_t i = begin; i < end; i++) {
        const stretch *of = &all->stretches[i];
        uint32_t place = of->begin;
        in_buckets before;
        if (begins_lane(all, (uint32_t)i)) {
            all->levels[place] = NEVER;
            before = buckets_of(all, place++);
        } else {
            before = buckets_of(all, place - 1);
        }
        for (; place < of->end; place++) {
            in_buckets item = buckets_of(all, place);
            all->levels[place] = level_of(before, item);
            by_level[all->levels[place]]++;
            before = item;
        }
    }
    for (int level = 0; level <= NEVER; level++)
        if (by_level[level] > 0) atomic_fetch_add(&all->by_level[level], by_level[level]);
}

/* Find the time within which events are merged, 0: none are; and the number of blocks. */
static fs_status find_merged(drawing *all, uint32_t limit, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    timeline->block_count = all->lanes.item_count;
    all->merged = -1;
    if (timeline->block_count <= limit) return FS_OK;
    uint32_t places = all->stretches[all->stretch_count - 1].end;
    all->levels = fs_malloc(places);
    if (all->levels == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u events", places);
    fs_parallel_for(all->stretch_count, 1, find_levels, all);
    FS_TRY(fs_interrupt_poll(err));
    int64_t span = fs_sub_saturated(all->lanes.end, all->lanes.begin);
    for (int level = 0; timeline->block_count > limit && level <= MOST_LEVEL; level++) {
        all->merged = level;
        timeline->merged_ns = (int64_t)FIRST_MERGED_NS << level;
        timeline->block_count -= atomic_load(&all->by_level[level]);
        if (timeline->merged_ns > span) break;
    }
    return FS_OK;
}

static bool joins(const drawing *all, uint32_t place)
{
    return all->levels != NULL && all->levels[place] <= all->merged;
}

/* Blocks -------------------------------------------------------------------------------------------------------------
 */

static void count_blocks(void *context, int64_t begin, int64_t end)
{
    drawing *all = context;
    for (int64_t i = begin; i < end; i++) {
        stretch *of = &all->stretches[i];
        of->block = 0;
        for (uint32_t place = of->begin; place < of->end; place++) of->block += !joins(all, place);
    }
}

/* Number the blocks, and let the lanes consist of them. */
static fs_status number_blocks(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    uint32_t next = 0, lane = 0;
    fs_parallel_for(all->stretch_count, 1, count_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    for (uint32_t i = 0; i < all->stretch_count; i++) {
        stretch *of = &all->stretches[i];
        uint32_t count = of->block;
        of->block = next;
        next += count;
        if (begins_lane(all, i)) {
            fs_timeline_lane *begun = &timeline->lanes[lane++];
            timeline->event_count += begun->count;
            if (begun->role == FS_LANE_IDLE) timeline->idle_count += begun->count;
            begun->first = of->block;
            begun->count = 0;
        }
        timeline->lanes[lane - 1].count += count;
    }
    return FS_OK;
}

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
    if (!good || all->blocks == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u blocks", timeline->block_count);
    memset(all->blocks, 0xff, sources * sizeof *all->blocks);
    return FS_OK;
}

/* Note the rows of the works, and free these, which take more memory than all else. */
static fs_status take_works(drawing *all, fs_table *table, fs_error *err)
{
    size_t events = fs_store_count(all->store) + (size_t)1;
    all->rows = fs_malloc(events * sizeof *all->rows);
    if (all->rows == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the rows of %zu events", events);
    memset(all->rows, 0xff, events * sizeof *all->rows);
    for (uint32_t i = 0; i < table->work_count; i++) {
        FS_POLL(i, err);
        all->rows[table->works[i].event] = table->works[i].row;
    }
    fs_free(table->works);
    table->works = NULL;
    table->work_count = 0;
    return FS_OK;
}

/* Fill in a block that shows `source`. Its link is found when all blocks are known; until then it is the source. */
static void show(const drawing *all, uint32_t block, uint32_t source)
{
    fs_timeline *timeline = all->timeline;
    uint32_t at;
    timeline->link[block] = source;
    timeline->label[block] = timeline->row[block] = FS_NONE;
    timeline->bytes[block] = 0;
    if (source >= all->lanes.event_count) return;
    const fs_chunk *chunk = fs_event_chunk(all->store, source, &at);
    timeline->label[block] = all->table->event_calls[source];
    if (!fs_event_kind_on_device[chunk->kind[at]]) return;
    timeline->row[block] = all->rows[source];
    timeline->bytes[block] = chunk->bytes[at];
}

/* Draw the block that begins at a place. Return the place after it. */
static uint32_t draw_block(const drawing *all, uint32_t block, uint32_t place, uint32_t limit)
{
    fs_timeline *timeline = all->timeline;
    uint32_t first = place, shown = all->lanes.sources[place];
    fs_lane_item item = fs_lanes_item(&all->lanes, shown);
    int64_t start = item.start, busy = 0, longest = item.duration;
    do {
        uint32_t source = all->lanes.sources[place];
        if (place > first) item = fs_lanes_item(&all->lanes, source);
        if (item.duration > longest) {
            longest = item.duration;
            shown = source;
        }
        busy = fs_add_saturated(busy, item.duration);
        if (source < all->lanes.event_count) all->blocks[source] = block;
        place++;
    } while (place < limit && joins(all, place));
    timeline->start[block] = start;
    timeline->duration[block] = fs_sub_saturated(fs_add_saturated(item.start, item.duration), start);
    timeline->busy[block] = busy;
    timeline->count[block] = place - first;
    show(all, block, shown);
    return place;
}

static void draw_blocks(void *context, int64_t begin, int64_t end)
{
    const drawing *all = context;
    for (int64_t i = begin; i < end; i++) {
        const stretch *of = &all->stretches[i];
        uint32_t place = of->begin, block = of->block;
        while (place < of->end && joins(all, place)) place++; /* into a block of the stretch before */
        while (place < of->end) place = draw_block(all, block++, place, of->limit);
    }
}

/* Label the blocks of events without a call. */
static fs_status label_others(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    for (uint32_t block = 0; block < timeline->block_count; block++) {
        uint32_t source = timeline->link[block], at, id;
        FS_POLL(block, err);
        if (timeline->label[block] != FS_NONE || source >= all->lanes.event_count) continue;
        const fs_chunk *chunk = fs_event_chunk(all->store, source, &at);
        uint32_t key[2] = {chunk->kind[at], chunk->name[at]};
        FS_TRY(fs_intern_bytes(&all->others, key, sizeof key, &id, err));
        timeline->label[block] = all->table->call_count + id;
    }
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

static void link_blocks(void *context, int64_t begin, int64_t end)
{
    const drawing *all = context;
    fs_timeline *timeline = all->timeline;
    for (int64_t i = begin; i < end; i++) {
        uint32_t event = timeline->count[i] == 1 ? linked_event(all, timeline->link[i]) : FS_NONE;
        timeline->link[i] = event < all->lanes.event_count ? all->blocks[event] : FS_NONE;
    }
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

static fs_status draw(drawing *all, fs_table *table, uint32_t limit, fs_error *err)
{
    FS_TRY(take_works(all, table, err));
    FS_TRY(fs_lanes_fill(&all->lanes, err));
    FS_TRY(divide(all, err));
    FS_TRY(find_merged(all, limit, err));
    FS_TRY(allocate(all, err));
    FS_TRY(number_blocks(all, err));
    fs_parallel_for(all->stretch_count, 1, draw_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(label_others(all, err));
    FS_TRY(fs_api_calls_create(&all->calls, all->store, err));
    fs_parallel_for(all->timeline->block_count, LINK_GRAIN, link_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    return list_labels(all, err);
}

fs_status fs_timeline_build(fs_timeline *timeline, const fs_store *store, fs_table *table,
                            const fs_accounting *accounting, uint32_t limit, fs_error *err)
{
    *timeline = (fs_timeline){0};
    drawing all = {
        .lanes = {.store = store, .accounting = accounting, .timeline = timeline},
        .store = store,
        .table = table,
        .timeline = timeline,
    };
    fs_status status = draw(&all, table, limit, err);
    fs_lanes_clear(&all.lanes);
    fs_api_calls_clear(&all.calls);
    fs_intern_clear(&all.others);
    fs_free(all.blocks);
    fs_free(all.rows);
    fs_free(all.levels);
    fs_free(all.stretches);
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
