/* Four steps: the works of each device in the order of their launches; their ties (align.h); which works are one
 * execution of an instruction; the copy of the store, in which the op of an execution comes right before its first
 * work. An execution of a module shares its scopes and lines, which all begin at its first launch, as do its ops. */
#include "work/hlo/join.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "base/text.h"
#include "store/accelerator.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "store/extend.h"
#include "store/samples.h"
#include "store/signature.h"
#include "store/stacks.h"
#include "work/hlo/align.h"
#include "work/hlo/collective.h"
#include "work/hlo/cost_parts.h"
#include "work/hlo/remarks.h"
#include "work/names.h"

/* A value ends at the next comma or "#". Names of ops, which come before it, may contain both, so the last of a key
 * counts. A name that is too long names nothing. */

static const char thunk_prefix[] = "TSL: Thunk:#", module_prefix[] = "TSL: XlaModule:#";

/* Copy the value of a key of a range's name, such as "hlo_op="; false if it has none. */
static bool take_value(const char *text, const char *key, char value[FS_THUNK_NAME_BYTES])
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, key)) != NULL; at++)
        if (at > text && (at[-1] == '#' || at[-1] == ',')) found = at + strlen(key);
    size_t size = found != NULL ? strcspn(found, ",#") : 0;
    if (size == 0 || size >= FS_THUNK_NAME_BYTES) return false;
    memcpy(value, found, size);
    value[size] = 0;
    return true;
}

bool fs_hlo_thunk_of(const fs_store *store, uint32_t work, fs_hlo_thunk *thunk)
{
    uint32_t event = FS_EVENT_AT(store, work, launcher);
    thunk->module[0] = thunk->instruction[0] = 0;
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        uint32_t name = FS_EVENT_AT(store, event, name), parent = FS_EVENT_AT(store, event, parent);
        const char *text =
            FS_EVENT_AT(store, event, kind) == FS_EVENT_RANGE && name != FS_NONE ? fs_store_name_text(store, name) : "";
        bool named = thunk->instruction[0] != 0;
        if (!named && fs_begins(text, thunk_prefix) && !take_value(text, "hlo_op=", thunk->instruction)) return false;
        if (named && fs_begins(text, module_prefix)) {
            take_value(text, "hlo_module=", thunk->module);
            return true;
        }
        event = parent < event ? parent : FS_NONE;
    }
    return thunk->instruction[0] != 0;
}

/* A kernel, copy or fill. */
typedef struct {
    int64_t launched, start;
    uint32_t event;
    uint32_t call; /* that launched it, or FS_NONE */
    int device;
    uint32_t execution; /* of a module; */
    uint32_t run;       /* of an instruction: index of runs, or FS_NONE */
} work;

/* An execution of an instruction. */
typedef struct {
    uint32_t module, instruction;
    uint32_t first;                  /* its first work, as an index of works */
    uint32_t op;                     /* in the joined store, or FS_NONE */
    uint32_t kernels, communicating; /* of it; of these, with the name of a library of collectives */
} run;

/* What an execution of a module has in common. */
typedef struct {
    int64_t start;
    uint32_t parent, lane; /* in the joined store */
    uint32_t execution;
} scene;

typedef struct {
    uint32_t event;
    uint32_t epoch; /* of the scene in which it was copied */
} copied;

typedef struct {
    const fs_store *from;
    fs_store *into;
    const fs_hlo_module *modules;
    uint32_t module_count;
    fs_hlo_report *report;
    fs_schedules schedules;
    fs_api_calls calls;
    fs_names names;
    work *works;
    uint32_t work_count, work_capacity;
    fs_aligned_work *aligned;
    fs_tie *ties;
    run *runs;
    uint32_t run_count, run_capacity;
    uint32_t *by_event;           /* by event: index of works + 1 */
    uint32_t *moved;              /* by event: its index in `into` */
    fs_hlo_described **described; /* by module and instruction */
    fs_hlo_work **costs;          /* likewise */
    fs_hlo_remarks *remarks;      /* by module, made with the costs */
    uint32_t *ran;                /* by module: executions of its instructions */
    uint32_t biggest;             /* the module with most of them: its instructions bear their own names */
    uint32_t *numbers;            /* by module: see number_modules() */
    fs_hlo_describer describer;
    copied *places; /* by id of describer.places */
    uint32_t place_capacity, epoch;
    scene scene;
    bool named; /* a TPU's, whose events bear the names of instructions */
} joining;

