/* Slabs of blocks. The first ones are small, for small traces; the others are huge pages, so that many threads neither
 * wait for each other's page faults nor keep what they freed. */
#include "sources/kineto/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "sources/counters/plan.h"
#include "store/event.h"
#include "store/samples.h"

/* Points are kept as they come, spelled as in the text, by several threads in pieces of their own; only the join gives
 * them meaning. Sorted by series and time, each point holds until the next one, and the last one of a series only ends
 * the one before it. `order` keeps the order of the text among points of one time, so that the join does not depend on
 * how many pieces there were. */

typedef struct fs_counter_point {
    int64_t start;
    double value;
    uint32_t name;  /* id in names; while joining, in the names of all pieces */
    uint32_t order; /* in the trace, once joined */
    int16_t device;
    bool missing;
} point;

fs_scan_status fs_counters_read(fs_scan *scan, fs_counter_series *series)
{
    series->count = 0;
    series->missing = false;
    if (*scan->at != '{') return fs_scan_skip(scan);
    scan->at++;
    fs_scan_span key = {NULL, 0, false};
    fs_scan_status status;
    while ((status = fs_scan_member(scan, &key)) == FS_SCAN_GOOD && key.text != NULL) {
        int64_t value;
        bool known;
        status = fs_scan_microseconds(scan, &value, &known);
        if (status != FS_SCAN_GOOD) break;
        if (key.size == 7 && memcmp(key.text, "missing", 7) == 0) {
            series->missing = true;
        } else if (known && series->count < FS_SERIES) {
            series->keys[series->count] = key;
            series->values[series->count++] = value;
        }
    }
    return status;
}

fs_status fs_counters_keep(fs_counter_points *points, const fs_scan_span *name, int64_t device, int64_t start,
                           const fs_counter_series *series, fs_error *err)
{
    char text[512];
    if (device < 0 || device >= FS_DEVICE_LIMIT) return FS_OK; /* of the host, or of no device */
    for (int i = 0; i < series->count; i++) {
        const fs_scan_span *key = &series->keys[i];
        if (name->size + key->size + 2 > sizeof text) continue;
        memcpy(text, name->text, name->size);
        text[name->size] = '\n';
        memcpy(text + name->size + 1, key->text, key->size);
        point added = {.start = start, .value = (double)series->values[i] / 1000, .device = (int16_t)device};
        added.missing = series->missing;
        uint32_t size = (uint32_t)(name->size + 1 + key->size);
        FS_TRY(fs_intern_bytes(&points->names, text, size, &added.name, err));
        FS_TRY(FS_LIST_ADD(&points->points, &points->count, &points->capacity, 256, err, added));
    }
    return FS_OK;
}

void fs_counters_clear(fs_counter_points *points)
{
    fs_free(points->points);
    fs_intern_clear(&points->names);
    *points = (fs_counter_points){0};
}

/* What a series of the trace, as spelled in the text, is in the store. */
typedef struct {
    char name[512];
    enum { RATE, COUNT, LEVEL } form;
    double factor; /* from its values to those of the store */
} meaning;

static int metric_of(const char *name, double *factor)
{
    for (int i = 0; i < FS_METRIC_COUNT; i++)
        if (strcmp(fs_metrics[i].name, name) == 0) return i;
    return fs_plan_metric_of(name, factor);
}

static meaning meaning_of(const char *text, size_t size)
{
    meaning found = {.form = LEVEL, .factor = 1};
    char key[sizeof found.name];
    const char *end = memchr(text, '\n', size);
    size_t length = (size_t)(end - text);
    fs_scan_unescape(&(fs_scan_span){end + 1, size - length - 1, true}, key);
    length = fs_scan_unescape(&(fs_scan_span){text, length, true}, found.name);
    int metric = metric_of(found.name, &found.factor);
    if (metric >= 0) {
        bool is_rate = strcmp(key, "GB/s") == 0;
        strcpy(found.name, fs_metrics[metric].name);
        found.form = fs_metrics[metric].kind != FS_METRIC_AMOUNT_KIND ? LEVEL : is_rate ? RATE : COUNT;
    } else if (key[0] != '\0' && strcmp(key, "value") != 0) {
        found.name[length] = '.';
        strcpy(found.name + length + 1, key);
    }
    return found;
}

FS_ORDER_BY(compare, point, device, name, start, order)

