/* A piece of a trace's text and its records. Private to the trace source.
 *
 * A piece is read through a window that moves along the text. Reading stops before the first event that begins at or
 * after the piece's end. Ids are local to the piece: several threads read pieces, and join.c joins them. */
#ifndef FS_SOURCES_KINETO_PIECE_H
#define FS_SOURCES_KINETO_PIECE_H

#include "sources/kineto/records.h"

void fs_piece_init(fs_piece *piece, fs_record_pool *pool, int64_t offset, int64_t until, fs_piece_state state);
/* Before the pool. */
void fs_piece_clear(fs_piece *piece);

/* Make room for `size` more bytes at the end of the window, piece->text + piece->size, dropping text already read.
 * FS_OUT_OF_MEMORY. */
fs_status fs_piece_room(fs_piece *piece, size_t size, fs_error *err);
/* Read on after `size` bytes were put there, as far as there are complete events or members. */
fs_status fs_piece_read(fs_piece *piece, size_t size, fs_error *err);

/* Return the position in the trace's text up to which the piece has been read. */
static inline int64_t fs_piece_at(const fs_piece *piece)
{
    return piece->offset + (int64_t)piece->done;
}

/* Read the piece's part of a text with `read`. Unless `exact`, a piece in FS_PIECE_EVENTS begins at the first place
 * that looks like the start of an event. *start receives where it began, -1 if there is no such place. The window of a
 * piece that has stopped or failed is released. An exact piece limits its window to 128 MB, any other to 8 MB; a larger
 * event fails with FS_VALUE_ERROR. */
fs_status fs_piece_scan(fs_piece *piece, fs_kineto_read read, void *context, bool exact, int64_t *start, fs_error *err);

/* Conversion of an event of the text to a record. Private to the trace source. */

/* Whether an annotation is of a backend of torch.distributed, whose annotations end on threads of their own. */
bool fs_scan_is_communication(const fs_scan_span *name);

#endif