/* Schedules -------------------------------------------------------------------------------------------------------- */

static fs_status add_module(joining *all, uint32_t index, fs_error *err)
{
    const fs_hlo_module *module = &all->modules[index];
    size_t count = module->instruction_count;
    uint8_t *runs;
    FS_TRY(FS_NEW(&all->described[index], count + 1, err));
    FS_TRY(FS_NEW(&runs, count + 1, err));
    for (uint32_t i = 0; i < count; i++) {
        runs[i] = (uint8_t)fs_hlo_run_of(module, i);
        all->described[index][i].name = FS_NONE;
    }
    fs_status status = fs_schedules_add_module(&all->schedules, module, runs, err);
    fs_free(runs);
    return status;
}

/* Works ------------------------------------------------------------------------------------------------------------ */

/* Return whether an op encloses a host event, or is it. */
static bool has_op(const fs_store *store, uint32_t event)
{
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        if (FS_EVENT_AT(store, event, kind) == FS_EVENT_OP) return true;
        event = FS_EVENT_AT(store, event, parent);
    }
    return false;
}

static fs_status list_works(joining *all, fs_error *err)
{
    uint32_t without = 0;
    FS_EACH_EVENT(all->from, i, chunk, at) {
        FS_POLL(i, err);
        uint8_t kind = chunk->kind[at];
        if (kind != FS_EVENT_KERNEL && kind != FS_EVENT_MEMCPY && kind != FS_EVENT_MEMSET) continue;
        if (!fs_event_is_placed_work(chunk, at) || has_op(all->from, chunk->launcher[at])) continue;
        FS_TRY(FS_LIST_ROOM(&all->works, all->work_count, &all->work_capacity, 1024, err));
        uint32_t call = FS_NONE;
        if (chunk->correlation[at] != FS_NONE) call = fs_api_calls_find(&all->calls, chunk->correlation[at]);
        without += call == FS_NONE;
        all->works[all->work_count++] = (work){.launched = call != FS_NONE ? FS_EVENT_AT(all->from, call, start) : 0,
                                               .start = chunk->start[at],
                                               .event = i,
                                               .call = call,
                                               .device = fs_event_device(chunk, at),
                                               .run = FS_NONE};
    }
    for (uint32_t i = 0; without > 0 && i < all->work_count; i++) all->works[i].launched = 0; /* by start alone */
    return FS_OK;
}

FS_ORDER_BY(compare_works, work, device, launched, start, event)

/* Return whether the name of a copy says that one of its sides is the host. */
static bool is_transfer(const char *name)
{
    return name != NULL && (strstr(name, "HtoD") != NULL || strstr(name, "DtoH") != NULL);
}

/* Describe the works for the alignment; those of equal names once. */
static fs_status describe_works(joining *all, const fs_hlo_given *given, uint32_t given_count, fs_error *err)
{
    uint32_t names = fs_store_name_count(all->from);
    fs_aligned_work *by_name = fs_malloc(((size_t)names + 1) * sizeof *by_name);
    if (by_name == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < names; i++)
        by_name[i] = fs_schedules_kernel(&all->schedules, fs_store_name_text(all->from, i));
    for (uint32_t i = 0; i < all->work_count; i++) {
        uint32_t at, event = all->works[i].event;
        const fs_chunk *chunk = fs_event_chunk(all->from, event, &at);
        fs_aligned_work *to = &all->aligned[i];
        const char *name = chunk->name[at] != FS_NONE ? fs_store_name_text(all->from, chunk->name[at]) : NULL;
        if (chunk->kind[at] == FS_EVENT_KERNEL && name != NULL) *to = by_name[chunk->name[at]];
        else if (chunk->kind[at] == FS_EVENT_MEMSET) *to = (fs_aligned_work){FS_NONE, FS_WORK_FILLS, 0, 0, 0};
        else *to = (fs_aligned_work){FS_NONE, is_transfer(name) ? FS_SLOT_TRANSFER : FS_SLOT_COPY, 0, 0, 0};
        if (chunk->kind[at] == FS_EVENT_MEMCPY && chunk->bytes[at] > 0) to->bytes = chunk->bytes[at];
        uint32_t low = FS_FIRST_NOT(j, 0, given_count, given[j].event < event);
        if (low == given_count || given[low].event != event) continue;
        fs_aligned_work known = fs_schedules_given(&all->schedules, given[low].module, given[low].instruction);
        if (known.given) *to = known;
    }
    fs_free(by_name);
    return FS_OK;
}

