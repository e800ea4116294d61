/* Times are summed by stack first: a program has few, of which each line is then visited once. A line that calls itself
 * counts once, with what its innermost call was in. The runs are sorted by process, thread and begin. Runs of one
 * thread are disjoint, so the times of lines add up to the sampled time of their threads, and a binary search finds the
 * first run that an idle time meets. An idle time goes to the lines of the thread that launched the work which ended
 * it: another thread did not keep the device waiting. */
#include "accounting/lines.h"

#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "store/event.h"

#define GROUP_NAME(NAME, name, prose) #name,
const char *const fs_line_group_names[FS_LINE_GROUP_COUNT] = {FS_LINE_GROUP_LIST(GROUP_NAME)};

/* The key of a line. */
typedef struct {
    uint32_t group, line, inside;
} line_key;

/* What a group did in one stack. */
typedef struct {
    uint32_t group, stack;
    int64_t time, cpu; /* ns */
    uint32_t row;      /* of the innermost line of the program */
} stack_sum;

typedef struct {
    fs_lines *lines;
    const fs_stacks *stacks;
    fs_intern keys; /* line_key; ids as in lines */
    uint32_t capacity;
    fs_intern alike; /* group and stack of runs; ids as in sums */
    stack_sum *sums;
    uint32_t sum_count, sum_capacity;
    uint32_t *met;      /* by name: 1 + the last of the sums whose stack has it */
    fs_stack_run *runs; /* by process, thread and begin */
    uint32_t count;     /* of runs */
    uint32_t *sum_of;   /* by run */
    int64_t process;    /* whose child processes the others are */
} builder;

FS_ORDER_BY(compare_runs, fs_stack_run, process, thread, begin)

static int64_t first_process(const fs_stacks *stacks)
{
    const fs_stack_run *first = stacks->runs;
    for (uint32_t i = 1; i < stacks->count; i++)
        if (stacks->runs[i].begin < first->begin) first = &stacks->runs[i];
    return first->process;
}

static fs_line_group group_of(const builder *to, const fs_stack_run *run)
{
    if (run->process != to->process) return FS_LINES_PROCESSES;
    return run->thread == (uint64_t)run->process ? FS_LINES_MAIN : FS_LINES_THREADS;
}

/* Return the name of where the line was: the innermost one, or, of an import, what Python imports with. */
static uint32_t inside_of(const fs_stacks *stacks, uint32_t line, uint32_t stack)
{
    static const char importing[] = "<frozen importlib";
    uint32_t called = stack;
    for (uint32_t at = stack; at != line && at != FS_NONE; at = fs_stacks_get(stacks, at).parent) called = at;
    uint32_t name = fs_stacks_get(stacks, called).name;
    bool imports = strncmp(fs_stacks_text(stacks, name), importing, sizeof importing - 1) == 0;
    return imports ? name : fs_stacks_get(stacks, stack).name;
}

static fs_status find_line(builder *to, const line_key *key, uint32_t *id, fs_error *err)
{
    fs_lines *lines = to->lines;
    FS_TRY(FS_LIST_ROOM(&lines->lines, lines->count, &to->capacity, 64, err));
    FS_TRY(fs_intern_bytes(&to->keys, key, sizeof *key, id, err));
    if (*id == lines->count) lines->lines[lines->count++] = (fs_line){.group = key->group, key->line, key->inside};
    return FS_OK;
}

/* Add the times of a stack to its lines of the program. */
static fs_status add_stack(builder *to, uint32_t id, fs_error *err)
{
    stack_sum *sum = &to->sums[id];
    uint32_t line = fs_stacks_line(to->stacks, sum->stack), row;
    line_key key = {sum->group, fs_stacks_get(to->stacks, line).name, inside_of(to->stacks, line, sum->stack)};
    FS_TRY(find_line(to, &key, &sum->row, err));
    to->lines->lines[sum->row].own += sum->time;
    to->lines->lines[sum->row].own_cpu += sum->cpu;
    for (uint32_t at = line; at != FS_NONE;) {
        const fs_stack frame = fs_stacks_get(to->stacks, at);
        at = frame.parent;
        if ((!frame.program && key.line != frame.name) || to->met[frame.name] == id + 1) continue;
        to->met[frame.name] = id + 1;
        if (frame.name != key.line) key = (line_key){sum->group, frame.name, key.line};
        FS_TRY(find_line(to, &key, &row, err));
        to->lines->lines[row].time += sum->time;
        to->lines->lines[row].cpu += sum->cpu;
    }
    return FS_OK;
}

static void add_to_group(fs_line_sums *sums, const fs_stack_run *run, const fs_stack_run *before)
{
    bool same_process = before != NULL && before->process == run->process;
    sums->processes += !same_process;
    sums->threads += !same_process || before->thread != run->thread;
    sums->time += run->end - run->begin;
    sums->cpu += run->cpu == FS_MISSING ? 0 : run->cpu;
    if (sums->end == 0 || run->begin < sums->begin) sums->begin = run->begin;
    if (sums->end == 0 || run->end > sums->end) sums->end = run->end;
}

