/* Building the schedules to which works are tied. A class is a set of slots of one module that share a name: those
 * whose kernel was compiled once, under the name of any of them, and those of one instruction, which are named by its
 * number. A name may have classes in several modules. XLA also shares kernels that turn out to be equal, and does not
 * say so: of slots whose names differ in their last number alone, any may run a kernel of the others, if no work bears
 * its own name. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/text.h"
#include "work/hlo/align.h"
#include "work/hlo/collective.h"
#include "work/hlo/cost_parts.h"

void fs_schedules_clear(fs_schedules *all)
{
    for (uint32_t i = 0; i < all->class_count; i++) fs_free(all->classes[i].slots);
    fs_free(all->slots);
    fs_free(all->loops);
    fs_free(all->classes);
    fs_free(all->modules);
    fs_free(all->pairs);
    fs_free(all->first_pairs);
    fs_free(all->costs);
    fs_free(all->lists);
    fs_free(all->listed);
    fs_intern_clear(&all->names);
    fs_intern_clear(&all->named);
    fs_intern_clear(&all->shares);
    *all = (fs_schedules){0};
}

fs_status fs_schedules_begin(fs_schedules *all, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&all->modules, all->module_count, &all->module_capacity, 16, err));
    fs_intern_clear(&all->shares);
    all->modules[all->module_count++] = all->slot_count;
    all->first_class = all->class_count;
    all->loop = FS_NONE;
    all->branches = 0;
    return FS_OK;
}

fs_status fs_schedules_open_loop(fs_schedules *all, uint32_t trips, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&all->loops, all->loop_count, &all->loop_capacity, 16, err));
    all->loops[all->loop_count] = (fs_slot_loop){all->slot_count, FS_NONE, all->loop, trips};
    all->loop = all->loop_count++;
    return FS_OK;
}

void fs_schedules_close_loop(fs_schedules *all)
{
    fs_slot_loop *loop = &all->loops[all->loop];
    loop->end = all->slot_count;
    all->loop = loop->parent;
}

/* Write a name as kernels bear it. Return its size; longer names are cut. */
static size_t kernel_name(const char *name, char *to, size_t room)
{
    size_t size = 0;
    for (; name[size] != 0 && size < room; size++) to[size] = name[size] == '.' || name[size] == '-' ? '_' : name[size];
    return size;
}

/* Let the last slot belong to the class of its module with that key, one of `names` too. */
static fs_status join_class(fs_schedules *all, const void *key, size_t size, uint32_t *class, fs_error *err)
{
    uint32_t slot = all->slot_count;
    FS_TRY(fs_intern_bytes(&all->shares, key, size, class, err));
    *class += all->first_class;
    if (*class == all->class_count) {
        FS_TRY(FS_LIST_ROOM(&all->classes, *class, &all->class_capacity, 64, err));
        all->classes[all->class_count++] = (fs_slot_class){.module = all->module_count - 1};
    }
    fs_slot_class *joined = &all->classes[*class];
    return FS_LIST_ADD(&joined->slots, &joined->count, &joined->capacity, 1, err, slot);
}

static fs_status name_class(fs_schedules *all, const void *name, size_t size, uint32_t class, fs_error *err)
{
    uint32_t id, pair, before = all->name_capacity;
    FS_TRY(fs_intern_bytes(&all->names, name, size, &id, err));
    FS_TRY(FS_LIST_ROOM(&all->first_pairs, id, &all->name_capacity, 64, err));
    for (; before < all->name_capacity; before++) all->first_pairs[before] = 0;
    uint32_t key[2] = {id, class}, known = all->named.count;
    FS_TRY(fs_intern_bytes(&all->named, key, sizeof key, &pair, err));
    FS_TRY(FS_LIST_ROOM(&all->pairs, pair, &all->pair_capacity, 64, err));
    if (pair < known) return FS_OK;
    all->pairs[pair] = (fs_named_class){class, all->first_pairs[id]};
    all->first_pairs[id] = pair + 1;
    return FS_OK;
}