/* An event of a TPU is an execution of the instruction whose name it bears, also one that waits for an asynchronous
 * one: nothing is tied by its place. An execution of a module begins where its first instruction comes again. */
static fs_status take_given(joining *all, const fs_hlo_given *given, uint32_t given_count, fs_error *err)
{
    const fs_hlo_given *first = NULL;
    for (uint32_t i = 0; i < all->work_count; i++) {
        work *of = &all->works[i];
        uint32_t at = FS_FIRST_NOT(j, 0, given_count, given[j].event < of->event);
        all->ties[i] = (fs_tie){.slot = FS_NONE};
        if (at == given_count || given[at].event != of->event) continue;
        bool same = first != NULL && first->module == given[at].module && of->device == all->works[i - 1].device;
        if (!same || first->instruction == given[at].instruction) {
            first = &given[at];
            all->report->executions++;
        }
        of->execution = (uint32_t)all->report->executions;
        of->run = all->run_count;
        FS_TRY(FS_LIST_ADD(&all->runs, &all->run_count, &all->run_capacity, 1024, err,
                           (run){given[at].module, given[at].instruction, i, FS_NONE, 1, 0}));
        all->ran[given[at].module]++;
        all->ties[i].proof = FS_TIE_BY_NAME;
    }
    return FS_OK;
}

/* Find the executions of instructions and modules among the works of a device. */
static fs_status find_runs(joining *all, uint32_t first, uint32_t end, fs_error *err)
{
    uint32_t last = FS_NONE; /* slot */
    for (uint32_t i = first; i < end; i++) {
        const fs_tie *tie = &all->ties[i];
        if (tie->slot == FS_NONE) continue;
        const fs_slot *slot = &all->schedules.slots[tie->slot];
        all->report->executions += tie->begins_module;
        if (tie->begins || last != tie->slot) {
            FS_TRY(FS_LIST_ADD(&all->runs, &all->run_count, &all->run_capacity, 1024, err,
                               (run){slot->module, slot->instruction, i, FS_NONE, 0, 0}));
            all->ran[slot->module]++;
        }
        last = tie->slot;
        all->works[i].run = all->run_count - 1;
        uint32_t event = all->works[i].event;
        if (FS_EVENT_AT(all->from, event, kind) == FS_EVENT_KERNEL) {
            run *one = &all->runs[all->run_count - 1];
            one->kernels++;
            one->communicating += fs_names_communicate(&all->names, FS_EVENT_AT(all->from, event, name));
        }
        all->works[i].execution = (uint32_t)all->report->executions;
    }
    return FS_OK;
}

static void count_ties(joining *all)
{
    fs_hlo_report *report = all->report;
    report->works = all->work_count;
    report->instructions = all->run_count;
    for (uint32_t i = 0; i < all->work_count; i++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(all->from, all->works[i].event, &at);
        uint8_t proof = all->ties[i].proof;
        int64_t time = chunk->kind[at] == FS_EVENT_KERNEL && fs_event_is_timed(chunk, at) ? chunk->duration[at] : 0;
        report->by_name += proof == FS_TIE_BY_NAME;
        report->by_order += proof == FS_TIE_BY_ORDER;
        report->guessed += proof == FS_TIE_GUESSED;
        report->kernel_ns += time;
        report->tied_ns += proof != FS_TIE_NONE ? time : 0;
    }
    for (uint32_t i = 0; i < all->module_count; i++)
        if (all->ran[i] > all->ran[all->biggest]) all->biggest = i;
}

/* Number the modules of each name that ran from 1 on, the biggest first: a function that is compiled for other shapes
 * has modules of one name, in which the same instruction may be another. */
