/* First step of a build: counts the calls of the events, finds the rows, and lists device events. Private to
 * csrc/table. */
#ifndef FS_TABLE_SURVEY_H
#define FS_TABLE_SURVEY_H

#include "table/build.h"
#include "table/tallies.h"

/* Events of a piece. A piece lies in one chunk of the store. */
enum { FS_PIECE_EVENTS = FS_BLOCK(1 << 15, 1 << 3) };

/* What one thread found in a piece. */
typedef struct {
    fs_tallies tallies;
    uint32_t *foreign; /* events before the piece that have children in it, in any order and not distinct */
    uint32_t foreign_count, foreign_capacity;
    uint32_t work_count, node_room; /* device events; events that may have a node */
    uint32_t device_count, open_events;
    int64_t first_work, last_work; /* their starts */
    bool sorted;                   /* device events are in order of start */
    bool has_memory, device_memory, has_unlinked_work, has_needs;
    int64_t shortest_kernel_ns;
    fs_status status;
    fs_error err;
} fs_piece;

static inline uint32_t fs_piece_count(const fs_build *build)
{
    return (uint32_t)(((uint64_t)build->count + FS_PIECE_EVENTS - 1) / FS_PIECE_EVENTS);
}

/* The first event after a piece. */
static inline uint32_t fs_piece_end(const fs_build *build, uint32_t piece)
{
    uint64_t end = ((uint64_t)piece + 1) * FS_PIECE_EVENTS;
    return end < build->count ? (uint32_t)end : build->count;
}

/* Fill in the slots with calls, `calls`, `groups` (their first events and counts), `marks`, and what is counted of
 * device work. `pieces`: fs_piece_count, zeroed. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_build_survey(fs_build *build, fs_piece *pieces, fs_error *err);
void fs_pieces_free(fs_piece *pieces, uint32_t count);

#endif
