/* Conversion of an event of the text to a record. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_EVENT_H
#define FS_SOURCES_KINETO_EVENT_H

#include "sources/kineto/records.h"

/* Whether an annotation is of a backend of torch.distributed, whose annotations end on threads of their own. */
bool fs_scan_is_communication(const fs_scan_span *name);

/* Read the event at scan->at, after its '{'. FS_SCAN_MORE leaves the piece unchanged except for ids. A *status other
 * than FS_OK is FS_OUT_OF_MEMORY. */
fs_scan_status fs_piece_event(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err);

#endif
