/* The instructions that run, in the order of the schedule. The steps of each computation are counted once, so that a
 * module whose computations call one another so often that the schedule would not end is refused before it is walked,
 * and computations without steps are not entered. */
#include <math.h>

#include "base/memory.h"
#include "work/hlo/cost_parts.h"

enum { MOST_STEPS = 1 << 22 };

typedef struct {
    fs_hlo_costs costs;
    double *counts; /* by computation: its steps; negative: not counted yet */
    fs_hlo_step *steps;
    uint32_t count;
    uint32_t *first; /* by instruction: its first step, plus 1; 0: none yet */
} walk;

/* Return how often a computation runs that a while calls, its body or its condition. Without a known trip count the
 * condition is computed; with one, XLA runs the body so often. */
static double trips(const fs_hlo_module *module, uint32_t instruction, bool condition)
{
    uint32_t count;
    const int64_t *known = fs_hlo_values(module, instruction, FS_HLO_TRIP_COUNT, &count);
    if (count != 1 || *known < 0) return NAN;
    return condition ? 0 : (double)*known;
}

/* Visit the computations that an instruction calls, in the order in which they run: of a while, whose body is the
 * first, the condition precedes it. */
static uint32_t called_in_order(const walk *of, uint32_t instruction, uint32_t place, double *times)
{
    const fs_hlo_module *module = of->costs.module;
    *times = 1;
    if (fs_hlo_is(module, instruction, "while")) {
        place = module->instructions[instruction].called.count - 1 - place;
        *times = trips(module, instruction, place > 0);
    }
    uint32_t called = fs_hlo_called(module, instruction, place);
    return *times == 0 ? FS_NONE : called;
}

static double count_steps(walk *of, uint32_t computation)
{
    const fs_hlo_module *module = of->costs.module;
    if (of->counts[computation] >= 0) return of->counts[computation];
    double steps = of->counts[computation] = 0;
    fs_hlo_list list = module->computations[computation].instructions;
    for (uint32_t i = list.first; i < list.first + list.count; i++) {
        fs_hlo_run run = fs_hlo_run_of(module, i);
        steps += run == FS_HLO_RUNS || run == FS_HLO_COPIES;
        if (run != FS_HLO_CALLS) continue;
        for (uint32_t place = 0; place < module->instructions[i].called.count; place++) {
            double times;
            uint32_t called = called_in_order(of, i, place, &times);
            if (called != FS_NONE) steps += count_steps(of, called);
        }
    }
    return of->counts[computation] = steps;
}

static void put_step(walk *of, uint32_t instruction, double calls, bool branch)
{
    uint32_t *before = &of->first[instruction];
    fs_hlo_step *step = &of->steps[of->count++];
    *step = (fs_hlo_step){instruction, calls, branch, {fs_work_unknown, NAN}};
    if (*before > 0) {
        step->work = of->steps[*before - 1].work;
        return;
    }
    step->work = fs_hlo_work_of(&of->costs, instruction);
    *before = of->count;
}

static void walk_computation(walk *of, uint32_t computation, double calls, bool branch)
{
    const fs_hlo_module *module = of->costs.module;
    fs_hlo_list list = module->computations[computation].instructions;
    for (uint32_t i = list.first; i < list.first + list.count; i++) {
        fs_hlo_run run = fs_hlo_run_of(module, i);
        if (run == FS_HLO_RUNS || run == FS_HLO_COPIES) put_step(of, i, calls, branch);
        if (run != FS_HLO_CALLS) continue;
        bool branches = fs_hlo_is(module, i, "conditional");
        for (uint32_t place = 0; place < module->instructions[i].called.count; place++) {
            double times;
            uint32_t called = called_in_order(of, i, place, &times);
            if (called == FS_NONE || of->counts[called] == 0) continue;
            walk_computation(of, called, fs_hlo_bounded(calls * times), branch || branches);
        }
    }
}

fs_status fs_hlo_schedule(const fs_hlo_module *module, fs_hlo_step **steps, uint32_t *count, fs_error *err)
{
    walk of = {.counts = NULL};
    *steps = NULL;
    *count = 0;
    if (module->entry == FS_NONE || module->entry >= module->computation_count) return FS_OK;
    FS_TRY(fs_hlo_costs_make(&of.costs, module, err));
    fs_status status = FS_OK;
    of.counts = fs_malloc(module->computation_count * sizeof *of.counts);
    of.first = fs_calloc((size_t)module->instruction_count + 1, sizeof *of.first);
    if (of.counts == NULL || of.first == NULL) {
        status = fs_no_memory(err);
        goto done;
    }
    for (uint32_t i = 0; i < module->computation_count; i++) of.counts[i] = -1;
    double all = count_steps(&of, module->entry);
    if (all > MOST_STEPS) {
        status = fs_fail(err, FS_VALUE_ERROR, "the schedule has %.3g instructions, more than %d", all, MOST_STEPS);
        goto done;
    }
    of.steps = fs_malloc(((size_t)all + 1) * sizeof *of.steps);
    if (of.steps == NULL) {
        status = fs_no_memory(err);
        goto done;
    }
    walk_computation(&of, module->entry, 1, false);
    *steps = of.steps;
    *count = of.count;
done:
    fs_free(of.counts);
    fs_free(of.first);
    fs_hlo_costs_clear(&of.costs);
    return status;
}
