/* Sizes follow from the shapes of the operands and, where the ranks' parts are put together, of the result. */
#include "work/hlo/collective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "work/collective_sizes.h"
#include "work/hlo/cost_parts.h"

/* Which shapes give the sizes that a rank sends and receives. */
typedef enum { UNSIZED, OPERANDS, RESULT, BOTH } sized_by;

static const struct {
    const char *opcode, *name; /* the name is Kineto's */
    sized_by sized;
    bool global; /* whether it has use_global_device_ids */
} kinds[] = {
    {"all-gather", "allgather", BOTH, true},
    {"all-reduce", "allreduce", OPERANDS, true},
    {"all-to-all", "alltoall", OPERANDS, false},
    {"collective-broadcast", "broadcast", OPERANDS, false},
    {"collective-permute", "sendrecv", OPERANDS, false},
    {"ragged-all-to-all", "alltoall", UNSIZED, false}, /* its values tell how much */
    {"recv", "recv", RESULT, false},
    {"reduce-scatter", "reducescatter", BOTH, true},
    {"send", "send", OPERANDS, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const double MOST_BYTES = 0x1p62;

/* Return the kind of an instruction, also of one that starts it; KINDS: none. */
static size_t kind_of(const fs_hlo_module *module, uint32_t id)
{
    const char *opcode = fs_hlo_text(module, module->instructions[id].opcode);
    size_t kind = 0;
    for (; opcode != NULL && kind < KINDS; kind++) {
        size_t size = strlen(kinds[kind].opcode);
        if (strncmp(opcode, kinds[kind].opcode, size) == 0 && (opcode[size] == 0 || !strcmp(opcode + size, "-start")))
            break;
    }
    return opcode != NULL ? kind : (size_t)KINDS;
}

static bool is_fusion(const fs_hlo_module *module, uint32_t id)
{
    return fs_hlo_is(module, id, "fusion") || fs_hlo_is(module, id, "fusion-start") ||
           fs_hlo_is(module, id, "async-start");
}

/* Return the collective in an instruction: itself, or the only one in the body of a fusion or of what runs beside. */
static uint32_t collective_in(const fs_hlo_module *module, uint32_t id, size_t *kind)
{
    uint32_t found = FS_NONE, body = is_fusion(module, id) ? fs_hlo_called(module, id, 0) : FS_NONE;
    *kind = kind_of(module, id);
    if (*kind < KINDS || body == FS_NONE) return *kind < KINDS ? id : FS_NONE;
    fs_hlo_list list = module->computations[body].instructions;
    for (uint32_t i = list.first; i < list.first + list.count; i++) {
        size_t one = kind_of(module, i);
        if (one == KINDS) continue;
        if (found != FS_NONE) return FS_NONE;
        found = i;
        *kind = one;
    }
    return found;
}

/* Return whether groups that are left out or empty stand for all devices. */
static bool is_all(const char *groups)
{
    return groups == NULL || strcmp(groups, "{}") == 0;
}

/* Return the number of ranks, 0 if it is unknown. Ids are of devices; or, of a call without a channel, of replicas;
 * or of partitions, except where the opcode could say that they are of devices and does not: then they are of replicas,
 * and all of their partitions take part. Without groups, all do. Source: XLA, collective_op_group_mode.h. */
static int32_t ranks_of(const fs_hlo_module *module, uint32_t id, size_t kind)
{
    uint32_t count;
    const int64_t *size = fs_hlo_values(module, id, FS_HLO_GROUP_SIZE, &count);
    const int64_t *channel = fs_hlo_values(module, id, FS_HLO_CHANNEL, &count);
    const char *groups = fs_hlo_text(module, module->instructions[id].groups);
    bool channels = channel != NULL && *channel > 0, across = channels && kinds[kind].global;
    if (size == NULL && !is_all(groups)) return 0;
    int64_t ranks = size != NULL ? *size : channels && !across ? module->partitions : module->replicas;
    bool global = fs_hlo_values(module, id, FS_HLO_GLOBAL_IDS, &count) != NULL;
    if (across && !global && __builtin_mul_overflow(ranks, (int64_t)module->partitions, &ranks)) return 0;
    return ranks > 1 && ranks < INT32_MAX ? (int32_t)ranks : 0;
}

/* What is sent or received: of one type, FS_HLO_TUPLE for several. */
typedef struct {
    double bytes, elements;
    fs_hlo_type type;
} amount;

static void add_shape(const fs_hlo_module *module, uint32_t shape, amount *sum)
{
    const fs_hlo_shape *of = shape != FS_NONE ? &module->shapes[shape] : NULL;
    for (uint32_t i = 0; of != NULL && i < of->parts.count; i++)
        add_shape(module, module->shape_parts[of->parts.first + i], sum);
    if (of != NULL && (of->parts.count > 0 || of->type == FS_HLO_TOKEN)) return;
    sum->bytes += of != NULL ? fs_hlo_bytes(module, shape) : (double)NAN;
    sum->elements += of != NULL ? fs_hlo_elements(module, shape) : (double)NAN;
    if (of != NULL) sum->type = sum->type == FS_HLO_INVALID || sum->type == of->type ? of->type : FS_HLO_TUPLE;
}

/* A collective-permute of parts of its operands has the starts and sizes of these: their amount is unknown. */
static amount sent_by(const fs_hlo_module *module, uint32_t id)
{
    amount sum = {.type = FS_HLO_INVALID};
    uint32_t sizes, count = module->instructions[id].operands.count;
    fs_hlo_values(module, id, FS_HLO_SLICE_SIZES, &sizes);
    if (count == 0 || sizes > 0) sum.bytes = NAN;
    for (uint32_t i = 0; i < count; i++) add_shape(module, fs_hlo_operand_shape(module, id, i), &sum);
    return sum;
}

static void set_sizes(const fs_hlo_module *module, uint32_t id, size_t kind, fs_collective *collective)
{
    sized_by by = kinds[kind].sized;
    amount sent = {.bytes = NAN}, received = sent;
    if (by == OPERANDS || by == BOTH) sent = sent_by(module, id);
    if (by == RESULT || by == BOTH) received = (amount){.type = FS_HLO_INVALID};
    if (by == RESULT || by == BOTH) add_shape(module, fs_hlo_result(module, id), &received);
    const amount *known = by == RESULT ? &received : &sent;
    const fs_torch_dtype_row *dtype = &fs_torch_dtypes[fs_hlo_dtype(module, module->instructions[id].shape)];
    bool whole = known->type != FS_HLO_TUPLE && dtype->size > 0 && known->elements * dtype->size == known->bytes;
    fs_collective_set_dtype(collective, whole ? dtype->name : "");
    fs_collective_sizes sizes = {FS_MISSING, FS_MISSING, NULL};
    if (sent.bytes < MOST_BYTES) sizes.sent = (int64_t)sent.bytes / collective->element_size;
    if (received.bytes < MOST_BYTES) sizes.received = (int64_t)received.bytes / collective->element_size;
    if (!fs_collective_complete(fs_collective_kind_of(kinds[kind].name), &sizes, &collective->group_size)) return;
    collective->in_elements = sizes.sent;
    collective->out_elements = sizes.received;
}

/* Write the name of a group. Pairs, and groups of all devices, are one. */
static void write_group(const fs_hlo_module *module, uint32_t id, int32_t ranks, char *name)
{
    const char *groups = fs_hlo_text(module, module->instructions[id].groups);
    double devices = (double)module->partitions * module->replicas; /* 1: unknown, if several communicate */
    bool whole = is_all(groups) || (devices > 1 && ranks >= devices);
    if (fs_hlo_is(module, id, "collective-permute") || fs_hlo_is(module, id, "collective-permute-start")) whole = true;
    snprintf(name, FS_HLO_GROUP_NAME, "%s%s", whole ? "" : FS_HLO_ONE_OF, groups != NULL ? groups : "");
}

bool fs_hlo_communicates(const fs_hlo_module *module, uint32_t instruction)
{
    size_t kind;
    return collective_in(module, instruction, &kind) != FS_NONE;
}

bool fs_hlo_collective(const fs_hlo_module *module, uint32_t instruction, fs_collective *collective, char *group)
{
    size_t kind;
    uint32_t id = collective_in(module, instruction, &kind);
    *collective = fs_collective_missing;
    if (id == FS_NONE) return false;
    collective->name = (fs_collective_text){kinds[kind].name, strlen(kinds[kind].name)};
    collective->group_size = ranks_of(module, id, kind);
    write_group(module, id, collective->group_size, group);
    collective->group = (fs_collective_text){group, strlen(group)};
    set_sizes(module, id, kind, collective);
    return true;
}
