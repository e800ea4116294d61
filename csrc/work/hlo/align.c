/* The search for the path of least cost. Costs are in quarters. What is left out costs as much as kernels that have
 * names are sure to run: a slot of which no work of the recording bears the name may have been compiled to a copy, and
 * costs little. Jumps have a limit, so that a path is found again after works that were not recorded.
 *
 *   paths     the best ones that end with the last work, at most MOST_PATHS; one of them leaves out nothing, usually
 *   steps     what they are made of, each with the one before; taken over into the ties as soon as one path is left */
#include "work/hlo/align.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"

enum {
    EXTRA = FS_TIE_EXTRA, /* a further work of a call of a library */
    UNTIED_NAMED = 20,
    UNTIED_LIBRARY = 12,
    UNTIED_COPY = 4,
    UNTIED_FILL = 2,
    UNTIED_TRANSFER = 2,
    OTHER_FAMILY = 2, /* a kernel for convolutions in a call for products, a fill in a collective */
    ELSEWHERE = 4,    /* a kernel of a library in the place of a kernel with a name */
    OTHER_SIZE = 12,  /* a copy of other bytes */
    RESUMED = 4,      /* an execution that another one interrupted */
    BEYOND = 8,       /* an iteration more than a loop has */
    MOST_FORWARD = 40,
    MOST_END = 24,
    WORSE = 48, /* paths that cost so much more than the best are dropped */
    MOST_PATHS = 12,
    MOST_FOUND = 256,
    MOST_FIRST = 64, /* places at which the first work is tried */
    MOST_LOOPS = 8,
    MOST_STARTS = 16,
    MOST_BEGUN = 32, /* modules that a name is tried to begin */
    FEW_STEPS = 4096,
};

typedef struct {
    uint32_t back; /* step + 1; 0: none */
    uint32_t work;
    uint32_t slot; /* FS_NONE: the work is not tied */
    uint32_t cost;
    bool begins, begins_module, repeats;
} step;

typedef struct {
    uint32_t slot;      /* of its last work that is tied, or FS_NONE */
    uint32_t suspended; /* where it left an execution of another module, or FS_NONE */
    uint32_t skipped;   /* a copy right before its slot, which it left out, or FS_NONE */
    uint32_t cost;
    uint32_t back;  /* step + 1 */
    uint32_t round; /* iteration of the innermost loop around its slot, since it is in there */
    bool fills;     /* only fills have run in the slot */
    step last;
} path;

/* A slot with which an execution may begin, and what leaving out all before it costs. */
typedef struct {
    uint32_t cost;
    uint32_t missing; /* kernels of the module of which no work bears the name: it may not have run */
    uint32_t slot;
} beginning;

typedef struct {
    fs_schedules *all;
    const fs_aligned_work *works;
    fs_tie *ties;
    bool *repeats;   /* by work: an iteration of a loop, or an execution, begins */
    uint32_t *costs; /* by work: of its step */
    path paths[MOST_PATHS], found[MOST_FOUND];
    uint32_t path_count, found_count;
    step *steps;
    uint32_t step_count, step_capacity;
    uint32_t starts[FS_SLOT_KINDS][MOST_STARTS], start_counts[FS_SLOT_KINDS]; /* slots with which modules begin */
    beginning *beginnings;                                                    /* as all->listed, the cheapest first */
    uint32_t *rounds, *places; /* by slot: the last work + 1 for which a path to it was found, and where that is */
    const path *from;
    bool begins; /* `from` may end its execution: another one that costs more does not */
    bool sure;   /* of `from`: a place was found that costs nothing */
} search;

/* Preparing -------------------------------------------------------------------------------------------------------- */

/* Return whether this slot and the next one are copies of other sizes, which may run in any order. */
static bool is_pair(const fs_schedules *all, uint32_t slot)
{
    const fs_slot *one = &all->slots[slot], *other = one + 1;
    return slot + 1 < fs_schedules_end(all, one->module) && one->kind == FS_SLOT_COPY && other->kind == FS_SLOT_COPY &&
           one->loop == other->loop && one->bytes > 0 && other->bytes > 0 && one->bytes != other->bytes;
}

