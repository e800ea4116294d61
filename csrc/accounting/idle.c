/* Of an idle time, what the host did from `dry` on decides, until the launch has arrived; afterwards the device did not
 * wait for the host any more.
 *
 *   host     |wait|   |enumerate(DataLoader)|   |call|
 *   device   ▓▓▓▓|sync|host|      data      |host ···|other|▓▓▓▓
 *              dry                              returned + arrival */
#include "accounting/idle.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/search.h"
#include "store/event.h"
#include "summaries/launches.h"

/* Of an idle time after a wait, longer than the host takes to launch again; the rest is due to its other work. */
enum { LONGEST_AFTER_WAIT_NS = 500000 };

/* After a wait the host has no launches in the device's queue: it is late for the next ones too. This many idle times
 * are attributed to it. */
enum { LATE_AFTER_WAIT = 8 };

/* A stream that waits for recorded work begins within this time after it. */
enum { LONGEST_SIGNAL_NS = 100000 };

/* One idle time of a device. The causes from `dry` to `until` are, in this order, those of the host until `returned`,
 * then `afterwards`. A device that never worked before is dry at INT64_MIN. */
typedef struct {
    int64_t dry, until;
    int64_t returned;           /* the launch of the next work had arrived, or another cause began */
    fs_idle_cause meanwhile;    /* until then, where the host did nothing with a cause of its own: HOST, OTHER */
    int64_t blocked, unblocked; /* the call itself took unusually long; equal: it did not */
    const fs_table_work *next;  /* NULL: none */
    uint32_t wait;            /* the host's wait in progress at `dry`, or the op that launches and waits; or FS_NONE */
    fs_idle_cause blocking;   /* why: BLOCKED, FIRST_LAUNCH */
    fs_idle_cause afterwards; /* OTHER, STREAM_WAIT, EDGES */
    bool edge;                /* before the first work or after the last one of a profile without steps */
    bool late;                /* `returned` is after `dry` */
} idle_time;

/* Steps whose idle times are added, and the cursors of that. */
typedef struct {
    const fs_idle *idle;
    fs_sums *sums;
    fs_idle_spans *spans;      /* or NULL */
    uint32_t step, end;        /* the first step that is not yet over, the one after the last */
    uint32_t next, wait;       /* the first work and the first wait that begin later */
    uint32_t occupied;         /* the first of the host's occupied times that ends later */
    uint32_t last_wait, since; /* the last wait, and how many idle times ago it was */
} adding;

/* The part of an idle time that lies in one step, while its causes are found. */
typedef struct {
    adding *to;
    const idle_time *whole;
    int64_t at;                         /* its causes are known until here */
    int64_t after_wait;                 /* ns that are still due to the wait */
    uint32_t causes;                    /* bits 1 << cause: those with times */
    int64_t times[FS_IDLE_CAUSE_COUNT]; /* by cause; of others undefined */
} part;

static int64_t clipped(int64_t time, int64_t end)
{
    return time < end ? time : end;
}

