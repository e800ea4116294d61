/* A value ends at the next comma or "#". Names of ops, which come before it, may contain both, so the last of a key
 * counts. A name that is too long names nothing. */
#include "work/hlo/thunks.h"

#include <string.h>

#include "store/event.h"

static const char thunk_prefix[] = "TSL: Thunk:#", module_prefix[] = "TSL: XlaModule:#";

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Copy the value of a key of a range's name, such as "hlo_op="; false if it has none. */
static bool take_value(const char *text, const char *key, char value[FS_THUNK_NAME_BYTES])
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, key)) != NULL; at++)
        if (at > text && (at[-1] == '#' || at[-1] == ',')) found = at + strlen(key);
    size_t size = found != NULL ? strcspn(found, ",#") : 0;
    if (size == 0 || size >= FS_THUNK_NAME_BYTES) return false;
    memcpy(value, found, size);
    value[size] = 0;
    return true;
}

bool fs_hlo_thunk_of(const fs_store *store, uint32_t work, fs_hlo_thunk *thunk)
{
    uint32_t event = FS_EVENT_AT(store, work, launcher);
    thunk->module[0] = thunk->instruction[0] = 0;
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        uint32_t name = FS_EVENT_AT(store, event, name), parent = FS_EVENT_AT(store, event, parent);
        const char *text =
            FS_EVENT_AT(store, event, kind) == FS_EVENT_RANGE && name != FS_NONE ? fs_store_name_text(store, name) : "";
        bool named = thunk->instruction[0] != 0;
        if (!named && begins(text, thunk_prefix) && !take_value(text, "hlo_op=", thunk->instruction)) return false;
        if (named && begins(text, module_prefix)) {
            take_value(text, "hlo_module=", thunk->module);
            return true;
        }
        event = parent < event ? parent : FS_NONE;
    }
    return thunk->instruction[0] != 0;
}
