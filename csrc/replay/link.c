/* What calls and works wait for. A recording names neither the streams and events of calls nor who waits for whom, so
 * the times tell: a wait ends right after what it waited for, and work that had arrived on a free stream begins right
 * after that of another stream. Calls are looked at in order, and only what was launched before them is considered. */
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/statistics.h"
#include "replay/build.h"
#include "store/event.h"

enum {
    CLOCKS_NS = 5000,          /* by which the clocks of host and device may disagree */
    TAIL_PART = 16,            /* of a copy through pageable memory, whose last part is copied behind the call */
    LONGEST_LAG_NS = 100000,   /* no launch is on its way for longer, as in summaries/launches.c */
    USUAL_LAG_NS = 5000,       /* of launches, and of waits until they return, where nothing tells; of a call itself */
    USUAL_QUEUE_NS = 1000,     /* between works of a stream, likewise */
    CAUSE_NS = 5000,           /* a shorter delay needs no other cause */
    LONGEST_SIGNAL_NS = 10000, /* from the end of work until that of another stream begins */
    LONGEST_RETURN_NS = 30000, /* from the end of work until who waited for it returns */
    OVERLAP_NS = 2000,         /* by which works of a stream may overlap, and still follow one another */
    FULL_QUEUE = 256,          /* launches that have not begun, of a queue that may be full */
    SEARCHED = 32,             /* of works that may be waited for */
    PAUSE_NS = 100000,         /* a sequence that does nothing for so long waits for another, of these: */
    MOST_SEQUENCES = 64,
    MOST_SAMPLES = 1 << 14
};

/* What a sequence launched last. */
typedef struct {
    uint32_t last, last_other; /* works; the latter on another lane; FS_NONE: none */
    bool ordered;              /* a stream was made to wait for an event since then */
} launched;

/* The state before a call. */
typedef struct {
    fs_replay_builder *of;
    fs_replay *replay;
    const fs_replay_work *works;
    int64_t *ready;     /* by lane: the end of what was launched, or FS_REPLAY_NEVER */
    launched *launched; /* by sequence */
    int64_t all;        /* the end of everything launched */
    bool waited;        /* the host has waited: what was launched before the steps may be over */
    int64_t arrival;    /* usual delay from the return of a launch to the begin of its work */
} linking;

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t lasted(const fs_replay_call *call)
{
    return call->ended - call->begin;
}

static void begin_pass(linking *all)
{
    all->all = FS_REPLAY_NEVER;
    for (uint32_t lane = 0; lane < all->replay->lane_count; lane++) {
        all->ready[lane] = all->replay->backlogs[lane] >= 0 ? all->replay->backlogs[lane] : FS_REPLAY_NEVER;
        all->all = fs_later(all->all, all->ready[lane]);
    }
    for (uint32_t i = 0; i < all->replay->sequence_count; i++) all->launched[i] = (launched){FS_NONE, FS_NONE, false};
}

static void note_work(linking *all, const fs_replay_call *call, uint32_t index)
{
    const fs_replay_work *work = &all->works[index];
    launched *by = &all->launched[call->sequence];
    if (by->last != FS_NONE && all->works[by->last].lane != work->lane) by->last_other = by->last;
    by->last = index;
    by->ordered = false;
    all->ready[work->lane] = fs_later(all->ready[work->lane], work->ended);
    all->all = fs_later(all->all, work->ended);
}

/* Find the usual delay of launches: the median of those onto idle streams. Of copies, the call may have waited. */
static fs_status find_arrival(linking *all, fs_error *err)
{
    int64_t *delays;
    uint32_t count = 0;
    FS_TRY(FS_NEW(&delays, MOST_SAMPLES, err));
    for (uint32_t i = 0; i < all->replay->call_count && count < MOST_SAMPLES; i++) {
        const fs_replay_call *call = &all->replay->calls[i];
        launched *by = &all->launched[call->sequence];
        by->ordered = by->ordered || call->kind == FS_REPLAY_ORDER;
        if (call->first == call[1].first) continue;
        const fs_replay_work *work = &all->works[call->first];
        if (call->kind == FS_REPLAY_LAUNCH && !by->ordered && call->ended > all->ready[work->lane])
            delays[count++] = work->begin - call->ended;
        for (uint32_t j = call->first; j < call[1].first; j++) note_work(all, call, j);
    }
    double median = count > 0 ? fs_median_of(delays, count) : USUAL_LAG_NS;
    all->arrival = median < -LONGEST_LAG_NS ? -LONGEST_LAG_NS : sooner((int64_t)median, LONGEST_LAG_NS);
    fs_free(delays);
    return FS_OK;
}

