/* Conversion of the "args" of a trace's events to signatures. */
#include "sources/kineto/arguments.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/collective.h"
#include "store/note.h"
#include "store/signature.h"

/* Reading ---------------------------------------------------------------------------------------------------------- */

typedef enum { ARG_INTEGER, ARG_SPAN, ARG_TEXT, ARG_THREE, ARG_CATEGORY, ARG_VALUE } argument_form;

static const struct {
    const char *key;
    size_t size;
    argument_form form;
    size_t place; /* the index of a number, or an offset in fs_event_arguments */
} argument_keys[] = {
#define KEY(key, form, place) {key, sizeof key - 1, form, place}
#define INTEGER_KEY(NAME, key) KEY(key, ARG_INTEGER, FS_ARG_##NAME),
    FS_ARG_LIST(INTEGER_KEY)
#undef INTEGER_KEY
        KEY("Input Dims", ARG_SPAN, offsetof(fs_event_arguments, dims)),
    KEY("Input dims", ARG_SPAN, offsetof(fs_event_arguments, dims)),
    KEY("Input type", ARG_SPAN, offsetof(fs_event_arguments, types)),
    KEY("Input Strides", ARG_SPAN, offsetof(fs_event_arguments, strides)),
    KEY("Concrete Inputs", ARG_SPAN, offsetof(fs_event_arguments, concrete)),
    KEY("grid", ARG_THREE, offsetof(fs_event_arguments, grid)),
    KEY("block", ARG_THREE, offsetof(fs_event_arguments, block)),
    KEY("cluster", ARG_THREE, offsetof(fs_event_arguments, cluster)),
    KEY("Collective name", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_COLLECTIVE])),
    KEY("dtype", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_DTYPE])),
    KEY("Process Group Name", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_GROUP])),
    KEY("Process Group Ranks", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_RANKS])),
    KEY("unit", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_UNIT])),
    KEY("category", ARG_CATEGORY, 0),
    KEY("kernel", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_KERNEL])),
    KEY("name", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_MARK])),
    KEY("color", ARG_TEXT, offsetof(fs_event_arguments, texts[FS_ARG_COLOUR])),
    KEY("payload", ARG_VALUE, offsetof(fs_event_arguments, payload)),
#undef KEY
};

enum { KEY_COUNT = sizeof argument_keys / sizeof *argument_keys, KEY_SLOTS = 256 };
_Static_assert((int)FS_ARG_COUNT <= 32, "fs_event_arguments holds 32 numbers");

static uint8_t key_slots[KEY_SLOTS]; /* index + 1 in argument_keys, 0: free */
static pthread_once_t keys_once = PTHREAD_ONCE_INIT;

static inline bool is_key(const fs_scan_span *text, int index)
{
    const char *key = argument_keys[index].key, *found = text->text;
    size_t size = text->size;
    if (argument_keys[index].size != size) return false;
    for (; size >= 8; size -= 8, key += 8, found += 8) {
        uint64_t a, b;
        memcpy(&a, key, 8);
        memcpy(&b, found, 8);
        if (a != b) return false;
    }
    for (size_t i = 0; i < size; i++)
        if (key[i] != found[i]) return false;
    return true;
}

static unsigned slot_of(const char *key, size_t size)
{
    unsigned first = (unsigned char)key[0], last = (unsigned char)key[size - 1], middle = (unsigned char)key[size / 2];
    return ((unsigned)size * 37 + first * 3 + last * 11 + middle * 29) % KEY_SLOTS;
}

static void place_keys(void)
{
    for (unsigned i = 0; i < KEY_COUNT; i++) {
        unsigned slot = slot_of(argument_keys[i].key, argument_keys[i].size);
        while (key_slots[slot] != 0) slot = (slot + 1) % KEY_SLOTS;
        key_slots[slot] = (uint8_t)(i + 1);
    }
}

/* Return the index of a key, or -1. */
static int find_key(const fs_scan_span *key)
{
    if (key->size == 0) return -1;
    for (unsigned slot = slot_of(key->text, key->size); key_slots[slot] != 0; slot = (slot + 1) % KEY_SLOTS) {
        int index = key_slots[slot] - 1;
        if (is_key(key, index)) return index;
    }
    return -1;
}

