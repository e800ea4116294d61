/* The module of an event is that of what encloses it, or of its launcher on a device, or of its forward op in the
 * backward pass. Ids are given in order of first use, a parent before its children. Two passes, because a backward op
 * may stand before its forward op; only the second one counts calls. */
#include "table/modules.h"

#include <ctype.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"

/* What a name tells: whether it is that of a module. */
enum { NAME_UNSEEN, NAME_OF_MODULE, NAME_OF_RANGE, NAME_OF_OTHER };

typedef struct {
    fs_build *build;
    uint32_t *modules; /* by event */
    uint8_t *names;    /* by name: NAME_… */
    fs_intern found;   /* (parent, name) of each module */
    uint32_t capacity; /* of table->modules */
} finding;

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_word(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_';
}

/* Return whether a range is named as a module: by a dotted path ("layers.0.attention"), or by a class and a number
 * ("Linear_0"). */
static bool is_path(const char *text)
{
    const char *at = text;
    bool dotted = false, digits = false;
    if (!isalpha((unsigned char)*at) && *at != '_') return false;
    for (; *at != 0; at++) {
        if (*at == '.' && is_word(at[1])) dotted = true;
        else if (!is_word(*at)) return false;
        if (*at == '_') digits = at[1] != 0;
        else if (!isdigit((unsigned char)*at)) digits = false;
    }
    return dotted || (digits && isupper((unsigned char)*text));
}

static uint8_t class_of(const char *text)
{
    static const char *const prefixes[] = {"nn.Module: ", "Torch-Compiled Region: ", "scope: "};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (begins(text, prefixes[i])) return NAME_OF_MODULE;
    return is_path(text) ? NAME_OF_RANGE : NAME_OF_OTHER;
}

/* names: by name, NAME_… */
static bool is_module(const fs_store *store, uint8_t *names, const fs_chunk *chunk, uint32_t at)
{
    uint32_t name = chunk->name[at];
    uint8_t kind = chunk->kind[at];
    if (name == FS_NONE || (kind != FS_EVENT_FRAME && kind != FS_EVENT_RANGE && kind != FS_EVENT_OP)) return false;
    uint8_t *class = &names[name];
    if (*class == NAME_UNSEEN) *class = class_of(fs_store_name_text(store, name));
    return *class == NAME_OF_MODULE || (*class == NAME_OF_RANGE && kind == FS_EVENT_RANGE);
}

/* Find or add the module of that name within another. */
static fs_status find_module(finding *all, uint32_t parent, uint32_t name, uint32_t *module, fs_error *err)
{
    fs_table *table = all->build->table;
    uint32_t key[2] = {parent, name};
    FS_TRY(fs_intern_bytes(&all->found, key, sizeof key, module, err));
    if (*module < table->module_count) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&table->modules, table->module_count, &all->capacity, 64, "modules", err));
    table->modules[table->module_count++] = (fs_table_module){.name = name, .parent = parent};
    return FS_OK;
}

/* Return the event that encloses this one, without frames that ended before it began. */
static uint32_t enclosing(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint32_t around = chunk->parent[at] < index ? chunk->parent[at] : FS_NONE;
    while (around != FS_NONE) {
        uint32_t spot;
        const fs_chunk *place = fs_build_chunk(build, around, &spot);
        bool ended = place->kind[spot] == FS_EVENT_FRAME && place->duration[spot] != FS_MISSING &&
                     fs_event_end(place, spot) < chunk->start[at];
        if (!ended) break;
        around = place->parent[spot] < around ? place->parent[spot] : FS_NONE;
    }
    return around;
}

/* In the first of two passes, an op of the backward pass may precede its op of the forward pass, which runs on another
 * thread; in the second, every op of the forward pass has its module. Calls are counted in the second. */
static fs_status find_all(finding *all, bool second, fs_error *err)
{
    const fs_build *build = all->build;
    uint32_t at;
    for (uint32_t index = 0; index < build->count; index++) {
        const fs_chunk *chunk = fs_build_chunk(build, index, &at);
        FS_POLL(index, err);
        uint32_t from = chunk->launcher[at] < index ? chunk->launcher[at] : FS_NONE;
        bool on_device = fs_build_is_device(chunk, at);
        if (!on_device) from = enclosing(build, chunk, at, index);
        if (second && !on_device && chunk->forward[at] < build->count) from = chunk->forward[at];
        uint32_t module = from != FS_NONE ? all->modules[from] : FS_NONE;
        if (!on_device && is_module(build->store, all->names, chunk, at)) {
            FS_TRY(find_module(all, module, chunk->name[at], &module, err));
            build->table->modules[module].calls += second;
        }
        all->modules[index] = module;
    }
    return FS_OK;
}

static fs_status classes_of_names(const fs_store *store, uint8_t **names, fs_error *err)
{
    uint32_t count = fs_store_name_count(store);
    *names = fs_calloc(count + (size_t)1, 1);
    if (*names == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to classify %u names", count);
    return FS_OK;
}

fs_status fs_table_finds_modules(const fs_store *store, bool *found, fs_error *err)
{
    uint8_t *names;
    uint32_t count = fs_store_count(store), at;
    FS_TRY(classes_of_names(store, &names, err));
    *found = false;
    for (uint32_t index = 0; index < count && !*found; index++) {
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        *found = !fs_build_is_device(chunk, at) && is_module(store, names, chunk, at);
    }
    fs_free(names);
    return FS_OK;
}

fs_status fs_build_modules(fs_build *build, uint32_t *modules, fs_error *err)
{
    fs_status status;
    finding all = {.build = build, .modules = modules};
    FS_TRY(classes_of_names(build->store, &all.names, err));
    status = find_all(&all, false, err);
    if (status == FS_OK) status = find_all(&all, true, err);
    fs_intern_clear(&all.found);
    fs_free(all.names);
    return status;
}
