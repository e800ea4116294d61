/* Events and members whose strings hold quotes that their writer did not escape, as torch up to 2.13 writes names. */
#ifndef FS_SOURCES_KINETO_MEND_H
#define FS_SOURCES_KINETO_MEND_H

#include "sources/kineto/json_scan.h"

/* The longest text that is mended; FS_SCAN_MORE for one that may end within it. */
enum { FS_MEND_LONGEST = 1 << 20 };

/* A copy with its quotes escaped, and FS_SCAN_PADDING zero bytes. All zero: none yet; released with fs_free(text). */
typedef struct {
    char *text;
    size_t size;
    uint32_t capacity;
} fs_mended;

/* Copy the text from `key` on: that before scan->at as it is, then the value there, an event's if it is the key, or
 * else that of a member of a trace; and step past it. A string ends at the first quote that is followed by what must
 * follow a value there: after the name of an event by a key that events have. FS_SCAN_BAD, with the scan as it was, if
 * there is no such quote, or no memory for the copy. `whole`: the text ends at scan->end. */
fs_scan_status fs_mend(fs_scan *scan, const char *key, bool whole, fs_mended *copy);

#endif
