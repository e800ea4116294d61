/* The trace source: reads the Chrome trace of a torch.profiler (Kineto) run into a store.
 *
 *   text ── pieces ──► records        several threads, each on its part of the file
 *        ── finish ──► store          ids joined, ops linked to what they launched, calls nested as torch nests them
 *
 * A trace is an object with a member "traceEvents", or an array of events. Only the events and the text of the other
 * members are kept. */
#ifndef FS_SOURCES_KINETO_KINETO_H
#define FS_SOURCES_KINETO_KINETO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

typedef struct fs_kineto fs_kineto;

/* Read up to `size` bytes of the text at `offset` into `to`. Returns their number, 0 at the end of the text, or -1 with
 * err filled in. Called on several threads at once. */
typedef int64_t (*fs_kineto_read)(void *context, int64_t offset, char *to, size_t size, fs_error *err);

/* Statistics of a read trace. */
typedef struct {
    int64_t bytes;            /* of the text */
    int64_t events;           /* in "traceEvents" */
    int64_t kept;             /* events in the store, including derived ones */
    int64_t without_time;     /* skipped: "ts" is missing or impossible */
    int64_t unknown;          /* skipped: category absent from Kineto */
    int64_t metadata;         /* names of processes and threads: phase M */
    int64_t understood;       /* of a category of Kineto's or flopscope's, kept or not, and points of counters */
    int64_t too_many;         /* skipped: device index of FS_DEVICE_LIMIT or more */
    int64_t mended;           /* events and other members with quotes in strings that are not escaped: read past */
    int64_t without_duration; /* kept, with none: "dur" is negative, too long or no number */
    int64_t contradicting;  /* device work whose "External id" names another op than the one around its call; the latter
                               is used */
    int64_t guessed;        /* device work whose correlation several processes have, and nothing tells whose it is */
    int64_t overlapping;    /* host events that began within another one on their thread and ended after it */
    int64_t base;           /* "baseTimeNanoseconds": Unix time, in ns, from which times count; 0: missing */
    int64_t process;        /* id of the process whose host threads come first; -1: none */
    bool truncated;         /* the text ends within the trace, after `bytes` */
    char first_unknown[64]; /* the first skipped category */
} fs_kineto_report;

/* FS_OUT_OF_MEMORY. fs_kineto_destroy also accepts NULL. */
fs_status fs_kineto_create(fs_kineto **kineto, fs_error *err);
void fs_kineto_destroy(fs_kineto *kineto);

/* Feed the text in order, in parts of any size; large parts are read by several threads. End with fs_kineto_finish. If
 * the text is not a trace, FS_VALUE_ERROR names the byte and what was expected there; do not feed any more then. */
fs_status fs_kineto_feed(fs_kineto *kineto, const char *text, size_t size, fs_error *err);

/* The same for several parts at once, and return while the pool may still read them: they must stay as they are until
 * the next call of any function here. That call also reports what is wrong with this text. */
typedef struct {
    const char *text;
    size_t size;
} fs_kineto_part;
fs_status fs_kineto_feed_ahead(fs_kineto *kineto, const fs_kineto_part *parts, size_t count, fs_error *err);

/* Read the whole text, of `size` bytes, with an appropriate number of threads, instead of feeding it. Errors: as
 * fs_kineto_feed, and those of `read`. */
fs_status fs_kineto_scan(fs_kineto *kineto, fs_kineto_read read, void *context, int64_t size, fs_error *err);

/* For tests: set the bytes of text per thread; 0: default. Not while any trace is being read. */
void fs_kineto_set_piece_bytes(int64_t bytes);

/* End the text and put its events into an empty store. FS_VALUE_ERROR if it was not a trace; FS_OUT_OF_MEMORY. */
fs_status fs_kineto_finish(fs_kineto *kineto, fs_store *store, fs_kineto_report *report, fs_error *err);

/* Return the members of the trace besides its events, as the text of a JSON object; valid as long as kineto. */
const char *fs_kineto_head(const fs_kineto *kineto, size_t *size);

/* The members of a trace besides its events. Private to the trace source. */

typedef struct {
    int64_t base;          /* "baseTimeNanoseconds"; 0: missing */
    bool own;              /* the trace was written by flopscope */
    uint32_t accelerators; /* of which the head is evidence: bits, as store/accelerator.h has them */
} fs_kineto_head_facts;

/* Add the head's "deviceProperties" to the store and extract the members needed for reading. FS_OUT_OF_MEMORY. */
fs_status fs_kineto_read_head(const char *head, size_t size, fs_store *store, fs_kineto_head_facts *facts,
                              fs_error *err);

#endif
