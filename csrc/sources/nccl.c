/* Groups nest, and the end of the outermost launches: so calls become launches, by thread and in the order of the
 * store, and each launch is matched with the kernels below it. A message is set only if one launch has one kernel and
 * its calls agree on the communicator; a sum that overflows is missing. */
#include "sources/nccl.h"

#include <stdio.h>
#include <string.h>

#include "base/id_map.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "base/text.h"
#include "sources/kineto/records.h"
#include "store/api_calls.h"
#include "store/collective.h"
#include "store/event.h"
#include "store/signature.h"

/* Calls ------------------------------------------------------------------------------------------------------------ */

/* What a rank sends and receives, in sizes of the payload: none, one, or one for each rank. */
typedef enum { NONE, ONE, EACH } share;

/* NCCL's calls after "nccl". The name is Kineto's. */
static const struct {
    const char *call, *name;
    share sent, received;
} kinds[] = {
    {"AllReduce", "allreduce", ONE, ONE},
    {"AllGather", "allgather", ONE, EACH},
    {"ReduceScatter", "reducescatter", EACH, ONE},
    {"Broadcast", "broadcast", ONE, ONE},
    {"Bcast", "broadcast", ONE, ONE},
    {"Reduce", "reduce", ONE, ONE},
    {"AlltoAll", "alltoall", EACH, EACH},
    {"AllToAll", "alltoall", EACH, EACH},
    {"Gather", "gather", ONE, EACH},
    {"Scatter", "scatter", EACH, ONE},
    {"Send", "send", ONE, NONE},
    {"Recv", "recv", NONE, ONE},
};
enum { KINDS = sizeof kinds / sizeof *kinds };
_Static_assert((int)KINDS <= (int)FS_NCCL_GROUP_START, "the first numbers are those of the kinds");

uint8_t fs_nccl_kind(fs_span text)
{
    static const char prefix[] = "nccl";
    size_t size = sizeof prefix - 1;
    if (text.size < size || memcmp(text.bytes, prefix, size) != 0) return FS_NCCL_NO_CALL;
    fs_text rest = {(const char *)text.bytes + size, text.size - size};
    for (unsigned kind = 0; kind < KINDS; kind++)
        if (fs_text_is(rest, kinds[kind].call)) return (uint8_t)kind;
    if (fs_text_is(rest, "GroupStart")) return FS_NCCL_GROUP_START;
    return fs_text_is(rest, "GroupEnd") ? FS_NCCL_GROUP_END : FS_NCCL_COMMUNICATOR;
}

/* Launches --------------------------------------------------------------------------------------------------------- */

/* What launches kernels: a call outside of any group, or the end of a group. */
typedef struct {
    uint32_t event;        /* of the store */
    uint32_t first, count; /* of the calls */
    uint32_t kernels;      /* of NCCL that it launched */
} launching;

typedef struct {
    fs_store *store;
    fs_nccl_call *calls; /* the caller's, by thread and start */
    uint32_t call_count;
    fs_id_map ranks; /* by communicator */
    launching *launches;
    uint32_t launch_count;
    fs_api_calls api_calls;
    uint8_t *names; /* by name of the store: whether it is a kernel of NCCL */
} joining;

FS_ORDER_BY(compare_calls, fs_nccl_call, lane, event)

/* Order the calls as their threads made them, and take out the communicators, whose ranks are listed. */
static fs_status list_calls(joining *all, uint32_t count, fs_nccl_report *report, fs_error *err)
{
    FS_TRY(FS_NEW(&all->launches, (size_t)count + 1, err));
    for (uint32_t i = 0; i < count; i++) {
        const fs_nccl_call call = all->calls[i];
        report->unsized += call.kind < KINDS && call.size == FS_MISSING;
        if (call.kind != FS_NCCL_COMMUNICATOR) all->calls[all->call_count++] = call;
        else if (call.ranks > 0)
            FS_TRY(fs_id_map_set(&all->ranks, (int64_t)call.communicator, 0, (uint32_t)call.ranks, err));
    }
    return fs_sort(all->calls, all->call_count, sizeof *all->calls, compare_calls, err);
}

