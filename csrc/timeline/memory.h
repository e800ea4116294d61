/* The changes of memory of a store, for drawing: who allocated and freed what, and how much was allocated then. */
#ifndef FS_TIMELINE_MEMORY_H
#define FS_TIMELINE_MEMORY_H

#include "store/store.h"
#include "table/table.h"

/* X(type, name, prose): a column by change, in the order of the store. A change belongs to the innermost op around it
 * that does more than allocate. */
#define FS_MEMORY_COLUMN_LIST(X)                                                       \
    X(int64_t, time, "ns")                                                             \
    X(int64_t, bytes, "allocated (above 0) or freed")                                  \
    X(int64_t, allocated, "bytes of the device after it, as recorded; -1: unknown")    \
    X(int64_t, reserved, "likewise, with what the allocator keeps for later")          \
    X(uint64_t, address, "of the block; 0: unknown")                                   \
    X(uint32_t, row, "of the op whose memory it is, or event if no op is; or FS_NONE") \
    X(int32_t, device, "-1: the CPU")

typedef struct {
#define FS_MEMORY_FIELD(type, name, prose) type *name;
    FS_MEMORY_COLUMN_LIST(FS_MEMORY_FIELD)
#undef FS_MEMORY_FIELD
    uint32_t count;
    uint32_t unplaced; /* changes without a time, which are left out */
} fs_memory_changes;

/* List the changes. The table must tell the calls of the events. FS_OUT_OF_MEMORY. */
fs_status fs_memory_list(fs_memory_changes *changes, const fs_store *store, const fs_table *table, fs_error *err);
void fs_memory_clear(fs_memory_changes *changes);

#endif
