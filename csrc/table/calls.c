/* A call is unique by name, signature, kind, place and part, and by the enclosing call where its work depends on it;
 * its work is computed once, when it is added. Ids are dense and never change, calls move as the list grows: callers
 * keep ids, and take pointers again after anything was added. `rows` gives equal keys equal rows, and a row is new when
 * its id is the number of groups. */
#include "table/calls.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/event.h"
#include "work/category.h"
#include "work/kernel_work.h"
#include "work/names.h"
#include "work/registered.h"

enum { FIRST_SLOTS = 256 };

/* Name keys of rows that combine several names or have none in the store. */
static const uint32_t name_step = FS_NONE - 1, name_memory = FS_NONE - 2, name_op = FS_NONE - 3;

static const char step_prefix[] = "ProfilerStep#";

void fs_calls_clear(fs_calls *set)
{
    fs_free(set->calls);
    fs_free(set->slots);
    fs_intern_clear(&set->rows);
    fs_intern_clear(&set->shapes);
}

static uint32_t first_slot(const fs_calls *set, uint64_t key, uint64_t class, uint32_t outer)
{
    return (uint32_t)fs_hash_numbers(set->keys, key, class ^ (uint64_t)~outer << 32) & (set->slot_count - 1);
}

static fs_status grow(fs_calls *set, fs_error *err)
{
    uint32_t capacity = set->capacity;
    FS_TRY(FS_LIST_ROOM(&set->calls, capacity, &capacity, FIRST_SLOTS / 2, err));
    uint32_t slot_count = 2 * capacity;
    uint32_t *slots = fs_calloc(slot_count, sizeof *slots);
    if (slots == NULL) return fs_no_memory(err);
    fs_free(set->slots);
    set->keys = fs_hash_keys();
    set->slots = slots;
    set->slot_count = slot_count;
    set->capacity = capacity;
    for (uint32_t id = 0; id < set->count; id++) {
        uint32_t slot = first_slot(set, set->calls[id].key, set->calls[id].class, set->calls[id].outer);
        while (slots[slot] != 0) slot = (slot + 1) & (slot_count - 1);
        slots[slot] = id + 1;
    }
    return FS_OK;
}

/* The decoded signature of an event: none, one of flopscope's, or one of torch's. */
typedef struct {
    fs_span bytes; /* the raw signature, of any kind; NULL: none */
    fs_signature own;
    fs_torch_call torch;
    bool is_torch;
} call_arguments;

static void decode(const fs_calls *set, uint32_t id, call_arguments *arguments)
{
    arguments->own.argument_count = 0;
    arguments->own.device_kind = FS_CPU;
    arguments->own.device_index = 0;
    arguments->bytes.bytes = NULL;
    arguments->is_torch = false;
    if (id == FS_NONE) return;
    arguments->bytes = fs_store_signature_bytes(set->store, id);
    arguments->is_torch = fs_torch_decode(arguments->bytes.bytes, arguments->bytes.size, &arguments->torch);
    if (!arguments->is_torch) fs_signature_decode(arguments->bytes.bytes, arguments->bytes.size, &arguments->own);
}

bool fs_calls_decode(const fs_calls *set, const fs_call *of, fs_torch_call *call)
{
    uint32_t id = (uint32_t)of->key;
    if (id == FS_NONE) return false;
    fs_span bytes = fs_store_signature_bytes(set->store, id);
    return fs_torch_decode(bytes.bytes, bytes.size, call);
}

/* Return the id of a signature's input shapes; equal shapes have equal ids. Scalars and lists of tensors have none. */
static fs_status shapes_of(fs_calls *set, const call_arguments *arguments, uint32_t *id, fs_error *err)
{
    const fs_torch_call *torch = &arguments->torch;
    size_t most = FS_SIGNATURE_MAX_ARGUMENTS * (1 + FS_SIGNATURE_MAX_DIMS), size = 0;
    for (uint32_t i = 0; arguments->is_torch && i < torch->count; i++) most += 1 + torch->arguments[i].tensor.ndim;
    int64_t *words = fs_malloc(most * sizeof *words);
    if (words == NULL) return fs_no_memory(err);
    for (int i = 0; !arguments->is_torch && i < arguments->own.argument_count; i++) {
        const fs_argument *argument = &arguments->own.arguments[i];
        if (argument->role == FS_ARGUMENT_OUT) continue;
        words[size++] = argument->ndim;
        for (int d = 0; d < argument->ndim; d++) words[size++] = argument->shape[d];
    }
    for (uint32_t i = 0; arguments->is_torch && i < torch->count; i++) {
        const fs_torch_tensor *tensor = &torch->arguments[i].tensor;
        words[size++] = tensor->ndim;
        for (uint32_t d = 0; d < tensor->ndim; d++) words[size++] = tensor->shape[d];
    }
    fs_status status = fs_intern_bytes(&set->shapes, words, size * sizeof *words, id, err);
    fs_free(words);
    return status;
}

/* Return the id of the dtypes of a signature's inputs, as a table shows them: FS_TORCH_DTYPE_NONE or FS_DTYPE_NONE for
 * scalars and lists of tensors. */