/* Find the modules that may begin with a work whose name is no slot's. */
static void find_starts(search *of)
{
    const fs_schedules *all = of->all;
    for (uint32_t module = 0; module < all->module_count; module++) {
        uint32_t first = all->modules[module];
        if (first == fs_schedules_end(all, module)) continue;
        for (int kind = 0; kind < FS_SLOT_KINDS; kind++) {
            uint32_t slot = all->slots[first].next[kind];
            if (slot == FS_NONE || all->costs[slot] != all->costs[first]) continue;
            bool pair = kind == FS_SLOT_COPY && is_pair(all, slot);
            for (uint32_t start = slot; start <= slot + pair && of->start_counts[kind] < MOST_STARTS; start++)
                of->starts[kind][of->start_counts[kind]++] = start;
        }
    }
}

FS_ORDER_BY(compare_beginnings, beginning, cost, missing, slot)

/* Of each name, order the first slots of its modules by the cost of beginning there. */
static fs_status order_beginnings(search *of, fs_error *err)
{
    const fs_schedules *all = of->all;
    uint32_t *missing = fs_calloc((size_t)all->module_count + 1, sizeof *missing);
    if (missing == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < all->slot_count; i++)
        missing[all->slots[i].module] += fs_slot_has_kernel(all->slots[i].kind) && !all->slots[i].seen;
    for (uint32_t name = 0; name < all->names.count; name++) {
        uint32_t first = all->lists[name], end = all->lists[name + 1];
        for (uint32_t i = first; i < end; i++) {
            const fs_slot_class *class = &all->classes[all->listed[i]];
            uint64_t cost = all->costs[class->slots[0]] - all->costs[all->modules[class->module]];
            uint32_t limited = cost < MOST_END ? (uint32_t)cost : MOST_END;
            of->beginnings[i] =
                (beginning){class->alike ? UINT32_MAX : limited, missing[class->module], class->slots[0]};
        }
        if (end > first + 1) qsort(of->beginnings + first, end - first, sizeof *of->beginnings, compare_beginnings);
    }
    fs_free(missing);
    return FS_OK;
}

static fs_status prepare(search *of, uint32_t count, fs_error *err)
{
    const fs_schedules *all = of->all;
    FS_TRY(fs_schedules_prepare(of->all, of->works, count, err));
    FS_TRY(FS_NEW_ZEROED(&of->repeats, (size_t)count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&of->costs, (size_t)count + 1, err));
    FS_TRY(FS_NEW(&of->beginnings, (size_t)all->named.count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&of->rounds, (size_t)all->slot_count + 1, err));
    FS_TRY(FS_NEW(&of->places, (size_t)all->slot_count + 1, err));
    find_starts(of);
    return order_beginnings(of, err);
}

/* Costs ------------------------------------------------------------------------------------------------------------ */

static uint32_t at_most(uint64_t cost, uint32_t most)
{
    return cost < most ? (uint32_t)cost : most;
}

/* Of the slots from `first` on, before `end`. */
static uint64_t between(const search *of, uint32_t first, uint32_t end)
{
    return end > first ? of->all->costs[end] - of->all->costs[first] : 0;
}

static uint32_t cost_of_end(const search *of, uint32_t slot)
{
    return at_most(between(of, slot + 1, fs_schedules_end(of->all, of->all->slots[slot].module)), MOST_END);
}