void fs_arguments_begin(fs_event_arguments *arguments)
{
    arguments->dims.text = arguments->types.text = arguments->strides.text = arguments->concrete.text = NULL;
    arguments->payload.text = NULL;
    arguments->category = 0;
    arguments->known = 0;
    arguments->grid[0] = arguments->block[0] = arguments->cluster[0] = 0;
    for (size_t i = 0; i < sizeof arguments->texts / sizeof *arguments->texts; i++)
        fs_scan_no_text(&arguments->texts[i]);
}

static fs_scan_status read_three(fs_scan *scan, uint32_t *values)
{
    values[0] = values[1] = values[2] = 0;
    if (*scan->at != '[') return fs_scan_skip(scan);
    scan->at++;
    for (int i = 0; i < 3; i++) {
        int64_t value = 0;
        bool known;
        fs_scan_space(scan);
        if (*scan->at == ']') break;
        fs_scan_status status = fs_scan_integer(scan, &value, &known);
        if (status != FS_SCAN_GOOD) return status;
        if (known && value >= 0 && value <= UINT32_MAX) values[i] = (uint32_t)value;
        fs_scan_space(scan);
        if (*scan->at == ',') scan->at++;
    }
    return fs_scan_leave(scan);
}

static fs_scan_status read_value(fs_scan *scan, int key, fs_event_arguments *arguments)
{
    size_t place = argument_keys[key].place;
    void *field = (char *)arguments + place;
    const char *began = scan->at;
    fs_scan_status status;
    bool known;
    switch (argument_keys[key].form) {
    case ARG_INTEGER:
        status = fs_scan_integer(scan, &arguments->numbers[place], &known);
        if (status == FS_SCAN_GOOD && known) arguments->known |= UINT32_C(1) << place;
        return status;
    case ARG_TEXT:
        return *scan->at == '"' ? fs_scan_string(scan, field) : fs_scan_skip(scan);
    case ARG_THREE:
        return read_three(scan, field);
    case ARG_CATEGORY:
        if (*scan->at == '"') return fs_scan_string(scan, &arguments->texts[FS_ARG_CATEGORY]);
        return fs_scan_integer(scan, &arguments->category, &known);
    case ARG_VALUE:
        status = fs_scan_skip(scan);
        *(fs_scan_span *)field = (fs_scan_span){began, (size_t)(scan->at - began), false};
        return status;
    case ARG_SPAN:
        status = fs_scan_skip(scan);
        if (status == FS_SCAN_GOOD && *began == '[')
            *(fs_scan_span *)field = (fs_scan_span){began, (size_t)(scan->at - began), false};
        return status;
    }
    return FS_SCAN_BAD;
}

fs_scan_status fs_arguments_read(fs_scan *scan, fs_event_arguments *arguments)
{
    pthread_once(&keys_once, place_keys);
    if (*scan->at != '{') return fs_scan_skip(scan);
    scan->at++;
    fs_scan_span key = {NULL, 0, false};
    fs_scan_status status;
    while ((status = fs_scan_member(scan, &key)) == FS_SCAN_GOOD && key.text != NULL) {
        int found = find_key(&key);
        status = found >= 0 ? read_value(scan, found, arguments) : fs_scan_skip(scan);
        if (status != FS_SCAN_GOOD) break;
    }
    return status;
}

/* Collectives ------------------------------------------------------------------------------------------------------ */

static int64_t number(const fs_event_arguments *arguments, int which, int64_t missing)
{
    return fs_argument_known(arguments, which) ? arguments->numbers[which] : missing;
}

/* Return a count from 0 to `most`; `missing` if it is out of range. */
static int64_t count_of(const fs_event_arguments *arguments, int which, int64_t most, int64_t missing)
{
    int64_t count = number(arguments, which, missing);
    return count < 0 || count > most ? missing : count;
}

static fs_collective_text text_of(const fs_scan_span *span)
{
    return (fs_collective_text){span->text, span->size};
}