static fs_status number_modules(joining *all, fs_error *err)
{
    fs_intern names = {0};
    uint32_t *counts, id;
    FS_TRY(FS_NEW_ZEROED(&counts, (size_t)all->module_count + 1, err));
    fs_status status = FS_NEW_ZEROED(&all->numbers, (size_t)all->module_count + 1, err);
    for (uint32_t i = 0; status == FS_OK && i <= all->module_count; i++) {
        uint32_t module = i == 0 ? all->biggest : i - 1;
        if (module == all->module_count || all->ran[module] == 0 || all->numbers[module] > 0) continue;
        const char *name = fs_hlo_text(&all->modules[module], all->modules[module].name);
        status = fs_intern_text(&names, name != NULL ? name : "", &id, err);
        if (status == FS_OK) all->numbers[module] = ++counts[id];
    }
    fs_free(counts);
    fs_intern_clear(&names);
    return status;
}

static fs_status tie_works(joining *all, const fs_hlo_given *given, uint32_t given_count, fs_error *err)
{
    FS_TRY(fs_sort(all->works, all->work_count, sizeof *all->works, compare_works, err));
    FS_TRY(FS_NEW(&all->aligned, (size_t)all->work_count + 1, err));
    FS_TRY(FS_NEW(&all->ties, (size_t)all->work_count + 1, err));
    if (all->named) FS_TRY(take_given(all, given, given_count, err));
    else FS_TRY(describe_works(all, given, given_count, err));
    for (uint32_t first = 0, end; first < all->work_count && !all->named; first = end) {
        for (end = first; end < all->work_count && all->works[end].device == all->works[first].device;) end++;
        FS_TRY(fs_schedules_align(&all->schedules, all->aligned + first, end - first, all->ties + first, err));
        FS_TRY(find_runs(all, first, end, err));
    }
    count_ties(all);
    return number_modules(all, err);
}

/* Copying ---------------------------------------------------------------------------------------------------------- */

static uint32_t moved(const joining *all, uint32_t event, uint32_t before)
{
    return event < before ? all->moved[event] : FS_NONE;
}

/* Set the scene for a work before event `before`: that of its execution, unless its launch is elsewhere. */
static void set_scene(joining *all, const work *of, uint32_t before)
{
    scene *now = &all->scene;
    uint32_t parent = FS_NONE, lane = FS_NONE;
    int64_t start = of->start;
    if (of->call != FS_NONE) {
        parent = moved(all, FS_EVENT_AT(all->from, of->call, parent), before);
        lane = FS_EVENT_AT(all->from, of->call, lane);
        start = FS_EVENT_AT(all->from, of->call, start);
    } else {
        parent = moved(all, FS_EVENT_AT(all->from, of->event, launcher), before);
        if (parent != FS_NONE) lane = FS_EVENT_AT(all->into, parent, lane);
    }
    if (all->epoch > 0 && now->execution == of->execution && now->parent == parent && now->lane == lane) return;
    *now = (scene){start, parent, lane, of->execution};
    all->epoch++;
}

static fs_status append(joining *all, fs_event_kind kind, uint32_t name, uint32_t signature, uint32_t parent,
                        uint8_t timing, uint32_t *index, fs_error *err)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.flags = FS_EVENT_REPLAYED;
    event.start = all->scene.start;
    event.duration = 0;
    event.name = name;
    event.signature = signature;
    event.parent = parent;
    event.lane = all->scene.lane;
    event.timing = timing == FS_TIMING_TRACE ? FS_TIMING_TRACE : FS_TIMING_CPU;
    return fs_store_append(all->into, &event, index, err);
}

/* Append what encloses an instruction, unless the scene has it. */
static fs_status append_places(joining *all, uint32_t place, uint8_t timing, uint32_t *parent, fs_error *err)
{
    enum { DEEPEST = 256 };
    uint32_t missing[DEEPEST], before = all->place_capacity;
    int depth = 0;
    *parent = all->scene.parent;
    if (place == FS_NONE) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&all->places, all->describer.places.count, &all->place_capacity, 64, err));
    for (; before < all->place_capacity; before++) all->places[before].epoch = 0;
    for (; place != FS_NONE && depth < DEEPEST;
         place = ((const fs_hlo_place *)fs_intern_get(&all->describer.places, place).bytes)->parent) {
        if (all->places[place].epoch == all->epoch) {
            *parent = all->places[place].event;
            break;
        }
        missing[depth++] = place;
    }
    while (depth-- > 0) {
        const fs_hlo_place *one = fs_intern_get(&all->describer.places, missing[depth]).bytes;
        FS_TRY(append(all, FS_EVENT_FRAME, one->name, FS_NONE, *parent, timing, parent, err));
        all->places[missing[depth]] = (copied){*parent, all->epoch};
    }
    return FS_OK;
}

