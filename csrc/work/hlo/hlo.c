/* What the readers of modules share, and what their users ask. Recursion is over nested tuples and called computations,
 * whose depth the readers and fs_hlo_check_calls limit. */
#include "work/hlo/hlo.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "work/hlo/build.h"

/* The sizes of groups of devices, from their text. What is of another form has no known size. */

enum { MOST_SIZE = 1 << 30, LONGEST_MESH = 4096 };

/* Take a number; 0 if none is there, or if it is no size. */
static int64_t take_size(const char **at, const char *end)
{
    int64_t size = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        size = size < MOST_SIZE ? 10 * size + (**at - '0') : MOST_SIZE;
    return size < MOST_SIZE ? size : 0;
}

/* {{0,1},{2,3}} */
static int64_t size_of_lists(const char *at, const char *end)
{
    int64_t size = 0, count = 0;
    for (at++; at < end; at++) {
        bool digit = *at >= '0' && *at <= '9';
        if (digit && (at[-1] < '0' || at[-1] > '9')) count++;
        if (*at != '}' || at[-1] == '}') continue;
        if (size > 0 && count != size) return 0;
        size = count;
        count = 0;
    }
    return size;
}

/* [2,4]<=[8], or with another order of the devices [2,4]<=[4,2]T(1,0) */
static int64_t size_of_iota(const char *at, const char *end)
{
    at++;
    take_size(&at, end);
    if (at == end || *at != ',') return 0;
    at++;
    int64_t size = take_size(&at, end);
    return at < end && *at == ']' ? size : 0;
}

/* Return the size of a mesh's axis, whose name follows [ or a comma. */
static int64_t size_of_axis(const char *mesh, const char *end, const char *name, size_t length)
{
    for (const char *at = mesh; (size_t)(end - at) > length + 1; at++) {
        if ((*at != '[' && *at != ',') || memcmp(at + 1, name, length) != 0 || at[length + 1] != '=') continue;
        const char *number = at + length + 2;
        return take_size(&number, end);
    }
    return 0;
}

/* mesh['x'=2,'y'=4] {'x','y':(2)2}: all of x, and of y a part of 2 */
static int64_t size_of_mesh(const char *mesh, const char *end)
{
    const char *axes = end;
    int64_t product = 1;
    if (end - mesh > LONGEST_MESH) return 0;
    while (axes > mesh && axes[-1] != '{') axes--;
    for (const char *at = axes; at > mesh && at < end && *at != '}'; at += *at == ',') {
        const char *name = at;
        while (at < end && *at != ',' && *at != '}' && *at != ':') at++;
        int64_t size = size_of_axis(mesh, axes, name, (size_t)(at - name));
        if (at < end && *at == ':') {
            while (at < end && *at != ')') at++;
            at += at < end;
            size = take_size(&at, end);
        }
        if (size <= 0 || product > MOST_SIZE / size) return 0;
        if (at < end && *at != ',' && *at != '}') return 0;
        product *= size;
    }
    return axes > mesh && product > 1 ? product : 0;
}

int64_t fs_hlo_group_size(const char *text, size_t size)
{
    const char *end = text + size;
    if (size == 0) return 0;
    if (*text == '{') return size_of_lists(text, end);
    if (*text == '[') return size_of_iota(text, end);
    return size > 5 && memcmp(text, "mesh[", 5) == 0 ? size_of_mesh(text, end) : 0;
}

static const struct {
    const char *text;
    int bits;
} TYPES[] = {
#define FS_HLO_TYPE(NAME, text, bits) {text, bits},
    FS_HLO_TYPES(FS_HLO_TYPE)
#undef FS_HLO_TYPE
};