static fs_status dtypes_of(fs_calls *set, const call_arguments *arguments, uint32_t *id, fs_error *err)
{
    const fs_torch_call *torch = &arguments->torch;
    size_t size = 0, most = arguments->is_torch ? torch->count : FS_SIGNATURE_MAX_ARGUMENTS;
    uint8_t *bytes = fs_malloc(most + 1);
    if (bytes == NULL) return fs_no_memory(err);
    for (int i = 0; !arguments->is_torch && i < arguments->own.argument_count; i++) {
        const fs_argument *argument = &arguments->own.arguments[i];
        if (argument->role != FS_ARGUMENT_OUT) bytes[size++] = (uint8_t)argument->dtype;
    }
    for (uint32_t i = 0; arguments->is_torch && i < torch->count; i++) {
        bool is_tensor = torch->arguments[i].type == FS_TORCH_TENSOR;
        bytes[size++] = is_tensor ? torch->arguments[i].tensor.dtype : (uint8_t)FS_TORCH_DTYPE_NONE;
    }
    if (size > 0) bytes[size++] = arguments->is_torch;
    fs_status status = fs_intern_bytes(&set->shapes, bytes, size, id, err);
    fs_free(bytes);
    return status;
}

static uint32_t row_name(uint32_t name, fs_event_kind kind, const char **text)
{
    if (kind == FS_EVENT_MEMORY) {
        *text = "[memory]";
        return name_memory;
    }
    if (name == FS_NONE) {
        *text = fs_event_kind_names[kind];
        return name;
    }
    /* All steps of a loop share a row. */
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): an event with a name has a text */
    if (strncmp(*text, step_prefix, sizeof step_prefix - 1) == 0) *text = "ProfilerStep*";
    if (kind == FS_EVENT_STEP && fs_begins(*text, "pass#")) *text = "pass*"; /* of store/passes.h */
    return strcmp(*text, "ProfilerStep*") == 0 || strcmp(*text, "pass*") == 0 ? name_step : name;
}

/* Take the overload from the name of an op. *op: id of the name without it; FS_NONE if its form is another. */
static fs_status part_overload(fs_calls *set, fs_call *call, uint32_t *op, fs_error *err)
{
    *op = FS_NONE;
    size_t size = call->kind == FS_EVENT_OP && call->text != NULL ? fs_name_without_overload(call->text) : 0;
    if (size == 0) return FS_OK;
    FS_TRY(fs_intern_bytes(set->ops, call->text, size, op, err));
    if (call->text[size] == '\0') return FS_OK;
    if (set->by_overload) call->overload = call->text + size + 1;
    call->text = fs_intern_get(set->ops, *op).bytes;
    return FS_OK;
}

/* There are tensors, and none has a recorded dtype. */
static bool is_untyped(const fs_torch_call *call)
{
    bool tensors = false;
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->arguments[i].type != FS_TORCH_TENSOR) continue;
        if (call->arguments[i].tensor.dtype != FS_TORCH_DTYPE_NONE) return false;
        tensors = true;
    }
    return tensors;
}

/* Compute the work of one call and where it came from. */
static void find_work(uint32_t name, const call_arguments *arguments, fs_call *call)
{
    fs_given_work given;
    bool annotation = fs_event_is_annotation(call->kind), is_op = call->kind == FS_EVENT_OP && name != FS_NONE;
    call->work = fs_work_unknown;
    if (arguments->bytes.bytes == NULL || call->on_device) return;
    if ((is_op || annotation) && fs_given_work_decode(arguments->bytes.bytes, &given)) {
        call->work = fs_work_stated(&given);
        call->launch = is_op;
    } else if (is_op) {
        call->work = arguments->is_torch ? fs_work_of_torch(call->text, &arguments->torch)
                                         : fs_work_of(call->text, &arguments->own);
    }
    call->gradient = is_op && arguments->is_torch && fs_work_is_gradient(call->text, &arguments->torch);
    if (is_op && arguments->is_torch) call->category = (uint8_t)fs_category_named(arguments->torch.recorded.category);
    bool found = !isnan(call->work.flops) || !isnan(call->work.bytes_moved);
    call->untyped = is_op && arguments->is_torch && is_untyped(&arguments->torch) && fs_work_has_one_dtype(call->text);
    fs_work_needs needs = call->work.needs;
    bool inferred = needs == FS_NEEDS_GRADIENT || (needs == FS_NEEDS_FORWARD && call->gradient) || call->untyped;
    call->known = (found || inferred) && !annotation; /* scan.c may find what is needed */
    call->stated = found && annotation;
    if (is_op && !found && arguments->is_torch) call->expected = fs_work_expected(call->text, &arguments->torch);
}

