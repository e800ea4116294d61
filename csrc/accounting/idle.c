/* Of an idle time, what the host did from `dry` on decides, until the launch has arrived; afterwards the device did not
 * wait for the host any more.
 *
 *   host     |wait|   |enumerate(DataLoader)|   |call|
 *   device   ▓▓▓▓|sync|host|      data      |host ···|other|▓▓▓▓
 *              dry                              returned + arrival */
#include "accounting/idle.h"

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"
#include "summaries/arrival.h"

/* Of an idle time after a wait, longer than the host takes to launch again; the rest is due to its other work. */
enum { LONGEST_AFTER_WAIT_NS = 500000 };

/* After a wait the host has no launches in the device's queue: it is late for the next ones too. This many idle times
 * are attributed to it. */
enum { LATE_AFTER_WAIT = 8 };

/* One idle time of a device. The causes from `dry` to `until` are, in this order, those of the host until `returned`,
 * then `afterwards`. A device that never worked before is dry at INT64_MIN. */
typedef struct {
    int64_t dry, until;
    int64_t returned;           /* the launch of the next work had arrived, or another cause began */
    int64_t blocked, unblocked; /* the call itself took unusually long; equal: it did not */
    const fs_table_work *next;  /* NULL: none */
    uint32_t wait;            /* the host's wait in progress at `dry`, or the op that launches and waits; or FS_NONE */
    fs_idle_cause blocking;   /* why: BLOCKED, FIRST_LAUNCH */
    fs_idle_cause afterwards; /* OTHER, STREAM_WAIT */
    bool edge;                /* before the first work or after the last one of a profile without steps */
    bool late;                /* `returned` is after `dry` */
} idle_time;

/* The part of an idle time that lies in one step, while its causes are found. */
typedef struct {
    fs_idle *idle;
    const idle_time *whole;
    int device;
    int64_t at;                         /* its causes are known until here */
    int64_t after_wait;                 /* ns that are still due to the wait */
    int64_t times[FS_IDLE_CAUSE_COUNT]; /* by cause */
    uint32_t occupied;                  /* the first entry of the host's occupied times that ends after `at` */
} part;

static fs_status list_span(fs_idle *idle, fs_idle_span span, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&idle->spans, idle->span_count, &idle->span_capacity, 64, "idle times", err));
    idle->spans[idle->span_count++] = span;
    return FS_OK;
}

static int64_t clipped(int64_t time, int64_t end)
{
    return time < end ? time : end;
}

/* The time until `end` has this cause. */
static fs_status attribute(part *of, fs_idle_cause cause, int64_t end, fs_error *err)
{
    if (end <= of->at) return FS_OK;
    fs_add_to(&of->times[cause], fs_sub_saturated(end, of->at));
    if (of->idle->lists) {
        const idle_time *whole = of->whole;
        fs_idle_span span = {.begin = of->at, .end = end, .device = (int8_t)of->device, .cause = (uint8_t)cause};
        span.event = whole->next != NULL ? whole->next->event : FS_NONE;
        span.wait = whole->wait;
        FS_TRY(list_span(of->idle, span, err));
    }
    of->at = end;
    return FS_OK;
}

/* The time until `end`, in which the host did nothing else, is due to its wait, or has this cause. */
static fs_status attribute_free(part *of, fs_idle_cause cause, int64_t end, fs_error *err)
{
    if (end <= of->at) return FS_OK;
    if (cause == FS_IDLE_HOST && of->after_wait > 0) {
        int64_t time = fs_sub_saturated(end, of->at), waited = time < of->after_wait ? time : of->after_wait;
        of->after_wait -= waited;
        FS_TRY(attribute(of, FS_IDLE_SYNC, of->at + waited, err));
    }
    return attribute(of, cause, end, err);
}

/* The time until `end` has the causes of what the host did, and `cause` where it did nothing of these. At the edges of
 * a profile only the profiler's own work counts. */
