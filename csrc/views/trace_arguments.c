/* The "args" of a trace's events. Those shared by many events are formatted once. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/saturate.h"
#include "device/occupancy.h"
#include "ops/dtype.h"
#include "store/collective.h"
#include "store/signature.h"
#include "store/torch_signature.h"
#include "views/trace.h"
#include "work/work.h"

/* Ops -------------------------------------------------------------------------------------------------------------- */

/* As Kineto writes it. */
static void put_type(fs_json *json, const fs_argument *argument)
{
    uint8_t dtype = fs_dtypes[argument->dtype].torch;
    const char *name = dtype == FS_TORCH_DTYPE_NONE ? "Scalar" : fs_torch_dtypes[dtype].kineto;
    FS_JSON_LITERAL(json, "\"");
    fs_json_put(json, name, strlen(name));
    FS_JSON_LITERAL(json, "\"");
}

static void put_sizes(fs_json *json, const int64_t *sizes, int count)
{
    FS_JSON_LITERAL(json, "[");
    for (int d = 0; d < count; d++) {
        if (d > 0) FS_JSON_LITERAL(json, ", ");
        fs_json_integer(json, sizes[d]);
    }
    FS_JSON_LITERAL(json, "]");
}

static void put_shape(fs_json *json, const fs_argument *argument)
{
    put_sizes(json, argument->shape, argument->ndim);
}

static void put_strides(fs_json *json, const fs_argument *argument)
{
    int64_t dense[FS_SIGNATURE_MAX_DIMS], stride = 1;
    for (int d = argument->ndim; d-- > 0;) {
        dense[d] = stride;
        if (argument->shape[d] > 1) stride = fs_mul_saturated(stride, argument->shape[d]);
    }
    put_sizes(json, argument->strides != NULL ? argument->strides : dense, argument->ndim);
}

/* One value for each argument of the op, as in a table's input shapes. */
static void put_inputs(fs_json *json, const fs_signature *call, void (*put)(fs_json *, const fs_argument *))
{
    const char *before = "[";
    for (int i = 0; i < call->argument_count; i++) {
        if (call->arguments[i].role == FS_ARGUMENT_OUT) continue;
        fs_json_put(json, before, strlen(before));
        put(json, &call->arguments[i]);
        before = ", ";
    }
    if (*before == '[') FS_JSON_LITERAL(json, "[");
    FS_JSON_LITERAL(json, "]");
}

/* Recorded torch calls: each of the four lists of Kineto's "args". */
typedef void (*put_torch_argument)(fs_json *, const fs_torch_argument *);
typedef void (*put_torch_tensor)(fs_json *, const fs_torch_tensor *);

static void put_torch_list(fs_json *json, const fs_torch_argument *argument, put_torch_tensor put)
{
    const int64_t *at = argument->list;
    fs_torch_tensor tensor;
    FS_JSON_LITERAL(json, "[");
    for (uint32_t i = 0; i < argument->count; i++) {
        if (i > 0) FS_JSON_LITERAL(json, ", ");
        fs_torch_next_tensor(&at, &tensor);
        put(json, &tensor);
    }
    FS_JSON_LITERAL(json, "]");
}

static void put_tensor_shape(fs_json *json, const fs_torch_tensor *tensor)
{
    put_sizes(json, tensor->shape, (int)tensor->ndim);
}

static void put_tensor_strides(fs_json *json, const fs_torch_tensor *tensor)
{
    put_sizes(json, tensor->strides, tensor->strides != NULL ? (int)tensor->ndim : 0);
}

static void put_torch_shape(fs_json *json, const fs_torch_argument *argument)
{
    if (argument->type == FS_TORCH_TENSOR_LIST) put_torch_list(json, argument, put_tensor_shape);
    else put_tensor_shape(json, &argument->tensor);
}

static void put_torch_strides(fs_json *json, const fs_torch_argument *argument)
{
    if (argument->type == FS_TORCH_TENSOR_LIST) put_torch_list(json, argument, put_tensor_strides);
    else put_tensor_strides(json, &argument->tensor);
}

