/* The schedule of a module as slots for works. It enters the same computations as schedule.c. */
#include "work/hlo/schedule_of.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "work/hlo/collective.h"
#include "work/hlo/cost_parts.h"

enum { MOST_SLOTS = 1 << 21 };

typedef struct {
    fs_schedules *all;
    const fs_hlo_module *module;
    const uint8_t *runs; /* by instruction: fs_hlo_run */
    bool *empty;         /* by computation: nothing runs in it */
    bool *known;         /* by computation: whether it is empty is known */
} walk;

static bool begins(const char *text, const char *prefix)
{
    return text != NULL && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The kernels of these have names of a library, or of XLA's runtime, not of the instruction. */
static bool is_library(const fs_hlo_module *module, uint32_t instruction)
{
    static const char *const opcodes[] = {
        "custom-call", "convolution", "dot",  "ragged-",          "cholesky", "fft",
        "infeed",      "outfeed",     "recv", "triangular-solve", "sort",     "rng-",
    };
    const char *opcode = fs_hlo_text(module, module->instructions[instruction].opcode);
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
        if (begins(opcode, opcodes[i])) return true;
    return fs_hlo_communicates(module, instruction);
}

static fs_family family_of(const fs_hlo_module *module, uint32_t instruction)
{
    const fs_hlo_instruction *of = &module->instructions[instruction];
    const char *target = fs_hlo_text(module, of->target), *opcode = fs_hlo_text(module, of->opcode);
    if (begins(target, "__cublas") || begins(opcode, "dot")) return FS_FAMILY_PRODUCT;
    if (begins(target, "__cudnn$conv") || begins(opcode, "convolution")) return FS_FAMILY_CONVOLUTION;
    return fs_hlo_communicates(module, instruction) ? FS_FAMILY_COMMUNICATION : FS_FAMILY_ANY;
}

/* Return whether the result of a fusion is a part of memory that is copied: XLA may compile that to a copy. */
static bool moves(const fs_hlo_module *module, uint32_t id)
{
    static const char *const opcodes[] = {"dynamic-slice", "dynamic-update-slice", "slice", "copy", "parameter"};
    uint32_t body = fs_hlo_called(module, id, 0);
    if (body == FS_NONE) return false;
    uint32_t root = module->computations[body].root;
    while (fs_hlo_is(module, root, "bitcast") || fs_hlo_is(module, root, "tuple")) {
        uint32_t operand = fs_hlo_operand(module, root, 0);
        if (operand == FS_NONE) return false;
        root = operand;
    }
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
        if (fs_hlo_is(module, root, opcodes[i])) return true;
    return false;
}

/* Return whether memory of the host is an operand or the result. */
static bool has_host_memory(const fs_hlo_module *module, uint32_t id)
{
    enum { HOST = 5 };
    uint32_t operand = fs_hlo_operand_shape(module, id, 0), result = fs_hlo_result(module, id);
    return (operand != FS_NONE && module->shapes[operand].space == HOST) ||
           (result != FS_NONE && module->shapes[result].space == HOST);
}

static fs_slot_kind kind_of(const fs_hlo_module *module, uint32_t id, fs_hlo_run run)
{
    bool library = is_library(module, id);
    if (run == FS_HLO_COPIES) return library || has_host_memory(module, id) ? FS_SLOT_TRANSFER : FS_SLOT_COPY;
    return library ? FS_SLOT_LIBRARY : moves(module, id) ? FS_SLOT_MOVER : FS_SLOT_KERNEL;
}

/* Write the name of the kernel of a collective that XLA fused, "psum_7_0_fusion_1" of the computation
 * "fused_psum.7.0.clone"; false for other instructions. */
static bool name_of_fused(const fs_hlo_module *module, uint32_t id, char *name, size_t room)
{
    static const char before[] = "fused_", after[] = ".clone";
    uint32_t body = fs_hlo_is(module, id, "fusion-start") ? fs_hlo_called(module, id, 0) : FS_NONE;
    const char *computation = body != FS_NONE ? fs_hlo_text(module, module->computations[body].name) : NULL;
    if (computation == NULL || !begins(computation, before) || !fs_hlo_communicates(module, id)) return false;
    computation += sizeof before - 1;
    const char *end = strstr(computation, after);
    int size = end != NULL ? (int)(end - computation) : (int)strlen(computation);
    return snprintf(name, room, "%.*s_fusion_1", size, computation) < (int)room;
}

static fs_status add_slot(walk *of, uint32_t id, fs_hlo_run run, fs_error *err)
{
    const fs_hlo_module *module = of->module;
    const fs_hlo_instruction *instruction = &module->instructions[id];
    const char *name = fs_hlo_text(module, instruction->name), *shared = fs_hlo_text(module, instruction->kernel);
    char fused[256];
    if (shared == NULL && name_of_fused(module, id, fused, sizeof fused)) shared = fused;
    if (of->all->slot_count >= MOST_SLOTS)
        return fs_fail(err, FS_VALUE_ERROR, "the schedules have more than %d instructions", MOST_SLOTS);
    FS_TRY(fs_schedules_add(of->all, id, kind_of(module, id, run), family_of(module, id), name != NULL ? name : "",
                            shared, err));
    double bytes = fs_hlo_is(module, id, "copy") ? fs_hlo_bytes(module, instruction->shape) : 0;
    bool known = bytes > 0 && bytes < (double)INT64_MAX / 2;
    of->all->slots[of->all->slot_count - 1].bytes = known ? (int64_t)bytes : 0;
    return FS_OK;
}

/* Return whether nothing runs in a computation. Such ones are not entered: there may be endless many calls of them. */
static bool is_empty(walk *of, uint32_t computation)
{
    const fs_hlo_module *module = of->module;
    if (of->known[computation]) return of->empty[computation];
    fs_hlo_list list = module->computations[computation].instructions;
    bool empty = true;
    for (uint32_t i = list.first; empty && i < list.first + list.count; i++) {
        empty = of->runs[i] != FS_HLO_RUNS && of->runs[i] != FS_HLO_COPIES;
        if (of->runs[i] != FS_HLO_CALLS) continue;
        for (uint32_t place = 0; empty && place < module->instructions[i].called.count; place++) {
            uint32_t called = fs_hlo_called(module, i, place);
            empty = called == FS_NONE || is_empty(of, called);
        }
    }
    of->known[computation] = true;
    return of->empty[computation] = empty;
}

static fs_status add_computation(walk *of, uint32_t computation, fs_error *err)
{
    const fs_hlo_module *module = of->module;
    fs_hlo_list list = module->computations[computation].instructions;
    for (uint32_t i = list.first; i < list.first + list.count; i++) {
        fs_hlo_run run = (fs_hlo_run)of->runs[i];
        if (run == FS_HLO_RUNS || run == FS_HLO_COPIES) FS_TRY(add_slot(of, i, run, err));
        if (run != FS_HLO_CALLS) continue;
        bool loop = fs_hlo_is(module, i, "while"), branches = fs_hlo_is(module, i, "conditional");
        uint32_t count = module->instructions[i].called.count, trips;
        const int64_t *trip_count = loop ? fs_hlo_values(module, i, FS_HLO_TRIP_COUNT, &trips) : NULL;
        bool counted = trip_count != NULL;
        trips = counted && *trip_count > 0 && *trip_count < FS_NONE ? (uint32_t)*trip_count : 0;
        if (loop) FS_TRY(fs_schedules_open_loop(of->all, trips, err));
        of->all->branches += branches;
        for (uint32_t place = 0; place < count; place++) {
            bool condition = loop && place + 1 < count; /* it precedes the body, which is listed first */
            uint32_t called = fs_hlo_called(module, i, loop ? count - 1 - place : place);
            if (called != FS_NONE && !(condition && counted) && !is_empty(of, called))
                FS_TRY(add_computation(of, called, err));
        }
        of->all->branches -= branches;
        if (loop) fs_schedules_close_loop(of->all);
    }
    return FS_OK;
}

fs_status fs_schedules_add_module(fs_schedules *all, const fs_hlo_module *module, const uint8_t *runs, fs_error *err)
{
    FS_TRY(fs_schedules_begin(all, err));
    if (module->entry >= module->computation_count) return FS_OK;
    walk of = {.all = all, .module = module, .runs = runs};
    of.empty = fs_calloc(module->computation_count, sizeof *of.empty);
    of.known = fs_calloc(module->computation_count, sizeof *of.known);
    fs_status status = FS_OK;
    if (of.empty == NULL || of.known == NULL) status = fs_no_memory(err);
    else status = add_computation(&of, module->entry, err);
    fs_free(of.empty);
    fs_free(of.known);
    return status;
}
