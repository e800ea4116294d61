/* Attribution after a capture: CUPTI reports API calls and device work separately from the program's ops, in the order
 * in which its buffers are returned.
 *
 *   API call, overhead   belongs to the innermost enclosing event of its thread
 *   device work          belongs to the op, range or step around the API call of the same correlation. A thread that
 *   never has one belongs to a library (torch's backward pass runs on such threads): its launches belong to the
 *   innermost range or step open at that time, if only one other thread has any open
 *   range, step          gets a copy on every stream that ran work for it, from the first work to the end of the
 *   last */
#ifndef FS_SOURCES_ATTRIBUTE_H
#define FS_SOURCES_ATTRIBUTE_H

#include "store/store.h"

/* Attribute the events of a store that is complete; call once. Host events reported by CUPTI are
 * reordered among themselves so that parents precede their children. FS_OUT_OF_MEMORY leaves the attribution
 * incomplete, but every link valid. */
fs_status fs_attribute(fs_store *store, fs_error *err);

#endif