enum { MOST_NAME = 512, NUMBER = 1, ALIKE = 2 }; /* the last two: with which no name begins */

/* Let the last slot belong to the class of those whose names are alike. */
static fs_status join_alike(fs_schedules *all, const char *name, size_t size, fs_error *err)
{
    char key[MOST_NAME + 1] = {ALIKE};
    size_t stem = size;
    uint32_t class;
    while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9') stem--;
    stem = stem > 1 && stem < size && name[stem - 1] == '_' ? stem - 1 : size;
    memcpy(key + 1, name, stem);
    FS_TRY(join_class(all, key, stem + 1, &class, err));
    all->classes[class].alike = true;
    return name_class(all, name, size, class, err);
}

/* What names an instruction by its number. */
typedef struct {
    char mark[4];
    uint32_t module, instruction;
} given_name;

static given_name name_of_given(uint32_t module, uint32_t instruction)
{
    return (given_name){{NUMBER}, module, instruction};
}

fs_status fs_schedules_add(fs_schedules *all, uint32_t instruction, fs_slot_kind kind, fs_family family,
                           const char *name, const char *shared, fs_error *err)
{
    char own[MOST_NAME], label[MOST_NAME];
    size_t size = kernel_name(name, own, sizeof own);
    size_t shared_size = kernel_name(shared != NULL ? shared : name, label, sizeof label);
    given_name number = name_of_given(all->module_count - 1, instruction);
    uint32_t class;
    FS_TRY(FS_LIST_ROOM(&all->slots, all->slot_count, &all->slot_capacity, 256, err));
    FS_TRY(join_class(all, label, shared_size, &class, err));
    FS_TRY(name_class(all, label, shared_size, class, err));
    FS_TRY(name_class(all, own, size, class, err));
    if (fs_slot_has_kernel(kind)) FS_TRY(join_alike(all, own, size, err));
    if (all->numbered) {
        FS_TRY(join_class(all, &number, sizeof number, &class, err));
        FS_TRY(name_class(all, &number, sizeof number, class, err));
    }
    all->slots[all->slot_count++] = (fs_slot){.instruction = instruction,
                                              .module = all->module_count - 1,
                                              .loop = all->loop,
                                              .kind = (uint8_t)kind,
                                              .family = (uint8_t)family,
                                              .optional = all->branches > 0};
    return FS_OK;
}

static fs_family family_of(const char *name)
{
    static const struct {
        const char *part;
        fs_family family;
    } parts[] = {
        {"nccl", FS_FAMILY_COMMUNICATION}, {"rccl", FS_FAMILY_COMMUNICATION},  {"conv", FS_FAMILY_CONVOLUTION},
        {"fprop", FS_FAMILY_CONVOLUTION},  {"dgrad", FS_FAMILY_CONVOLUTION},   {"wgrad", FS_FAMILY_CONVOLUTION},
        {"cudnn", FS_FAMILY_CONVOLUTION},  {"nchw", FS_FAMILY_CONVOLUTION},    {"nvjet", FS_FAMILY_PRODUCT},
        {"gemm", FS_FAMILY_PRODUCT},       {"cublas", FS_FAMILY_PRODUCT},      {"Cijk_", FS_FAMILY_PRODUCT},
        {"gemv", FS_FAMILY_PRODUCT},       {"splitKreduce", FS_FAMILY_PRODUCT}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part) != NULL) return parts[i].family;
    return FS_FAMILY_ANY;
}

fs_aligned_work fs_schedules_kernel(const fs_schedules *all, const char *name)
{
    fs_aligned_work work = {.name = fs_intern_find(&all->names, name, strlen(name)), .kind = FS_SLOT_LIBRARY};
    if (strncmp(name, "memcpy", 6) == 0) work.kind = FS_SLOT_COPY; /* of the driver, in graphs */
    else if (strncmp(name, "memset", 6) == 0) work.kind = FS_WORK_FILLS;
    else work.family = (uint8_t)family_of(name);
    return work;
}

