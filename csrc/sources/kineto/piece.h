/* A piece of a trace's text, and the records that it holds. Private to the trace source.
 *
 * A piece is read through a window that moves along the text; it stops before the first event that begins at or after
 * its end. Ids are the piece's own: pieces are read by several threads, and joined in join.c.
 */
#ifndef FS_SOURCES_KINETO_PIECE_H
#define FS_SOURCES_KINETO_PIECE_H

#include "sources/kineto/records.h"

void fs_piece_init(fs_piece *piece, int64_t offset, int64_t until, fs_piece_state state);
void fs_piece_clear(fs_piece *piece);

/* Room for `size` more bytes in the window, after what is in it: piece->text + piece->size. What was read leaves it. */
fs_status fs_piece_room(fs_piece *piece, size_t size, fs_error *err);
/* Read on, with `size` bytes put there; as far as whole events, or members, are there. */
fs_status fs_piece_read(fs_piece *piece, size_t size, fs_error *err);

/* The byte of the trace that the reading stands at. */
static inline int64_t fs_piece_at(const fs_piece *piece)
{
    return piece->offset + (int64_t)piece->done;
}

/* Read the piece's part of a text by `read`; of a piece in FS_PIECE_EVENTS, from the first place on that looks as if an
 * event began there, unless `exact`. *start: where it began, -1 where there was no such place. The window of a piece
 * that has stopped or failed is released. An exact piece takes at most 128 MB for its window, any other 8 MB: an event
 * that is larger fails with FS_VALUE_ERROR. */
fs_status fs_piece_scan(fs_piece *piece, fs_kineto_read read, void *context, bool exact, int64_t *start, fs_error *err);

#endif
