/* What belongs to what, after a capture: CUPTI tells of API calls and of device work apart from the program's ops, in
 * the order in which its buffers came back.
 *
 *   API call, overhead   lies in the innermost event of its thread that encloses it
 *   device work          ran for the op, range or step that the API call of the same correlation lies in. A thread that
 *                        never has one is a library's (torch's backward pass runs on such): what it launches runs for
 *                        the innermost range or step that is open then, if only one other thread has any open
 *   range, step          has a copy on every stream that worked for it, from its first work to the end of its last
 */
#ifndef FS_SOURCES_ATTRIBUTE_H
#define FS_SOURCES_ATTRIBUTE_H

#include "store/store.h"

/* Of a store that nobody appends to any more, once. Host events that CUPTI told of change places among themselves, so
 * that parents come before their children. FS_OUT_OF_MEMORY leaves some of it undone, and every link valid. */
fs_status fs_attribute(fs_store *store, fs_error *err);

#endif