/* The time until `end` has this cause. */
static fs_status attribute(part *of, fs_idle_cause cause, int64_t end, fs_error *err)
{
    if (end <= of->at) return FS_OK;
    int64_t time = fs_sub_saturated(end, of->at);
    if ((of->causes >> cause & 1) != 0) time = fs_add_saturated(of->times[cause], time);
    of->causes |= UINT32_C(1) << cause;
    of->times[cause] = time;
    if (of->to->spans != NULL) {
        const idle_time *whole = of->whole;
        fs_idle_span span = {.begin = of->at, .end = end, .cause = (uint8_t)cause, .wait = whole->wait};
        span.device = (int8_t)of->to->idle->device;
        span.event = whole->next != NULL ? whole->next->event : FS_NONE;
        fs_idle_spans *spans = of->to->spans;
        FS_TRY(FS_LIST_ADD(&spans->items, &spans->count, &spans->capacity, 64, err, span));
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
    const fs_intervals *occupied = &of->to->idle->host->occupied;
    for (uint32_t *at = &of->to->occupied; *at < occupied->count && of->at < end; ++*at) {
        const fs_interval *busy = &occupied->items[*at];
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

/* Find the causes of the part of an idle time in [begin, end), and add their times to the sums. `returned`: as that of
 * an idle time, in this step. */
static fs_status add_part(adding *to, uint32_t step, const idle_time *whole, int64_t returned, int64_t begin,
                          int64_t end, fs_error *err)
{
    const fs_idle *idle = to->idle;
    uint32_t row = whole->next == NULL           ? FS_NONE
                   : whole->next->row != FS_NONE ? whole->next->row
                                                 : whole->next->own_row;
    uint32_t event = whole->next != NULL ? whole->next->event : FS_NONE;
    part of; /* not its times, which would all be set to 0 for each idle time */
    of.to = to;
    of.whole = whole;
    of.at = begin;
    of.causes = 0;
    of.after_wait = whole->wait != FS_NONE ? LONGEST_AFTER_WAIT_NS : 0;
    if (whole->edge) FS_TRY(attribute_host(&of, FS_IDLE_EDGES, end, err));
    FS_TRY(attribute_host(&of, FS_IDLE_HOST, clipped(whole->blocked, end), err));
    FS_TRY(attribute_host(&of, whole->blocking, clipped(whole->unblocked, end), err));
    FS_TRY(attribute_host(&of, whole->meanwhile, clipped(returned, end), err));
    FS_TRY(attribute(&of, whole->afterwards, end, err));
    for (uint32_t left = of.causes; left != 0; left &= left - 1) {
        int cause = __builtin_ctz(left);
        bool waited = cause == FS_IDLE_SYNC, of_launch = cause != FS_IDLE_SYNC && cause != FS_IDLE_DATA;
        FS_TRY(fs_sums_gap(to->sums, idle->device, step, (fs_idle_cause)cause, of_launch ? row : FS_NONE,
                           waited ? fs_host_op_name(idle->host, whole->wait) : 0, waited ? whole->wait : FS_NONE, event,
                           of.times[cause], err));
    }
    return FS_OK;
}

/* Launches ----------------------------------------------------------------------------------------------------------
 */

/* Return the call that launched a work, or the host event that did, or FS_NONE. */
static uint32_t launch_of(const fs_idle *idle, uint32_t work)
{
    if (idle->calls[work] != FS_NONE) return idle->calls[work];
    uint32_t launcher = FS_EVENT_AT(idle->store, idle->table->works[work].event, launcher);
    return launcher < fs_store_count(idle->store) ? launcher : FS_NONE;
}

/* Return until when the host had not launched: until the call returned; where no call was recorded, at least until its
 * op began. FS_MISSING: unknown, also of an op of no thread, which only says what the work is: an instruction of HLO.
 */
static int64_t launched_at(const fs_idle *idle, uint32_t launch)
{
    uint32_t at;
    if (launch == FS_NONE) return FS_MISSING;
    const fs_chunk *chunk = fs_event_chunk(idle->store, launch, &at);
    bool nowhere = chunk->kind[at] == FS_EVENT_OP && chunk->lane[at] == FS_NONE;
    if (nowhere || chunk->start[at] == FS_MISSING) return FS_MISSING;
    return chunk->kind[at] == FS_EVENT_RUNTIME ? fs_event_end(chunk, at) : chunk->start[at];
}

/* What launched the work that ended an idle time. */
typedef struct {
    int64_t returned; /* until when the host had not launched it; FS_MISSING: unknown */
    uint32_t event;   /* the API call, or the op of the host; FS_NONE: unknown */
} idle_launch;

static idle_launch find_launch(const fs_idle *idle, uint32_t next)
{
    uint32_t event = launch_of(idle, idle->works->items[next].tag);
    return (idle_launch){launched_at(idle, event), event};
}

/* Whether the launch of any work is known; else the host may not be late for the device. */
static bool has_launches(const fs_idle *idle)
{
    return FS_ANY(work, idle->works->count, find_launch(idle, work).returned != FS_MISSING);
}

/* Return the first work that begins at a time or later. */
static uint32_t work_from(const fs_idle *idle, int64_t time)
{
    return FS_FIRST_NOT(i, 0, idle->works->count, idle->works->items[i].begin < time);
}

enum { MOST_DELAYS = 1 << 14 };

fs_status fs_idle_find_arrival(fs_idle *idle, fs_error *err)
{
    const fs_intervals *busy = idle->busy;
    const fs_intervals *works = idle->works;
    uint32_t count = 0, every = busy->count / MOST_DELAYS + 1; /* of more delays, a part has the median too */
    uint32_t next = 0;                                         /* the first work that does not begin earlier */
    if (idle->device < 0) return FS_OK;
    int64_t *delays = fs_malloc(MOST_DELAYS * sizeof *delays);
    if (delays == NULL) return fs_no_memory(err);
    for (uint32_t i = every; i < busy->count; i += every) {
        int64_t begin = busy->items[i].begin;
        uint32_t high = works->count - next > 4 * every ? next + 4 * every : works->count; /* most likely */
        if (high < works->count && works->items[high].begin < begin) high = works->count;
        next = FS_FIRST_NOT(j, next, high, works->items[j].begin < begin);
        int64_t returned = find_launch(idle, next).returned;
        if (returned > busy->items[i - 1].end) delays[count++] = fs_sub_saturated(begin, returned);
    }
    idle->arrival = fs_arrival_of(delays, count);
    fs_free(delays);
    return FS_OK;
}

/* A call blocked if it lasted for at least this time, and for this many times the median call. */
enum { BLOCKED_NS = 1000000, BLOCKED_MEDIANS = 20 };

static void find_block(const fs_idle *idle, idle_time *whole, idle_launch launch)
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
static void judge_launch(const fs_idle *idle, idle_time *whole, idle_launch launch)
{
    int64_t arrival = idle->arrival;
    if (launch.returned == FS_MISSING && launch.event != FS_NONE) {
        whole->meanwhile = FS_IDLE_OTHER;
        whole->returned = whole->until;
    }
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

/* Whether what held up a work that was launched in time was not recorded: it is the first one of its stream, no other
 * device has work, and no wait of the host has shown that what was launched before the recording had ended. */
static bool began_before_recording(const fs_idle *idle, const idle_time *whole, idle_launch launch, uint32_t next)
{
    const fs_intervals *waits = &idle->host->waits, *works = idle->works;
    uint32_t lane = FS_EVENT_AT(idle->store, whole->next->event, lane);
    if (fs_sub_saturated(whole->until, whole->returned) <= LONGEST_SIGNAL_NS) return false;
    if (launch.returned == FS_MISSING || lane == FS_NONE || works->count != idle->table->work_count) return false;
    for (uint32_t i = next; i-- > 0;) /* the one before it is seldom far */
        if (FS_EVENT_AT(idle->store, idle->table->works[works->items[i].tag].event, lane) == lane) return false;
    for (uint32_t i = 0; i < waits->count && waits->items[i].begin < whole->until; i++)
        if (waits->items[i].end <= whole->until) return false;
    for (uint32_t name = 0; name < fs_store_name_count(idle->store); name++) { /* streams that wait for the host */
        const char *text = fs_store_name_text(idle->store, name);
        if (strstr(text, "LaunchHostFunc") != NULL || strstr(text, "StreamWaitValue") != NULL) return false;
    }
    return true;
}

/* Idle times --------------------------------------------------------------------------------------------------------
 */

/* Return the wait in progress at a time, or FS_NONE: of those that have begun, the one that ends last. */
static uint32_t wait_at(adding *to, int64_t time)
{
    const fs_intervals *waits = &to->idle->host->waits;
    while (to->wait < waits->count && waits->items[to->wait].begin <= time) to->wait++;
    if (to->wait == 0) return FS_NONE;
    const fs_interval *longest = &waits->items[to->idle->host->longest[to->wait - 1]];
    return longest->end >= time ? longest->tag : FS_NONE;
}

/* Attribute an idle time to the wait before it, unless others have passed since. */
static void remember_wait(adding *to, idle_time *whole)
{
    if (whole->wait != FS_NONE) {
        to->last_wait = whole->wait;
        to->since = 0;
    } else if (whole->late && to->since < LATE_AFTER_WAIT) {
        whole->wait = to->last_wait;
        to->since++;
    } else {
        to->since = LATE_AFTER_WAIT;
    }
}

/* Return when the device became idle for the time before a busy interval, or after the last; and when it worked again.
 */
static int64_t dry_at(const fs_idle *idle, uint32_t i)
{
    return i > 0 ? idle->busy->items[i - 1].end : INT64_MIN;
}

static int64_t until_at(const fs_idle *idle, uint32_t i)
{
    return i < idle->busy->count ? idle->busy->items[i].begin : INT64_MAX;
}

/* Find out why the device idled before a busy interval, or after the last. */
static void judge(adding *to, uint32_t i, idle_time *whole)
{
    const fs_idle *idle = to->idle;
    int64_t dry = dry_at(idle, i), until = until_at(idle, i);
    *whole = (idle_time){.wait = FS_NONE, .afterwards = FS_IDLE_OTHER, .blocking = FS_IDLE_BLOCKED};
    whole->meanwhile = FS_IDLE_HOST;
    whole->dry = whole->returned = whole->blocked = whole->unblocked = dry;
    whole->until = until;
    whole->edge = !idle->steps->marked && (i == 0 || i == idle->busy->count);
    while (to->next < idle->works->count && idle->works->items[to->next].begin < until) to->next++;
    if (to->next < idle->works->count) whole->next = &idle->table->works[idle->works->items[to->next].tag];
    if (idle->device < 0) return;
    whole->wait = wait_at(to, dry);
    if (whole->next != NULL) {
        idle_launch launch = find_launch(idle, to->next);
        judge_launch(idle, whole, launch);
        if (began_before_recording(idle, whole, launch, to->next)) whole->afterwards = FS_IDLE_EDGES;
    } else if (!has_launches(idle)) {
        whole->meanwhile = FS_IDLE_OTHER;
    }
    remember_wait(to, whole);
}

/* Add an idle time of a device, or of the CPU: ops there are the work itself, and where none runs the program waits for
 * data or runs code of its own. */
static fs_status add_idle(adding *to, const idle_time *whole, fs_error *err)
{
    const fs_idle *idle = to->idle;
    const fs_intervals *busy = &idle->host->occupied;
    for (uint32_t step = to->step; step < to->end && idle->steps->steps[step].begin < whole->until; step++) {
        const fs_step *in = &idle->steps->steps[step];
        int64_t returned = whole->returned, begin = whole->dry > in->begin ? whole->dry : in->begin,
                end = clipped(whole->until, in->end);
        if (end <= begin) continue;
        if (whole->next == NULL) returned = in->host_end; /* the host worked on without a launch */
        if (idle->device < 0) returned = end;
        if (whole->edge) returned = begin;
        while (to->occupied < busy->count && busy->items[to->occupied].end <= begin) to->occupied++;
        FS_TRY(add_part(to, step, whole, returned, begin, end, err));
    }
    return FS_OK;
}

/* Whether an idle time, before some step, reaches into a step. */
static bool is_in_step(const fs_idle *idle, uint32_t before, uint32_t i)
{
    int64_t until = until_at(idle, i);
    uint32_t begun = FS_FIRST_NOT(step, 0, before, idle->steps->steps[step].begin < until);
    return begun > 0 && idle->steps->steps[begun - 1].end > dry_at(idle, i);
}

/* Learn which wait the idle times from `i` on may be due to. It is at most so many idle times ago. */
static void look_back(adding *to, uint32_t before, uint32_t i)
{
    uint32_t places[LATE_AFTER_WAIT + 1], count = 0;
    while (i > 0 && count <= LATE_AFTER_WAIT)
        if (is_in_step(to->idle, before, --i)) places[count++] = i;
    if (count == 0) return;
    to->next = work_from(to->idle, until_at(to->idle, places[count - 1]));
    idle_time whole;
    while (count > 0) judge(to, places[--count], &whole);
}

fs_status fs_idle_add(const fs_idle *idle, uint32_t first, uint32_t end, fs_sums *sums, fs_idle_spans *spans,
                      fs_error *err)
{
    const fs_step *steps = idle->steps->steps;
    adding to = {idle, sums, spans, .step = first, .end = end, .last_wait = FS_NONE, .since = LATE_AFTER_WAIT};
    if (first == end) return FS_OK;
    uint32_t i = FS_FIRST_NOT(j, 0, idle->busy->count, idle->busy->items[j].begin <= steps[first].begin);
    to.next = work_from(idle, until_at(idle, i));
    if (idle->device >= 0) look_back(&to, first, i);
    for (; i <= idle->busy->count; i++) { /* the idle time before busy interval i, or after the last */
        FS_POLL(i, err);
        while (to.step < end && steps[to.step].end <= dry_at(idle, i)) to.step++;
        if (to.step == end) break;
        if (steps[to.step].begin >= until_at(idle, i)) continue;
        idle_time whole;
        judge(&to, i, &whole);
        FS_TRY(add_idle(&to, &whole, err));
    }
    return FS_OK;
}
