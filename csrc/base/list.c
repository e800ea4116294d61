/* The pointer and the capacity change together, after the new room is there, so a failure leaves a list as it was.
 * Doubling copies each item once on average. The pointer is read and written as bytes: lists of all types pass here,
 * and a void ** to a pointer of another type would break C's aliasing rules. */
#include "base/list.h"

#include <string.h>

#include "base/memory.h"

fs_status fs_list_grow(void *list, size_t index, uint32_t *capacity, size_t item_size, uint32_t first,
                       const char *items, fs_error *err)
{
    void *old, *grown = NULL;
    size_t wanted = 2 * (size_t)*capacity, size;
    if (wanted < first) wanted = first;
    if (wanted > UINT32_MAX) wanted = UINT32_MAX;
    if (wanted <= index) wanted = index < SIZE_MAX ? index + 1 : index;
    memcpy(&old, list, sizeof old);
    if (wanted <= UINT32_MAX && !__builtin_mul_overflow(wanted, item_size, &size)) grown = fs_realloc(old, size);
    if (grown == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %zu %s", wanted, items);
    memcpy(list, &grown, sizeof grown);
    *capacity = (uint32_t)wanted;
    return FS_OK;
}
