/* Steps follow one another without overlap: each begins at its mark or at the end of the one before, whichever is
 * later, and ends when its last work does. The breakdown takes parts in the order of the list from the time that is
 * left, so the parts of a step add up to its length. The step around an event is found in one pass, since parents come
 * first. */
#include "summaries/steps.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"
#include "store/step_marks.h"
#include "summaries/intervals.h"
#include "work/names.h"

#define PART_NAME(NAME, name, prose) [FS_PART_##NAME] = #name,
const char *const fs_step_part_names[FS_STEP_PART_COUNT] = {FS_STEP_PART_LIST(PART_NAME)};

/* Boundaries of steps ---------------------------------------------------------------------------------------------- */

typedef struct {
    const fs_store *store;
    uint32_t events;
    fs_step_marks marks;
    int64_t *work_ends;  /* by mark: of the last device work launched inside; FS_MISSING, the smallest, if none */
    uint32_t *mark_of;   /* by event: index of the mark around it, or FS_NONE */
    int64_t backlog_end; /* of the work that was queued before the recording began; FS_MISSING: none */
} finding;

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Parents precede their children, so one pass propagates the enclosing step. */
static void mark_events(finding *found)
{
    memset(found->mark_of, 0xff, found->events * sizeof *found->mark_of); /* FS_NONE */
    for (uint32_t i = 0; i < found->marks.count; i++) found->mark_of[found->marks.marks[i].event] = i;
    FS_EACH_EVENT(found->store, index, chunk, at) {
        uint32_t parent = chunk->parent[at];
        if (parent < index && found->mark_of[index] == FS_NONE) found->mark_of[index] = found->mark_of[parent];
    }
}

/* Return the step that launched a piece of device work: the one around its API call or launcher, or else the one
 * running at that time (torch's backward pass has its own thread, without steps). */
static uint32_t launching_step(const finding *found, const fs_chunk *chunk, uint32_t at)
{
    uint32_t from = fs_step_marks_launch(&found->marks, chunk, at), place;
    if (from >= found->events) return FS_NONE;
    if (found->mark_of[from] != FS_NONE) return found->mark_of[from];
    const fs_chunk *host = fs_event_chunk(found->store, from, &place);
    return host->start[place] == FS_MISSING ? FS_NONE : fs_step_marks_at(&found->marks, host->start[place]);
}

/* Work whose launch is not in the recording was queued before it began, if all of it runs before the first work whose
 * launch is; otherwise some way of launching was not recorded. */
typedef struct {
    int64_t first_launched, last_queued, queued_end;
} backlog;

static void look_for_backlog(backlog *of, bool launched, int64_t start, int64_t end)
{
    if (launched) {
        of->first_launched = start < of->first_launched ? start : of->first_launched;
    } else {
        of->last_queued = later(of->last_queued, start);
        of->queued_end = later(of->queued_end, end);
    }
}

static fs_status find_work_ends(finding *found, fs_error *err)
{
    uint32_t count = found->marks.count;
    backlog queue = {INT64_MAX, FS_MISSING, FS_MISSING};
    FS_TRY(FS_NEW(&found->work_ends, count, err));
    FS_TRY(FS_NEW(&found->mark_of, found->events, err));
    for (uint32_t i = 0; i < count; i++) found->work_ends[i] = FS_MISSING;
    mark_events(found);
    FS_EACH_EVENT(found->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        uint32_t step = launching_step(found, chunk, at);
        int64_t end = fs_event_end(chunk, at);
        bool launched = step != FS_NONE || fs_step_marks_launch(&found->marks, chunk, at) < found->events;
        look_for_backlog(&queue, launched, chunk->start[at], end);
        if (step == FS_NONE) continue;
        if (end > found->work_ends[step]) found->work_ends[step] = end;
    }
    bool is_backlog = queue.first_launched != INT64_MAX && queue.last_queued < queue.first_launched;
    found->backlog_end = is_backlog ? queue.queued_end : FS_MISSING;
    return FS_OK;
}

