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
    if (edit->call_flags != NULL && (edit->call_flags[index] & FS_REPLAY_NO_GAP) != 0) return 0;
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
    bool moved = edit->stream != NULL && edit->stream[index] >= 0, in_order = moved || work->before == FS_REPLAY_LANE;
    uint32_t lane = moved ? run->replay->lane_count + (uint32_t)edit->stream[index] % FS_REPLAY_NEW_LANES : work->lane;
    int64_t free = in_order ? run->ready[lane] : work->before != FS_NONE ? run->ends[work->before] : FS_REPLAY_NEVER;
    run->begins[index] = run->ends[index] = free;
    if (!(factor > 0)) return;
    int64_t begin = not_before(not_before(began, left, work->launch_lag), free, work->queue_lag);
    if (!moved && work->other != FS_NONE) begin = not_before(begin, run->ends[work->other], work->other_lag);
    int64_t end = fs_add_saturated(begin, factor == 1 ? work->duration : scaled(work->duration, factor));
    run->begins[index] = begin;
    run->ends[index] = end;
    run->ready[lane] = fs_later(run->ready[lane], end);
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
    uint8_t flags = run->edit->call_flags != NULL ? run->edit->call_flags[index] : 0;
    bool gone = (flags & FS_REPLAY_GONE) != 0, copies = call->kind == FS_REPLAY_COPY;
    int64_t begin = fs_add_saturated(run->clocks[call->sequence], gap_of(run, index, call));
    if (call->after != FS_NONE) begin = not_before(begin, run->returns[call->after], call->after_lag);
    begin = run->last[call->sequence] = fs_later(begin, run->last[call->sequence]);
    int64_t returned = gone ? begin : fs_add_saturated(begin, own_of(run, index, call));
    if (copies) run_works(run, call, begin, returned);
    if (!gone && (flags & FS_REPLAY_NO_WAIT) == 0) returned = not_before(returned, awaited(run, call), call->tail);
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
    size_t lanes = replay->lane_count + (size_t)FS_REPLAY_NEW_LANES, works = replay->work_count;
    size_t count = 2 * (size_t)replay->sequence_count + lanes + 2 * works + replay->call_count + 1;
    *run = (simulation){.replay = replay, .edit = edit, .all = FS_REPLAY_NEVER};
    FS_TRY(FS_NEW(&run->clocks, count, err));
    run->last = run->clocks + replay->sequence_count;
    run->ready = run->last + replay->sequence_count;
    run->begins = run->ready + lanes;
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

/* The highest cost of an event that is tried, and in how many halvings it is found; 3 % are a part in CLOSE_PART. */
enum { MOST_EVENT_NS = 60000, HALVINGS = 20, CLOSE_PART = 33 };

fs_status fs_replay_fit(fs_replay *replay, double bare, bool host_alone, double *event_ns, fs_error *err)
{
    fs_replay_edit edit = {.host_alone = host_alone};
    double low = 0, high = MOST_EVENT_NS, close = bare / CLOSE_PART, least, most, ns;
    *event_ns = NAN;
    FS_TRY(fs_replay_run(replay, &edit, &most, err));
    edit.event_ns = high;
    FS_TRY(fs_replay_run(replay, &edit, &least, err));
    if (!(bare > 0 && bare <= most + close && bare >= least - close)) return FS_OK;
    if (bare < least) bare = least;
    for (int i = 0; i < HALVINGS && bare < most; i++) {
        edit.event_ns = (low + high) / 2;
        FS_TRY(fs_replay_run(replay, &edit, &ns, err));
        if (ns > bare) low = edit.event_ns;
        else high = edit.event_ns;
    }
    *event_ns = replay->event_ns = bare < most ? high : 0;
    return FS_OK;
}
