/* Payloads are read by their recorded schema: a field is used only if its name is one of NCCL's and its width is known,
 * and it is read only if it lies within the bytes. Groups nest, and the end of the outermost launches: so calls become
 * launches, by thread and in the order of the store, and each launch is matched with the kernels below it. A message is
 * set only if one launch has one kernel and its calls agree on the communicator; a sum that overflows is missing. */
#include "sources/sqlite/nccl.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "store/api_calls.h"
#include "store/collective.h"
#include "store/event.h"
#include "store/signature.h"

/* Payloads --------------------------------------------------------------------------------------------------------- */

/* The fields that are used, by NCCL's names for them. */
static const char *const field_names[FS_PAYLOAD_FIELD_COUNT] = {
    [FS_PAYLOAD_COMMUNICATOR] = "NCCL communicator ID",
    [FS_PAYLOAD_SIZE] = "Message size [bytes]",
    [FS_PAYLOAD_RANKS] = "No. of ranks",
};

/* The widths of integers, by their types in nvToolsExtPayload.h (NVTX_PAYLOAD_ENTRY_TYPE_…); 0: no integer, or a small
 * one. */
static const uint8_t widths[] = {
    [5] = 4, [6] = 4, [7] = 8, [8] = 8, [9] = 8, [10] = 8, [15] = 4, [16] = 4, [17] = 8, [18] = 8, [22] = 8,
};

/* A payload follows a header of four numbers of 8 bytes: the domain, the schema, the size and where it begins. */
enum { HEADER = 32, SCHEMA_AT = 8, MOST_OFFSET = 1 << 16 };

fs_status fs_rows_keep_field(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    const fs_cell *name = &cells[FS_CELL_NAME], *type = &cells[FS_CELL_TYPE], *offset = &cells[FS_CELL_VALUE];
    int field = 0;
    while (field < FS_PAYLOAD_FIELD_COUNT && (name->type != FS_IS_TEXT || name->size != strlen(field_names[field]) ||
                                              memcmp(name->text, field_names[field], name->size) != 0))
        field++;
    bool known = type->type == FS_IS_INTEGER && type->integer >= 0 && type->integer < (int64_t)sizeof widths;
    uint8_t width = known ? widths[type->integer] : 0;
    int64_t at = offset->type == FS_IS_INTEGER ? offset->integer : 0; /* the first field has none */
    if (field == FS_PAYLOAD_FIELD_COUNT || width == 0 || at < 0 || at > MOST_OFFSET) return FS_OK;
    if (cells[FS_CELL_ID].type != FS_IS_INTEGER || cells[FS_CELL_DOMAIN].type != FS_IS_INTEGER) return FS_OK;
    int64_t schema = cells[FS_CELL_ID].integer, domain = cells[FS_CELL_DOMAIN].integer;
    uint32_t place = fs_id_map_get(&rows->payload_ids, schema, domain);
    if (place == FS_NONE) {
        FS_TRY(FS_LIST_ROOM(&rows->payloads, rows->payload_count, &rows->payload_capacity, 8, "payloads", err));
        place = rows->payload_count;
        FS_TRY(fs_id_map_set(&rows->payload_ids, schema, domain, place, err));
        rows->payloads[rows->payload_count++] = (fs_payload){.widths = {0}};
    }
    rows->payloads[place].widths[field] = width;
    rows->payloads[place].offsets[field] = (uint32_t)at;
    return FS_OK;
}

static uint64_t read_number(const char *bytes, uint8_t width)
{
    uint64_t value = 0;
    memcpy(&value, bytes, width); /* little-endian, as the recording machine's */
    return value;
}

/* Return a field of a row's payload; false if it has none. */
static bool read_field(const fs_rows *rows, const fs_cell *cells, fs_payload_field field, uint64_t *value)
{
    const fs_cell *bytes = &cells[FS_CELL_PAYLOAD];
    if (bytes->type != FS_IS_TEXT || bytes->size < HEADER || cells[FS_CELL_DOMAIN].type != FS_IS_INTEGER) return false;
    int64_t schema = (int64_t)read_number(bytes->text + SCHEMA_AT, 8);
    uint32_t place = fs_id_map_get(&rows->payload_ids, schema, cells[FS_CELL_DOMAIN].integer);
    if (place == FS_NONE) return false;
    const fs_payload *payload = &rows->payloads[place];
    size_t at = HEADER + (size_t)payload->offsets[field];
    if (payload->widths[field] == 0 || at + payload->widths[field] > bytes->size) return false;
    *value = read_number(bytes->text + at, payload->widths[field]);
    return true;
}

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
enum { KINDS = sizeof kinds / sizeof *kinds, GROUP_START = KINDS, GROUP_END, COMMUNICATOR, NO_CALL };

static bool is_text(fs_span text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.bytes, word, text.size) == 0;
}

static uint8_t kind_of(fs_span text)
{
    static const char prefix[] = "nccl";
    size_t size = sizeof prefix - 1;
    if (text.size < size || memcmp(text.bytes, prefix, size) != 0) return NO_CALL;
    fs_span rest = {(const char *)text.bytes + size, text.size - (uint32_t)size, 0};
    for (unsigned kind = 0; kind < KINDS; kind++)
        if (is_text(rest, kinds[kind].call)) return (uint8_t)kind;
    if (is_text(rest, "GroupStart")) return GROUP_START;
    return is_text(rest, "GroupEnd") ? GROUP_END : COMMUNICATOR;
}

