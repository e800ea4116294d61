/* Copies, fills and waits have the names that Kineto gives them, so that a database and a trace of one program have the
 * same rows. Numbers index tables of CUPTI's enumerations; one that is out of range is "Unknown", never an error. */
#include "sources/sqlite/names.h"

#include <stdbool.h>
#include <stdio.h>

static const char *const copies[] = {
    "<unknown>",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    /* migrations of managed memory */
    "Unified HtoD",
    "Unified DtoH",
    "Unified DtoD",
};

static const char *const memories[] = {"Pageable",      "Pinned",         "Device",  "Array", "Managed",
                                       "Device Static", "Managed Static", "Unknown", "Host"};

static const char *const synchronizations[] = {"Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync",
                                               "Context Sync"};

#define COUNT(list) (int64_t)(sizeof(list) / sizeof *(list))
#define NAMED(list, index, unknown) ((index) >= 0 && (index) < COUNT(list) ? (list)[index] : (unknown))

void fs_copy_name(int64_t kind, int64_t from, int64_t to, char name[FS_WORK_NAME_SIZE])
{
    snprintf(name, FS_WORK_NAME_SIZE, "Memcpy %s (%s -> %s)", NAMED(copies, kind, copies[0]),
             NAMED(memories, from, "Unknown"), NAMED(memories, to, "Unknown"));
}

void fs_fill_name(int64_t memory, char name[FS_WORK_NAME_SIZE])
{
    snprintf(name, FS_WORK_NAME_SIZE, "Memset (%s)", NAMED(memories, memory, "Unknown"));
}

void fs_sync_name(int64_t type, char name[FS_WORK_NAME_SIZE])
{
    snprintf(name, FS_WORK_NAME_SIZE, "%s", NAMED(synchronizations, type, synchronizations[0]));
}

void fs_replay_name(int64_t graph, char name[FS_WORK_NAME_SIZE])
{
    static const char why[] = "(replayed; its kernels were not recorded)";
    if (graph > 0) snprintf(name, FS_WORK_NAME_SIZE, "CUDA graph %lld %s", (long long)graph, why);
    else snprintf(name, FS_WORK_NAME_SIZE, "CUDA graph %s", why);
}

size_t fs_call_name_size(const char *name, size_t size)
{
    size_t digits = 0;
    while (digits < size && name[size - 1 - digits] >= '0' && name[size - 1 - digits] <= '9') digits++;
    size_t version = digits + 2;
    bool versioned = digits >= 4 && size > version && name[size - version] == '_' && name[size - version + 1] == 'v';
    return versioned ? size - version : size;
}
