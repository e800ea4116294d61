/* The work of instructions of a schedule. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "work/aten/sizes.h"
#include "work/hlo/cost_parts.h"

/* What computations need, compute and write.
 *
 * A fused computation reads of a parameter what its result needs of it. Needs pass from the result to the operands, as
 * shares of each instruction's elements: a slice needs as many elements of its operand as it has, a pointwise function
 * the same elements, a product all. An instruction that several others use is needed by the sum of their shares, at
 * most once: which elements they share is not known. Because operands precede their users, one pass backwards suffices.
 *
 *   written  dynamic-update-slice(parameter, update, …)  at the root: only the update, in place, and nothing is read of
 *            scatter(parameter, indices, updates)        the parameter but what a sum in place reads
 *
 * FLOPs of an instruction are those of its result, times the share that is needed. */

static fs_status costs_make(fs_hlo_costs *costs, const fs_hlo_module *module, fs_error *err)
{
    *costs = (fs_hlo_costs){.module = module};
    FS_TRY(FS_NEW_ZEROED(&costs->bodies, (size_t)module->computation_count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&costs->shares, (size_t)module->instruction_count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&costs->read, (size_t)module->instruction_count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&costs->owners, (size_t)module->instruction_count + 1, err));
    return FS_NEW_ZEROED(&costs->parameters, (size_t)module->instruction_count + 1, err);
}

void fs_hlo_costs_clear(fs_hlo_costs *costs)
{
    fs_free(costs->bodies);
    fs_free(costs->shares);
    fs_free(costs->read);
    fs_free(costs->owners);
    fs_free(costs->parameters);
    *costs = (fs_hlo_costs){.module = NULL};
}

/* Where needs are added: for the operands of a body themselves; for those of a schedule for the instruction that owns
 * the memory. */
typedef struct {
    fs_hlo_costs *costs;
    double *shares;
    bool owners;
} needs;

static bool is_renaming(const fs_hlo_module *module, uint32_t instruction)
{
    return fs_hlo_is(module, instruction, "bitcast") || fs_hlo_is(module, instruction, "reshape");
}

/* Return the instruction whose result an instruction renames. Those in between remember it, so that a long chain is
 * followed once. */
static uint32_t owner_of(fs_hlo_costs *costs, uint32_t instruction)
{
    uint32_t owner = instruction;
    while (owner != FS_NONE && costs->owners[owner] == 0 && is_renaming(costs->module, owner))
        owner = fs_hlo_operand(costs->module, owner, 0);
    if (owner != FS_NONE && costs->owners[owner] > 0) owner = costs->owners[owner] - 1;
    while (owner != FS_NONE && instruction != owner && costs->owners[instruction] == 0) {
        costs->owners[instruction] = owner + 1;
        instruction = fs_hlo_operand(costs->module, instruction, 0);
    }
    return owner;
}

static void need(const needs *of, uint32_t operand, double share)
{
    if (operand == FS_NONE || share == 0) return;
    if (of->owners) operand = owner_of(of->costs, operand);
    if (operand == FS_NONE) return;
    double sum = of->shares[operand] + share;
    of->shares[operand] = sum > 1 ? 1 : sum;
}

/* Need a number of elements of an operand. */
static void need_elements(const needs *of, uint32_t operand, double elements)
{
    if (operand == FS_NONE) return;
    double all = fs_hlo_count(of->costs->module, of->costs->module->instructions[operand].shape);
    if (all != 0) need(of, operand, elements < all ? elements / all : 1);
}

static double elements_at(const fs_hlo_module *module, uint32_t instruction, uint32_t place)
{
    return fs_hlo_count(module, fs_hlo_operand_shape(module, instruction, place));
}

/* Return the number of operands that a scatter updates: operands, indices, updates. */
static uint32_t scattered(const fs_hlo_module *module, uint32_t instruction)
{
    return module->instructions[instruction].operands.count / 2;
}

