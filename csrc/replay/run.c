/* The pass over the calls. A call and its works only refer to earlier ones, or to lanes as they are by then; with a
 * full queue, `target` may be a later work, whose start is then that of the round before. FS_REPLAY_NEVER stands for
 * what did not happen yet. Sums saturate, as a hostile trace may have any times. */
#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "replay/build.h"

/* Rounds end once one takes as long as that before it, to a part in ROUND_PART. */
enum { MOST_ROUNDS = 8, ROUND_PART = 1 << 12 };

/* A gap keeps this part whatever recording cost; of a call, at most LONGEST_COST_NS are that, and LEAST_CALL_NS stay.
 */
enum { LEAST_PERCENT = 15, LONGEST_COST_NS = 2000, LEAST_CALL_NS = 1000 };

/* A change may make it take decades. */
#define LONGEST_NS ((int64_t)1 << 61)

typedef struct {
    const fs_replay *replay;
    const fs_replay_edit *edit;
    int64_t *clocks, *last; /* by sequence: when its last call returned, and began */
    int64_t *ready;         /* by lane: the end of its work */
    int64_t *begins, *ends; /* of works */
    int64_t *returns;       /* of calls */
    int64_t all;            /* the end of all work */
} simulation;

/* The later of a time, and another with a delay that may never come. */
static int64_t not_before(int64_t time, int64_t other, int64_t lag)
{
    return other != FS_REPLAY_NEVER ? fs_later(time, fs_add_saturated(other, lag)) : time;
}

static int64_t scaled(int64_t time, double factor)
{
    double product = (double)time * factor;
    if (!(product > 0)) return 0;
    return product < (double)LONGEST_NS ? (int64_t)product : LONGEST_NS;
}

static int64_t gap_of(const simulation *run, uint32_t index, const fs_replay_call *call)
{
    const fs_replay_edit *edit = run->edit;
    int64_t gap = call->gap;
    if (gap <= 0) return gap;
    if (edit->event_ns > 0) gap = fs_later(gap - scaled(call->events, edit->event_ns), gap / 100 * LEAST_PERCENT);
    return edit->host_factor != NULL ? scaled(gap, edit->host_factor[index]) : gap;
}

static int64_t own_of(const simulation *run, uint32_t index, const fs_replay_call *call)
{
    const fs_replay_edit *edit = run->edit;
    int64_t own = call->own;
    if (edit->event_ns > 0 && own > LEAST_CALL_NS) {
        int64_t cost = edit->event_ns < LONGEST_COST_NS ? (int64_t)edit->event_ns : LONGEST_COST_NS;
        own = fs_later(own - cost, LEAST_CALL_NS);
    }
    return edit->host_factor != NULL ? scaled(own, edit->host_factor[index]) : own;
}

/* Run a work whose call began at a time and sent it off at another. Whoever waits for one that is gone waits for what
 * came before it. */
static void run_work(simulation *run, uint32_t index, int64_t began, int64_t left)
{
    const fs_replay_work *work = &run->replay->works[index];
    const fs_replay_edit *edit = run->edit;
    double factor = edit->host_alone ? 0 : edit->work_factor != NULL ? edit->work_factor[index] : 1;
    int64_t free = work->before == FS_REPLAY_LANE ? run->ready[work->lane]
                   : work->before != FS_NONE      ? run->ends[work->before]
                                                  : FS_REPLAY_NEVER;
    run->begins[index] = run->ends[index] = free;
    if (!(factor > 0)) return;
    int64_t begin = not_before(not_before(began, left, work->launch_lag), free, work->queue_lag);
    if (work->other != FS_NONE) begin = not_before(begin, run->ends[work->other], work->other_lag);
    int64_t end = fs_add_saturated(begin, factor == 1 ? work->duration : scaled(work->duration, factor));
    run->begins[index] = begin;
    run->ends[index] = end;
    run->ready[work->lane] = fs_later(run->ready[work->lane], end);
    run->all = fs_later(run->all, end);
}

static void run_works(simulation *run, const fs_replay_call *call, int64_t began, int64_t left)
{
    for (uint32_t i = call->first; i < call[1].first; i++) run_work(run, i, began, left);
}

/* Return when what a call waits for is over. */
static int64_t awaited(const simulation *run, const fs_replay_call *call)
{
    if (call->wait == FS_REPLAY_FOR_ALL) return run->all;
    if (call->wait == FS_REPLAY_FOR_LANE) return run->ready[call->target];
    if (call->wait == FS_REPLAY_FOR_END) return run->ends[call->target];
    return call->wait == FS_REPLAY_FOR_ROOM ? run->begins[call->target] : FS_REPLAY_NEVER;
}

