/* A call is a path: its signature, its name, and the names of what is around it, innermost first. A map gives each pair
 * of a path so far and what follows a number, so equal paths have equal numbers, whatever their length. */
#include "store/alike.h"

#include "base/id_map.h"
#include "base/interrupt.h"
#include "store/event.h"

/* The last links of a path, which are no kinds of events. */
enum { SIGNATURE = FS_EVENT_KIND_COUNT, GROUP };

/* Replace the number of a path by that of the path with one more link: `fresh` if there is none yet. */
static fs_status follow(fs_id_map *paths, uint32_t *path, uint32_t kind, uint32_t value, uint32_t fresh, fs_error *err)
{
    int64_t link = (int64_t)kind << 32 | value;
    uint32_t known = fs_id_map_get(paths, *path, link);
    if (known == UINT32_MAX) FS_TRY(fs_id_map_set(paths, *path, link, known = fresh, err));
    *path = known;
    return FS_OK;
}

static fs_status find_path(fs_id_map *paths, const fs_store *store, const fs_alike_request *request, uint32_t event,
                           uint32_t *path, fs_error *err)
{
    uint32_t at;
    *path = FS_NONE;
    if (request->arguments)
        FS_TRY(follow(paths, path, SIGNATURE, FS_EVENT_AT(store, event, signature), paths->count, err));
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        const fs_chunk *chunk = fs_event_chunk(store, event, &at);
        uint32_t name = chunk->kind[at] == FS_EVENT_STEP ? FS_NONE : chunk->name[at]; /* each step has its own */
        FS_TRY(follow(paths, path, chunk->kind[at], name, paths->count, err));
        event = request->around ? fs_event_around(chunk, at, event) : FS_NONE;
    }
    return FS_OK;
}

static fs_status number(fs_id_map *paths, const fs_store *store, const fs_alike_request *request, int64_t *groups,
                        int64_t *firsts, uint32_t *group_count, fs_error *err)
{
    for (uint32_t i = 0; i < request->count; i++) {
        uint32_t path;
        int64_t event = request->events[i];
        FS_POLL(i, err);
        if (event < 0 || event >= fs_store_count(store))
            return fs_fail(err, FS_VALUE_ERROR, "there is no event %lld", (long long)event);
        FS_TRY(find_path(paths, store, request, (uint32_t)event, &path, err));
        FS_TRY(follow(paths, &path, GROUP, 0, *group_count, err));
        if (path == *group_count) firsts[(*group_count)++] = i;
        groups[i] = path;
    }
    return FS_OK;
}

fs_status fs_alike_find(const fs_store *store, const fs_alike_request *request, int64_t *groups, int64_t *firsts,
                        uint32_t *group_count, fs_error *err)
{
    fs_id_map paths = {0};
    *group_count = 0;
    fs_status status = number(&paths, store, request, groups, firsts, group_count, err);
    fs_id_map_clear(&paths);
    return status;
}