/* Return whether a scatter combines an update with the element: its computation's root is not the update itself. */
static bool combines(const fs_hlo_module *module, uint32_t instruction)
{
    uint32_t computation = fs_hlo_called(module, instruction, 0);
    uint32_t root = computation != FS_NONE ? module->computations[computation].root : FS_NONE;
    return root == FS_NONE || !fs_hlo_is(module, root, "parameter");
}

static void need_of_body(const needs *of, uint32_t instruction, double share)
{
    fs_hlo_list operands = of->costs->module->instructions[instruction].operands;
    uint32_t computation = fs_hlo_called(of->costs->module, instruction, 0);
    if (computation == FS_NONE) { /* at most all */
        for (uint32_t i = 0; i < operands.count; i++) need(of, of->costs->module->operands[operands.first + i], share);
        return;
    }
    const fs_hlo_body *body = fs_hlo_body_of(of->costs, computation);
    for (uint32_t i = 0; i < operands.count && i < body->parameter_count; i++) {
        uint32_t parameter = body->parameters[i];
        if (parameter > 0)
            need(of, of->costs->module->operands[operands.first + i], share * of->costs->shares[parameter - 1]);
    }
}

/* Add what a share of an instruction's result needs of its operands; of one that updates in place, what is read. */
static void need_operands(const needs *of, uint32_t instruction, double share, bool in_place)
{
    const fs_hlo_module *module = of->costs->module;
    const fs_hlo_opcode *row = fs_hlo_opcode_of(module, instruction, NULL);
    fs_hlo_list operands = module->instructions[instruction].operands;
    const uint32_t *ids = operands.count > 0 ? module->operands + operands.first : NULL;
    double elements = share * fs_hlo_count(module, fs_hlo_result(module, instruction));
    switch (row != NULL ? row->need : FS_NEED_ALL) {
    case FS_NEED_NONE:
        break;
    case FS_NEED_EACH:
        for (uint32_t i = 0; i < operands.count; i++) need_elements(of, ids[i], elements);
        break;
    case FS_NEED_SCALED:
        for (uint32_t i = 0; i < operands.count; i++) need(of, ids[i], share);
        break;
    case FS_NEED_ALL:
        for (uint32_t i = 0; i < operands.count; i++)
            need(of, ids[i], i == 0 ? fs_hlo_convolution_met(module, instruction) : 1);
        break;
    case FS_NEED_PICKED:
        if (operands.count > 0) need_elements(of, ids[0], elements);
        for (uint32_t i = 1; i < operands.count; i++) need(of, ids[i], share);
        break;
    case FS_NEED_UPDATE: {
        double kept = 1 - elements_at(module, instruction, 1) / elements_at(module, instruction, 0);
        if (operands.count > 0 && !in_place && kept > 0) need(of, ids[0], share * kept);
        for (uint32_t i = 1; i < operands.count; i++) need(of, ids[i], share);
        break;
    }
    case FS_NEED_SCATTER: {
        uint32_t count = scattered(module, instruction);
        for (uint32_t i = 0; i < operands.count; i++) {
            if (i >= count || !in_place) need(of, ids[i], share);
            else if (combines(module, instruction))
                need_elements(of, ids[i], elements_at(module, instruction, count + 1 + i));
        }
        break;
    }
    case FS_NEED_BODY:
        need_of_body(of, instruction, share);
    }
}

/* Return the bytes of the device's memory. */
static double bytes_at(const fs_hlo_module *module, uint32_t shape)
{
    enum { HOST = 5 };
    if (shape == FS_NONE) return NAN;
    return module->shapes[shape].space == HOST ? 0 : fs_hlo_bytes(module, shape);
}

/* Return the bytes that an update in place writes. */
static double updated(const fs_hlo_module *module, uint32_t instruction)
{
    double bytes = 0;
    if (fs_hlo_opcode_of(module, instruction, NULL)->need == FS_NEED_UPDATE)
        return bytes_at(module, fs_hlo_operand_shape(module, instruction, 1));
    for (uint32_t count = scattered(module, instruction), i = 0; i < count; i++) {
        bytes += fmin(bytes_at(module, fs_hlo_operand_shape(module, instruction, i)),
                      bytes_at(module, fs_hlo_operand_shape(module, instruction, count + 1 + i)));
    }
    return bytes;
}