/* Find the launches of each thread, and leave the calls alone. */
static void list_launches(joining *all)
{
    uint32_t depth = 0, first = 0, kept = 0;
    for (uint32_t i = 0; i < all->call_count; i++) {
        const fs_nccl_call call = all->calls[i];
        if (i > 0 && call.lane != all->calls[i - 1].lane) depth = 0;
        if (call.kind == FS_NCCL_GROUP_START) {
            if (depth++ == 0) first = kept;
        } else if (call.kind == FS_NCCL_GROUP_END) {
            bool outermost = depth == 1;
            depth -= depth > 0;
            if (!outermost || first == kept) continue;
            all->launches[all->launch_count++] = (launching){call.event, first, kept - first, 0};
        } else {
            if (depth == 0) all->launches[all->launch_count++] = (launching){call.event, kept, 1, 0};
            all->calls[kept++] = call;
        }
    }
}

FS_ORDER_BY(compare_launches, launching, event)

static launching *launch_of(const joining *all, uint32_t event)
{
    uint32_t low = FS_FIRST_NOT(i, 0, all->launch_count, all->launches[i].event < event);
    return low < all->launch_count && all->launches[low].event == event ? &all->launches[low] : NULL;
}

static bool is_nccl(joining *all, uint32_t name)
{
    if (name == FS_NONE) return false;
    if (all->names[name] == 0) {
        const char *text = fs_store_name_text(all->store, name);
        all->names[name] = strstr(text, "nccl") != NULL || strstr(text, "Nccl") != NULL ? 2 : 1;
    }
    return all->names[name] == 2;
}

/* Return what launched a kernel of NCCL: the innermost around its API call. NULL for other work, and for kernels of
 * replayed graphs, whose call is that of the replay. */
static launching *launch_at(joining *all, const fs_chunk *chunk, uint32_t at)
{
    fs_launch launch;
    if (chunk->kind[at] != FS_EVENT_KERNEL || !is_nccl(all, chunk->name[at]) || chunk->signature[at] == FS_NONE)
        return NULL;
    const void *bytes = fs_store_signature_bytes(all->store, chunk->signature[at]).bytes;
    if (!fs_launch_decode(bytes, &launch) || launch.graph_node != 0) return NULL;
    uint32_t event = fs_api_calls_find(&all->api_calls, chunk->correlation[at]);
    for (; event != FS_NONE; event = FS_EVENT_AT(all->store, event, parent)) {
        launching *found = launch_of(all, event);
        if (found != NULL) return found;
    }
    return NULL;
}

/* Messages --------------------------------------------------------------------------------------------------------- */

/* Return what the calls sent or received of a size; FS_MISSING if the number of ranks is unknown. */
static int64_t amount(share part, int64_t size, int32_t ranks)
{
    int64_t all;
    if (part == NONE) return 0;
    if (part == ONE) return size;
    return ranks > 0 && !__builtin_mul_overflow(size, ranks, &all) && all <= FS_MOST_AMOUNT ? all : FS_MISSING;
}

static bool add_amount(int64_t *sum, int64_t more)
{
    return *sum != FS_MISSING && more != FS_MISSING && !__builtin_add_overflow(*sum, more, sum);
}

static bool exchanges(uint8_t kind)
{
    return kinds[kind].sent == NONE || kinds[kind].received == NONE;
}