static fs_collective collective_of(const fs_event_arguments *arguments)
{
    return (fs_collective){
        .in_elements = count_of(arguments, FS_ARG_IN_ELEMENTS, FS_MOST_AMOUNT, FS_MISSING),
        .out_elements = count_of(arguments, FS_ARG_OUT_ELEMENTS, FS_MOST_AMOUNT, FS_MISSING),
        .sequence = number(arguments, FS_ARG_SEQUENCE, FS_MISSING),
        .group_size = (int32_t)count_of(arguments, FS_ARG_GROUP_SIZE, INT32_MAX, 0),
        .name = text_of(&arguments->texts[FS_ARG_COLLECTIVE]),
        .dtype = text_of(&arguments->texts[FS_ARG_DTYPE]),
        .group = text_of(&arguments->texts[FS_ARG_GROUP]),
        .ranks = text_of(&arguments->texts[FS_ARG_RANKS]),
    };
}

/* Calls of ops ----------------------------------------------------------------------------------------------------- */

/* The elements of an array, one by one; a missing array has none. */
typedef struct {
    fs_scan scan;
} elements;

static elements elements_of(const char *text, size_t size)
{
    elements list = {{.at = text, .end = text + size}};
    if (size > 0) list.scan.at++; /* skip its bracket */
    return list;
}

/* Return the next element as spelled in the text; size 0 at the end. */
static fs_scan_span next_element(elements *list)
{
    fs_scan_span span = {list->scan.at, 0, false};
    while (list->scan.at < list->scan.end && (*list->scan.at == ',' || *list->scan.at == ' ' || *list->scan.at == '\n'))
        list->scan.at++;
    const char *began = list->scan.at;
    if (began >= list->scan.end || *began == ']' || fs_scan_skip(&list->scan) != FS_SCAN_GOOD) {
        list->scan.end = list->scan.at;
        return span;
    }
    return (fs_scan_span){began, (size_t)(list->scan.at - began), false};
}

/* Return an element that is a string, without its quotes; else an empty span. */
static fs_scan_span string_in(fs_scan_span element)
{
    fs_scan_span string = {"", 0, false};
    fs_scan scan = {.at = element.text, .end = element.text + element.size + 1};
    if (element.size > 0 && *element.text == '"' && fs_scan_string(&scan, &string) != FS_SCAN_GOOD) string.size = 0;
    return string;
}

enum { MAX_NDIM = 64 };

/* Read the integers of an array; returns their number, at most MAX_NDIM. */
static uint32_t integers_in(fs_scan_span array, int64_t *values)
{
    elements list = elements_of(array.text, array.size);
    uint32_t count = 0;
    while (count < MAX_NDIM) {
        fs_scan_span element = next_element(&list);
        bool known = false;
        if (element.size == 0) return count;
        fs_scan scan = {.at = element.text, .end = element.text + element.size + 1};
        if (fs_scan_integer(&scan, &values[count], &known) != FS_SCAN_GOOD || !known) values[count] = 0;
        count++;
    }
    return count;
}

static fs_status add_tensor(fs_piece *piece, fs_torch_dtype dtype, fs_scan_span dims, fs_scan_span strides,
                            fs_error *err)
{
    int64_t shape[MAX_NDIM], steps[MAX_NDIM];
    fs_torch_tensor tensor = {.dtype = (uint8_t)dtype, .ndim = integers_in(dims, shape), .shape = shape};
    if (strides.size > 0 && integers_in(strides, steps) == tensor.ndim) tensor.strides = steps;
    return fs_torch_add_tensor(&piece->builder, &tensor, err);
}

static fs_status add_list(fs_piece *piece, fs_scan_span dims, fs_scan_span strides, fs_error *err)
{
    elements shapes = elements_of(dims.text, dims.size), steps = elements_of(strides.text, strides.size);
    FS_TRY(fs_torch_add_list(&piece->builder, err));
    for (;;) {
        fs_scan_span shape = next_element(&shapes), step = next_element(&steps);
        if (shape.size == 0) break;
        if (*shape.text == '[') FS_TRY(add_tensor(piece, FS_TORCH_DTYPE_NONE, shape, step, err));
    }
    fs_torch_end_list(&piece->builder);
    return FS_OK;
}