static bool updates(const fs_hlo_module *module, uint32_t instruction)
{
    const fs_hlo_opcode *row = fs_hlo_opcode_of(module, instruction, NULL);
    return row != NULL && (row->need == FS_NEED_UPDATE || row->need == FS_NEED_SCATTER);
}

/* Return the bytes of an instruction's result that it writes. */
static double written_by(fs_hlo_costs *costs, uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    const fs_hlo_opcode *row = fs_hlo_opcode_of(module, instruction, NULL);
    uint32_t result = fs_hlo_result(module, instruction), computation = fs_hlo_called(module, instruction, 0);
    if (row != NULL && row->need == FS_NEED_BODY && computation != FS_NONE)
        return fs_hlo_body_of(costs, computation)->written;
    double bytes = bytes_at(module, result);
    if (row == NULL || row->flops != fs_hlo_count_library) return bytes;
    if (fs_hlo_library_run(module, instruction) == FS_HLO_NOTHING) return 0;
    if (!fs_hlo_library_has_workspace(module, instruction)) return bytes;
    fs_hlo_list parts = module->shapes[result].parts;
    return bytes - bytes_at(module, module->shape_parts[parts.first + parts.count - 1]);
}

/* Need a part of a body's result, and return the bytes written for it. */
static double need_result(const needs *of, fs_hlo_body *body, uint32_t leaf)
{
    enum { MOST_UPDATES = 16 }; /* of one parameter, one after the other */
    fs_hlo_costs *costs = of->costs;
    const fs_hlo_module *module = costs->module;
    double written = 0;
    uint32_t last = owner_of(costs, leaf), end = last;
    for (int i = 0; i < MOST_UPDATES && end != FS_NONE && updates(module, end); i++)
        end = owner_of(costs, fs_hlo_operand(module, end, 0));
    if (last == FS_NONE) return NAN;
    if (end == last || end == FS_NONE || !fs_hlo_is(module, end, "parameter")) {
        need(of, leaf, 1);
        return written_by(of->costs, last);
    }
    while (last != end) {
        need_operands(of, last, 1, true);
        fs_hlo_flops_add(&body->flops, fs_hlo_flops_of(of->costs, last), 1);
        written += updated(module, last);
        last = owner_of(costs, fs_hlo_operand(module, last, 0));
    }
    return written;
}

/* List the parameters of a body by their places, in its part of an array by instruction. */
static void find_parameters(fs_hlo_costs *costs, fs_hlo_body *body, fs_hlo_list instructions)
{
    uint32_t count;
    body->parameters = costs->parameters + instructions.first;
    for (uint32_t i = instructions.first; i < instructions.first + instructions.count; i++) {
        const int64_t *place = fs_hlo_values(costs->module, i, FS_HLO_PARAMETER, &count);
        if (count != 1 || *place < 0 || *place >= instructions.count) continue;
        body->parameters[*place] = i + 1;
        if (*place >= body->parameter_count) body->parameter_count = (uint32_t)*place + 1;
    }
}

const fs_hlo_body *fs_hlo_body_of(fs_hlo_costs *costs, uint32_t computation)
{
    const fs_hlo_module *module = costs->module;
    fs_hlo_body *body = &costs->bodies[computation];
    if (body->known) return body;
    body->known = true;
    body->flops = fs_hlo_flops_none();
    find_parameters(costs, body, module->computations[computation].instructions);
    needs of = {costs, costs->shares, false};
    fs_hlo_list instructions = module->computations[computation].instructions;
    uint32_t root = module->computations[computation].root;
    if (root == FS_NONE) {
        body->flops = fs_hlo_flops_unknown();
        body->written = NAN;
        return body;
    }
    if (fs_hlo_is(module, root, "tuple")) {
        fs_hlo_list parts = module->instructions[root].operands;
        for (uint32_t i = 0; i < parts.count; i++) {
            uint32_t part = module->operands[parts.first + i];
            body->written += part == FS_NONE ? (double)NAN : need_result(&of, body, part);
        }
    } else body->written = need_result(&of, body, root);
    for (uint32_t i = instructions.first + instructions.count; i-- > instructions.first;) {
        if (costs->shares[i] == 0) continue;
        need_operands(&of, i, costs->shares[i], false);
        fs_hlo_flops_add(&body->flops, fs_hlo_flops_of(costs, i), costs->shares[i]);
    }
    return body;
}

