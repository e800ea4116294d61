/* Names of kinds and timings of events, and events and device properties of which nothing is known. */
#include "store/event.h"

#include <string.h>

#define NAME_OF(NAME, name, on_device, prose) [FS_EVENT_##NAME] = #name,
const char *const fs_event_kind_names[FS_EVENT_KIND_COUNT] = {FS_EVENT_KIND_LIST(NAME_OF)};
#define ON_DEVICE(NAME, name, on_device, prose) [FS_EVENT_##NAME] = on_device,
const bool fs_event_kind_on_device[FS_EVENT_KIND_COUNT] = {FS_EVENT_KIND_LIST(ON_DEVICE)};
#define TIMING_NAME(NAME, name) [FS_TIMING_##NAME] = #name,
const char *const fs_timing_names[FS_TIMING_COUNT] = {FS_TIMING_LIST(TIMING_NAME)};
#define MISSING(type, name, missing, prose) .name = missing,
const fs_event fs_event_missing = {FS_EVENT_COLUMN_LIST(MISSING)};
#define MISSING_FACT(name, trace_name, prose) .name = -1,
const fs_device_facts fs_device_facts_missing = {FS_DEVICE_FACT_LIST(MISSING_FACT)};

/* Names of ops ----------------------------------------------------------------------------------------------------- */

/* "space::name.overload", all three of letters, digits and underscores; anything else has no overload. The grammar of
 * torch's op names decides, not a list of ops. */

static size_t word_size(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

size_t fs_name_without_overload(const char *text)
{
    size_t space = word_size(text);
    if (space == 0 || strncmp(text + space, "::", 2) != 0) return 0;
    size_t size = space + 2 + word_size(text + space + 2);
    if (text[size] == '\0') return size;
    return text[size] == '.' && word_size(text + size + 1) == strlen(text + size + 1) ? size : 0;
}
