/* CUPTI numbers functions without gaps from 1, so the search ends with the first number without a name. It runs once,
 * and its result never changes. */
#include "sources/cupti/functions.h"

#include <pthread.h>
#include <string.h>

static fs_cupti_function_ids found;
const fs_cupti_function_ids *const fs_cupti_functions_found = &found;

bool fs_cupti_ids_have(const fs_cupti_ids *ids, uint32_t function)
{
    for (int i = 0; i < ids->count; i++)
        if (ids->ids[i] == function) return true;
    return false;
}

static void add(fs_cupti_ids *ids, uint32_t function)
{
    ids->ids[ids->count++] = function;
}

static bool changes_graphs(const char *name)
{
    return strstr(name, "GraphExecUpdate") != NULL ||
           (strstr(name, "GraphExec") != NULL && strstr(name, "SetParams") != NULL);
}

static void find(void)
{
    char name[128];
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN; domain++) {
        bool runtime = domain == FS_CUPTI_RUNTIME_DOMAIN;
        for (uint32_t id = 1; id < FS_CUPTI_FUNCTIONS; id++) {
            fs_cupti_function_name(domain, id, name, sizeof name);
            if (name[0] == '\0') break;
            if (changes_graphs(name)) add(&found.changing[domain], id);
            if (runtime ? fs_cupti_is_noise(name) : !fs_cupti_is_wanted(name)) add(&found.unwanted[domain], id);
            if (runtime) continue;
            if (strcmp(name, "cuDriverGetVersion") == 0) found.driver_version = id;
            if (strcmp(name, "cuGraphLaunch") == 0) add(&found.launching, id); /* for each kind of default stream */
        }
    }
}

void fs_cupti_find_functions(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
}
