/* Calls and works are collected and put in the order in which they are simulated: calls by begin, works by their call
 * and begin. Of calls inside others (cuLaunchKernel in cudaLaunchKernel), only the outermost ones count. Threads that
 * take turns, as the main thread and autograd's do, are one sequence, in which a call begins when the last one of any
 * of them has returned; a thread whose calls run beside those of a busier one is a sequence of its own. */
#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/search.h"
#include "replay/build.h"
#include "store/api_calls.h"
#include "store/event.h"

#define KIND_NAME(NAME, name) [FS_REPLAY_##NAME] = #name,
const char *const fs_replay_kind_names[FS_REPLAY_KIND_COUNT] = {FS_REPLAY_KIND_LIST(KIND_NAME)};

/* A part of a call's name, and what must not be in it; the first row that fits decides. */
static const struct {
    const char *part, *without;
    fs_replay_kind kind;
} kinds[] = {
    {"WaitEvent", NULL, FS_REPLAY_ORDER}, {"StreamSync", NULL, FS_REPLAY_STREAM}, {"EventSync", NULL, FS_REPLAY_EVENT},
    {"Synchro", NULL, FS_REPLAY_DEVICE},  {"Free", "Async", FS_REPLAY_DEVICE},    {"Launch", NULL, FS_REPLAY_LAUNCH},
    {"Memset", NULL, FS_REPLAY_LAUNCH},   {"Memcpy", NULL, FS_REPLAY_COPY},
};

static uint8_t kind_of(const fs_store *store, uint32_t name)
{
    const char *text = name != FS_NONE ? fs_store_name_text(store, name) : "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(text, kinds[i].part) != NULL && (kinds[i].without == NULL || strstr(text, kinds[i].without) == NULL))
            return (uint8_t)kinds[i].kind;
    return FS_REPLAY_OTHER;
}

/* A time since the steps begin. */
static int64_t since(const fs_replay_builder *of, int64_t time)
{
    int64_t passed = fs_sub_saturated(time, of->begin);
    return passed > FS_REPLAY_LONGEST ? FS_REPLAY_LONGEST : passed < -FS_REPLAY_LONGEST ? -FS_REPLAY_LONGEST : passed;
}

static bool is_within(const fs_replay_builder *of, int64_t time)
{
    return time >= of->begin && time < of->end;
}

/* The lane of an event; an unknown one comes after all lanes. */
static uint32_t lane_of(const fs_store *store, uint32_t event)
{
    uint32_t lane = FS_EVENT_AT(store, event, lane), lanes = fs_store_lane_count(store);
    return lane < lanes ? lane : lanes;
}

