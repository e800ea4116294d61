/* Calls that are alike: of one name and, where that is asked for, with equal arguments or within events of equal
 * names. What holds for one of them need be looked up only once. */
#ifndef FS_STORE_ALIKE_H
#define FS_STORE_ALIKE_H

#include "store/store.h"

typedef struct {
    const int64_t *events; /* each an index of the store */
    uint32_t count;
    bool arguments; /* those with other signatures are unlike */
    bool around;    /* those within events of other kinds or names, but of steps, are unlike */
} fs_alike_request;

/* Number what is alike 0, 1, 2, … in order of its first event: groups[i] is the number of events[i], and firsts (with
 * room for `count`) the place of the first event of each of the *group_count groups. FS_VALUE_ERROR for an event that
 * is not in the store, FS_OUT_OF_MEMORY. */
fs_status fs_alike_find(const fs_store *store, const fs_alike_request *request, int64_t *groups, int64_t *firsts,
                        uint32_t *group_count, fs_error *err);

#endif