fs_aligned_work fs_schedules_given(const fs_schedules *all, uint32_t module, uint32_t instruction)
{
    given_name number = name_of_given(module, instruction);
    uint32_t name = fs_intern_find(&all->names, &number, sizeof number);
    return (fs_aligned_work){.name = name, .kind = FS_SLOT_LIBRARY, .given = name != FS_NONE};
}

/* Preparing -------------------------------------------------------------------------------------------------------- */

/* Of a slot that is left out, in quarters. */
enum {
    LEFT_OUT = 12,       /* its kernel has a name that was seen, or it is a call of a library */
    LEFT_OUT_UNSEEN = 4, /* a copy, or a kernel whose name was not seen: it may have been compiled to a copy */
};

static bool may_run(const fs_slot *slot, int kind)
{
    bool unseen = fs_slot_has_kernel(slot->kind) && !slot->seen;
    if (kind == FS_SLOT_TRANSFER) return slot->kind == FS_SLOT_TRANSFER;
    if (kind == FS_SLOT_LIBRARY) return (slot->kind == FS_SLOT_LIBRARY && !slot->seen) || unseen;
    if (kind == FS_SLOT_COPY) return (slot->kind == FS_SLOT_COPY || slot->kind == FS_SLOT_MOVER) && !slot->seen;
    return unseen || slot->kind == FS_SLOT_LIBRARY || slot->kind == FS_SLOT_COPY;
}

/* List the classes of each name; pairs that were added later come first in their chains. */
static void list_classes(fs_schedules *all)
{
    uint32_t count = 0;
    for (uint32_t name = 0; name < all->names.count; name++) {
        all->lists[name] = count;
        for (uint32_t pair = all->first_pairs[name]; pair != 0; pair = all->pairs[pair - 1].next) count++;
        uint32_t last = count;
        for (uint32_t pair = all->first_pairs[name]; pair != 0; pair = all->pairs[pair - 1].next)
            all->listed[--last] = all->pairs[pair - 1].class;
    }
    all->lists[all->names.count] = count;
}

static void mark_seen(fs_schedules *all, const fs_aligned_work *works, uint32_t count, bool *seen)
{
    for (uint32_t i = 0; i < all->slot_count; i++) all->slots[i].seen = false;
    for (uint32_t i = 0; i < count; i++) {
        if (works[i].name == FS_NONE || seen[works[i].name]) continue;
        seen[works[i].name] = true;
        for (uint32_t k = all->lists[works[i].name]; k < all->lists[works[i].name + 1]; k++) {
            const fs_slot_class *class = &all->classes[all->listed[k]];
            for (uint32_t j = 0; j < class->count && !class->alike; j++) all->slots[class->slots[j]].seen = true;
        }
    }
}

static void count_unseen(fs_schedules *all)
{
    for (uint32_t i = 0; i < all->class_count; i++) {
        fs_slot_class *class = &all->classes[i];
        class->unseen = 0;
        for (uint32_t k = 0; k < class->count; k++) class->unseen += !all->slots[class->slots[k]].seen;
    }
}

static void prepare_slots(fs_schedules *all)
{
    uint32_t next[FS_SLOT_KINDS];
    for (int kind = 0; kind < FS_SLOT_KINDS; kind++) next[kind] = FS_NONE;
    all->costs[0] = 0;
    for (uint32_t i = 0; i < all->slot_count; i++) {
        const fs_slot *slot = &all->slots[i];
        bool sure = slot->seen || slot->kind == FS_SLOT_LIBRARY;
        all->costs[i + 1] = all->costs[i] + (slot->optional ? 0 : sure ? LEFT_OUT : LEFT_OUT_UNSEEN);
    }
    for (uint32_t i = all->slot_count; i-- > 0;) {
        fs_slot *slot = &all->slots[i];
        bool last = i + 1 == fs_schedules_end(all, slot->module);
        for (int kind = 0; kind < FS_SLOT_KINDS; kind++) {
            if (last) next[kind] = FS_NONE;
            if (may_run(slot, kind)) next[kind] = i;
            slot->next[kind] = next[kind];
        }
    }
}

