/* Places the ops of replayed graphs, which take no time, so that a trace shows which of them enclose others: each gets
 * one ns more than those in it, one after the other from the start of the launch. Private to csrc/views. */
#ifndef FS_VIEWS_REPLAYED_H
#define FS_VIEWS_REPLAYED_H

#include "store/event.h"

typedef struct {
    int64_t *starts, *widths; /* by event, in ns; NULL: the store has none */
} fs_replayed_places;

/* FS_OUT_OF_MEMORY. */
fs_status fs_replayed_create(fs_replayed_places *places, const fs_store *store, fs_error *err);
void fs_replayed_clear(fs_replayed_places *places);

/* Set start and duration of an event that is the op of a replay. */
static inline void fs_replayed_place(const fs_replayed_places *places, uint32_t index, fs_event *event)
{
    if ((event->flags & FS_EVENT_REPLAYED) == 0 || places->starts == NULL) return;
    event->start = places->starts[index];
    event->duration = places->widths[index];
}

#endif
