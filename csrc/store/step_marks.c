/* Marks are sorted by begin, and one that is empty is taken out only at the ends: steps in the middle may well be idle.
 * A mark is empty if nothing that the host launched began in it, which the launch decides and not the work, as work
 * runs later than it is launched. */
#include "store/step_marks.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "store/event.h"

static bool is_mark(const fs_chunk *chunk, uint32_t at)
{
    return chunk->kind[at] == FS_EVENT_STEP && chunk->device[at] < 0 && chunk->start[at] != FS_MISSING;
}

FS_ORDER_BY(compare_marks, fs_step_mark, begin, event)

static fs_status list_marks(fs_step_marks *marks, const fs_store *store, fs_error *err)
{
    uint32_t capacity = 0;
    FS_EACH_EVENT(store, index, chunk, at) {
        FS_POLL(index, err);
        if (!is_mark(chunk, at)) continue;
        const fs_step_mark mark = {chunk->start[at], fs_event_end(chunk, at), index, chunk->name[at]};
        FS_TRY(FS_LIST_ADD(&marks->marks, &marks->count, &capacity, 16, err, mark));
    }
    return fs_sort(marks->marks, marks->count, sizeof *marks->marks, compare_marks, err);
}

uint32_t fs_step_marks_at(const fs_step_marks *marks, int64_t time)
{
    uint32_t low = FS_FIRST_NOT(i, 0, marks->count, marks->marks[i].begin <= time);
    return low > 0 && time < marks->marks[low - 1].end ? low - 1 : FS_NONE;
}

uint32_t fs_step_marks_launch(const fs_step_marks *marks, const fs_chunk *chunk, uint32_t at)
{
    uint32_t call = fs_api_calls_find(marks->calls, chunk->correlation[at]);
    return call != FS_NONE ? call : chunk->launcher[at];
}

/* Return when the host began the op, the launch or the range with declared work that an event stands for; of work whose
 * launch is unknown, when it began itself; FS_MISSING for other events. */
static int64_t work_began(const fs_step_marks *marks, const fs_store *store, const fs_chunk *chunk, uint32_t at)
{
    uint8_t kind = chunk->kind[at];
    if (kind == FS_EVENT_OP) return chunk->start[at];
    if (kind == FS_EVENT_RANGE && chunk->device[at] < 0 && chunk->signature[at] != FS_NONE) return chunk->start[at];
    if (!fs_event_is_placed_work(chunk, at)) return FS_MISSING;
    uint32_t from = fs_step_marks_launch(marks, chunk, at);
    return from < fs_store_count(store) ? FS_EVENT_AT(store, from, start) : chunk->start[at];
}

static bool contains(const fs_step_mark *mark, int64_t time)
{
    return time >= mark->begin && time < mark->end;
}

/* Take an empty first and last mark out of the marks. */
static fs_status drop_empty(fs_step_marks *marks, const fs_store *store, fs_error *err)
{
    uint32_t events = fs_store_count(store), at;
    const fs_chunk *chunk;
    const fs_step_mark *first = &marks->marks[0], *last = &marks->marks[marks->count - 1];
    bool some = false, in_first = false, in_last = false;
    uint32_t low = 0, high = events;
    for (uint32_t round = 0; low < high && !(in_first && in_last); round++) {
        FS_POLL(round, err);
        /* What began in the first mark is looked for from the first event on, the rest from the last one back. */
        chunk = fs_event_chunk(store, in_first ? --high : low++, &at);
        /* Work is launched before it starts, so this is not of the last mark. */
        if (in_first && chunk->start[at] < last->begin) continue;
        int64_t began = work_began(marks, store, chunk, at);
        if (began == FS_MISSING) continue;
        in_first = in_first || contains(first, began);
        in_last = in_last || contains(last, began);
        some = some || fs_step_marks_at(marks, began) != FS_NONE;
    }
    if (!some) return FS_OK;
    if (!in_last) marks->last = marks->marks[--marks->count].event;
    if (in_first) return FS_OK;
    marks->first = first->event;
    memmove(marks->marks, marks->marks + 1, --marks->count * sizeof *marks->marks);
    return FS_OK;
}

fs_status fs_step_marks_find(fs_step_marks *marks, const fs_store *store, const fs_api_calls *calls, fs_error *err)
{
    *marks = (fs_step_marks){.first = FS_NONE, .last = FS_NONE, .calls = calls != NULL ? calls : &marks->own};
    fs_status status = list_marks(marks, store, err);
    if (status == FS_OK && marks->count > 0 && calls == NULL) status = fs_api_calls_create(&marks->own, store, err);
    if (status == FS_OK && marks->count > 1) status = drop_empty(marks, store, err);
    if (status != FS_OK) fs_step_marks_clear(marks);
    return status;
}

void fs_step_marks_undo(fs_store *store, const char *name)
{
    for (uint32_t index = 0; index < fs_store_count(store); index++) {
        fs_event event;
        if (FS_EVENT_AT(store, index, kind) != FS_EVENT_STEP) continue;
        fs_store_get(store, index, &event);
        const char *own = event.name != FS_NONE ? fs_store_name_text(store, event.name) : "";
        if (name[0] != '\0' && strcmp(own, name) != 0) continue;
        event.kind = FS_EVENT_RANGE;
        fs_store_set(store, index, &event);
    }
}

void fs_step_marks_clear(fs_step_marks *marks)
{
    fs_api_calls_clear(&marks->own);
    fs_free(marks->marks);
    *marks = (fs_step_marks){.first = FS_NONE, .last = FS_NONE};
}