/* Whether an instruction of a TPU is a part of an asynchronous one, "-start" or "-done". The device does its work
 * between the two, while other instructions run: none of it in the time of either. */
static bool is_part(const joining *all, uint32_t module, uint32_t instruction, const char *end)
{
    const char *opcode = fs_hlo_text(&all->modules[module], all->modules[module].instructions[instruction].opcode);
    return all->named && opcode != NULL && fs_text_ends((fs_text){opcode, strlen(opcode)}, end);
}

/* The works of modules that ran, of all their instructions at once. */
static fs_status cost_of(joining *all, uint32_t module, uint32_t instruction, fs_hlo_work *cost, fs_error *err)
{
    if (all->costs[module] == NULL) {
        fs_hlo_step *steps = NULL;
        uint32_t count = 0;
        FS_TRY(fs_hlo_schedule(&all->modules[module], &steps, &count, err));
        fs_status status = FS_NEW(&all->costs[module], (size_t)all->modules[module].instruction_count + 1, err);
        for (uint32_t i = 0; status == FS_OK && i < all->modules[module].instruction_count; i++)
            all->costs[module][i] = (fs_hlo_work){fs_work_unknown, NAN};
        for (uint32_t i = 0; status == FS_OK && i < count; i++)
            if (!is_part(all, module, steps[i].instruction, "-start"))
                all->costs[module][steps[i].instruction] = steps[i].work;
        fs_free(steps);
        FS_TRY(status);
        FS_TRY(fs_hlo_remarks_make(&all->remarks[module], &all->modules[module], err));
    }
    *cost = all->costs[module][instruction];
    return FS_OK;
}

/* Append the op of an execution before its first work. */
static fs_status give_op(joining *all, const work *of, run *one, uint32_t before, uint8_t timing, fs_error *err)
{
    fs_hlo_described *described = &all->described[one->module][one->instruction];
    uint32_t parent;
    if (described->name == FS_NONE) {
        fs_hlo_work cost;
        FS_TRY(cost_of(all, one->module, one->instruction, &cost, err));
        uint32_t number = one->module != all->biggest ? all->numbers[one->module] : 0;
        FS_TRY(fs_hlo_describe(&all->describer, &all->remarks[one->module], one->instruction, &cost, number, described,
                               err));
    }
    set_scene(all, of, before);
    FS_TRY(append_places(all, described->place, timing, &parent, err));
    return append(all, FS_EVENT_OP, described->name, described->signature, parent, timing, &one->op, err);
}

/* Give a kernel the collective of its instruction; of one that the call which launched it told of, what is missing. If
 * several kernels may be the transfer, none gets its size. */
static fs_status give_collective(joining *all, const run *one, fs_tie_proof proof, fs_event *event, fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES];
    char group[FS_HLO_GROUP_NAME];
    fs_collective told, collective;
    fs_launch launch;
    bool named = fs_names_communicate(&all->names, event->name);
    if (event->kind != FS_EVENT_KERNEL || event->signature == FS_NONE || proof == FS_TIE_GUESSED) return FS_OK;
    if ((!named && one->kernels > 1) || is_part(all, one->module, one->instruction, "-start")) return FS_OK;
    bool waits = is_part(all, one->module, one->instruction, "-done");
    uint32_t of = waits ? fs_hlo_operand(&all->modules[one->module], one->instruction, 0) : one->instruction;
    fs_span signature = fs_store_signature_bytes(all->from, event->signature);
    if (!fs_launch_decode(signature.bytes, &launch)) return FS_OK;
    if (of == FS_NONE || !fs_hlo_collective(&all->modules[one->module], of, &collective, group)) return FS_OK;
    if (waits || (named && one->communicating > 1)) collective.in_elements = collective.out_elements = FS_MISSING;
    if (fs_collective_decode(signature, &told)) {
        if (told.group_size == 0) told.group_size = collective.group_size;
        if (told.in_elements == FS_MISSING && told.out_elements == FS_MISSING) {
            told.in_elements = collective.in_elements;
            told.out_elements = collective.out_elements;
            told.dtype = collective.dtype;
        }
        collective = told;
    }
    memcpy(bytes, signature.bytes, FS_LAUNCH_BYTES);
    return fs_store_signature(all->into, bytes, fs_collective_encode(&collective, bytes), &event->signature, err);
}

