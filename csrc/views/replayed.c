/* Two passes in the order of indices, parents first: backwards for the widths (an event has one ns more than all
 * that is in it), then forwards for the places. Children so lie within their parents, and ops of one launch do not
 * overlap. */
#include "views/replayed.h"

#include "base/memory.h"
#include "base/search.h"

static bool is_replayed(const fs_store *store, uint32_t index)
{
    return index != FS_NONE && (FS_EVENT_AT(store, index, flags) & FS_EVENT_REPLAYED) != 0;
}

void fs_replayed_clear(fs_replayed_places *places)
{
    fs_free(places->starts);
    fs_free(places->widths);
    *places = (fs_replayed_places){NULL, NULL};
}

fs_status fs_replayed_create(fs_replayed_places *places, const fs_store *store, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    *places = (fs_replayed_places){NULL, NULL};
    if (!FS_ANY(i, count, is_replayed(store, i))) return FS_OK;
    int64_t *starts = places->starts = fs_malloc(count * sizeof *starts);
    int64_t *widths = places->widths = fs_calloc(count, sizeof *widths);
    int64_t *next = fs_malloc(count * sizeof *next), from = FS_MISSING, taken = 0;
    if (starts == NULL || widths == NULL || next == NULL) {
        fs_free(next);
        fs_replayed_clear(places);
        return fs_no_memory(err);
    }
    for (uint32_t i = count; i-- > 0;) { /* children come after their parents */
        if (!is_replayed(store, i)) continue;
        uint32_t parent = FS_EVENT_AT(store, i, parent);
        widths[i]++;
        if (is_replayed(store, parent)) widths[parent] += widths[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!is_replayed(store, i)) continue;
        uint32_t parent = FS_EVENT_AT(store, i, parent);
        int64_t start = FS_EVENT_AT(store, i, start), *place = &taken;
        if (is_replayed(store, parent)) {
            place = &next[parent];
        } else if (start != from) { /* the first of a launch */
            from = start;
            taken = start + 1;
        }
        starts[i] = *place;
        *place += widths[i];
        next[i] = starts[i] + 1;
    }
    fs_free(next);
    return FS_OK;
}