fs_status fs_schedules_prepare(fs_schedules *all, const fs_aligned_work *works, uint32_t count, fs_error *err)
{
    bool *seen;
    fs_free(all->costs);
    FS_TRY(FS_NEW(&all->costs, (size_t)all->slot_count + 1, err));
    fs_free(all->lists);
    FS_TRY(FS_NEW(&all->lists, (size_t)all->names.count + 1, err));
    fs_free(all->listed);
    FS_TRY(FS_NEW(&all->listed, (size_t)all->named.count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&seen, (size_t)all->names.count + 1, err));
    list_classes(all);
    mark_seen(all, works, count, seen);
    fs_free(seen);
    count_unseen(all);
    prepare_slots(all);
    return FS_OK;
}

uint32_t fs_slot_class_from(const fs_slot_class *class, uint32_t from)
{
    return FS_FIRST_NOT(i, 0, class->count, class->slots[i] < from);
}

uint32_t fs_schedules_first_class(const fs_schedules *all, uint32_t name, uint32_t module)
{
    return FS_FIRST_NOT(i, all->lists[name], all->lists[name + 1], all->classes[all->listed[i]].module < module);
}

/* What follows the search: ties of works that ran out of order, and how sure the ties are. */

enum { MOST_NEAR = 64 }; /* slots of a name before and after a place that are looked at */

/* Return a slot with the name of a work that no other work of an iteration has taken, the nearest to another slot. */
static uint32_t free_slot(const fs_schedules *all, uint32_t name, uint32_t near, const uint32_t *taken, uint32_t round)
{
    uint32_t best = FS_NONE, distance = UINT32_MAX;
    for (uint32_t i = fs_schedules_first_class(all, name, all->slots[near].module); i < all->lists[name + 1]; i++) {
        const fs_slot_class *class = &all->classes[all->listed[i]];
        if (class->module != all->slots[near].module) break;
        if (class->alike) continue;
        uint32_t middle = fs_slot_class_from(class, near), first = middle > MOST_NEAR ? middle - MOST_NEAR : 0;
        for (uint32_t k = first; k < class->count && k < middle + MOST_NEAR; k++) {
            uint32_t slot = class->slots[k], away = slot > near ? slot - near : near - slot;
            if (taken[slot] == round || away >= distance) continue;
            best = slot;
            distance = away;
        }
    }
    return best;
}

/* Kernels of other streams run out of the schedule's order: tie those to slots of their name that are free. */
fs_status fs_ties_add(const fs_schedules *all, const fs_aligned_work *works, uint32_t count, const bool *repeats,
                      fs_tie *ties, fs_error *err)
{
    uint32_t *taken = fs_calloc((size_t)all->slot_count + 1, sizeof *taken), round = 0;
    if (taken == NULL) return fs_no_memory(err);
    for (uint32_t first = 0, end; first < count; first = end) {
        uint32_t near = FS_NONE;
        bool untied = false;
        round++;
        for (end = first; end < count && (end == first || !repeats[end]); end++) {
            if (ties[end].slot != FS_NONE) taken[ties[end].slot] = round;
            else untied = untied || works[end].name != FS_NONE;
        }
        for (uint32_t i = first; untied && i < end; i++) {
            fs_tie *tie = &ties[i];
            if (tie->slot != FS_NONE) near = tie->slot;
            else if (near != FS_NONE && works[i].name != FS_NONE) {
                tie->slot = free_slot(all, works[i].name, near, taken, round);
                if (tie->slot == FS_NONE) continue;
                taken[tie->slot] = round;
                tie->begins = true;
            }
        }
    }
    fs_free(taken);
    return FS_OK;
}

