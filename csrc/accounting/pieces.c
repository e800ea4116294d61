/* Works come in order of their start. Each thread has a stack of those in progress, of which the innermost owns the
 * time; `listed` is the instant until which the thread's time is listed, so its pieces are disjoint. Of the pieces of
 * several threads, sorted by start, each then begins where those before it end: an instant has one owner in the end,
 * that of the piece that began first. */
#include "accounting/pieces.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"

/* The works that are in progress on one thread, and until when its time is listed. */
typedef struct {
    fs_intervals open; /* a stack: innermost last */
    int64_t listed;
} thread;

/* List the time of the thread until `time`, from the innermost work outwards, and close the works that have ended. */
static fs_status list_until(thread *on, int64_t time, fs_intervals *every, fs_error *err)
{
    while (on->open.count > 0) {
        const fs_interval *inner = &on->open.items[on->open.count - 1];
        int64_t end = inner->end < time ? inner->end : time;
        if (end > on->listed) {
            FS_TRY(fs_intervals_add(every, on->listed, end, inner->tag, err));
            on->listed = end;
        }
        if (inner->end > time) return FS_OK;
        on->open.count--;
    }
    return FS_OK;
}

static fs_status list_threads(thread *threads, uint32_t lanes, const fs_store *store, const fs_table *table,
                              const fs_intervals *works, fs_intervals *every, fs_error *err)
{
    uint32_t at;
    for (uint32_t i = 0; i < works->count; i++) {
        FS_POLL(i, err);
        const fs_interval *work = &works->items[i];
        uint32_t lane = fs_event_chunk(store, table->works[work->tag].event, &at)->lane[at];
        thread *on = &threads[lane < lanes ? lane : lanes];
        FS_TRY(list_until(on, work->begin, every, err));
        if (on->open.count == 0 || on->listed < work->begin) on->listed = work->begin;
        on->open.unsorted = false;
        FS_TRY(fs_intervals_add(&on->open, work->begin, work->end, work->tag, err));
    }
    for (uint32_t lane = 0; lane <= lanes; lane++) FS_TRY(list_until(&threads[lane], INT64_MAX, every, err));
    return fs_intervals_sort(every, err);
}

fs_status fs_pieces_of_threads(fs_intervals *pieces, const fs_store *store, const fs_table *table,
                               const fs_intervals *works, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(store);
    fs_intervals every = {0};
    int64_t reached = INT64_MIN;
    thread *threads = fs_calloc(lanes + (size_t)1, sizeof *threads);
    if (threads == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u threads", lanes);
    fs_status status;
    FS_TRY_GOTO(status, list_threads(threads, lanes, store, table, works, &every, err), done);
    for (uint32_t i = 0; i < every.count; i++) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        int64_t begin = every.items[i].begin > reached ? every.items[i].begin : reached;
        if (begin >= every.items[i].end) continue;
        FS_TRY_GOTO(status, fs_intervals_add(pieces, begin, every.items[i].end, every.items[i].tag, err), done);
        reached = every.items[i].end;
    }
done:
    for (uint32_t lane = 0; lane <= lanes; lane++) fs_intervals_clear(&threads[lane].open);
    fs_intervals_clear(&every);
    fs_free(threads);
    return status;
}