fs_status fs_part_add_nccl(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_span text, fs_record *record,
                           fs_error *err)
{
    uint64_t size = 0, ranks = 0;
    fs_nccl_call call = {.record = record, .kind = kind_of(text), .size = FS_MISSING};
    if (rows->payload_count == 0 || call.kind == NO_CALL) return FS_OK;
    call.known = read_field(rows, cells, FS_PAYLOAD_COMMUNICATOR, &call.communicator);
    if (call.kind == COMMUNICATOR) {
        if (!call.known || !read_field(rows, cells, FS_PAYLOAD_RANKS, &ranks) || ranks > INT32_MAX) return FS_OK;
        call.ranks = (int32_t)ranks;
    } else if (read_field(rows, cells, FS_PAYLOAD_SIZE, &size) && size <= FS_MOST_AMOUNT) {
        call.size = (int64_t)size;
    }
    FS_TRY(FS_LIST_ROOM(&part->calls, part->call_count, &part->call_capacity, 64, "calls of NCCL", err));
    part->calls[part->call_count++] = call;
    return FS_OK;
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
    fs_nccl_call *calls; /* of all parts, by thread and start */
    uint32_t call_count;
    fs_id_map ranks; /* by communicator */
    launching *launches;
    uint32_t launch_count;
    fs_api_calls api_calls;
    uint8_t *names; /* by name of the store: whether it is a kernel of NCCL */
} joining;

static int compare_calls(const void *left, const void *right)
{
    const fs_nccl_call *a = left, *b = right;
    if (a->record->lane != b->record->lane) return a->record->lane < b->record->lane ? -1 : 1;
    return (a->record->index > b->record->index) - (a->record->index < b->record->index);
}

/* List the calls in the order of the store's events, and the ranks of the communicators. */
static fs_status list_calls(const fs_rows *rows, joining *all, fs_rows_report *report, fs_error *err)
{
    size_t count = 0;
    for (uint32_t i = 0; i < rows->part_count; i++) count += rows->parts[i]->call_count;
    all->calls = fs_malloc((count + 1) * sizeof *all->calls);
    all->launches = fs_malloc((count + 1) * sizeof *all->launches);
    if (all->calls == NULL || all->launches == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %zu calls of NCCL", count);
    for (uint32_t i = 0; i < rows->part_count; i++) {
        for (uint32_t at = 0; at < rows->parts[i]->call_count; at++) {
            const fs_nccl_call *call = &rows->parts[i]->calls[at];
            report->unsized += call->kind < KINDS && call->size == FS_MISSING;
            if (call->kind != COMMUNICATOR) all->calls[all->call_count++] = *call;
            else if (call->ranks > 0)
                FS_TRY(fs_id_map_set(&all->ranks, (int64_t)call->communicator, 0, (uint32_t)call->ranks, err));
        }
    }
    return fs_sort(all->calls, all->call_count, sizeof *all->calls, compare_calls, "calls of NCCL", err);
}

/* Find the launches, in order of their events, and leave the calls alone. */
static void list_launches(joining *all)
{
    uint32_t depth = 0, first = 0, kept = 0;
    for (uint32_t i = 0; i < all->call_count; i++) {
        const fs_nccl_call call = all->calls[i];
        if (i > 0 && call.record->lane != all->calls[i - 1].record->lane) depth = 0;
        if (call.kind == GROUP_START) {
            if (depth++ == 0) first = kept;
        } else if (call.kind == GROUP_END) {
            bool outermost = depth == 1;
            depth -= depth > 0;
            if (!outermost || first == kept) continue;
            all->launches[all->launch_count++] = (launching){call.record->index, first, kept - first, 0};
        } else {
            if (depth == 0) all->launches[all->launch_count++] = (launching){call.record->index, kept, 1, 0};
            all->calls[kept++] = call;
        }
    }
}

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

static fs_status set_message(joining *all, uint32_t index, const launching *launch, fs_rows_report *report,
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
static fs_status visit_kernels(joining *all, fs_rows_report *report, bool counted, fs_error *err)
{
    uint32_t count = fs_store_count(all->store), at;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(all->store, index, &at);
        launching *launch = launch_at(all, chunk, at);
        if (launch == NULL) continue;
        if (counted) FS_TRY(set_message(all, index, launch, report, err));
        else launch->kernels++;
    }
    return FS_OK;
}

static fs_status join_all(const fs_rows *rows, joining *all, fs_rows_report *report, fs_error *err)
{
    FS_TRY(list_calls(rows, all, report, err));
    list_launches(all);
    if (all->launch_count == 0) return FS_OK;
    all->names = fs_calloc(fs_store_name_count(all->store), sizeof *all->names);
    if (all->names == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to find kernels of NCCL");
    FS_TRY(fs_api_calls_create(&all->api_calls, all->store, err));
    FS_TRY(visit_kernels(all, report, false, err));
    return visit_kernels(all, report, true, err);
}

fs_status fs_rows_join_nccl(const fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err)
{
    joining all = {.store = store};
    fs_status status = rows->payload_count > 0 ? join_all(rows, &all, report, err) : FS_OK;
    void *blocks[] = {all.calls, all.launches, all.names};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_api_calls_clear(&all.api_calls);
    fs_id_map_clear(&all.ranks);
    return status;
}