/* Combine the calls of a launch; false if they are of several communicators or kinds. */
static bool combine(const joining *all, const launching *launch, fs_collective *collective, char group[32])
{
    const fs_nccl_call *calls = &all->calls[launch->first];
    /* Older versions of NCCL tell the size alone. */
    uint32_t ranks = calls->known ? fs_id_map_get(&all->ranks, (int64_t)calls->communicator, 0) : FS_NONE;
    const char *name = kinds[calls->kind].name;
    int64_t sent = 0, received = 0;
    bool sized = true;
    collective->group_size = ranks != FS_NONE ? (int32_t)ranks : 0;
    for (uint32_t i = 0; i < launch->count; i++) {
        uint8_t kind = calls[i].kind;
        if (calls[i].known != calls->known || calls[i].communicator != calls->communicator) return false;
        if (!calls[i].known && calls[i].size == FS_MISSING) return false;
        if (kind != calls->kind && !(exchanges(kind) && exchanges(calls->kind))) return false;
        if (kind != calls->kind) name = "sendrecv";
        sized = sized && add_amount(&sent, amount(kinds[kind].sent, calls[i].size, collective->group_size)) &&
                add_amount(&received, amount(kinds[kind].received, calls[i].size, collective->group_size));
    }
    int size = calls->known ? snprintf(group, 32, "0x%016llx", (unsigned long long)calls->communicator) : 0;
    collective->name = (fs_collective_text){name, strlen(name)};
    collective->group = (fs_collective_text){group, (size_t)size};
    if (sized) { /* without both, the larger of them is unknown */
        collective->dtype = (fs_collective_text){"bytes", 5};
        collective->in_elements = sent;
        collective->out_elements = received;
    }
    return true;
}

/* Whether an op around the launch is an all-to-all, which consists of sends and receives. */
static bool is_all_to_all(const joining *all, const launching *launch)
{
    static const char op[] = "c10d::alltoall";
    for (uint32_t event = launch->event; event != FS_NONE; event = FS_EVENT_AT(all->store, event, parent)) {
        uint32_t name = FS_EVENT_AT(all->store, event, name);
        if (name != FS_NONE && strncmp(fs_store_name_text(all->store, name), op, sizeof op - 1) == 0) return true;
    }
    return false;
}

static fs_status set_message(joining *all, uint32_t index, const launching *launch, fs_nccl_report *report,
                             fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES];
    char group[32];
    fs_collective collective = fs_collective_missing;
    fs_event event;
    fs_store_get(all->store, index, &event);
    if (launch->kernels != 1 || !combine(all, launch, &collective, group)) return FS_OK;
    if (exchanges(all->calls[launch->first].kind) && is_all_to_all(all, launch))
        collective.name = (fs_collective_text){"alltoall", 8};
    memcpy(bytes, fs_store_signature_bytes(all->store, event.signature).bytes, FS_LAUNCH_BYTES);
    size_t size = fs_collective_encode(&collective, bytes);
    FS_TRY(fs_store_signature(all->store, bytes, size, &event.signature, err));
    fs_store_set(all->store, index, &event);
    report->messages++;
    return FS_OK;
}

/* Count the kernels of each launch, or give them their messages. */
static fs_status visit_kernels(joining *all, fs_nccl_report *report, bool counted, fs_error *err)
{
    FS_EACH_EVENT(all->store, index, chunk, at) {
        FS_POLL(index, err);
        launching *launch = launch_at(all, chunk, at);
        if (launch == NULL) continue;
        if (counted) FS_TRY(set_message(all, index, launch, report, err));
        else launch->kernels++;
    }
    return FS_OK;
}

static fs_status join_all(joining *all, uint32_t count, fs_nccl_report *report, fs_error *err)
{
    FS_TRY(list_calls(all, count, report, err));
    list_launches(all);
    if (all->launch_count == 0) return FS_OK;
    FS_TRY(fs_sort(all->launches, all->launch_count, sizeof *all->launches, compare_launches, err));
    FS_TRY(FS_NEW_ZEROED(&all->names, fs_store_name_count(all->store), err));
    FS_TRY(fs_api_calls_create(&all->api_calls, all->store, err));
    FS_TRY(visit_kernels(all, report, false, err));
    return visit_kernels(all, report, true, err);
}

fs_status fs_nccl_join(fs_store *store, fs_nccl_call *calls, uint32_t count, fs_nccl_report *report, fs_error *err)
{
    joining all = {.store = store, .calls = calls};
    fs_status status = count > 0 ? join_all(&all, count, report, err) : FS_OK;
    fs_free(all.launches);
    fs_free(all.names);
    fs_api_calls_clear(&all.api_calls);
    fs_id_map_clear(&all.ranks);
    return status;
}
