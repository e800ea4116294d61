/* One pass in the order of events fills an array for each grouping that is asked for: an event takes the value of what
 * encloses it, which stands before it. All values of an event together are its part, interned, so that rows are
 * separated by one number. Groupings that are not asked for cost nothing. */
#include "table/parts.h"

#include <ctype.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/text.h"
#include "store/step_marks.h"
#include "table/build.h"

/* Modules ---------------------------------------------------------------------------------------------------------- */

/* The modules (torch.nn.Module) around events. The module of an event is that of what encloses it, or of its launcher
 * on a device, or of its forward op in the backward pass. Ids are given in order of first use, a parent before its
 * children. Two passes, because a backward op may stand before its forward op; only the second one counts calls. */

/* What a name tells: whether it is that of a module. */
enum { NAME_UNSEEN, NAME_OF_MODULE, NAME_OF_RANGE, NAME_OF_OTHER };

typedef struct {
    fs_build *build;
    uint32_t *modules; /* by event */
    uint8_t *names;    /* by name: NAME_… */
    fs_intern found;   /* (parent, name) of each module */
    uint32_t capacity; /* of table->modules */
} finding;

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
        if (fs_begins(text, prefixes[i])) return NAME_OF_MODULE;
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
    return FS_LIST_ADD(&table->modules, &table->module_count, &all->capacity, 64, err,
                       (fs_table_module){.name = name, .parent = parent});
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
    FS_EACH_EVENT(build->store, index, chunk, at) {
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

fs_status fs_table_finds_modules(const fs_store *store, bool *found, fs_error *err)
{
    uint8_t *names;
    uint32_t count = fs_store_count(store), at;
    FS_TRY(FS_NEW_ZEROED(&names, fs_store_name_count(store) + (size_t)1, err));
    *found = false;
    for (uint32_t index = 0; index < count && !*found; index++) {
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        *found = !fs_build_is_device(chunk, at) && is_module(store, names, chunk, at);
    }
    fs_free(names);
    return FS_OK;
}

/* Fill in the index in table->modules of the module around each event, or FS_NONE. An op of the backward pass belongs
 * to the module of its op of the forward pass; device work belongs to the module of its launcher. FS_OUT_OF_MEMORY. */
static fs_status build_modules(fs_build *build, uint32_t *modules, fs_error *err)
{
    fs_status status;
    finding all = {.build = build, .modules = modules};
    FS_TRY(FS_NEW_ZEROED(&all.names, fs_store_name_count(build->store) + (size_t)1, err));
    status = find_all(&all, false, err);
    if (status == FS_OK) status = find_all(&all, true, err);
    fs_intern_clear(&all.found);
    fs_free(all.names);
    return status;
}

/* Parts ------------------------------------------------------------------------------------------------------------ */

/* The first id of a table's stacks: the empty stack. */
enum { NO_STACK };

typedef struct {
    fs_build *build;
    /* By event; NULL unless rows are separated by them. frames: the innermost frame around, or FS_NONE. */
    uint32_t *frames, *stacks, *lines, *steps, *modules;
    uint32_t *entries; /* buffer for one stack */
    uint32_t entry_capacity;
    fs_step_marks marks; /* if `steps` */
    uint8_t *programs;   /* if `lines`, by name: FRAME_… */
    fs_table_part last;  /* of the previous event */
    uint32_t last_id;
} parting;

static bool separates(const fs_build *build, fs_grouping grouping)
{
    return (build->options->groupings >> grouping & 1) != 0;
}

/* Stacks ----------------------------------------------------------------------------------------------------------- */

/* Return the innermost frame that encloses the event. Frames that ended before the event began are skipped: a generator
 * that holds a range open has left its frame inside the range. `frames`, by event: the result for each earlier one. */
static uint32_t innermost_frame(const fs_build *build, uint32_t index, const uint32_t *frames)
{
    uint32_t at;
    const fs_chunk *chunk = fs_build_chunk(build, index, &at);
    uint32_t frame = chunk->parent[at];
    if (frame >= index) return FS_NONE;
    if (FS_BUILD_AT(build, frame, kind) != FS_EVENT_FRAME) frame = frames[frame];
    for (; frame != FS_NONE; frame = frames[frame]) {
        uint32_t spot;
        const fs_chunk *place = fs_build_chunk(build, frame, &spot);
        if (place->duration[spot] == FS_MISSING || fs_event_end(place, spot) >= chunk->start[at]) break;
    }
    return frame;
}

/* Find the event's stack: that of the innermost frame around it (FS_NONE: none), extended by the event itself if it is
 * a frame. */
static fs_status find_stack(parting *all, uint32_t around, const fs_chunk *chunk, uint32_t at, uint32_t index,
                            fs_error *err)
{
    fs_intern *stacks = &all->build->table->stacks;
    all->stacks[index] = around != FS_NONE ? all->stacks[around] : NO_STACK;
    if (chunk->kind[at] != FS_EVENT_FRAME) return FS_OK;
    fs_span outer = fs_intern_get(stacks, all->stacks[index]);
    uint32_t depth = outer.size / (uint32_t)sizeof *all->entries + 1;
    if (depth > all->build->options->stack_depth) depth = all->build->options->stack_depth;
    FS_TRY(FS_LIST_ROOM(&all->entries, depth - 1, &all->entry_capacity, 16, err));
    all->entries[0] = chunk->name[at];
    memcpy(all->entries + 1, outer.bytes, (depth - 1) * sizeof *all->entries);
    return fs_intern_bytes(stacks, all->entries, depth * sizeof *all->entries, &all->stacks[index], err);
}

/* Source lines ----------------------------------------------------------------------------------------------------- */

/* What a frame's name tells of it. */
enum { FRAME_UNSEEN, FRAME_OF_LIBRARY, FRAME_OF_PROGRAM };

/* Frames that are not the program's begin with one of these, or contain it below a folder of packages. */
static const char *const libraries[] = {"torch/", "flopscope/", "contextlib.py(", "functools.py(", "threading.py("};

/* Return whether a frame named like this ("path/file.py(12): function") is a line of the program. */
static bool is_of_program(const char *name)
{
    static const char *const folders[] = {"-packages/", "/lib/python"};
    if (*name == '<' || strstr(name, ".py(") == NULL) return false;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (fs_begins(name, libraries[i])) return false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *below = strstr(name, folders[i]);
        if (below != NULL) below = strchr(below + 1, '/');
        for (; below != NULL && i == 1 && fs_begins(below, "/python"); below = strchr(below + 1, '/')) continue;
        if (below == NULL) continue;
        for (size_t j = 0; j < sizeof libraries / sizeof *libraries; j++)
            if (fs_begins(below + 1, libraries[j])) return false;
    }
    return true;
}

