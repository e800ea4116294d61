/* The marks of a program's steps on its host: the events of kind FS_EVENT_STEP, without those that are no steps.
 *
 *   mark    |  step 0  |  step 1  |  |    the last one was opened by the end of step 1 and closed by the end of the
 *   ops      ▓▓ ▓▓▓     ▓▓▓ ▓▓            recording: nothing ran in it
 *
 * The first and the last mark count only if an op, work that the host launched, or a range with declared work began in
 * them. If that is so of no mark, as in programs of which only steps were recorded, all of them count. */
#ifndef FS_STORE_STEP_MARKS_H
#define FS_STORE_STEP_MARKS_H

#include "store/api_calls.h"

typedef struct {
    int64_t begin, end;
    uint32_t event, name;
} fs_step_mark;

typedef struct {
    fs_step_mark *marks; /* by begin */
    uint32_t count;
    uint32_t first, last; /* events: an empty first and last mark, which are not among the marks; or FS_NONE */
    const fs_api_calls *calls;
    fs_api_calls own; /* if the caller has none, and there are marks */
} fs_step_marks;

/* Find the marks. calls: an index of the store, which is kept; NULL: none is known. FS_OUT_OF_MEMORY, after which there
 * is nothing to clear. The struct must not move. */
fs_status fs_step_marks_find(fs_step_marks *marks, const fs_store *store, const fs_api_calls *calls, fs_error *err);
void fs_step_marks_clear(fs_step_marks *marks);

/* Return the last mark that was open at a time, or FS_NONE. */
uint32_t fs_step_marks_at(const fs_step_marks *marks, int64_t time);

/* Return the host event that launched a piece of device work: its API call or else its launcher; or FS_NONE. */
uint32_t fs_step_marks_launch(const fs_step_marks *marks, const fs_chunk *chunk, uint32_t at);

/* Make ranges of the steps of a name, as the recording began or ended amid them; "": of all. */
void fs_step_marks_undo(fs_store *store, const char *name);

#endif