/* Make a number for each lane, FS_NONE. */
static fs_status new_numbers(const fs_replay_builder *of, uint32_t **numbers, fs_error *err)
{
    size_t lanes = fs_store_lane_count(of->store) + (size_t)1;
    FS_TRY(FS_NEW(numbers, lanes, err));
    memset(*numbers, 0xff, lanes * sizeof **numbers);
    return FS_OK;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

static fs_status find_calls(fs_replay_builder *of, fs_error *err)
{
    FS_EACH_EVENT(of->store, i, chunk, at) {
        FS_POLL(i, err);
        if (chunk->kind[at] == FS_EVENT_RUNTIME && is_within(of, chunk->start[at]))
            FS_TRY(fs_intervals_add(&of->found, chunk->start[at], fs_event_later_end(chunk, at), i, err));
    }
    return fs_intervals_sort(&of->found, err);
}

static fs_status take_calls(fs_replay_builder *of, fs_error *err)
{
    fs_replay *replay = of->replay;
    uint32_t *current;                                                          /* by thread: its last call */
    size_t room = (size_t)of->found.count + fs_store_lane_count(of->store) + 2; /* for ends of sequences, too */
    FS_TRY(FS_NEW_ZEROED(&replay->calls, room, err));
    FS_TRY(new_numbers(of, &current, err));
    for (uint32_t i = 0; i < of->found.count; i++) {
        uint32_t event = of->found.items[i].tag, thread = lane_of(of->store, event);
        int64_t begin = since(of, of->found.items[i].begin), ended = since(of, of->found.items[i].end);
        fs_replay_call *outer = current[thread] != FS_NONE ? &replay->calls[current[thread]] : NULL;
        if (outer != NULL && begin < outer->ended) {
            if (outer->ended < ended) outer->ended = ended;
        } else {
            fs_replay_call *call = &replay->calls[replay->call_count];
            *call = (fs_replay_call){.event = event, .begin = begin, .ended = ended, .after = FS_NONE};
            call->kind = kind_of(of->store, FS_EVENT_AT(of->store, event, name));
            current[thread] = replay->call_count++;
        }
        of->places[event] = current[thread];
    }
    fs_free(current);
    fs_intervals_clear(&of->found);
    return FS_OK;
}

/* Works ------------------------------------------------------------------------------------------------------------ */

/* Work that was launched before the steps keeps its stream busy at their beginning. */
static fs_status add_backlog(fs_replay_builder *of, uint32_t lane, int64_t start, int64_t end, fs_error *err)
{
    int64_t ended = since(of, end);
    if (ended < 0) return FS_OK;
    if (ended > of->replay->backlogs[lane]) of->replay->backlogs[lane] = ended;
    return fs_intervals_add(&of->backlog, since(of, start), ended, lane, err);
}

static fs_status find_works(fs_replay_builder *of, const fs_api_calls *calls, fs_error *err)
{
    uint32_t lanes = of->replay->lane_count = fs_store_lane_count(of->store) + 1;
    FS_TRY(FS_NEW(&of->replay->backlogs, lanes, err));
    for (uint32_t lane = 0; lane < lanes; lane++) of->replay->backlogs[lane] = -1;
    FS_EACH_EVENT(of->store, i, chunk, at) {
        FS_POLL(i, err);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        int64_t start = chunk->start[at], end = fs_event_later_end(chunk, at);
        uint32_t event = fs_api_calls_find(calls, chunk->correlation[at]);
        int64_t left = event != FS_NONE ? FS_EVENT_AT(of->store, event, start) : start;
        of->places[i] = event != FS_NONE ? of->places[event] : FS_NONE;
        if (is_within(of, left)) FS_TRY(fs_intervals_add(&of->found, start, end, i, err));
        else if (left < of->begin) FS_TRY(add_backlog(of, lane_of(of->store, i), start, end, err));
    }
    return fs_intervals_sort(&of->found, err);
}

/* Work without a launch was launched before the steps if it lies before all work of its lane with one, as in a
 * recording that begins amid a program; else it is taken for that of the launch before it on its lane. Work of lanes
 * without any launch is left out. */
static fs_status adopt_works(fs_replay_builder *of, fs_error *err)
{
    uint32_t *last, kept = 0, later = FS_NONE - 1; /* by lane: its last call; its first one comes later */
    fs_interval *works = of->found.items;
    fs_status status = new_numbers(of, &last, err);
    if (status != FS_OK) return status;
    for (uint32_t i = 0; i < of->found.count; i++)
        if (of->places[works[i].tag] != FS_NONE) last[lane_of(of->store, works[i].tag)] = later;
    for (uint32_t i = 0; i < of->found.count && status == FS_OK; i++) {
        uint32_t *call = &of->places[works[i].tag], lane = lane_of(of->store, works[i].tag);
        if (*call == FS_NONE && last[lane] == later) {
            status = add_backlog(of, lane, works[i].begin, works[i].end, err);
            continue;
        }
        of->replay->unlaunched += *call == FS_NONE;
        if (*call == FS_NONE) *call = last[lane];
        last[lane] = *call;
        if (*call != FS_NONE) works[kept++] = works[i];
    }
    of->found.count = kept;
    fs_free(last);
    return status == FS_OK ? fs_intervals_sort(&of->backlog, err) : status;
}

/* Put the works in the order of their calls. */
static fs_status take_works(fs_replay_builder *of, fs_error *err)
{
    fs_replay *replay = of->replay;
    fs_replay_call *calls = replay->calls;
    uint32_t count = replay->work_count = of->found.count, next = 0;
    FS_TRY(FS_NEW_ZEROED(&replay->works, count + (size_t)1, err));
    for (uint32_t i = 0; i < count; i++) calls[of->places[of->found.items[i].tag]].first++;
    for (uint32_t i = 0; i < replay->call_count; i++) {
        next += calls[i].first;
        calls[i].first = next - calls[i].first;
    }
    for (uint32_t i = 0; i < count; i++) {
        const fs_interval *one = &of->found.items[i];
        int64_t begin = since(of, one->begin), ended = since(of, one->end);
        uint32_t call = of->places[one->tag], place = calls[call].first++;
        fs_replay_work work = {.event = one->tag, .call = call, .before = FS_REPLAY_LANE, .other = FS_NONE};
        work.begin = begin;
        work.ended = ended;
        work.duration = ended - begin;
        work.lane = lane_of(of->store, one->tag);
        replay->works[place] = work;
        FS_TRY(fs_intervals_add(&of->starts, begin, ended, place, err));
        FS_TRY(fs_intervals_add(&of->ends, ended, ended, place, err));
    }
    for (uint32_t i = replay->call_count; i-- > 0;) calls[i].first = i > 0 ? calls[i - 1].first : 0;
    FS_TRY(fs_intervals_sort(&of->starts, err));
    return fs_intervals_sort(&of->ends, err);
}

/* The host between calls ------------------------------------------------------------------------------------------- */

/* A thread is apart if this part of its calls overlaps those of busier ones. */
enum { OVERLAPPING_PART = 50 };

typedef struct {
    uint32_t calls, overlaps;
} thread;

static fs_status find_sequences(fs_replay_builder *of, fs_error *err)
{
    fs_replay *replay = of->replay;
    uint32_t lanes = replay->lane_count, last = 0;
    thread *threads;
    FS_TRY(FS_NEW(&of->sequences, lanes, err));
    FS_TRY(FS_NEW_ZEROED(&threads, lanes, err));
    for (uint32_t i = 0; i < replay->call_count; i++) threads[lane_of(of->store, replay->calls[i].event)].calls++;
    for (uint32_t i = 1; i < replay->call_count; i++) { /* `last`: the call that returns last so far */
        thread *own = &threads[lane_of(of->store, replay->calls[i].event)];
        thread *other = &threads[lane_of(of->store, replay->calls[last].event)];
        if (own != other && replay->calls[i].begin < replay->calls[last].ended)
            ++*(own->calls < other->calls ? &own->overlaps : &other->overlaps);
        if (replay->calls[i].ended > replay->calls[last].ended) last = i;
    }
    replay->sequence_count = 1;
    for (uint32_t i = 0; i < lanes; i++)
        of->sequences[i] = threads[i].overlaps > threads[i].calls / OVERLAPPING_PART ? replay->sequence_count++ : 0;
    fs_free(threads);
    return FS_OK;
}

/* Find the gaps before the calls of each sequence, and append its end: what its threads did after their last calls. */
static fs_status find_gaps(fs_replay_builder *of, fs_error *err)
{
    fs_replay *replay = of->replay;
    int64_t *lasts, end = since(of, of->end); /* by sequence: when its last call returned */
    FS_TRY(FS_NEW_ZEROED(&lasts, replay->sequence_count, err));
    for (uint32_t i = 0; i < replay->call_count; i++) {
        fs_replay_call *call = &replay->calls[i];
        call->sequence = of->sequences[lane_of(of->store, call->event)];
        call->gap = call->begin - lasts[call->sequence];
        lasts[call->sequence] = call->ended;
    }
    for (uint32_t i = 0; i < replay->sequence_count; i++) {
        fs_replay_call last = {.event = FS_NONE, .after = FS_NONE, .sequence = i, .kind = FS_REPLAY_END};
        last.begin = last.ended = lasts[i] > end ? lasts[i] : end;
        last.gap = last.begin - lasts[i];
        last.first = replay->work_count;
        replay->calls[replay->call_count++] = last;
    }
    replay->calls[replay->call_count].first = replay->work_count;
    fs_free(lasts);
    return FS_OK;
}

/* Count the events of the host that began in the gaps of each sequence. `place`: the call after an event, and then the
 * next one of its sequence, if that is near; likewise the last one before it. */
static fs_status count_events(const fs_replay_builder *of, fs_error *err)
{
    enum { NEAR = 64 };
    fs_replay_call *calls = of->replay->calls;
    uint32_t end = of->replay->call_count, place = 0;
    FS_EACH_EVENT(of->store, i, chunk, at) {
        FS_POLL(i, err);
        uint8_t kind = chunk->kind[at];
        if (kind != FS_EVENT_OP && kind != FS_EVENT_RANGE && kind != FS_EVENT_FRAME) continue;
        if (!is_within(of, chunk->start[at]) || (chunk->flags[at] & FS_EVENT_REPLAYED) != 0) continue;
        int64_t begin = since(of, chunk->start[at]);
        uint32_t sequence = of->sequences[lane_of(of->store, i)];
        uint32_t low = place > 0 && calls[place - 1].begin < begin ? place : 0; /* it hardly ever goes back */
        uint32_t high = end - low > 8 && calls[low + 8].begin >= begin ? low + 8 : end, last, next;
        last = next = place = FS_FIRST_NOT(j, low, high, calls[j].begin < begin);
        while (next < end && next < place + NEAR && calls[next].sequence != sequence) next++;
        while (last > 0 && last + NEAR > place && calls[last - 1].sequence != sequence) last--;
        bool inside = last > 0 && calls[last - 1].sequence == sequence && calls[last - 1].ended > begin;
        if (next < end && calls[next].sequence == sequence && !inside) calls[next].events++;
    }
    return FS_OK;
}

/* All -------------------------------------------------------------------------------------------------------------- */

static void set_steps(fs_replay_builder *of, const int64_t *begins, const int64_t *ends, uint32_t steps)
{
    of->begin = INT64_MAX;
    of->end = INT64_MIN;
    for (uint32_t i = 0; i < steps; i++) {
        if (ends[i] <= begins[i] || begins[i] == FS_MISSING) continue;
        of->replay->step_count++;
        of->begin = begins[i] < of->begin ? begins[i] : of->begin;
        of->end = ends[i] > of->end ? ends[i] : of->end;
    }
    of->replay->begin = of->begin;
}

/* Compare the replay with what was recorded: they differ by 3 % at most. */
static fs_status judge(fs_replay_builder *of, fs_error *err)
{
    fs_replay *replay = of->replay;
    int64_t from = 0, to = since(of, of->end);
    for (uint32_t lane = 0; lane < replay->lane_count; lane++) from = fs_later(from, replay->backlogs[lane]);
    for (uint32_t i = 0; i < replay->work_count; i++) to = fs_later(to, replay->works[i].ended);
    replay->recorded = (double)(fs_later(to, from) - from) / replay->step_count;
    FS_TRY(fs_replay_run(replay, &(fs_replay_edit){.again = true}, &replay->replayed, err));
    replay->usable = fabs(replay->replayed - replay->recorded) <= 0.03 * replay->recorded && replay->work_count > 0 &&
                     replay->unlaunched <= replay->work_count / 20;
    return FS_OK;
}

static fs_status build(fs_replay_builder *of, fs_error *err)
{
    size_t events = fs_store_count(of->store);
    fs_api_calls calls;
    FS_TRY(FS_NEW(&of->places, events + 1, err));
    memset(of->places, 0xff, events * sizeof *of->places); /* FS_NONE */
    FS_TRY(find_calls(of, err));
    FS_TRY(take_calls(of, err));
    fs_status status = fs_api_calls_create(&calls, of->store, err);
    if (status == FS_OK) status = find_works(of, &calls, err);
    fs_api_calls_clear(&calls);
    FS_TRY(status);
    FS_TRY(adopt_works(of, err));
    FS_TRY(take_works(of, err));
    FS_TRY(find_sequences(of, err));
    FS_TRY(find_gaps(of, err));
    FS_TRY(count_events(of, err));
    FS_TRY(fs_replay_link(of, err));
    return judge(of, err);
}

fs_status fs_replay_build(fs_replay *replay, const fs_store *store, const int64_t *begins, const int64_t *ends,
                          uint32_t steps, fs_error *err)
{
    fs_replay_builder of = {.replay = replay, .store = store};
    *replay = (fs_replay){0};
    set_steps(&of, begins, ends, steps);
    fs_status status = replay->step_count > 0 ? build(&of, err) : FS_OK;
    fs_intervals *lists[] = {&of.found, &of.backlog, &of.starts, &of.ends};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) fs_intervals_clear(lists[i]);
    fs_free(of.places);
    fs_free(of.sequences);
    if (status != FS_OK) fs_replay_clear(replay);
    return status;
}

void fs_replay_clear(fs_replay *replay)
{
    fs_free(replay->calls);
    fs_free(replay->works);
    fs_free(replay->backlogs);
    *replay = (fs_replay){0};
}
