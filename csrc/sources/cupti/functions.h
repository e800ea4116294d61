/* Callback ids of API functions, found once by name, because their numbers are internal to CUPTI. Private to the CUPTI
 * source. */
#ifndef FS_SOURCES_CUPTI_FUNCTIONS_H
#define FS_SOURCES_CUPTI_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "sources/cupti/records.h"

typedef struct {
    uint32_t ids[FS_CUPTI_FUNCTIONS];
    int count;
} fs_cupti_ids;

/* Lists with an index are by domain. */
typedef struct {
    fs_cupti_ids unwanted[FS_CUPTI_RUNTIME_DOMAIN + 1]; /* functions that make no event */
    fs_cupti_ids changing[FS_CUPTI_RUNTIME_DOMAIN + 1]; /* that change an executable graph, their first argument */
    fs_cupti_ids launching;                             /* of the driver; that launch one, likewise */
    uint32_t driver_version;                            /* cuDriverGetVersion */
} fs_cupti_function_ids;

/* All lists are empty before fs_cupti_find_functions, which needs CUPTI to be loaded. */
extern const fs_cupti_function_ids *const fs_cupti_functions_found;
void fs_cupti_find_functions(void);

bool fs_cupti_ids_have(const fs_cupti_ids *ids, uint32_t function);

#endif