static fs_status add_text(fs_piece *piece, fs_torch_type type, fs_scan_span concrete, fs_error *err)
{
    fs_scan_span string = string_in(concrete);
    if (!string.escaped) return fs_torch_add_text(&piece->builder, type, string.text, string.size, err);
    char *plain = fs_malloc(string.size + 1);
    if (plain == NULL) return fs_no_memory(err);
    size_t size = fs_scan_unescape(&string, plain);
    fs_status status = fs_torch_add_text(&piece->builder, type, plain, size, err);
    fs_free(plain);
    return status;
}

/* Types as written by Kineto (torch/csrc/profiler/util.cpp, inputTypes): a tensor's dtype, or one of a few words. */
static fs_status add_argument(fs_piece *piece, fs_scan_span type, fs_scan_span dims, fs_scan_span strides,
                              fs_scan_span concrete, fs_error *err)
{
    fs_torch_dtype dtype = fs_torch_dtype_find(type.text, type.size);
    const char *inner = dims.size > 1 ? dims.text + 1 : "";
    while (*inner == ' ') inner++;
    bool nested = *inner == '[', sized = !nested && *inner != 0 && *inner != ']';
    if (nested || fs_scan_begins(&type, "TensorList")) return add_list(piece, dims, strides, err);
    if (sized || dtype != FS_TORCH_DTYPE_NONE) return add_tensor(piece, dtype, dims, strides, err);
    if (fs_scan_begins(&type, "ScalarList") || fs_scan_begins(&type, "GenericList"))
        return add_text(piece, FS_TORCH_SCALAR_LIST, concrete, err);
    if (type.size > 0 || string_in(concrete).size > 0) return add_text(piece, FS_TORCH_SCALAR, concrete, err);
    return fs_torch_add_nothing(&piece->builder, err);
}

/* Make room for `size` bytes and the padding of a scan. */
static fs_status scratch(fs_piece *piece, size_t size, fs_error *err)
{
    if (size + FS_SCAN_PADDING <= piece->scratch_capacity) return FS_OK;
    size_t capacity = 2 * (size + FS_SCAN_PADDING);
    char *grown = fs_realloc(piece->scratch, capacity);
    if (grown == NULL) return fs_no_memory(err);
    piece->scratch = grown;
    piece->scratch_capacity = capacity;
    return FS_OK;
}

enum { CALL_SPANS = 4 };

/* Copy the name of a unit or a category to `to` and zero the rest; one that does not fit is neither and is dropped. */
static void take_name(const fs_scan_span *name, char *to, size_t size)
{
    memset(to, 0, size);
    if (name->size < size) memcpy(to, name->text, name->size);
}

static double number_or_nan(const fs_event_arguments *arguments, int which)
{
    return fs_argument_known(arguments, which) ? (double)arguments->numbers[which] : (double)NAN;
}

/* Extract the work recorded with an op's event; false if there is none. */
static bool recorded_work(const fs_event_arguments *arguments, fs_torch_recorded *work)
{
    const uint32_t any = 1u << FS_ARG_FLOPS | 1u << FS_ARG_BYTES_READ | 1u << FS_ARG_BYTES_WRITTEN | 1u << FS_ARG_BYTES;
    if ((arguments->known & any) == 0) return false;
    work->flops = number_or_nan(arguments, FS_ARG_FLOPS);
    work->bytes_read = number_or_nan(arguments, FS_ARG_BYTES_READ);
    work->bytes_written = number_or_nan(arguments, FS_ARG_BYTES_WRITTEN);
    work->bytes = number_or_nan(arguments, FS_ARG_BYTES);
    take_name(&arguments->texts[FS_ARG_UNIT], work->unit, sizeof work->unit);
    take_name(&arguments->texts[FS_ARG_CATEGORY], work->category, sizeof work->category);
    return true;
}