static fs_status attribute_host(part *of, fs_idle_cause cause, int64_t end, fs_error *err)
{
    const fs_intervals *occupied = &of->idle->host->occupied;
    for (; of->occupied < occupied->count && of->at < end; of->occupied++) {
        const fs_interval *busy = &occupied->items[of->occupied];
        if (busy->begin >= end) break;
        if (busy->end <= of->at) continue;
        if (cause != FS_IDLE_EDGES || busy->tag == FS_IDLE_RECORDING) {
            FS_TRY(attribute_free(of, cause, busy->begin, err));
            FS_TRY(attribute(of, (fs_idle_cause)busy->tag, clipped(busy->end, end), err));
        }
        if (busy->end > end) break; /* it lasts into the next idle time */
    }
    return attribute_free(of, cause, end, err);
}

/* Find the causes of the part of an idle time in [begin, end), and add their times to the sums. */
static fs_status add_part(fs_idle *idle, fs_sums *sums, int device, uint32_t step, const idle_time *whole,
                          int64_t begin, int64_t end, uint32_t *occupied, fs_error *err)
{
    uint32_t row = whole->next == NULL           ? FS_NONE
                   : whole->next->row != FS_NONE ? whole->next->row
                                                 : whole->next->own_row;
    uint32_t event = whole->next != NULL ? whole->next->event : FS_NONE;
    part of = {.idle = idle, .whole = whole, .device = device, .at = begin, .occupied = *occupied};
    if (whole->wait != FS_NONE) of.after_wait = LONGEST_AFTER_WAIT_NS;
    if (whole->edge) FS_TRY(attribute_host(&of, FS_IDLE_EDGES, end, err));
    FS_TRY(attribute_host(&of, FS_IDLE_HOST, clipped(whole->blocked, end), err));
    FS_TRY(attribute_host(&of, whole->blocking, clipped(whole->unblocked, end), err));
    FS_TRY(attribute_host(&of, FS_IDLE_HOST, clipped(whole->returned, end), err));
    FS_TRY(attribute(&of, whole->afterwards, end, err));
    *occupied = of.occupied;
    for (int cause = 0; cause < FS_IDLE_CAUSE_COUNT; cause++) {
        if (of.times[cause] == 0) continue;
        bool waited = cause == FS_IDLE_SYNC, of_launch = cause != FS_IDLE_SYNC && cause != FS_IDLE_DATA;
        FS_TRY(fs_sums_gap(sums, device, step, (fs_idle_cause)cause, of_launch ? row : FS_NONE,
                           waited ? fs_host_op_name(idle->host, whole->wait) : 0, waited ? whole->wait : FS_NONE, event,
                           of.times[cause], err));
    }
    return FS_OK;
}

/* Launches ----------------------------------------------------------------------------------------------------------
 */

/* Return the call that launched a work, or the host event that did, or FS_NONE. */
static uint32_t launch_of(const fs_idle *idle, const fs_table_work *work)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(idle->store, work->event, &at);
    uint32_t call = fs_api_calls_find(idle->calls, chunk->correlation[at]);
    return call != FS_NONE ? call : chunk->launcher[at] < fs_store_count(idle->store) ? chunk->launcher[at] : FS_NONE;
}

/* Return until when the host had not launched: until the call returned; where no call was recorded, at least until its
 * op began. FS_MISSING: unknown. */
static int64_t launched_at(const fs_idle *idle, uint32_t launch)
{
    uint32_t at;
    if (launch == FS_NONE) return FS_MISSING;
    const fs_chunk *chunk = fs_event_chunk(idle->store, launch, &at);
    if (chunk->start[at] == FS_MISSING) return FS_MISSING;
    return chunk->kind[at] == FS_EVENT_RUNTIME ? fs_event_end(chunk, at) : chunk->start[at];
}

enum { MOST_DELAYS = 1 << 14 };

/* Note the launches of the works that end idle times, and return how long those that came late took to arrive: the
 * median, in ns. */