static void place_steps(const finding *found, fs_step *steps)
{
    const fs_step_mark *first = &found->marks.marks[0];
    bool amid = found->backlog_end < later(first->end, found->work_ends[0]);
    int64_t previous = amid ? found->backlog_end : FS_MISSING, host_previous = FS_MISSING;
    for (uint32_t i = 0; i < found->marks.count; i++) {
        const fs_step_mark *step = &found->marks.marks[i];
        int64_t begin = later(step->begin, previous), host_begin = later(step->begin, host_previous);
        previous = later(begin, later(step->end, found->work_ends[i]));
        host_previous = later(host_begin, step->end);
        steps[i] = (fs_step){
            .name = step->name, .begin = begin, .end = previous, .host_begin = host_begin, .host_end = host_previous};
    }
}

/* Make the whole profile one step; false if it has no times. */
static bool place_all(const fs_store *store, fs_step *step)
{
    int64_t begin, end, first = INT64_MAX, last = FS_MISSING, last_work = FS_MISSING;
    int64_t last_host = FS_MISSING;
    FS_EACH_EVENT(store, index, chunk, at) {
        if (chunk->start[at] == FS_MISSING) continue;
        int64_t stop = fs_event_end(chunk, at);
        if (chunk->start[at] < first) first = chunk->start[at];
        last = later(last, stop);
        if (fs_event_kind_on_device[chunk->kind[at]]) last_work = later(last_work, stop);
        else last_host = later(last_host, stop);
    }
    if (last == FS_MISSING) return false;
    fs_store_window(store, &begin, &end);
    if (begin == FS_MISSING) begin = first;
    end = end == FS_MISSING ? last : later(end, last_work);
    *step = (fs_step){.name = FS_NONE,
                      .begin = begin,
                      .end = later(begin, end),
                      .host_begin = begin,
                      .host_end = later(begin, last_host)};
    return true;
}

fs_status fs_steps_find(fs_steps *steps, const fs_store *store, fs_error *err)
{
    return fs_steps_find_with(steps, store, NULL, err);
}

fs_status fs_steps_find_with(fs_steps *steps, const fs_store *store, const fs_api_calls *calls, fs_error *err)
{
    fs_status status;
    finding found = {.store = store, .events = fs_store_count(store)};
    *steps = (fs_steps){0};
    FS_TRY(fs_step_marks_find(&found.marks, store, calls, err));
    uint32_t count = found.marks.count;
    if (count > 0) FS_TRY_GOTO(status, find_work_ends(&found, err), done);
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&steps->steps, count + (size_t)1, err), done);
    steps->count = count;
    steps->marked = count > 0;
    if (count > 0) place_steps(&found, steps->steps);
    else steps->count = place_all(store, steps->steps);
    status = FS_OK;
done:
    fs_step_marks_clear(&found.marks);
    fs_free(found.work_ends);
    fs_free(found.mark_of);
    return status;
}

fs_status fs_steps_cut(fs_steps *steps, const fs_store *store, int64_t begin, int64_t end, fs_error *err)
{
    fs_step all;
    fs_step *cut = fs_calloc(2, sizeof *cut);
    if (cut == NULL) return fs_no_memory(err);
    fs_free(steps->steps);
    *steps = (fs_steps){.steps = cut, .first = 1, .marked = steps->marked};
    if (!place_all(store, &all))
        return fs_fail(err, FS_VALUE_ERROR, "no event has a time, so there is no window of time");
    int64_t length = fs_sub_saturated(all.end, all.begin);
    if (begin >= end)
        return fs_fail(err, FS_VALUE_ERROR, "a window ends after it begins; got %.15g to %.15g us", (double)begin / 1e3,
                       (double)end / 1e3);
    if (begin < 0 || end > length)
        return fs_fail(err, FS_VALUE_ERROR, "a window lies in the recording, from 0 to %.15g us; got %.15g to %.15g us",
                       (double)length / 1e3, (double)begin / 1e3, (double)end / 1e3);
    int64_t from = all.begin + begin, until = all.begin + end, host = all.host_end < until ? all.host_end : until;
    cut[0] = (fs_step){.name = FS_NONE, .begin = all.begin, .end = from, .host_begin = all.begin, .host_end = from};
    cut[1] = (fs_step){.name = FS_NONE, .begin = from, .end = until, .host_begin = from, .host_end = later(from, host)};
    steps->count = 2;
    return FS_OK;
}

void fs_steps_clear(fs_steps *steps)
{
    fs_free(steps->steps);
    *steps = (fs_steps){0};
}

/* Breakdown -------------------------------------------------------------------------------------------------------- */