static void run_call(simulation *run, uint32_t index)
{
    const fs_replay_call *call = &run->replay->calls[index];
    bool gone = run->edit->gone != NULL && run->edit->gone[index] != 0, copies = call->kind == FS_REPLAY_COPY;
    int64_t begin = fs_add_saturated(run->clocks[call->sequence], gap_of(run, index, call));
    if (call->after != FS_NONE) begin = not_before(begin, run->returns[call->after], call->after_lag);
    begin = run->last[call->sequence] = fs_later(begin, run->last[call->sequence]);
    int64_t returned = gone ? begin : fs_add_saturated(begin, own_of(run, index, call));
    if (copies) run_works(run, call, begin, returned);
    if (!gone) returned = not_before(returned, awaited(run, call), call->tail);
    if (!copies) run_works(run, call, begin, returned);
    run->returns[index] = run->clocks[call->sequence] = returned;
}

/* Simulate all calls once more; return when everything is over. */
static int64_t run_round(simulation *run)
{
    for (uint32_t i = 0; i < run->replay->call_count; i++) run_call(run, i);
    return fs_later(run->clocks[run->replay->sequence], run->all);
}

static fs_status begin_run(simulation *run, const fs_replay *replay, const fs_replay_edit *edit, fs_error *err)
{
    size_t works = replay->work_count;
    size_t count = 2 * (size_t)replay->sequence_count + replay->lane_count + 2 * works + replay->call_count + 1;
    *run = (simulation){.replay = replay, .edit = edit, .all = FS_REPLAY_NEVER};
    FS_TRY(FS_NEW(&run->clocks, count, err));
    run->last = run->clocks + replay->sequence_count;
    run->ready = run->last + replay->sequence_count;
    run->begins = run->ready + replay->lane_count;
    run->ends = run->begins + works;
    run->returns = run->ends + works;
    for (size_t i = 0; i < count; i++) run->clocks[i] = run->clocks + i < run->ready ? 0 : FS_REPLAY_NEVER;
    return FS_OK;
}

fs_status fs_replay_run(const fs_replay *replay, const fs_replay_edit *edit, double *ns, fs_error *err)
{
    simulation run;
    fs_status status = FS_OK;
    int64_t over = 0, took = 0, change = INT64_MAX;
    uint32_t rounds = replay->step_count > 1 && !edit->again ? MOST_ROUNDS : replay->step_count > 0;
    FS_TRY(begin_run(&run, replay, edit, err));
    for (uint32_t lane = 0; lane < replay->lane_count && edit->again; lane++) {
        if (replay->backlogs[lane] < 0) continue;
        run.ready[lane] = replay->backlogs[lane];
        over = run.all = fs_later(run.all, run.ready[lane]);
    }
    for (uint32_t round = 0; round < rounds && change > took / ROUND_PART; round++) {
        FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        int64_t now = run_round(&run), before = took;
        took = fs_sub_saturated(now, over);
        over = now;
        if (round > 1) change = took > before ? took - before : before - took;
    }
    *ns = rounds > 0 ? (double)took / replay->step_count : NAN;
done:
    fs_free(run.clocks);
    return status;
}

/* The highest cost of an event that is tried, and in how many trials it is found: to EXACT_NS, or to a part in
 * EXACT_PART of the time, unless other costs give exactly that time. 3 % are a part in CLOSE_PART. */
enum { MOST_EVENT_NS = 60000, TRIALS = 40, EXACT_PART = 1 << 17, CLOSE_PART = 33 };
#define EXACT_NS 0.1

/* The time falls as the cost rises, in proportion by parts: try where the line between the last ones above and below
 * gives it (Illinois), or the middle. */
static fs_status narrow(const fs_replay *replay, fs_replay_edit *edit, double bare, double most, double least,
                        double *cost, fs_error *err)
{
    double low = 0, high = MOST_EVENT_NS, over = most - bare, under = bare - least, ns;
    int side = 0;
    for (int i = 0; i < TRIALS && high - low > EXACT_NS; i++) {
        double at = low + (high - low) * over / (over + under);
        edit->event_ns = at > low && at < high && under > 0 ? at : (low + high) / 2;
        FS_TRY(fs_replay_run(replay, edit, &ns, err));
        if (ns != bare && fabs(ns - bare) < bare / EXACT_PART) low = high = edit->event_ns;
        else if (ns > bare) {
            low = edit->event_ns;
            over = ns - bare;
            if (side > 0) under /= 2;
            side = 1;
        } else {
            high = edit->event_ns;
            under = bare - ns;
            if (side < 0) over /= 2;
            side = -1;
        }
    }
    *cost = high;
    return FS_OK;
}

fs_status fs_replay_fit(fs_replay *replay, double bare, bool host_alone, double *event_ns, fs_error *err)
{
    fs_replay_edit edit = {.host_alone = host_alone};
    double close = bare / CLOSE_PART, cost = 0, least, most;
    *event_ns = NAN;
    FS_TRY(fs_replay_run(replay, &edit, &most, err));
    edit.event_ns = MOST_EVENT_NS;
    FS_TRY(fs_replay_run(replay, &edit, &least, err));
    if (!(bare > 0 && bare <= most + close && bare >= least - close)) return FS_OK;
    if (bare < least) bare = least;
    if (bare < most) FS_TRY(narrow(replay, &edit, bare, most, least, &cost, err));
    *event_ns = replay->event_ns = cost;
    return FS_OK;
}