/* Build the call from the four arrays in scratch, each ended by a zero byte. `work`: recorded work; NULL: none. */
static fs_status build_call(fs_piece *piece, const size_t *sizes, const fs_torch_recorded *work, fs_error *err)
{
    elements lists[CALL_SPANS];
    const char *text = piece->scratch;
    for (int i = 0; i < CALL_SPANS; text += sizes[i++] + 1) lists[i] = elements_of(text, sizes[i]);
    FS_TRY(fs_torch_begin(&piece->builder, err));
    if (work != NULL) FS_TRY(fs_torch_add_recorded(&piece->builder, work, err));
    for (;;) {
        fs_scan_span dims = next_element(&lists[0]), type = next_element(&lists[1]);
        fs_scan_span strides = next_element(&lists[2]), concrete = next_element(&lists[3]);
        if (dims.size == 0 && type.size == 0) break;
        FS_TRY(add_argument(piece, string_in(type), dims, strides, concrete, err));
    }
    return FS_OK;
}

static fs_status keep_call(fs_piece *piece, uint32_t *signature, fs_error *err)
{
    return fs_intern_bytes(&piece->signatures, piece->builder.words, fs_torch_size(&piece->builder), signature, err);
}

/* Store a call of record_param_comms, followed by its collective. No two are alike, so there is no lookup. */
static fs_status keep_collective_call(fs_piece *piece, const fs_event_arguments *arguments, const size_t *sizes,
                                      uint32_t *signature, fs_error *err)
{
    _Alignas(8) char bytes[FS_COLLECTIVE_MAX_BYTES];
    fs_collective collective = collective_of(arguments);
    FS_TRY(build_call(piece, sizes, NULL, err));
    FS_TRY(fs_torch_add_rest(&piece->builder, bytes, fs_collective_write(&collective, bytes), err));
    return keep_call(piece, signature, err);
}

fs_status fs_arguments_call(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err)
{
    const fs_scan_span *spans[CALL_SPANS] = {&arguments->dims, &arguments->types, &arguments->strides,
                                             &arguments->concrete};
    size_t sizes[CALL_SPANS], size = 0;
    uint32_t call, before = piece->calls.count;
    fs_torch_recorded work;
    bool has_work = recorded_work(arguments, &work);
    *signature = FS_NONE;
    bool collective = arguments->texts[FS_ARG_COLLECTIVE].size > 0;
    if (arguments->dims.text == NULL && !collective && !has_work) return FS_OK;
    for (int i = 0; i < CALL_SPANS; i++) {
        sizes[i] = spans[i]->text != NULL ? spans[i]->size : 0;
        size += sizes[i] + 1;
    }
    if (has_work) size += sizeof work;
    FS_TRY(scratch(piece, size, err));
    char *to = piece->scratch;
    for (int i = 0; i < CALL_SPANS; i++) {
        if (sizes[i] > 0) memcpy(to, spans[i]->text, sizes[i]);
        to += sizes[i];
        *to++ = 0;
    }
    memset(to, 0, FS_SCAN_PADDING);
    if (collective) return keep_collective_call(piece, arguments, sizes, signature, err);
    if (has_work) memcpy(to, &work, sizeof work);
    FS_TRY(fs_intern_bytes(&piece->calls, piece->scratch, size, &call, err));
    if (call < before) {
        *signature = piece->call_signatures[call];
        return FS_OK;
    }
    FS_TRY(FS_LIST_ROOM(&piece->call_signatures, call, &piece->call_capacity, 128, err));
    memset(to, 0, FS_SCAN_PADDING); /* in place of the recorded work */
    piece->call_signatures[call] = FS_NONE;
    FS_TRY(build_call(piece, sizes, has_work ? &work : NULL, err));
    FS_TRY(keep_call(piece, &piece->call_signatures[call], err));
    *signature = piece->call_signatures[call];
    return FS_OK;
}

/* Launches --------------------------------------------------------------------------------------------------------- */