static fs_status find_launches(fs_idle *idle, const fs_intervals *works, const fs_intervals *busy, int64_t *arrival,
                               fs_error *err)
{
    fs_status status = FS_OK;
    uint32_t next = 0, count = 0, every = busy->count / MOST_DELAYS + 1; /* of more delays, a part has the median too */
    int64_t *delays = fs_malloc(MOST_DELAYS * sizeof *delays);
    if (busy->count > idle->launch_capacity) {
        fs_free(idle->launches);
        idle->launches = fs_malloc(busy->count * sizeof *idle->launches);
        idle->launch_capacity = idle->launches != NULL ? busy->count : 0;
    }
    if (delays == NULL || (busy->count > 0 && idle->launches == NULL)) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the launches after %u idle times", busy->count);
        goto done;
    }
    for (uint32_t i = 0; i < busy->count; i++) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        int64_t begin = busy->items[i].begin;
        while (next < works->count && works->items[next].begin < begin) next++;
        uint32_t launch = launch_of(idle, &idle->table->works[works->items[next].tag]);
        int64_t returned = launched_at(idle, launch);
        idle->launches[i] = (fs_idle_launch){returned, launch};
        if (i > 0 && i % every == 0 && returned > busy->items[i - 1].end)
            delays[count++] = fs_sub_saturated(begin, returned);
    }
    *arrival = fs_arrival_of(delays, count);
done:
    fs_free(delays);
    return status;
}

/* A call blocked if it lasted for at least this time, and for this many times the median call. */
enum { BLOCKED_NS = 1000000, BLOCKED_MEDIANS = 20 };

static void find_block(const fs_idle *idle, idle_time *whole, fs_idle_launch launch)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(idle->store, launch.event, &at);
    int64_t duration = chunk->duration[at];
    if (chunk->kind[at] != FS_EVENT_RUNTIME) return;
    if (duration < BLOCKED_NS || (double)duration <= BLOCKED_MEDIANS * idle->host->launch_median) return;
    whole->blocked = chunk->start[at];
    whole->unblocked = launch.returned;
    uint32_t name = FS_EVENT_AT(idle->store, whole->next->event, name);
    if (name != FS_NONE && idle->host->first_works[name] == whole->next->event) whole->blocking = FS_IDLE_FIRST_LAUNCH;
}

/* Find out until when the host held up the next work, and whether an op launched it that waits for it too. */
static void judge_launch(const fs_idle *idle, idle_time *whole, fs_idle_launch launch, int64_t arrival)
{
    if (launch.returned == FS_MISSING) return;
    uint8_t marks = idle->host->marks[launch.event];
    whole->late = launch.returned > whole->dry;
    if ((marks & FS_MARK_AFTER_EVENT) != 0) whole->afterwards = FS_IDLE_STREAM_WAIT;
    if (!whole->late) return;
    whole->returned = launch.returned <= INT64_MAX - arrival ? launch.returned + arrival : INT64_MAX;
    find_block(idle, whole, launch);
    uint32_t op = idle->host->ops[launch.event];
    if (whole->wait == FS_NONE && op != FS_NONE && (idle->host->marks[op] & FS_MARK_AROUND_WAIT) != 0) whole->wait = op;
}

/* Idle times --------------------------------------------------------------------------------------------------------
 */

/* Return the wait in progress at a time, or FS_NONE. `at` is a cursor for ascending times, `longest` the wait before it
 * that ends last. */
static uint32_t wait_at(const fs_host *host, uint32_t *at, uint32_t *longest, int64_t time)
{
    const fs_interval *items = host->waits.items;
    for (; *at < host->waits.count && items[*at].begin <= time; (*at)++) {
        if (*longest == FS_NONE || items[*at].end >= items[*longest].end) *longest = *at;
    }
    return *longest != FS_NONE && items[*longest].end >= time ? items[*longest].tag : FS_NONE;
}