static bool is_program_frame(const parting *all, uint32_t name)
{
    uint8_t *known = &all->programs[name];
    if (*known == FRAME_UNSEEN)
        *known = is_of_program(fs_store_name_text(all->build->store, name)) ? FRAME_OF_PROGRAM : FRAME_OF_LIBRARY;
    return *known == FRAME_OF_PROGRAM;
}

static void find_line(const parting *all, uint32_t around, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint32_t name = chunk->name[at];
    if (fs_build_is_device(chunk, at)) around = chunk->launcher[at] < index ? chunk->launcher[at] : FS_NONE;
    bool own = chunk->kind[at] == FS_EVENT_FRAME && name != FS_NONE && is_program_frame(all, name);
    all->lines[index] = own ? name : around != FS_NONE ? all->lines[around] : FS_NONE;
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

/* Return the name of the last step that was running on the host at a time, or FS_NONE. */
static uint32_t step_at(const parting *all, int64_t time)
{
    uint32_t mark = fs_step_marks_at(&all->marks, time);
    return mark == FS_NONE ? FS_NONE : all->marks.marks[mark].name;
}

/* Find the step around a host event, or around the launch of device work. An event of another thread, such as torch's
 * backward pass, belongs to the step that was running when it began. */
static void find_step(const parting *all, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint32_t *step = &all->steps[index], around = chunk->parent[at];
    *step = FS_NONE;
    if (index == all->marks.first || index == all->marks.last) return;
    if (chunk->kind[at] == FS_EVENT_STEP) {
        *step = chunk->name[at];
        return;
    }
    bool on_device = fs_build_is_device(chunk, at);
    if (on_device) {
        around = fs_step_marks_launch(&all->marks, chunk, at);
        if (around >= index) around = chunk->launcher[at];
    }
    if (around < index) *step = all->steps[around];
    if (*step == FS_NONE && !on_device && chunk->start[at] != FS_MISSING) *step = step_at(all, chunk->start[at]);
}

/* Parts ------------------------------------------------------------------------------------------------------------ */

static fs_status prepare(parting *all, fs_error *err)
{
    fs_build *build = all->build;
    bool lines = separates(build, FS_GROUPING_LINE), stacks = build->options->stack_depth > 0;
    struct {
        uint32_t **array;
        bool used;
    } const arrays[] = {
        {&build->parts, true},
        {&all->frames, lines || stacks},
        {&all->stacks, stacks},
        {&all->lines, lines},
        {&all->steps, separates(build, FS_GROUPING_STEP)},
        {&all->modules, separates(build, FS_GROUPING_MODULE)},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (!arrays[i].used) continue;
        FS_TRY(FS_NEW(arrays[i].array, build->count, err));
    }
    if (lines) {
        uint32_t names = fs_store_name_count(build->store);
        FS_TRY(FS_NEW_ZEROED(&all->programs, names, err));
    }
    uint32_t first;
    if (stacks) FS_TRY(fs_intern_bytes(&build->table->stacks, "", 0, &first, err));
    if (all->steps != NULL) FS_TRY(fs_step_marks_find(&all->marks, build->store, NULL, err));
    return all->modules != NULL ? build_modules(build, all->modules, err) : FS_OK;
}

static fs_status find_part(parting *all, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    fs_build *build = all->build;
    bool on_device = fs_build_is_device(chunk, at);
    uint32_t frame = FS_NONE;
    if (all->frames != NULL) {
        if (!on_device) frame = innermost_frame(build, index, all->frames);
        all->frames[index] = frame;
    }
    if (all->stacks != NULL) FS_TRY(find_stack(all, frame, chunk, at, index, err));
    if (all->lines != NULL) find_line(all, frame, chunk, at, index);
    if (all->steps != NULL) find_step(all, chunk, at, index);
    fs_table_part part = {
        .stack = all->stacks != NULL ? all->stacks[index] : FS_NONE,
        .line = all->lines != NULL ? all->lines[index] : FS_NONE,
        .step = all->steps != NULL ? all->steps[index] : FS_NONE,
        .module = all->modules != NULL ? all->modules[index] : FS_NONE,
        .lane = on_device && separates(build, FS_GROUPING_STREAM) ? chunk->lane[at] : FS_NONE,
    };
    if (index == 0 || memcmp(&part, &all->last, sizeof part) != 0) {
        FS_TRY(fs_intern_bytes(&build->table->parts, &part, sizeof part, &all->last_id, err));
        all->last = part;
    }
    build->parts[index] = all->last_id;
    return FS_OK;
}

static fs_status find_parts(parting *all, fs_error *err)
{
    FS_TRY(prepare(all, err));
    FS_EACH_EVENT(all->build->store, index, chunk, at) {
        FS_POLL(index, err);
        FS_TRY(find_part(all, chunk, at, index, err));
    }
    return FS_OK;
}

fs_status fs_build_parts(fs_build *build, fs_error *err)
{
    const uint32_t any =
        1u << FS_GROUPING_STEP | 1u << FS_GROUPING_STREAM | 1u << FS_GROUPING_LINE | 1u << FS_GROUPING_MODULE;
    if (build->options->stack_depth == 0 && (build->options->groupings & any) == 0) return FS_OK;
    parting all = {.build = build};
    fs_status status = find_parts(&all, err);
    uint32_t *arrays[] = {all.frames, all.stacks, all.lines, all.steps, all.modules, all.entries};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) fs_free(arrays[i]);
    fs_free(all.programs);
    fs_step_marks_clear(&all.marks);
    return status;
}