fs_status fs_arguments_launch(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES];
    size_t size = FS_LAUNCH_BYTES;
    fs_launch launch = {
        .registers = (uint32_t)count_of(arguments, FS_ARG_REGISTERS, UINT32_MAX, 0),
        .dynamic_shared = (uint32_t)count_of(arguments, FS_ARG_SHARED, UINT32_MAX, 0), /* plus static */
        .context = (uint32_t)number(arguments, FS_ARG_CONTEXT, 0),
        .graph = (uint32_t)number(arguments, FS_ARG_GRAPH, 0),
        .graph_node = (uint64_t)number(arguments, FS_ARG_GRAPH_NODE, 0),
    };
    if (arguments->grid[0] != 0) memcpy(launch.grid, arguments->grid, sizeof launch.grid);
    if (arguments->block[0] != 0) memcpy(launch.block, arguments->block, sizeof launch.block);
    if (arguments->cluster[0] != 0) memcpy(launch.cluster, arguments->cluster, sizeof launch.cluster);
    fs_launch_encode(&launch, bytes);
    if (arguments->texts[FS_ARG_COLLECTIVE].size > 0) {
        fs_collective collective = collective_of(arguments);
        size = fs_collective_encode(&collective, bytes);
    }
    return fs_intern_bytes(&piece->signatures, bytes, size, signature, err);
}

fs_status fs_arguments_kernel(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err)
{
    _Alignas(8) char bytes[FS_KERNEL_BYTES];
    fs_launch launch = {.context = 0};
    const fs_scan_span *name = &arguments->texts[FS_ARG_KERNEL];
    const char *text = name->text;
    size_t size = name->size;
    if (size == 0) return FS_OK;
    if (name->escaped) {
        FS_TRY(scratch(piece, size, err));
        size = fs_scan_unescape(name, piece->scratch);
        text = piece->scratch;
    }
    if (arguments->grid[0] != 0) memcpy(launch.grid, arguments->grid, sizeof launch.grid);
    if (arguments->block[0] != 0) memcpy(launch.block, arguments->block, sizeof launch.block);
    size = fs_kernel_encode(&launch, text, size, bytes);
    return fs_intern_bytes(&piece->signatures, bytes, size, signature, err);
}

fs_status fs_arguments_given(fs_piece *piece, const fs_given_work *work, uint32_t *signature, fs_error *err)
{
    _Alignas(8) char bytes[FS_GIVEN_WORK_BYTES];
    fs_given_work_encode(work, bytes);
    return fs_intern_bytes(&piece->signatures, bytes, sizeof bytes, signature, err);
}

/* Notes of ranges, as this library writes them (views/trace_ranges.c). */

enum { MOST_NUMBER = 40 };

/* Whether a value is a number of JSON. */
static bool is_number(const fs_scan_span *value, double *number)
{
    char text[MOST_NUMBER], *end;
    if (value->size == 0 || value->size >= sizeof text) return false;
    memcpy(text, value->text, value->size);
    text[value->size] = 0;
    if (strspn(text, "-+.0123456789eE") != value->size || strchr("+.", *text) != NULL) return false;
    *number = strtod(text, &end);
    if (*end == '.') { /* in locales with a decimal comma */
        *end = ',';
        *number = strtod(text, &end);
    }
    return *end == 0 && isfinite(*number);
}

/* Write the string that a span represents to `out` of FS_NOTE_FIELDS_BYTES; empty if it is longer. */
static fs_text unescaped(const fs_scan_span *span, char *out)
{
    return (fs_text){out, span->size < FS_NOTE_FIELDS_BYTES ? fs_scan_unescape(span, out) : 0};
}

static void read_fields(const fs_scan_span *payload, char *fields, size_t *size)
{
    char name[FS_NOTE_FIELDS_BYTES], text[FS_NOTE_FIELDS_BYTES];
    fs_scan scan = {.at = payload->text + 1, .end = payload->text + payload->size};
    fs_scan_span key = {NULL, 0, false};
    double number;
    while (fs_scan_member(&scan, &key) == FS_SCAN_GOOD && key.text != NULL) {
        fs_scan_span value = {scan.at, 0, false};
        if (*scan.at == '"') {
            if (fs_scan_string(&scan, &value) != FS_SCAN_GOOD) return;
            if (value.size >= sizeof text) continue; /* none that was written is as long */
            fs_note_add_field(fields, size, unescaped(&key, name), FS_NOTE_TEXT, unescaped(&value, text));
            continue;
        }
        if (fs_scan_skip(&scan) != FS_SCAN_GOOD) return;
        value.size = (size_t)(scan.at - value.text);
        if (is_number(&value, &number))
            fs_note_add_field(fields, size, unescaped(&key, name), FS_NOTE_NUMBER, (fs_text){value.text, value.size});
    }
}

