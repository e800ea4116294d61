/* Lists that grow by doubling: a pointer to items of one size and the number of items that there is room for. An empty
 * list is a null pointer and 0; it is released with fs_free. */
#ifndef FS_BASE_LIST_H
#define FS_BASE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Make room for the item with this index, and for as many again: the capacity becomes the double of what it was, at
 * least `first`, and more if the index needs it. `list` is the address of the pointer to the items, `items` their name
 * in the error: "no memory for 64 items". The room that is new is uninitialised.
 * FS_OUT_OF_MEMORY, which leaves the list as it was; also if the capacity would exceed 32 bits. */
fs_status fs_list_grow(void *list, size_t index, uint32_t *capacity, size_t item_size, uint32_t first,
                       const char *items, fs_error *err);

/* Grow the list only if it has no room for the index: FS_TRY(FS_LIST_ROOM(&list, count, &capacity, 64, "items", err)).
 * The index and the capacity are evaluated twice. */
#define FS_LIST_ROOM(list, index, capacity, first, items, err) \
    ((index) < *(capacity) ? FS_OK : fs_list_grow(list, index, capacity, sizeof **(list), first, items, err))

#endif