/* Add the points of one series, in order of start. */
static fs_status add_series(const point *points, size_t count, const meaning *of, fs_store *store, fs_error *err)
{
    fs_sample *samples = fs_malloc(count * sizeof *samples);
    if (samples == NULL) return fs_no_memory(err);
    size_t kept = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        int64_t start = points[i].start, end = points[i + 1].start;
        if (points[i].missing || end <= start) continue;
        double value = points[i].value * of->factor;
        if (of->form == RATE) value *= (double)(end - start);
        samples[kept++] = (fs_sample){start, end, value};
    }
    fs_status status = fs_store_add_samples(store, points->device, of->name, samples, kept, NULL, err);
    fs_free(samples);
    return status;
}

static fs_status add_all(point *points, size_t count, const fs_intern *names, fs_store *store, fs_error *err)
{
    FS_TRY(fs_sort(points, count, sizeof *points, compare, err));
    for (size_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count; end++)
            if (points[end].device != points[begin].device || points[end].name != points[begin].name) break;
        fs_span name = fs_intern_get(names, points[begin].name);
        meaning of = meaning_of(name.bytes, name.size);
        FS_TRY(add_series(&points[begin], end - begin, &of, store, err));
    }
    return FS_OK;
}

fs_status fs_counters_join(fs_counter_points *const *pieces, uint32_t count, fs_store *store, fs_error *err)
{
    fs_counter_points all = {0};
    fs_status status = FS_OK;
    for (uint32_t i = 0; status == FS_OK && i < count; i++) {
        for (size_t k = 0; status == FS_OK && k < pieces[i]->count; k++) {
            point moved = pieces[i]->points[k];
            fs_span name = fs_intern_get(&pieces[i]->names, moved.name);
            moved.order = (uint32_t)all.count;
            status = fs_intern_bytes(&all.names, name.bytes, name.size, &moved.name, err);
            if (status == FS_OK) status = FS_LIST_ADD(&all.points, &all.count, &all.capacity, 256, err, moved);
        }
    }
    if (status == FS_OK && all.count > 0) status = add_all(all.points, all.count, &all.names, store, err);
    fs_counters_clear(&all);
    return status;
}

enum { FIRST_BLOCKS = 2, MOST_BLOCKS = FS_BLOCK(64, 4) };

struct fs_record_slab {
    fs_record_slab *next;
    uint32_t used, capacity; /* blocks */
    fs_record_block blocks[];
};

_Static_assert(sizeof(fs_record_slab) + MOST_BLOCKS * sizeof(fs_record_block) <= FS_HUGE_PAGE,
               "the largest slab is a huge page");

static fs_record_slab *create_slab(uint32_t capacity)
{
    size_t size = sizeof(fs_record_slab) + capacity * sizeof(fs_record_block);
    fs_record_slab *slab = capacity < MOST_BLOCKS ? fs_malloc(size) : fs_map(FS_HUGE_PAGE);
    if (slab == NULL) return NULL;
    slab->used = 0;
    slab->capacity = capacity;
    return slab;
}

void fs_record_pool_clear(fs_record_pool *pool)
{
    while (pool->slabs != NULL) {
        fs_record_slab *next = pool->slabs->next;
        if (pool->slabs->capacity < MOST_BLOCKS) fs_free(pool->slabs);
        else fs_unmap(pool->slabs, FS_HUGE_PAGE);
        pool->slabs = next;
    }
    pool->free = NULL;
}

static fs_record_block *take_block(fs_record_pool *pool)
{
    fs_record_block *block = pool->free;
    if (block != NULL) {
        pool->free = block->next;
        return block;
    }
    fs_record_slab *slab = pool->slabs;
    if (slab == NULL || slab->used == slab->capacity) {
        uint32_t capacity = slab == NULL ? FIRST_BLOCKS : 2 * slab->capacity;
        slab = create_slab(capacity < MOST_BLOCKS ? capacity : MOST_BLOCKS);
        if (slab == NULL) return NULL;
        slab->next = pool->slabs;
        pool->slabs = slab;
    }
    return &slab->blocks[slab->used++];
}

fs_status fs_piece_add_record(fs_piece *piece, fs_record **record, fs_error *err)
{
    if (piece->last == NULL || piece->last->count == FS_RECORD_BLOCK) {
        fs_record_block *block = FS_LOCKED(&piece->pool->lock, take_block(piece->pool));
        if (block == NULL) return fs_no_memory(err);
        block->next = NULL;
        block->count = 0;
        if (piece->last != NULL) piece->last->next = block;
        else piece->first = block;
        piece->last = block;
    }
    *record = &piece->last->records[piece->last->count++];
    return FS_OK;
}

void fs_piece_drop_records(fs_piece *piece)
{
    if (piece->first == NULL) return;
    fs_lock_take(&piece->pool->lock);
    piece->last->next = piece->pool->free;
    piece->pool->free = piece->first;
    fs_lock_give(&piece->pool->lock);
    piece->first = piece->last = NULL;
}