/* Waits of the host ------------------------------------------------------------------------------------------------ */

/* Of works in order of their ends, return the last one until a time that was launched before `limit`, and is the last
 * one of its lane (`lasts`) or not of a lane; at most SEARCHED are looked at. FS_NONE: there is none. */
static uint32_t ended_until(const linking *all, uint32_t limit, int64_t time, bool lasts, uint32_t lane)
{
    const fs_intervals *ends = &all->of->ends;
    uint32_t place = FS_FIRST_NOT(i, 0, ends->count, ends->items[i].begin <= time);
    for (uint32_t least = place > SEARCHED ? place - SEARCHED : 0; place > least; place--) {
        uint32_t index = ends->items[place - 1].tag;
        const fs_replay_work *work = &all->works[index];
        if (index < limit && work->lane != lane && (!lasts || all->ready[work->lane] == work->ended)) return index;
    }
    return FS_NONE;
}

/* Let a call wait for what ended at a time. */
static void wait_for(fs_replay_call *call, fs_replay_wait wait, uint32_t target, int64_t over)
{
    call->wait = (uint8_t)wait;
    call->target = target;
    call->tail = over > call->begin ? fs_later(call->ended - over, 0) : sooner(lasted(call), USUAL_LAG_NS);
    if (over > call->begin) call->own = sooner(lasted(call), call->tail);
}

/* A stream is that of the last launch, unless its work ended long before the wait, or after it. */
static void link_stream_wait(const linking *all, fs_replay_call *call)
{
    uint32_t last = all->launched[call->sequence].last, lane = last != FS_NONE ? all->works[last].lane : FS_NONE;
    int64_t seen = call->ended + CLOCKS_NS, ready = lane != FS_NONE ? all->ready[lane] : FS_REPLAY_NEVER;
    bool over = ready != FS_REPLAY_NEVER && ready <= seen, brief = lasted(call) <= LONGEST_SIGNAL_NS;
    if (!over || (!brief && call->ended - ready > LONGEST_RETURN_NS)) {
        last = ended_until(all, call->first, seen, true, FS_NONE);
        if (last != FS_NONE && (!over || all->works[last].ended > call->begin)) {
            lane = all->works[last].lane;
            ready = all->works[last].ended;
            over = true;
        }
    }
    if (over) wait_for(call, FS_REPLAY_FOR_LANE, lane, ready);
}

static void link_wait(const linking *all, fs_replay_call *call)
{
    int64_t seen = call->ended + CLOCKS_NS;
    call->own = lasted(call);
    if (call->kind == FS_REPLAY_DEVICE && all->all != FS_REPLAY_NEVER && all->all <= seen) {
        wait_for(call, FS_REPLAY_FOR_ALL, 0, all->all);
    } else if (call->kind == FS_REPLAY_DEVICE || call->kind == FS_REPLAY_STREAM) {
        link_stream_wait(all, call); /* perhaps of one of several devices */
    } else if (call->kind == FS_REPLAY_EVENT) {
        uint32_t work = ended_until(all, call->first, seen, false, FS_NONE);
        if (work != FS_NONE) wait_for(call, FS_REPLAY_FOR_END, work, all->works[work].ended);
    }
}

/* Whether a call copies between host and device, and returned after the copies' ends. Pinned memory needs no wait. */
static bool waits_for_copies(const linking *all, const fs_replay_call *call)
{
    const fs_store *store = all->of->store;
    bool asynchronous = strstr(fs_store_name_text(store, FS_EVENT_AT(store, call->event, name)), "Async") != NULL;
    for (uint32_t i = call->first; i < call[1].first; i++) {
        uint32_t name = FS_EVENT_AT(store, all->works[i].event, name);
        const char *text = name != FS_NONE ? fs_store_name_text(store, name) : "";
        if (FS_EVENT_AT(store, all->works[i].event, kind) != FS_EVENT_MEMCPY || strstr(text, "DtoD") != NULL)
            return false;
        if (asynchronous && strstr(text, "Pinned") != NULL) return false;
        if (call->ended + fs_later(CLOCKS_NS, lasted(call) / TAIL_PART) < all->works[i].ended) return false;
    }
    return call->first < call[1].first;
}

static void link_copy(const linking *all, fs_replay_call *call)
{
    uint32_t last = call->first;
    for (uint32_t i = last; i < call[1].first; i++)
        if (all->works[i].ended > all->works[last].ended) last = i;
    wait_for(call, FS_REPLAY_FOR_END, last, all->works[last].ended);
    call->own = sooner(lasted(call), USUAL_LAG_NS);
}