/* Return the bytes that an instruction of the schedule reads and writes. */
static void bytes_of(fs_hlo_costs *costs, uint32_t instruction, double *read, double *written)
{
    const fs_hlo_module *module = costs->module;
    fs_hlo_list operands = module->instructions[instruction].operands;
    bool in_place = updates(module, instruction);
    needs of = {costs, costs->read, true};
    need_operands(&of, instruction, 1, in_place);
    *read = 0;
    for (uint32_t i = 0; i < operands.count; i++) {
        uint32_t operand = module->operands[operands.first + i], owner = owner_of(costs, operand);
        if (owner == FS_NONE) *read = NAN;
        if (owner == FS_NONE || costs->read[owner] == 0) continue;
        *read += costs->read[owner] * bytes_at(module, module->instructions[operand].shape);
        costs->read[owner] = 0;
    }
    *read = fs_hlo_bounded(*read);
    *written = fs_hlo_bounded(in_place ? updated(module, instruction) : written_by(costs, instruction));
}

/* Return whether an instruction moves data between devices. */
static bool is_between(const fs_hlo_opcode *row)
{
    return row != NULL && row->run == FS_HLO_RUNS &&
           (row->flops == fs_hlo_count_moves || row->flops == fs_hlo_count_sums);
}

/* Return the work of one execution of an instruction of the schedule. */
static fs_hlo_work work_of(fs_hlo_costs *costs, uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    bool between = is_between(fs_hlo_opcode_of(module, instruction, NULL));
    fs_hlo_flops flops = fs_hlo_flops_of(costs, instruction);
    double read, written;
    bytes_of(costs, instruction, &read, &written);
    if (!(flops.flops > 0)) flops.unit = fs_unit_of_plain(fs_hlo_dtype(module, fs_hlo_result(module, instruction)));
    fs_hlo_work found = {fs_sizes_work(flops.flops, read, written, flops.unit), flops.product};
    /* What an unknown call does with its operands is unknown, too: it may read a part. */
    found.work.at_most = flops.at_most || (isnan(flops.flops) && !between);
    found.work.between = between;
    return found;
}

/* The instructions that run, in the order of the schedule. The steps of each computation are counted once, so that a
 * module whose computations call one another so often that the schedule would not end is refused before it is walked,
 * and computations without steps are not entered. */

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
    step->work = work_of(&of->costs, instruction);
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
    fs_status status;
    FS_TRY_GOTO(status, costs_make(&of.costs, module, err), done);
    FS_TRY_GOTO(status, FS_NEW(&of.counts, module->computation_count, err), done);
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&of.first, (size_t)module->instruction_count + 1, err), done);
    for (uint32_t i = 0; i < module->computation_count; i++) of.counts[i] = -1;
    double all = count_steps(&of, module->entry);
    if (all > MOST_STEPS) {
        status = fs_fail(err, FS_VALUE_ERROR, "the schedule has %.3g instructions, more than %d", all, MOST_STEPS);
        goto done;
    }
    FS_TRY_GOTO(status, FS_NEW(&of.steps, (size_t)all + 1, err), done);
    walk_computation(&of, module->entry, 1, false);
    *steps = of.steps;
    *count = of.count;
done:
    fs_free(of.counts);
    fs_free(of.first);
    fs_hlo_costs_clear(&of.costs);
    return status;
}