/* Attribute an idle time to the wait before it, unless others have passed since. */
static void remember_wait(idle_time *whole, uint32_t *last, uint32_t *since)
{
    if (whole->wait != FS_NONE) {
        *last = whole->wait;
        *since = 0;
    } else if (whole->late && *since < LATE_AFTER_WAIT) {
        whole->wait = *last;
        ++*since;
    } else {
        *since = LATE_AFTER_WAIT;
    }
}

/* Add an idle time of a device, or of the CPU: ops there are the work itself, and where none runs the program waits for
 * data or runs code of its own. `step` is the first that it reaches into. */
static fs_status add_idle(fs_idle *idle, fs_sums *sums, int device, uint32_t step, const idle_time *whole,
                          uint32_t *occupied, fs_error *err)
{
    const fs_intervals *busy = &idle->host->occupied;
    for (; step < idle->steps->count && idle->steps->steps[step].begin < whole->until; step++) {
        const fs_step *in = &idle->steps->steps[step];
        idle_time within = *whole;
        int64_t begin = whole->dry > in->begin ? whole->dry : in->begin, end = clipped(whole->until, in->end);
        if (end <= begin) continue;
        if (whole->next == NULL) within.returned = in->host_end; /* the host worked on without a launch */
        if (device < 0) within.returned = end;
        if (within.edge) within.returned = begin;
        while (*occupied < busy->count && busy->items[*occupied].end <= begin) ++*occupied;
        FS_TRY(add_part(idle, sums, device, step, &within, begin, end, occupied, err));
    }
    return FS_OK;
}

fs_status fs_idle_add(fs_idle *idle, fs_sums *sums, int device, const fs_intervals *works, const fs_intervals *busy,
                      fs_error *err)
{
    const fs_steps *steps = idle->steps;
    bool has_steps = steps->count > 0 && steps->steps[0].name != FS_NONE;
    uint32_t step = 0, next = 0, wait_cursor = 0, longest = FS_NONE, occupied = 0;
    uint32_t last_wait = FS_NONE, since = LATE_AFTER_WAIT;
    int64_t arrival = 0;
    if (device >= 0) FS_TRY(find_launches(idle, works, busy, &arrival, err));
    for (uint32_t i = 0; i <= busy->count; i++) { /* the idle time before busy interval i, or after the last */
        FS_POLL(i, err);
        idle_time whole = {.wait = FS_NONE, .afterwards = FS_IDLE_OTHER, .blocking = FS_IDLE_BLOCKED};
        whole.dry = i > 0 ? busy->items[i - 1].end : INT64_MIN;
        whole.until = i < busy->count ? busy->items[i].begin : INT64_MAX;
        whole.edge = !has_steps && (i == 0 || i == busy->count);
        whole.returned = whole.blocked = whole.unblocked = whole.dry;
        while (step < steps->count && steps->steps[step].end <= whole.dry) step++;
        if (step == steps->count) break;
        if (steps->steps[step].begin >= whole.until) continue;
        while (next < works->count && works->items[next].begin < whole.until) next++;
        if (next < works->count) whole.next = &idle->table->works[works->items[next].tag];
        if (device >= 0) {
            whole.wait = wait_at(idle->host, &wait_cursor, &longest, whole.dry);
            if (whole.next != NULL) judge_launch(idle, &whole, idle->launches[i], arrival);
            remember_wait(&whole, &last_wait, &since);
        }
        FS_TRY(add_idle(idle, sums, device, step, &whole, &occupied, err));
    }
    return FS_OK;
}

void fs_idle_take_spans(fs_idle *idle, fs_accounting *accounting)
{
    accounting->spans = idle->spans;
    accounting->span_count = idle->span_count;
    idle->spans = NULL;
    idle->span_count = idle->span_capacity = 0;
}

void fs_idle_clear(fs_idle *idle)
{
    fs_free(idle->launches);
    fs_free(idle->spans);
}