static void put_torch_type(fs_json *json, const fs_torch_argument *argument)
{
    static const char *const words[] = {
        [FS_TORCH_NOTHING] = "",
        [FS_TORCH_TENSOR_LIST] = "TensorList",
        [FS_TORCH_SCALAR] = "Scalar",
        [FS_TORCH_SCALAR_LIST] = "ScalarList",
    };
    bool tensor = argument->type == FS_TORCH_TENSOR;
    fs_json_string(json, tensor ? fs_torch_dtypes[argument->tensor.dtype].kineto : words[argument->type]);
}

static void put_torch_text(fs_json *json, const fs_torch_argument *argument)
{
    fs_json_string(json, argument->text);
}

static void put_torch_inputs(fs_json *json, const fs_torch_call *call, put_torch_argument put)
{
    FS_JSON_LITERAL(json, "[");
    for (uint32_t i = 0; i < call->count; i++) {
        if (i > 0) FS_JSON_LITERAL(json, ", ");
        put(json, &call->arguments[i]);
    }
    FS_JSON_LITERAL(json, "]");
}

static void put_torch_call(fs_json_members *members, const fs_torch_call *call)
{
    FS_JSON_KEY(members, "Concrete Inputs");
    put_torch_inputs(members->json, call, put_torch_text);
    FS_JSON_KEY(members, "Input type");
    put_torch_inputs(members->json, call, put_torch_type);
    FS_JSON_KEY(members, "Input Strides");
    put_torch_inputs(members->json, call, put_torch_strides);
    FS_JSON_KEY(members, "Input Dims");
    put_torch_inputs(members->json, call, put_torch_shape);
}

#define KNOWN_NUMBER(members, name, value)          \
    do {                                            \
        if (!isnan(value)) {                        \
            FS_JSON_KEY(members, name);             \
            fs_json_number((members)->json, value); \
        }                                           \
    } while (0)

#define KNOWN_INTEGER(members, name, value, missing) \
    do {                                             \
        if ((value) != (missing)) {                  \
            FS_JSON_KEY(members, name);              \
            fs_json_integer((members)->json, value); \
        }                                            \
    } while (0)

#define KNOWN_TEXT(members, name, value)                   \
    do {                                                   \
        if ((value).size > 0) {                            \
            FS_JSON_KEY(members, name);                    \
            fs_json_string((members)->json, (value).text); \
        }                                                  \
    } while (0)

/* As Kineto writes it. */
static void put_collective(fs_json_members *members, fs_span bytes)
{
    fs_collective collective;
    if (!fs_collective_decode(bytes, &collective)) return;
    KNOWN_TEXT(members, "Collective name", collective.name);
    KNOWN_INTEGER(members, "In msg nelems", collective.in_elements, FS_MISSING);
    KNOWN_INTEGER(members, "Out msg nelems", collective.out_elements, FS_MISSING);
    KNOWN_INTEGER(members, "Group size", collective.group_size, 0);
    KNOWN_TEXT(members, "dtype", collective.dtype);
    KNOWN_TEXT(members, "Process Group Name", collective.group);
    KNOWN_TEXT(members, "Process Group Ranks", collective.ranks);
    KNOWN_INTEGER(members, "Seq", collective.sequence, FS_MISSING);
}

static void put_unit(fs_json_members *members, fs_unit unit)
{
    if (unit == FS_UNIT_NONE) return;
    FS_JSON_KEY(members, "unit");
    fs_json_string(members->json, fs_units[unit].name);
}