static uint32_t cost_of_start(const search *of, uint32_t slot)
{
    return at_most(between(of, of->all->modules[of->all->slots[slot].module], slot), MOST_END);
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

/* Keep the cheapest path to a slot; before any slot there is one only. */
static void add_path(search *of, const path *made)
{
    uint32_t at = made->slot != FS_NONE ? made->slot : of->all->slot_count;
    bool known = of->rounds[at] == made->last.work + 1;
    if (known && made->cost >= of->found[of->places[at]].cost) return;
    if (!known && of->found_count == MOST_FOUND) return;
    if (!known) of->places[at] = of->found_count++;
    of->rounds[at] = made->last.work + 1;
    of->found[of->places[at]] = *made;
}

enum { REPEATS = 1, NEW = 2, STAYS = 4 };

/* Continue `from` with the work in a slot. */
static void go_on(search *of, uint32_t work, uint32_t slot, uint32_t cost, unsigned how, uint32_t suspended)
{
    const fs_aligned_work *done = &of->works[work];
    const fs_slot *to = &of->all->slots[slot];
    bool unnamed = done->name == FS_NONE;
    if (unnamed && done->kind == FS_SLOT_LIBRARY) {
        bool other = done->family != FS_FAMILY_ANY && to->family != FS_FAMILY_ANY && done->family != to->family;
        cost += other ? OTHER_FAMILY : 0;
        if (to->kind != FS_SLOT_LIBRARY) cost += ELSEWHERE;
    }
    if (unnamed && done->kind == FS_WORK_FILLS && to->family == FS_FAMILY_COMMUNICATION) cost += OTHER_FAMILY;
    if (done->bytes > 0 && to->bytes > 0 && done->bytes != to->bytes) cost += OTHER_SIZE;
    if (cost == 0) of->sure = true;
    bool stayed = of->from->slot != FS_NONE && (how & NEW) == 0 && of->all->slots[of->from->slot].loop == to->loop;
    bool fill = unnamed && done->kind == FS_WORK_FILLS && to->kind == FS_SLOT_LIBRARY;
    bool skips = slot > 0 && slot - 1 != of->from->slot && is_pair(of->all, slot - 1);
    path made = {
        .slot = slot,
        .suspended = suspended,
        .skipped = skips ? slot - 1 : FS_NONE,
        .cost = of->from->cost + cost,
        .back = of->from->back,
        .round = stayed ? of->from->round + ((how & REPEATS) != 0) : 0,
        .fills = fill && ((how & STAYS) == 0 || of->from->fills),
        .last = {of->from->back, work, slot, cost, (how & STAYS) == 0, (how & NEW) != 0, (how & REPEATS) != 0}};
    add_path(of, &made);
}

/* Tie a copy to the one that was left out before the last. */
static void go_back(search *of, uint32_t work)
{
    path made = *of->from;
    if (made.skipped == FS_NONE || of->works[work].bytes != of->all->slots[made.skipped].bytes) return;
    made.last = (step){made.back, work, made.skipped, 0, true, false, false};
    made.cost -= at_most(between(of, made.skipped, made.skipped + 1), made.cost); /* it ran after all */
    made.skipped = FS_NONE;
    add_path(of, &made);
}

static void leave_untied(search *of, uint32_t work)
{
    static const uint32_t costs[] = {
        [FS_WORK_FILLS] = UNTIED_FILL,
        [FS_SLOT_LIBRARY] = UNTIED_LIBRARY,
        [FS_SLOT_COPY] = UNTIED_COPY,
        [FS_SLOT_TRANSFER] = UNTIED_TRANSFER,
    };
    const fs_aligned_work *done = &of->works[work];
    uint32_t cost = done->name != FS_NONE ? UNTIED_NAMED : costs[done->kind];
    path made = *of->from;
    if (made.slot == FS_NONE && done->name == FS_NONE) cost = 0; /* before anything that is known */
    made.cost += cost;
    made.last = (step){made.back, work, FS_NONE, cost, false, false, false};
    add_path(of, &made);
}

/* Slots in which a work may run: those of a class, or those for its kind. */
typedef struct {
    const fs_slot_class *class; /* NULL: by kind */
    int kind;
} places;

/* Return the first place from a slot of a module on, before `end`; FS_NONE: none. */
static uint32_t place_from(const search *of, const places *of_work, uint32_t slot, uint32_t end)
{
    uint32_t found = FS_NONE;
    if (slot >= end) return FS_NONE;
    if (of_work->class != NULL) {
        uint32_t index = fs_slot_class_from(of_work->class, slot), last = index + MOST_FIRST;
        bool alike = of_work->class->alike; /* slots of which no work bears the name */
        while (alike && index < of_work->class->count && of->all->slots[of_work->class->slots[index]].seen)
            if (++index == last) return FS_NONE;
        if (index < of_work->class->count) found = of_work->class->slots[index];
    } else {
        found = of->all->slots[slot].next[of_work->kind];
    }
    return found < end ? found : FS_NONE;
}

/* Go forward from `slot`, around the loops that enclose it, and on to the second place if the first one costs. */
static void go_from(search *of, uint32_t work, const places *of_work, uint32_t slot, uint32_t cost, uint32_t suspended)
{
    const fs_schedules *all = of->all;
    uint32_t end = fs_schedules_end(all, all->slots[slot].module), from = slot + 1;
    for (int i = 0; i < 2; i++) {
        uint32_t to = place_from(of, of_work, from, end);
        if (to == FS_NONE) break;
        go_on(of, work, to, cost + at_most(between(of, slot + 1, to), MOST_FORWARD), 0, suspended);
        if (of->sure) return;
        from = to + 1;
    }
    uint32_t loop = all->slots[slot].loop;
    for (int i = 0; i < MOST_LOOPS && loop != FS_NONE; i++, loop = all->loops[loop].parent) {
        const fs_slot_loop *around = &all->loops[loop];
        uint32_t to = place_from(of, of_work, around->first, slot + 1);
        if (to == FS_NONE) continue;
        bool over = i == 0 && slot == of->from->slot && around->trips > 0 && of->from->round + 1 >= around->trips;
        uint64_t skipped = between(of, slot + 1, around->end) + between(of, around->first, to);
        go_on(of, work, to, cost + at_most(skipped, MOST_FORWARD) + (over ? BEYOND : 0), REPEATS, suspended);
    }
}

/* Begin a module at a slot. Another one may be interrupted. */
static void begin_at(search *of, uint32_t work, uint32_t to)
{
    const path *from = of->from;
    const fs_slot *slots = of->all->slots;
    uint32_t cost = cost_of_start(of, to), suspended = from->suspended;
    if (from->slot != FS_NONE) {
        uint32_t rest = cost_of_end(of, from->slot);
        if (slots[from->slot].module != slots[to].module && rest > 0) {
            suspended = from->slot;
            rest = at_most(rest, RESUMED);
        }
        cost += rest;
    }
    if (suspended != FS_NONE && slots[suspended].module == slots[to].module) suspended = FS_NONE;
    go_on(of, work, to, cost, REPEATS | NEW, suspended);
}

static void resume(search *of, uint32_t work, const places *of_work)
{
    const path *from = of->from;
    uint32_t rest = cost_of_end(of, from->slot);
    go_from(of, work, of_work, from->suspended, RESUMED, rest > 0 ? from->slot : FS_NONE);
}

static bool is_in(const fs_slot_class *class, uint32_t slot)
{
    uint32_t index = fs_slot_class_from(class, slot);
    return index < class->count && class->slots[index] == slot;
}

/* Go on in a module, from where `from` is or from where it left the module. */
static void go_named(search *of, uint32_t work, uint32_t slot, bool suspended)
{
    const fs_schedules *all = of->all;
    uint32_t name = of->works[work].name, module = all->slots[slot].module;
    for (uint32_t i = fs_schedules_first_class(all, name, module); i < all->lists[name + 1]; i++) {
        places of_work = {&all->classes[all->listed[i]], 0};
        if (of_work.class->module != module) break;
        if (suspended) {
            resume(of, work, &of_work);
            continue;
        }
        go_from(of, work, &of_work, slot, of_work.class->alike ? EXTRA : 0, of->from->suspended);
        if (of->works[work].given && is_in(of_work.class, slot))
            go_on(of, work, slot, EXTRA, STAYS, of->from->suspended);
    }
}

static void find_named(search *of, uint32_t work)
{
    const fs_schedules *all = of->all;
    const path *from = of->from;
    uint32_t first = all->lists[of->works[work].name], end = all->lists[of->works[work].name + 1];
    if (from->slot != FS_NONE) go_named(of, work, from->slot, false);
    if (from->suspended != FS_NONE) go_named(of, work, from->suspended, true);
    if (of->sure) return;
    uint32_t most = end - first < MOST_BEGUN ? end : first + MOST_BEGUN;
    for (uint32_t i = first; of->begins && i < most; i++)
        if (of->beginnings[i].cost != UINT32_MAX) begin_at(of, work, of->beginnings[i].slot);
    for (uint32_t i = first; from->slot == FS_NONE && i < end; i++) { /* an execution whose start is missing */
        const fs_slot_class *class = &all->classes[all->listed[i]];
        for (uint32_t k = 0; k < class->count && k < MOST_FIRST && !class->alike; k++)
            begin_at(of, work, class->slots[k]);
    }
    if (!of->sure) leave_untied(of, work);
}

static void find_unnamed(search *of, uint32_t work)
{
    const fs_schedules *all = of->all;
    const path *from = of->from;
    places of_work = {NULL, of->works[work].kind};
    if (from->slot != FS_NONE) {
        const fs_slot *slot = &all->slots[from->slot];
        bool copies =
            of_work.kind == FS_SLOT_COPY || (of_work.kind == FS_SLOT_TRANSFER && slot->kind == FS_SLOT_LIBRARY);
        uint32_t extra = from->fills ? 0 : copies ? 2 * EXTRA : EXTRA;
        bool stays =
            slot->kind == FS_SLOT_LIBRARY || (slot->kind == FS_SLOT_TRANSFER && of_work.kind == FS_SLOT_TRANSFER);
        if (stays) go_on(of, work, from->slot, extra, STAYS, from->suspended);
        go_from(of, work, &of_work, from->slot, 0, from->suspended);
    }
    if (of_work.kind == FS_SLOT_COPY) go_back(of, work);
    if (of->sure) return;
    if (from->suspended != FS_NONE) resume(of, work, &of_work);
    for (uint32_t i = 0; of->begins && i < of->start_counts[of_work.kind]; i++)
        begin_at(of, work, of->starts[of_work.kind][i]);
    leave_untied(of, work);
}

/* Paths ------------------------------------------------------------------------------------------------------------ */

static void take_over(search *of, uint32_t last)
{
    for (uint32_t at = last; at != 0; at = of->steps[at - 1].back) {
        const step *one = &of->steps[at - 1];
        of->ties[one->work] = (fs_tie){one->slot, FS_TIE_NONE, one->begins, one->begins_module};
        of->repeats[one->work] = one->repeats;
        of->costs[one->work] = one->cost;
    }
    of->step_count = 0;
}

/* Keep the best of what was found. */
static fs_status keep_best(search *of, fs_error *err)
{
    uint32_t best = UINT32_MAX, kept = 0;
    for (uint32_t i = 0; i < of->found_count; i++)
        if (of->found[i].cost < best) best = of->found[i].cost;
    for (uint32_t i = 0; i < of->found_count; i++) {
        const path *made = &of->found[i];
        if (made->cost - best > WORSE) continue;
        uint32_t at = kept < MOST_PATHS ? kept : MOST_PATHS;
        for (; at > 0 && of->paths[at - 1].cost > made->cost; at--)
            if (at < MOST_PATHS) of->paths[at] = of->paths[at - 1];
        if (at < MOST_PATHS) of->paths[at] = *made;
        if (kept < MOST_PATHS) kept++;
    }
    of->path_count = kept;
    of->found_count = 0;
    for (uint32_t i = 0; i < kept; i++) {
        FS_TRY(FS_LIST_ADD(&of->steps, &of->step_count, &of->step_capacity, FEW_STEPS, err, of->paths[i].last));
        of->paths[i].back = of->step_count;
        of->paths[i].cost -= best;
    }
    if (kept == 1 && of->step_count >= FEW_STEPS) {
        take_over(of, of->paths[0].back);
        of->paths[0].back = 0;
    }
    return FS_OK;
}

/* Return the path whose execution costs the least to end. */
static uint32_t cheapest_end(const search *of)
{
    uint32_t best = 0, least = UINT32_MAX;
    for (uint32_t i = 0; i < of->path_count; i++) {
        const path *one = &of->paths[i];
        uint32_t cost = one->cost + (one->slot != FS_NONE ? cost_of_end(of, one->slot) : 0);
        if (cost >= least) continue;
        best = i;
        least = cost;
    }
    return best;
}

static fs_status find_path(search *of, uint32_t count, fs_error *err)
{
    of->paths[0] = (path){.slot = FS_NONE, .suspended = FS_NONE, .skipped = FS_NONE};
    of->path_count = 1;
    for (uint32_t work = 0; work < count; work++) {
        FS_POLL(work, err);
        uint32_t ending = cheapest_end(of);
        for (uint32_t i = 0; i < of->path_count; i++) {
            of->from = &of->paths[i];
            of->begins = i == 0 || i == ending;
            of->sure = false;
            if (of->works[work].name != FS_NONE) find_named(of, work);
            else find_unnamed(of, work);
        }
        FS_TRY(keep_best(of, err));
    }
    take_over(of, of->paths[0].back);
    return FS_OK;
}

fs_status fs_schedules_align(fs_schedules *all, const fs_aligned_work *works, uint32_t count, fs_tie *ties,
                             fs_error *err)
{
    fs_status status = FS_OK;
    for (uint32_t i = 0; i < count; i++) ties[i] = (fs_tie){.slot = FS_NONE};
    if (count == 0 || all->slot_count == 0) return FS_OK;
    search *of = fs_calloc(1, sizeof *of);
    if (of == NULL) return fs_no_memory(err);
    of->all = all;
    of->works = works;
    of->ties = ties;
    FS_TRY_GOTO(status, prepare(of, count, err), done);
    FS_TRY_GOTO(status, find_path(of, count, err), done);
    FS_TRY_GOTO(status, fs_ties_add(all, works, count, of->repeats, ties, err), done);
    fs_ties_prove(all, works, count, of->costs, ties);
done:
    fs_free(of->repeats);
    fs_free(of->costs);
    fs_free(of->beginnings);
    fs_free(of->rounds);
    fs_free(of->places);
    fs_free(of->steps);
    fs_free(of);
    return status;
}