/* Return whether only one slot may run the works of a name. */
static bool is_alone(const fs_schedules *all, uint32_t name)
{
    uint64_t found = 0;
    for (uint32_t i = all->lists[name]; i < all->lists[name + 1] && found < 2; i++) {
        const fs_slot_class *class = &all->classes[all->listed[i]];
        found += class->alike ? class->unseen : class->count;
    }
    return found == 1;
}

/* A work that is tied by order has a name, or names before and after it that leave nothing out. */
void fs_ties_prove(const fs_schedules *all, const fs_aligned_work *works, uint32_t count, const uint32_t *costs,
                   fs_tie *ties)
{
    uint32_t after = 0, last = FS_NONE;
    bool alone = false; /* the name of the last work */
    for (uint32_t i = count; i-- > 0;) {
        fs_tie *tie = &ties[i];
        uint32_t name = works[i].name;
        bool in_order = costs[i] <= FS_TIE_EXTRA;
        if (tie->slot == FS_NONE) continue;
        if (name != FS_NONE && name != last) alone = works[i].given || is_alone(all, name);
        last = name;
        if (name != FS_NONE && alone) tie->proof = FS_TIE_BY_NAME;
        else if (in_order && (name != FS_NONE || after <= FS_TIE_EXTRA)) tie->proof = FS_TIE_BY_ORDER;
        else tie->proof = FS_TIE_GUESSED;
        after = costs[i];
    }
}

/* The schedule of a module as slots for works. It enters the same computations as cost.c. */

enum { MOST_SLOTS = 1 << 21 };

typedef struct {
    fs_schedules *all;
    const fs_hlo_module *module;
    const uint8_t *runs; /* by instruction: fs_hlo_run */
    bool *empty;         /* by computation: nothing runs in it */
    bool *known;         /* by computation: whether it is empty is known */
} walk;

/* The kernels of these have names of a library, or of XLA's runtime, not of the instruction. */
static bool is_library(const fs_hlo_module *module, uint32_t instruction)
{
    static const char *const opcodes[] = {
        "custom-call", "convolution", "dot",  "ragged-",          "cholesky", "fft",
        "infeed",      "outfeed",     "recv", "triangular-solve", "sort",     "rng-",
    };
    const char *opcode = fs_hlo_text(module, module->instructions[instruction].opcode);
    return FS_ANY(i, sizeof opcodes / sizeof *opcodes, fs_begins(opcode, opcodes[i])) ||
           fs_hlo_communicates(module, instruction);
}

static fs_family family_of_slot(const fs_hlo_module *module, uint32_t instruction)
{
    const fs_hlo_instruction *of = &module->instructions[instruction];
    const char *target = fs_hlo_text(module, of->target), *opcode = fs_hlo_text(module, of->opcode);
    if (fs_begins(target, "__cublas") || fs_begins(opcode, "dot")) return FS_FAMILY_PRODUCT;
    if (fs_begins(target, "__cudnn$conv") || fs_begins(opcode, "convolution")) return FS_FAMILY_CONVOLUTION;
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
    return FS_ANY(i, sizeof opcodes / sizeof *opcodes, fs_hlo_is(module, root, opcodes[i]));
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
    if (computation == NULL || !fs_begins(computation, before) || !fs_hlo_communicates(module, id)) return false;
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
    FS_TRY(fs_schedules_add(of->all, id, kind_of(module, id, run), family_of_slot(module, id), name != NULL ? name : "",
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
    FS_TRY(FS_NEW_ZEROED(&of.empty, module->computation_count, err));
    fs_status status = FS_NEW_ZEROED(&of.known, module->computation_count, err);
    if (status == FS_OK) status = add_computation(&of, module->entry, err);
    fs_free(of.empty);
    fs_free(of.known);
    return status;
}