static void call_members(fs_json_members *members, const char *name, fs_span bytes)
{
    fs_given_work declared;
    fs_note note;
    if (fs_note_decode(bytes.bytes, bytes.size, &note)) {
        fs_trace_note(members, &note);
        return;
    }
    if (fs_given_work_decode(bytes.bytes, &declared)) {
        KNOWN_NUMBER(members, "flops", declared.flops);
        KNOWN_NUMBER(members, "bytes", declared.bytes);
        put_unit(members, fs_unit_find(declared.unit));
        if (declared.launch == FS_LAUNCH_NONE) return;
        FS_JSON_KEY(members, "launch work");
        fs_json_integer(members->json, (int64_t)declared.launch);
        return;
    }
    fs_torch_call torch;
    fs_work work;
    if (fs_torch_decode(bytes.bytes, bytes.size, &torch)) {
        put_torch_call(members, &torch);
        put_collective(members, bytes);
        work = fs_work_of_torch(name, &torch);
        if (*torch.recorded.category != 0) {
            FS_JSON_KEY(members, "category");
            fs_json_string(members->json, torch.recorded.category);
        }
        if (work.needs == FS_NEEDS_ELEMENTS) work = fs_work_unknown;
    } else {
        if (fs_signature_kind_of(bytes.bytes) != FS_SIGNATURE_CALL) return;
        fs_signature call;
        fs_signature_decode(bytes.bytes, bytes.size, &call);
        FS_JSON_KEY(members, "Input Dims");
        put_inputs(members->json, &call, put_shape);
        FS_JSON_KEY(members, "Input type");
        put_inputs(members->json, &call, put_type);
        FS_JSON_KEY(members, "Input Strides");
        put_inputs(members->json, &call, put_strides);
        work = fs_work_of(name, &call);
    }
    KNOWN_NUMBER(members, "flops", work.flops);
    if (work.flops > 0) put_unit(members, work.unit.preferred);
    KNOWN_NUMBER(members, "bytes read", work.bytes_read);
    KNOWN_NUMBER(members, "bytes written", work.bytes_written);
    if (isnan(work.bytes_read + work.bytes_written)) KNOWN_NUMBER(members, "bytes", work.bytes_moved);
}

/* Device work ------------------------------------------------------------------------------------------------------ */

static void put_three(fs_json *json, const uint32_t *values)
{
    int64_t sizes[] = {values[0], values[1], values[2]};
    put_sizes(json, sizes, 3);
}

static void kernel_members(fs_json_members *members, const fs_launch *launch, const fs_device_facts *facts)
{
    fs_json *json = members->json;
    fs_occupancy occupancy = fs_occupancy_estimate(launch, facts);
    FS_JSON_KEY(members, "registers per thread");
    fs_json_integer(json, launch->registers);
    FS_JSON_KEY(members, "shared memory");
    fs_json_integer(json, (int64_t)launch->static_shared + launch->dynamic_shared);
    if (!isnan(occupancy.blocks_per_sm)) {
        FS_JSON_KEY(members, "blocks per SM");
        fs_json_decimal(json, occupancy.blocks_per_sm, 6);
    }
    if (!isnan(occupancy.warps_per_sm)) {
        FS_JSON_KEY(members, "warps per SM");
        fs_json_decimal(json, occupancy.warps_per_sm, 6);
    }
    FS_JSON_KEY(members, "grid");
    put_three(json, launch->grid);
    FS_JSON_KEY(members, "block");
    put_three(json, launch->block);
    if (launch->cluster[0] != 0) {
        FS_JSON_KEY(members, "cluster");
        put_three(json, launch->cluster);
    }
    KNOWN_NUMBER(members, "est. achieved occupancy %", round(occupancy.achieved_pct));
}

static void launch_members(fs_trace *trace, fs_json_members *members, int device, fs_span bytes)
{
    fs_launch launch;
    if (!fs_launch_decode(bytes.bytes, &launch)) return;
    if (launch.context != 0) {
        FS_JSON_KEY(members, "context");
        fs_json_integer(members->json, launch.context);
    }
    if (launch.grid[0] != 0) {
        fs_device_facts facts = fs_store_device(trace->store, device);
        kernel_members(members, &launch, &facts);
    }
    put_collective(members, bytes);
    if (launch.graph != 0) {
        FS_JSON_KEY(members, "graph id");
        fs_json_integer(members->json, launch.graph);
        FS_JSON_KEY(members, "graph node id");
        fs_json_integer(members->json, (int64_t)launch.graph_node);
    }
}

/* Shared ----------------------------------------------------------------------------------------------------------- */