static fs_status add_runs(builder *to, fs_error *err)
{
    for (uint32_t i = 0; i < to->count; i++) {
        const fs_stack_run *run = &to->runs[i];
        const uint32_t key[2] = {group_of(to, run), run->stack};
        FS_TRY(FS_LIST_ROOM(&to->sums, to->sum_count, &to->sum_capacity, 64, err));
        FS_TRY(fs_intern_bytes(&to->alike, key, sizeof key, &to->sum_of[i], err));
        stack_sum *sum = &to->sums[to->sum_of[i]];
        if (to->sum_of[i] == to->sum_count) to->sums[to->sum_count++] = (stack_sum){.group = key[0], .stack = key[1]};
        sum->time += run->end - run->begin;
        sum->cpu += run->cpu == FS_MISSING ? 0 : run->cpu;
        add_to_group(&to->lines->groups[key[0]], run, i > 0 ? run - 1 : NULL);
    }
    for (uint32_t i = 0; i < to->sum_count; i++) FS_TRY(add_stack(to, i, err));
    return FS_OK;
}

/* Idle times ----------------------------------------------------------------------------------------------------- */

/* Return the thread that launched the work that ended an idle time, 0 if unknown. */
static uint64_t launching_thread(const fs_store *store, const fs_api_calls *calls, uint32_t event)
{
    uint32_t at;
    if (event == FS_NONE) return 0;
    const fs_chunk *chunk = fs_event_chunk(store, event, &at);
    if (fs_event_kind_on_device[chunk->kind[at]]) {
        uint32_t call = fs_api_calls_find(calls, chunk->correlation[at]);
        if (call == FS_NONE) call = chunk->launcher[at];
        if (call == FS_NONE) return 0;
        chunk = fs_event_chunk(store, call, &at);
    }
    if (chunk->lane[at] == FS_NONE) return 0;
    fs_lane lane = fs_store_lane(store, chunk->lane[at]);
    return lane.on_device ? 0 : lane.id;
}

/* Return whether a run ends at a time or before, or is of an earlier thread. */
static bool ends_before(const builder *to, const fs_stack_run *run, uint64_t thread, int64_t time)
{
    if (run->process != to->process) return run->process < to->process;
    return run->thread != thread ? run->thread < thread : run->end <= time;
}

/* Return the index of the first run of a thread that ends after a time. */
static uint32_t first_run(const builder *to, uint64_t thread, int64_t time)
{
    return FS_FIRST_NOT(i, 0, to->count, ends_before(to, &to->runs[i], thread, time));
}

static void add_idle(const builder *to, uint64_t thread, const fs_idle_span *span)
{
    for (uint32_t i = first_run(to, thread, span->begin); i < to->count; i++) {
        const fs_stack_run *run = &to->runs[i];
        if (run->process != to->process || run->thread != thread || run->begin >= span->end) return;
        int64_t begin = run->begin > span->begin ? run->begin : span->begin;
        int64_t end = run->end < span->end ? run->end : span->end;
        if (end > begin) to->lines->lines[to->sums[to->sum_of[i]].row].idle[span->cause] += end - begin;
    }
}

static fs_status add_spans(const builder *to, const fs_store *store, const fs_accounting *accounting,
                           uint32_t first_step, int64_t least, fs_error *err)
{
    fs_api_calls calls;
    if (accounting == NULL || first_step >= accounting->steps.count) return FS_OK;
    FS_TRY(fs_api_calls_create(&calls, store, err));
    int64_t from = accounting->steps.steps[first_step].begin;
    for (uint32_t i = 0; i < accounting->span_count; i++) {
        const fs_idle_span *span = &accounting->spans[i];
        if (span->begin < from || span->end - span->begin <= least) continue;
        add_idle(to, launching_thread(store, &calls, span->event), span);
    }
    fs_api_calls_clear(&calls);
    return FS_OK;
}

/* Building ------------------------------------------------------------------------------------------------------- */

/* Take the parts of the runs that lie in [begin, end). */
static void take_runs(builder *to, int64_t begin, int64_t end)
{
    for (uint32_t i = 0; i < to->stacks->count; i++) {
        fs_stack_run run = to->stacks->runs[i];
        if (run.begin < begin || run.end > end) run.cpu = FS_MISSING; /* of a part it is unknown */
        if (run.begin < begin) run.begin = begin;
        if (run.end > end) run.end = end;
        if (run.end >= run.begin) to->runs[to->count++] = run;
    }
}

static fs_status build(builder *to, const fs_store *store, const fs_accounting *accounting, uint32_t first_step,
                       int64_t least, int64_t begin, int64_t end, fs_error *err)
{
    uint32_t count = to->stacks->count;
    FS_TRY(FS_NEW(&to->runs, count, err));
    FS_TRY(FS_NEW(&to->sum_of, count, err));
    FS_TRY(FS_NEW_ZEROED(&to->met, to->stacks->names.count, err));
    take_runs(to, begin, end);
    FS_TRY(fs_sort(to->runs, to->count, sizeof *to->runs, compare_runs, err));
    FS_TRY(add_runs(to, err));
    return add_spans(to, store, accounting, first_step, least, err);
}

fs_status fs_lines_build(fs_lines *lines, const fs_store *store, const fs_accounting *accounting, uint32_t first_step,
                         int64_t least, int64_t begin, int64_t end, fs_error *err)
{
    *lines = (fs_lines){0};
    const fs_stacks *stacks = fs_store_stacks(store);
    if (stacks->count == 0) return FS_OK;
    builder to = {.lines = lines, .stacks = stacks, .process = first_process(stacks)};
    fs_status status = build(&to, store, accounting, first_step, least, begin, end, err);
    if (status != FS_OK) fs_lines_clear(lines);
    fs_intern_clear(&to.keys);
    fs_intern_clear(&to.alike);
    fs_free(to.sums);
    fs_free(to.met);
    fs_free(to.runs);
    fs_free(to.sum_of);
    return status;
}

void fs_lines_clear(fs_lines *lines)
{
    fs_free(lines->lines);
    *lines = (fs_lines){0};
}