/* A launch that took long returned once the queue had room: when some earlier work had begun. That is as many launches
 * ago as had not begun; in the first steps, of the round before. */
static void link_room(const linking *all, fs_replay_call *call)
{
    const fs_intervals *starts = &all->of->starts, *backlog = &all->of->backlog;
    if (lasted(call) <= 3 * USUAL_LAG_NS) return;
    uint32_t begun = FS_FIRST_NOT(i, 0, starts->count, starts->items[i].begin <= call->ended);
    uint32_t left = backlog->count - FS_FIRST_NOT(i, 0, backlog->count, backlog->items[i].begin <= call->ended);
    int64_t target = (int64_t)begun - 1 - left, works = all->replay->work_count;
    int64_t tail = target >= 0 ? call->ended - all->works[target].begin : 0;
    if (call->first - target <= FULL_QUEUE || tail < 0 || tail > LONGEST_LAG_NS || target < -works) return;
    call->wait = FS_REPLAY_FOR_ROOM;
    call->target = (uint32_t)(target >= 0 ? target : target + works);
    call->tail = tail;
    call->own = USUAL_LAG_NS;
}

/* Works ------------------------------------------------------------------------------------------------------------ */

/* Return the work with the latest end that had ended when another began, of SEARCHED before that and from `least` on:
 * of its lane, or of any. FS_NONE: there is none. */
static uint32_t ended_before(const linking *all, uint32_t index, uint32_t least, bool any)
{
    const fs_replay_work *work = &all->works[index];
    uint32_t found = FS_NONE;
    if (index - least > SEARCHED) least = index - SEARCHED;
    for (uint32_t i = index; i-- > least;) {
        const fs_replay_work *other = &all->works[i];
        if (other->ended > work->begin || (!any && other->lane != work->lane)) continue;
        if (found == FS_NONE || other->ended > all->works[found].ended) found = i;
    }
    return found;
}

/* Find before which works of its stream or graph a work cannot begin, and return when these ended. */
static int64_t link_before(const linking *all, const fs_replay_call *call, uint32_t index, fs_replay_work *work)
{
    int64_t free = all->ready[work->lane];
    bool first = index == call->first;
    uint32_t node = first ? FS_NONE : ended_before(all, index, call->first, true);
    if (node == FS_NONE && (free == FS_REPLAY_NEVER || free <= work->begin + (first ? OVERLAP_NS : 0))) return free;
    work->before = node != FS_NONE ? node : ended_before(all, index, 0, false); /* the stream has no order */
    return work->before != FS_NONE ? all->works[work->before].ended : FS_REPLAY_NEVER;
}

/* Find the work of another lane that a work waits for: what was launched last, if the call before made a stream wait,
 * or that right after whose end the work began, for which there is no other reason. */
static void link_other(const linking *all, const fs_replay_call *call, uint32_t index, int64_t known)
{
    fs_replay_work *work = &all->replay->works[index];
    const launched *by = &all->launched[call->sequence];
    if (by->ordered && by->last != FS_NONE) {
        uint32_t other = all->works[by->last].lane != work->lane ? by->last : by->last_other;
        if (other != FS_NONE && all->works[other].ended <= work->begin) work->other = other;
    }
    if (work->other != FS_NONE || work->begin - known <= CAUSE_NS) return;
    uint32_t other = ended_until(all, index, work->begin, false, work->lane);
    if (other != FS_NONE && work->begin - all->works[other].ended <= LONGEST_SIGNAL_NS) work->other = other;
}

/* Find what a work waits for. Of the delays since its call had sent it off, the stream was free and the other work had
 * ended, that which decided is the recorded one, and the others are the usual ones. */
static void link_work(linking *all, const fs_replay_call *call, uint32_t index, int64_t left)
{
    fs_replay_work *work = &all->replay->works[index];
    int64_t free = link_before(all, call, index, work), *decided = &work->launch_lag;
    int64_t is_free = free != FS_REPLAY_NEVER ? free + USUAL_QUEUE_NS : FS_REPLAY_NEVER,
            arrived = left + sooner(all->arrival, work->begin - left);
    link_other(all, call, index, fs_later(left + all->arrival, is_free));
    int64_t other = work->other != FS_NONE ? all->works[work->other].ended : FS_REPLAY_NEVER;
    int64_t signalled = other != FS_REPLAY_NEVER ? other + USUAL_QUEUE_NS : FS_REPLAY_NEVER;
    if (is_free >= arrived && is_free >= signalled) decided = &work->queue_lag;
    else if (signalled >= arrived) decided = &work->other_lag;
    int64_t lag = work->begin - (decided == &work->launch_lag ? left : decided == &work->queue_lag ? free : other);
    work->launch_lag = arrived - left;
    work->queue_lag = free != FS_REPLAY_NEVER ? sooner(USUAL_QUEUE_NS, work->begin - free) : USUAL_QUEUE_NS;
    work->other_lag = other != FS_REPLAY_NEVER ? sooner(USUAL_QUEUE_NS, work->begin - other) : 0;
    if (lag > LONGEST_LAG_NS && index == 0 && !all->waited) {
        all->replay->backlogs[work->lane] = work->begin; /* what kept its stream busy was launched before */
        return;
    }
    *decided = sooner(lag, LONGEST_LAG_NS);
}