fs_status fs_hlo_begin(fs_hlo_module *module, fs_error *err)
{
    *module = (fs_hlo_module){.name = FS_NONE, .entry = FS_NONE, .partitions = 1, .replicas = 1};
#define FS_HLO_ROOM(name, type, array) \
    FS_TRY(FS_LIST_ROOM(&module->array##s, 0, &module->array##_capacity, FS_HLO_FIRST_ROOM, err));
    FS_HLO_ARRAYS(FS_HLO_ROOM)
#undef FS_HLO_ROOM
    return FS_LIST_ROOM(&module->called, 0, &module->called_capacity, FS_HLO_FIRST_ROOM, err);
}

void fs_hlo_clear(fs_hlo_module *module)
{
    void *blocks[] = {module->numbers,    module->shape_parts,  module->operands,     module->called, module->shapes,
                      module->attributes, module->instructions, module->computations, module->frames, module->donors};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_intern_clear(&module->texts);
    memset(module, 0, sizeof *module);
}

fs_hlo_instruction fs_hlo_blank(void)
{
    return (fs_hlo_instruction){.name = FS_NONE,
                                .opcode = FS_NONE,
                                .shape = FS_NONE,
                                .computation = FS_NONE,
                                .op_name = FS_NONE,
                                .kernel = FS_NONE,
                                .frame = FS_NONE,
                                .target = FS_NONE,
                                .kind = FS_NONE,
                                .config = FS_NONE,
                                .groups = FS_NONE};
}

fs_hlo_type fs_hlo_type_of(const char *text, size_t size)
{
    for (int type = FS_HLO_INVALID + 1; type < FS_HLO_TYPE_COUNT; type++) {
        const char *known = TYPES[type].text;
        if (known[0] == text[0] && strlen(known) == size && memcmp(known, text, size) == 0) return (fs_hlo_type)type;
    }
    return FS_HLO_INVALID;
}

const int64_t *fs_hlo_values(const fs_hlo_module *module, uint32_t instruction, fs_hlo_attribute_key key,
                             uint32_t *count)
{
    static const int64_t empty;
    fs_hlo_list list = module->instructions[instruction].attributes;
    for (uint32_t i = list.first; i < list.first + list.count; i++) {
        if (module->attributes[i].key != key) continue;
        *count = module->attributes[i].values.count;
        return *count > 0 ? module->numbers + module->attributes[i].values.first : &empty;
    }
    *count = 0;
    return NULL;
}

const char *fs_hlo_text(const fs_hlo_module *module, uint32_t text)
{
    return text == FS_NONE ? NULL : fs_intern_get(&module->texts, text).bytes;
}

/* Shapes ------------------------------------------------------------------------------------------------------------*/

static double product(const fs_hlo_module *module, const fs_hlo_shape *shape)
{
    double elements = 1;
    for (uint32_t i = 0; i < shape->sizes.count; i++) {
        int64_t size = module->numbers[shape->sizes.first + i];
        elements *= size < 0 ? NAN : (double)size;
    }
    return elements;
}

bool fs_hlo_countable(const fs_hlo_module *module, const fs_hlo_shape *shape)
{
    return !(product(module, shape) > 0x1p62);
}

static bool has_parts(const fs_hlo_shape *shape)
{
    return shape->type == FS_HLO_TUPLE || shape->type == FS_HLO_BUFFER;
}

double fs_hlo_elements(const fs_hlo_module *module, uint32_t id)
{
    if (id == FS_NONE) return NAN;
    const fs_hlo_shape *shape = &module->shapes[id];
    if (shape->type == FS_HLO_TOKEN || shape->type == FS_HLO_OPAQUE) return 0;
    if (!has_parts(shape)) return product(module, shape);
    double elements = 0;
    for (uint32_t i = 0; i < shape->parts.count; i++)
        elements += fs_hlo_elements(module, module->shape_parts[shape->parts.first + i]);
    return elements;
}

double fs_hlo_bytes(const fs_hlo_module *module, uint32_t id)
{
    if (id == FS_NONE) return NAN;
    const fs_hlo_shape *shape = &module->shapes[id];
    if (shape->type == FS_HLO_TOKEN || shape->type == FS_HLO_OPAQUE) return 0;
    if (shape->type == FS_HLO_INVALID) return NAN;
    if (!has_parts(shape)) return ceil(product(module, shape) * TYPES[shape->type].bits / 8);
    double bytes = 0;
    for (uint32_t i = 0; i < shape->parts.count; i++)
        bytes += fs_hlo_bytes(module, module->shape_parts[shape->parts.first + i]);
    return bytes;
}

/* backend_config ----------------------------------------------------------------------------------------------------*/

/* Skip blanks and these characters. */
static const char *past(const char *at, const char *characters)
{
    return at + strspn(at, characters);
}

/* Return what follows "key": in JSON, NULL if the key is not there. Keys of the configs are no values of others. */
static const char *find_key(const char *json, const char *key)
{
    const char *found = strstr(json, key);
    return found != NULL ? past(found + strlen(key), " :") : NULL;
}

/* Append the integers of a list like ["0","2"]. */
static fs_status put_list(fs_hlo_module *module, fs_hlo_attribute_key key, const char *at, fs_error *err)
{
    uint32_t first = module->number_count;
    if (at == NULL || *at != '[') return FS_OK;
    for (at = past(at, "[\", \n"); *at >= '0' && *at <= '9'; at = past(at, "\", \n")) {
        int64_t number = 0;
        for (; *at >= '0' && *at <= '9'; at++) number = number > INT32_MAX ? number : 10 * number + (*at - '0');
        FS_TRY(fs_hlo_put_number(module, number, err));
    }
    return fs_hlo_put_values(module, key, first, err);
}

static fs_status put_trip_count(fs_hlo_module *module, const char *config, fs_error *err)
{
    const char *at = find_key(config, "\"known_trip_count\"");
    if (at == NULL || *at != '{' || (at = find_key(at, "\"n\"")) == NULL) return FS_OK;
    int64_t count = 0;
    at = past(at, "\"");
    if (*at < '0' || *at > '9') return FS_OK;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(count, 10, &count) || __builtin_add_overflow(count, *at - '0', &count)) return FS_OK;
    return fs_hlo_put_value(module, FS_HLO_TRIP_COUNT, count, err);
}

fs_status fs_hlo_put_config(fs_hlo_module *module, const char *opcode, const char *config, fs_error *err)
{
    static const struct {
        fs_hlo_attribute_key key;
        const char *text;
    } DIMENSIONS[] = {{FS_HLO_LHS_CONTRACTING, "\"lhs_contracting_dimensions\""},
                      {FS_HLO_RHS_CONTRACTING, "\"rhs_contracting_dimensions\""},
                      {FS_HLO_LHS_BATCH, "\"lhs_batch_dimensions\""},
                      {FS_HLO_RHS_BATCH, "\"rhs_batch_dimensions\""}};
    if (strcmp(opcode, "while") == 0) return put_trip_count(module, config, err);
    if (strncmp(opcode, "custom-call", strlen("custom-call")) != 0) return FS_OK;
    const char *at = find_key(config, "\"dot_dimension_numbers\"");
    for (size_t i = 0; at != NULL && i < sizeof DIMENSIONS / sizeof *DIMENSIONS; i++)
        FS_TRY(put_list(module, DIMENSIONS[i].key, find_key(at, DIMENSIONS[i].text), err));
    return FS_OK;
}

/* Calls -------------------------------------------------------------------------------------------------------------*/

/* How many calls are nested below a computation, plus 1; UNKNOWN before it is visited, OPEN while it is. */
enum { UNKNOWN = 0, OPEN = 255 };

static fs_status visit(const fs_hlo_module *module, uint8_t *depths, uint32_t id, int level, uint32_t *at,
                       fs_error *err)
{
    fs_hlo_list instructions = module->computations[id].instructions;
    int deepest = 0;
    *at = id;
    if (level > FS_HLO_MOST_DEPTH)
        return fs_fail(err, FS_VALUE_ERROR, "calls are nested deeper than %d", FS_HLO_MOST_DEPTH);
    depths[id] = OPEN;
    for (uint32_t i = instructions.first; i < instructions.first + instructions.count; i++) {
        fs_hlo_list called = module->instructions[i].called;
        for (uint32_t j = called.first; j < called.first + called.count; j++) {
            uint32_t callee = module->called[j];
            if (callee == FS_NONE) continue;
            if (depths[callee] == UNKNOWN) FS_TRY(visit(module, depths, callee, level + 1, at, err));
            *at = id;
            if (depths[callee] == OPEN) return fs_fail(err, FS_VALUE_ERROR, "the computation calls itself");
            if (depths[callee] > deepest) deepest = depths[callee];
        }
    }
    if (deepest >= FS_HLO_MOST_DEPTH)
        return fs_fail(err, FS_VALUE_ERROR, "calls are nested deeper than %d", FS_HLO_MOST_DEPTH);
    depths[id] = (uint8_t)(deepest + 1);
    return FS_OK;
}

fs_status fs_hlo_check_calls(const fs_hlo_module *module, uint32_t *at, fs_error *err)
{
    fs_status status = FS_OK;
    uint8_t *depths = fs_calloc(module->computation_count + 1, 1);
    if (depths == NULL) return fs_no_memory(err);
    for (uint32_t id = 0; id < module->computation_count && status == FS_OK; id++)
        if (depths[id] == UNKNOWN) status = visit(module, depths, id, 1, at, err);
    fs_free(depths);
    return status;
}