static fs_status copy_events(joining *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->from);
    FS_TRY(FS_NEW_ZEROED(&all->by_event, (size_t)count + 1, err));
    FS_TRY(FS_NEW(&all->moved, (size_t)count + 1, err));
    for (uint32_t i = 0; i < all->work_count; i++) all->by_event[all->works[i].event] = i + 1;
    fs_store_expect(all->into, count + all->run_count);
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        fs_event event;
        fs_store_get(all->from, i, &event);
        event.parent = moved(all, event.parent, i);
        event.launcher = moved(all, event.launcher, i);
        const work *of = all->by_event[i] != 0 ? &all->works[all->by_event[i] - 1] : NULL;
        if (of != NULL && of->run != FS_NONE) {
            run *one = &all->runs[of->run];
            if (one->op == FS_NONE) FS_TRY(give_op(all, of, one, i, event.timing, err));
            fs_tie_proof proof = (fs_tie_proof)all->ties[of - all->works].proof;
            event.launcher = one->op;
            if (proof == FS_TIE_GUESSED) event.flags |= FS_EVENT_ESTIMATED;
            FS_TRY(give_collective(all, one, proof, &event, err));
        }
        FS_TRY(fs_store_append(all->into, &event, &all->moved[i], err));
    }
    fs_store_copy_forwards(all->into, all->from, all->moved);
    return FS_OK;
}

static void clear(joining *all)
{
    for (uint32_t i = 0; i < all->module_count; i++) {
        if (all->described != NULL) fs_free(all->described[i]);
        if (all->costs != NULL) fs_free(all->costs[i]);
        if (all->remarks != NULL) fs_hlo_remarks_clear(&all->remarks[i]);
    }
    void *blocks[] = {all->remarks, all->described, all->costs, all->ran,      all->works,   all->aligned,
                      all->ties,    all->runs,      all->moved, all->by_event, all->numbers, all->places};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_schedules_clear(&all->schedules);
    fs_api_calls_clear(&all->calls);
    fs_names_clear(&all->names);
    fs_hlo_describer_clear(&all->describer);
}

static fs_status join(joining *all, const fs_hlo_given *given, uint32_t given_count, fs_error *err)
{
    FS_TRY(FS_NEW_ZEROED(&all->described, (size_t)all->module_count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&all->costs, (size_t)all->module_count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&all->ran, (size_t)all->module_count + 1, err));
    FS_TRY(FS_NEW_ZEROED(&all->remarks, (size_t)all->module_count + 1, err));
    for (uint32_t i = 0; i < all->module_count; i++) FS_TRY(add_module(all, i, err));
    FS_TRY(fs_api_calls_create(&all->calls, all->from, err));
    FS_TRY(fs_names_create(&all->names, all->from, err));
    FS_TRY(list_works(all, err));
    FS_TRY(tie_works(all, given, given_count, err));
    FS_TRY(fs_store_copy_ids(all->into, all->from, err));
    FS_TRY(copy_events(all, err));
    FS_TRY(
        fs_stacks_append(fs_store_stacks(all->into), fs_store_stacks(all->from), NULL, 0, INT64_MIN, INT64_MAX, err));
    return fs_store_copy_samples(all->into, all->from, 0, err);
}

fs_status fs_hlo_join(const fs_store *from, const fs_hlo_module *modules, uint32_t module_count,
                      const fs_hlo_given *given, uint32_t given_count, fs_store *into, fs_hlo_report *report,
                      fs_error *err)
{
    joining all = {.from = from,
                   .into = into,
                   .modules = modules,
                   .module_count = module_count,
                   .report = report,
                   .schedules = {.numbered = given_count > 0},
                   .describer = {.store = into},
                   .named = fs_store_accelerator(from) == FS_ACCELERATOR_TPU};
    *report = (fs_hlo_report){0};
    fs_status status = join(&all, given, given_count, err);
    clear(&all);
    return status;
}