/* Set the properties of a kernel that follow from its name: those of another call with that name, if it is at hand. */
static void classify_name(fs_calls *set, uint32_t name, fs_call *call)
{
    uint32_t *slot = &set->kernels[name % FS_KERNEL_SLOTS], last = *slot - 1; /* may be of a call that was not added */
    const fs_call *like = last < set->count && set->calls[last].key >> 32 == name ? &set->calls[last] : NULL;
    *slot = set->count + 1;
    if (like != NULL) {
        call->communication = like->communication;
        call->tensor = like->tensor;
        call->saves_flops = like->saves_flops;
        call->registered = like->registered;
        call->has_work = like->has_work;
        return;
    }
    fs_work work;
    fs_kernel_class class = fs_kernel_class_of(call->text);
    call->communication = class == FS_KERNEL_COMMUNICATION;
    call->tensor = class == FS_KERNEL_TENSOR;
    call->saves_flops = fs_kernel_saves_flops(call->text);
    call->registered = fs_work_of_registered(call->text, NULL, &work);
    call->has_work = call->registered || fs_kernel_has_work(call->text);
}

/* Set the properties of a kernel that follow from its name and launch. */
static void classify_kernel(fs_calls *set, uint32_t name, const call_arguments *arguments, fs_call *call)
{
    fs_launch launch;
    if (call->text == NULL) return;
    classify_name(set, name, call);
    if (arguments->bytes.bytes == NULL) return;
    bool launched = fs_launch_decode(arguments->bytes.bytes, &launch);
    call->launch_known = launched && launch.grid[0] > 0;
    call->of_graph = launched && launch.graph != 0;
    call->extent = fs_kernel_extent_of(call->text, launched ? &launch : NULL);
}

void fs_calls_surround(const fs_calls *set, const fs_call *of, fs_torch_call *call, fs_torch_call *outer)
{
    const fs_call *around = of->outer != FS_NONE ? &set->calls[of->outer] : NULL;
    if (around == NULL) return;
    if (fs_event_is_annotation(around->kind)) call->annotation = around->text;
    if (fs_calls_decode(set, around, outer)) {
        call->outer_name = around->text;
        call->outer = outer;
    }
}

static fs_status add(fs_calls *set, fs_call *call, fs_error *err)
{
    fs_event_kind kind = call->kind;
    uint32_t name = (uint32_t)(call->key >> 32);
    call_arguments arguments;
    fs_torch_call outer;
    decode(set, (uint32_t)call->key, &arguments);
    if (call->outer != FS_NONE) fs_calls_surround(set, call, &arguments.torch, &outer);
    call->text = name == FS_NONE ? NULL : fs_store_name_text(set->store, name);
    uint32_t op;
    FS_TRY(part_overload(set, call, &op, err));

    find_work(name, &arguments, call);
    call->launches = kind == FS_EVENT_RUNTIME && call->text != NULL && fs_name_launches(call->text);
    call->compiles = kind == FS_EVENT_OP && call->text != NULL && fs_name_host_kind(call->text) == FS_HOST_COMPILES;
    call->wraps = kind == FS_EVENT_OP && call->text != NULL && fs_name_wraps_autograd(call->text);
    call->device_kind = arguments.own.device_kind;
    call->device_index = arguments.own.device_index;

    bool annotation = fs_event_is_annotation(call->kind);
    uint32_t place = (uint32_t)call->on_device << 1 | annotation;
    uint32_t row_key[6] = {row_name(name, kind, &call->text), place, 0, 0, call->part, op};
    if (op != FS_NONE && !set->by_overload) row_key[0] = name_op; /* the overloads share a row */
    if (set->by_shape) FS_TRY(shapes_of(set, &arguments, &row_key[2], err));
    if (set->by_dtype) FS_TRY(dtypes_of(set, &arguments, &row_key[3], err));
    if (kind == FS_EVENT_KERNEL) classify_kernel(set, name, &arguments, call);
    return fs_intern_bytes(&set->rows, row_key, sizeof row_key, &call->row, err);
}

/* Find the call with that key or add it. */
static fs_status find(fs_calls *set, uint64_t key, uint64_t class, uint32_t outer, uint32_t *id, fs_error *err)
{
    if (set->count == set->capacity) FS_TRY(grow(set, err));
    uint32_t slot = first_slot(set, key, class, outer);
    for (; set->slots[slot] != 0; slot = (slot + 1) & (set->slot_count - 1)) {
        const fs_call *call = &set->calls[set->slots[slot] - 1];
        if (call->key == key && call->class == class && call->outer == outer) {
            *id = set->slots[slot] - 1;
            return FS_OK;
        }
    }
    fs_call *call = &set->calls[set->count];
    *call = (fs_call){
        .key = key,
        .class = class,
        .kind = (uint8_t)(class >> 1 & 0x7f),
        .on_device = class & 1,
        .part = (uint32_t)(class >> 8),
        .outer = outer,
        .dtype = FS_TORCH_DTYPE_NONE,
    };
    FS_TRY(add(set, call, err));
    *id = set->count++;
    set->slots[slot] = *id + 1;
    return FS_OK;
}

fs_status fs_calls_find(fs_calls *set, uint64_t key, uint64_t class, uint32_t *id, fs_error *err)
{
    return find(set, key, class, FS_NONE, id, err);
}

fs_status fs_calls_find_within(fs_calls *set, uint32_t inner, uint32_t outer, uint32_t *id, fs_error *err)
{
    return find(set, set->calls[inner].key, set->calls[inner].class, outer, id, err);
}