static void read_number(const fs_scan_span *payload, fs_note *note)
{
    double real;
    if (!is_number(payload, &real)) return;
    if (memchr(payload->text, '.', payload->size) == NULL &&
        fs_scan_decimal(payload->text, payload->size, 0, false, &note->payload.integer)) {
        note->payload_type = FS_NOTE_INTEGER;
    } else {
        note->payload.real = real;
        note->payload_type = FS_NOTE_REAL;
    }
}

static bool has_note(const fs_event_arguments *arguments)
{
    return arguments->payload.text != NULL || arguments->texts[FS_ARG_COLOUR].size > 0 || arguments->category > 0 ||
           arguments->texts[FS_ARG_CATEGORY].size > 0;
}

static fs_status keep_note(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err)
{
    _Alignas(8) char bytes[FS_NOTE_MAX_BYTES];
    char name[FS_NOTE_CATEGORY_BYTES + 1] = "", fields[FS_NOTE_FIELDS_BYTES];
    const fs_scan_span *category = &arguments->texts[FS_ARG_CATEGORY], *colour = &arguments->texts[FS_ARG_COLOUR];
    fs_note note = {.category_name = name, .fields = fields};
    if (category->size > 0 && category->size < sizeof name) {
        fs_scan_unescape(category, name);
        note.category = 1;
    } else if (arguments->category > 0 && arguments->category <= UINT32_MAX) {
        note.category = (uint32_t)arguments->category;
    }
    if (colour->size == 7 && *colour->text == '#') {
        note.colour = 0xff000000u | (uint32_t)strtoul(colour->text + 1, NULL, 16);
        note.coloured = 1;
    }
    if (arguments->payload.text != NULL) {
        if (*arguments->payload.text == '{') read_fields(&arguments->payload, fields, &note.fields_size);
        else read_number(&arguments->payload, &note);
    }
    return fs_intern_bytes(&piece->signatures, bytes, fs_note_encode(&note, bytes), signature, err);
}

fs_status fs_arguments_stated(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err)
{
    int64_t launch = number(arguments, FS_ARG_LAUNCH, FS_LAUNCH_NONE);
    bool flops = fs_argument_known(arguments, FS_ARG_FLOPS), moved = fs_argument_known(arguments, FS_ARG_BYTES);
    if (!flops && !moved && has_note(arguments)) return keep_note(piece, arguments, signature, err);
    if (!flops && !moved) return fs_arguments_call(piece, arguments, signature, err);
    fs_given_work work = {
        .flops = flops ? (double)arguments->numbers[FS_ARG_FLOPS] : (double)NAN,
        .bytes = moved ? (double)arguments->numbers[FS_ARG_BYTES] : (double)NAN,
        .launch = launch == FS_LAUNCH_STATED || launch == FS_LAUNCH_AT_MOST ? (uint64_t)launch : FS_LAUNCH_NONE,
    };
    take_name(&arguments->texts[FS_ARG_UNIT], work.unit, sizeof work.unit);
    return fs_arguments_given(piece, &work, signature, err);
}

/* A number of bytes that some device can have, or -1. */
static int64_t total_of(const fs_event_arguments *arguments, int which)
{
    int64_t bytes = number(arguments, which, -1);
    return bytes < 0 || bytes > FS_MOST_AMOUNT ? -1 : bytes;
}

fs_status fs_arguments_memory(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err)
{
    fs_memory_state state = {
        .allocated = total_of(arguments, FS_ARG_ALLOCATED),
        .reserved = total_of(arguments, FS_ARG_RESERVED),
        .address = (uint64_t)number(arguments, FS_ARG_ADDRESS, 0),
    };
    if (state.allocated < 0 && state.reserved < 0 && state.address == 0) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&piece->states, piece->state_count, &piece->state_capacity, 256, err));
    *signature = piece->state_count;
    piece->states[piece->state_count++] = state;
    return FS_OK;
}