/* Return the members that follow from an event's signature and its name or device (`with`). */
static fs_piece make_shared(fs_trace *trace, const fs_event *event, bool on_device, uint32_t with)
{
    static const fs_piece none;
    uint32_t id, key[] = {on_device, event->signature, with};
    trace->out.status = fs_intern_bytes(&trace->shared, key, sizeof key, &id, trace->out.err);
    if (trace->out.status != FS_OK) return none;
    if (id < trace->argument_capacity && trace->arguments[id].size != SIZE_MAX) return trace->arguments[id];

    uint32_t before = trace->argument_capacity;
    trace->out.status = FS_LIST_ROOM(&trace->arguments, id, &trace->argument_capacity, 64, trace->out.err);
    if (trace->out.status != FS_OK) return none;
    for (uint32_t i = before; i < trace->argument_capacity; i++) trace->arguments[i].size = SIZE_MAX;
    size_t at = trace->texts.size;
    fs_json_members members = {&trace->texts, ""};
    fs_span bytes = fs_store_signature_bytes(trace->store, event->signature);
    if (on_device) launch_members(trace, &members, event->device, bytes);
    else call_members(&members, event->name == FS_NONE ? "" : fs_store_name_text(trace->store, event->name), bytes);
    if (trace->out.status == FS_OK) trace->out.status = trace->texts.status;
    trace->arguments[id] = (fs_piece){at, trace->texts.size - at};
    return trace->arguments[id];
}

static void put_shared(fs_trace *trace, fs_json_members *members, const fs_event *event)
{
    if (event->signature == FS_NONE || trace->out.status != FS_OK) return;
    bool on_device = fs_event_kind_on_device[event->kind];
    uint32_t with = on_device ? (uint32_t)(int32_t)event->device : event->name;
    fs_trace_recent *recent = &trace->recent[(2 * event->signature + on_device) % FS_TRACE_RECENT];
    if (!recent->known || recent->signature != event->signature || recent->with != with ||
        recent->on_device != on_device) {
        fs_piece made = make_shared(trace, event, on_device, with);
        *recent = (fs_trace_recent){event->signature, with, on_device, trace->out.status == FS_OK, made};
    }
    fs_piece piece = recent->arguments;
    if (piece.size == 0) return;
    fs_json_key_text(members, "", 0);
    fs_trace_put(trace, piece);
}

/* Return the nearest enclosing event of one of these kinds, or FS_NONE. */
static uint32_t enclosing(const fs_trace *trace, uint32_t index, uint32_t parent, unsigned kinds)
{
    for (; parent < index; index = parent, parent = FS_EVENT_AT(trace->store, index, parent)) {
        if (kinds >> FS_EVENT_AT(trace->store, parent, kind) & 1) return parent;
    }
    return FS_NONE;
}

#define INTEGER(members, name, value)            \
    do {                                         \
        FS_JSON_KEY(members, name);              \
        fs_json_integer((members)->json, value); \
    } while (0)

static void external_id(fs_json_members *members, uint32_t owner)
{
    if (owner != FS_NONE) INTEGER(members, "External id", (int64_t)owner + 1);
}

static void correlation(fs_json_members *members, const fs_event *event)
{
    if (event->correlation != FS_NONE) INTEGER(members, "correlation", event->correlation);
}

/* By kind ---------------------------------------------------------------------------------------------------------- */

static void op_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    if (fs_trace_is_device(event)) {
        external_id(members, event->launcher);
        return;
    }
    external_id(members, index);
    INTEGER(members, "Ev Idx", index);
    if ((event->flags & FS_EVENT_REPLAYED) != 0)
        INTEGER(members, "graph replay", (event->flags & FS_EVENT_MARK) != 0 ? FS_EVENT_MARK : 1);
    else if ((event->flags & FS_EVENT_CAPTURED) != 0) INTEGER(members, "graph replay", FS_EVENT_CAPTURED);
    put_shared(trace, members, event);
}

static void runtime_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    unsigned owners = 1u << FS_EVENT_OP | 1u << FS_EVENT_RANGE | 1u << FS_EVENT_STEP;
    external_id(members, enclosing(trace, index, event->parent, owners));
    correlation(members, event);
    fs_launch launch;
    const char *kernel = NULL;
    if (event->signature != FS_NONE)
        kernel = fs_kernel_decode(fs_store_signature_bytes(trace->store, event->signature).bytes, &launch);
    if (kernel == NULL) return;
    FS_JSON_KEY(members, "kernel");
    fs_json_string(members->json, kernel);
}

static void device_and_stream(fs_trace *trace, fs_json_members *members, const fs_event *event)
{
    if (event->device >= 0) INTEGER(members, "device", event->device);
    if (event->lane == FS_NONE) return;
    const fs_track *track = &trace->tracks[event->lane];
    if (track->on_device) INTEGER(members, "stream", (int64_t)track->thread);
}