static const fs_step_part part_of_kind[FS_EVENT_KIND_COUNT] = {
    [FS_EVENT_OP] = FS_PART_OTHER_CPU,     [FS_EVENT_RANGE] = FS_PART_OTHER_CPU, [FS_EVENT_STEP] = FS_PART_OTHER,
    [FS_EVENT_RUNTIME] = FS_PART_RUNTIME,  [FS_EVENT_KERNEL] = FS_PART_KERNEL,   [FS_EVENT_MEMCPY] = FS_PART_MEMCPY,
    [FS_EVENT_MEMSET] = FS_PART_MEMSET,    [FS_EVENT_INTERVAL] = FS_PART_KERNEL, [FS_EVENT_SYNC] = FS_PART_RUNTIME,
    [FS_EVENT_OVERHEAD] = FS_PART_RUNTIME, [FS_EVENT_MEMORY] = FS_PART_OTHER,    [FS_EVENT_FRAME] = FS_PART_OTHER,
};

/* Return the part to which an event's time belongs. */
static fs_step_part part_of(fs_names *names, const fs_chunk *chunk, uint32_t at)
{
    uint8_t kind = chunk->kind[at];
    fs_step_part part = part_of_kind[kind];
    if (kind == FS_EVENT_RANGE && chunk->device[at] >= 0) return FS_PART_OTHER; /* repeats the work that ran there */
    if (part == FS_PART_OTHER_CPU && fs_names_host_kind(names, chunk->name[at]) == FS_HOST_LOADS_DATA)
        return FS_PART_DATA_LOADING;
    if (part == FS_PART_KERNEL && fs_names_communicate(names, chunk->name[at])) return FS_PART_COMMUNICATION;
    return part;
}

static fs_status cover_parts(const fs_store *store, fs_intervals *parts, fs_error *err)
{
    fs_names names;
    fs_status status;
    FS_TRY(fs_names_create(&names, store, err));
    FS_EACH_EVENT(store, index, chunk, at) {
        fs_step_part part = part_of(&names, chunk, at);
        if (part == FS_PART_OTHER || chunk->start[at] == FS_MISSING) continue;
        FS_TRY_GOTO(status, fs_intervals_cover(&parts[part], chunk->start[at], fs_event_end(chunk, at), err), done);
    }
    status = FS_OK;
done:
    fs_names_clear(&names);
    return status;
}

/* For each part in order, subtract its time from the remaining time of the steps. */
static fs_status subtract_parts(fs_steps *steps, fs_intervals *parts, int64_t *taken, fs_error *err)
{
    fs_status status;
    fs_intervals left = {0};
    for (uint32_t i = 0; i < steps->count; i++) {
        FS_TRY_GOTO(status, fs_intervals_add(&left, steps->steps[i].begin, steps->steps[i].end, i, err), done);
    }
    for (int part = 0; part < FS_PART_OTHER; part++) {
        for (uint32_t i = 0; i < steps->count; i++) taken[i] = 0;
        FS_TRY_GOTO(status, fs_intervals_unite(&parts[part], err), done);
        FS_TRY_GOTO(status, fs_intervals_subtract(&left, &parts[part], taken, err), done);
        for (uint32_t i = 0; i < steps->count; i++) steps->steps[i].parts[part] = taken[i];
    }
    for (uint32_t i = 0; i < left.count; i++) {
        fs_add_to(&steps->steps[left.items[i].tag].parts[FS_PART_OTHER],
                  fs_sub_saturated(left.items[i].end, left.items[i].begin));
    }
    status = FS_OK;
done:
    fs_intervals_clear(&left);
    return status;
}

fs_status fs_steps_break_down(fs_steps *steps, const fs_store *store, fs_error *err)
{
    fs_status status;
    fs_intervals parts[FS_PART_OTHER] = {0};
    FS_TRY(fs_steps_find(steps, store, err));
    int64_t *taken;
    FS_TRY_GOTO(status, FS_NEW(&taken, steps->count + (size_t)1, err), done);
    FS_TRY_GOTO(status, cover_parts(store, parts, err), done);
    FS_TRY_GOTO(status, subtract_parts(steps, parts, taken, err), done);
done:
    for (int part = 0; part < FS_PART_OTHER; part++) fs_intervals_clear(&parts[part]);
    fs_free(taken);
    if (status != FS_OK) fs_steps_clear(steps);
    return status;
}