static void link_works(linking *all, const fs_replay_call *call)
{
    int64_t left = call->kind == FS_REPLAY_COPY ? call->begin + call->own : call->ended;
    for (uint32_t i = call->first; i < call[1].first; i++) {
        link_work(all, call, i, left);
        note_work(all, call, i);
    }
}

/* Sequences -------------------------------------------------------------------------------------------------------- */

/* Find after which call of another sequence each goes on that had paused. Calls that only ask make none go on. */
static void link_pauses(fs_replay *replay, uint32_t *last)
{
    uint32_t sequences = replay->sequence_count < MOST_SEQUENCES ? replay->sequence_count : MOST_SEQUENCES;
    memset(last, 0xff, replay->sequence_count * sizeof *last); /* by sequence: its last call, or FS_NONE */
    for (uint32_t i = 0; i < replay->call_count; i++) {
        fs_replay_call *call = &replay->calls[i];
        int64_t latest = call->begin - call->gap / 2;
        for (uint32_t other = 0; call->gap >= PAUSE_NS && call->events == 0 && other < sequences; other++) {
            const fs_replay_call *one = last[other] != FS_NONE ? &replay->calls[last[other]] : NULL;
            if (one == NULL || other == call->sequence || one->ended > call->begin || one->ended <= latest) continue;
            call->after = last[other];
            latest = one->ended;
        }
        if (call->after != FS_NONE) call->gap = 0;
        if (call->after != FS_NONE) call->after_lag = call->begin - latest;
        if (call->kind != FS_REPLAY_OTHER && call->kind != FS_REPLAY_END) last[call->sequence] = i;
    }
}

/* The sequence with most launches is that of the program. */
static fs_status link_sequences(fs_replay *replay, fs_error *err)
{
    uint32_t *numbers; /* by sequence: launches */
    FS_TRY(FS_NEW_ZEROED(&numbers, replay->sequence_count, err));
    for (uint32_t i = 0; i < replay->call_count; i++) {
        uint32_t sequence = replay->calls[i].sequence;
        numbers[sequence] += replay->calls[i].first < replay->calls[i + 1].first;
        if (numbers[sequence] > numbers[replay->sequence]) replay->sequence = sequence;
    }
    if (replay->sequence_count > 1) link_pauses(replay, numbers);
    fs_free(numbers);
    return FS_OK;
}

static fs_status link_calls(linking *all, fs_error *err)
{
    begin_pass(all);
    FS_TRY(find_arrival(all, err));
    begin_pass(all);
    for (uint32_t i = 0; i < all->replay->call_count; i++) {
        FS_POLL(i, err);
        fs_replay_call *call = &all->replay->calls[i];
        link_wait(all, call);
        if (call->kind == FS_REPLAY_COPY && waits_for_copies(all, call)) link_copy(all, call);
        else if (call->kind == FS_REPLAY_COPY) call->kind = FS_REPLAY_LAUNCH;
        if (call->kind != FS_REPLAY_COPY && call->first < call[1].first) link_room(all, call);
        link_works(all, call);
        all->waited = all->waited || (call->wait != FS_REPLAY_FOR_NOTHING && call->wait != FS_REPLAY_FOR_ROOM);
        if (call->kind == FS_REPLAY_ORDER) all->launched[call->sequence].ordered = true;
    }
    return link_sequences(all->replay, err);
}

fs_status fs_replay_link(fs_replay_builder *of, fs_error *err)
{
    linking all = {.of = of, .replay = of->replay, .works = of->replay->works};
    fs_status status = FS_NEW(&all.ready, of->replay->lane_count, err);
    if (status == FS_OK) status = FS_NEW(&all.launched, of->replay->sequence_count, err);
    if (status == FS_OK) status = link_calls(&all, err);
    fs_free(all.ready);
    fs_free(all.launched);
    return status;
}