static void device_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    (void)index;
    external_id(members, event->launcher);
    device_and_stream(trace, members, event);
    correlation(members, event);
    put_shared(trace, members, event);
}

static void copy_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    device_arguments(trace, members, event, index);
    INTEGER(members, "bytes", event->bytes);
    if (event->duration <= 0) return;
    FS_JSON_KEY(members, "memory bandwidth (GB/s)");
    fs_json_decimal(members->json, (double)event->bytes / (double)event->duration, 9);
}

static void sync_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    (void)index;
    if (event->name != FS_NONE) {
        FS_JSON_KEY(members, "cuda_sync_kind");
        fs_trace_put(trace, trace->names[event->name]);
    }
    device_and_stream(trace, members, event);
    correlation(members, event);
}

static void frame_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    uint32_t caller = enclosing(trace, index, event->parent, 1u << FS_EVENT_FRAME);
    FS_JSON_KEY(members, "Python parent id");
    if (caller == FS_NONE) FS_JSON_LITERAL(members->json, "null");
    else fs_json_integer(members->json, (int64_t)caller + 1);
    INTEGER(members, "Python id", (int64_t)index + 1);
    INTEGER(members, "Ev Idx", index);
}

static void memory_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    int64_t *allocated = &trace->allocated[fs_trace_place(event)];
    fs_memory_state state = {.allocated = -1, .reserved = -1};
    if (event->signature != FS_NONE)
        fs_memory_state_decode(fs_store_signature_bytes(trace->store, event->signature).bytes, &state);
    fs_add_to(allocated, event->bytes);
    if (state.allocated >= 0) *allocated = state.allocated;
    if (state.reserved >= 0) INTEGER(members, "Total Reserved", state.reserved);
    INTEGER(members, "Total Allocated", *allocated);
    if (state.address != 0) INTEGER(members, "Addr", (int64_t)state.address);
    INTEGER(members, "Bytes", event->bytes);
    INTEGER(members, "Device Id", event->device);
    INTEGER(members, "Device Type", event->device >= 0);
    INTEGER(members, "Ev Idx", index);
}

typedef void (*arguments_of)(fs_trace *, fs_json_members *, const fs_event *, uint32_t);
static const arguments_of by_kind[FS_EVENT_KIND_COUNT] = {
    [FS_EVENT_OP] = op_arguments,           [FS_EVENT_RANGE] = op_arguments,        [FS_EVENT_STEP] = op_arguments,
    [FS_EVENT_RUNTIME] = runtime_arguments, [FS_EVENT_KERNEL] = device_arguments,   [FS_EVENT_MEMCPY] = copy_arguments,
    [FS_EVENT_MEMSET] = copy_arguments,     [FS_EVENT_INTERVAL] = device_arguments, [FS_EVENT_SYNC] = sync_arguments,
    [FS_EVENT_MEMORY] = memory_arguments,   [FS_EVENT_FRAME] = frame_arguments,
};

/* Write where a slice in an extra row belongs, unless that is written already. */
static void true_place(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    const fs_extra_row *row = fs_trace_extra(trace, index);
    if (row == NULL) return;
    bool on_lane = event->lane != FS_NONE && trace->tracks[event->lane].on_device;
    if (!fs_trace_is_device(event)) {
        INTEGER(members, "on thread", (int64_t)row->of);
    } else if (by_kind[event->kind] == op_arguments) {
        INTEGER(members, "device", row->track.process);
        INTEGER(members, "stream", (int64_t)row->of);
    } else if (!on_lane) {
        INTEGER(members, "stream", (int64_t)row->of);
    }
}

void fs_trace_arguments(fs_trace *trace, const fs_event *event, uint32_t index)
{
    static const char opening[] = ", \"args\": {";
    fs_json_members members = {&trace->out, opening};
    if (by_kind[event->kind] != NULL) by_kind[event->kind](trace, &members, event, index);
    if (trace->table != NULL) fs_trace_work_arguments(trace, &members, event, index);
    true_place(trace, &members, event, index);
    if (event->duration == FS_MISSING && event->kind != FS_EVENT_MEMORY) {
        FS_JSON_KEY(&members, "open");
        FS_JSON_LITERAL(&trace->out, "true");
    }
    if (members.before != opening) FS_JSON_LITERAL(&trace->out, "}");
}
