/* An event of a trace's text, to a record. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_EVENT_H
#define FS_SOURCES_KINETO_EVENT_H

#include "sources/kineto/records.h"

/* The event at scan->at, whose '{' was seen. FS_SCAN_MORE leaves the piece as it was but for ids. A
 * status other than FS_OK in *status is out of memory. */
fs_scan_status fs_piece_event(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err);

#endif
