/* The trace source: what torch.profiler (Kineto) recorded, from a Chrome trace's text into a store.
 *
 *   text ── pieces ──► records        several threads, each on its part of the file
 *        ── finish ──► store          ids joined, ops linked to what they launched, calls nested as torch nests them
 *
 * A trace is an object with a member "traceEvents", or an array of events. Nothing of it is kept but the events and the
 * other members' text.
 */
#ifndef FS_SOURCES_KINETO_KINETO_H
#define FS_SOURCES_KINETO_KINETO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

typedef struct fs_kineto fs_kineto;

/* Put up to `size` bytes of the text from `offset` on into `to`; how many, 0 at the end of the text, -1 on failure with
 * err filled in. Called on several threads at once. */
typedef int64_t (*fs_kineto_read)(void *context, int64_t offset, char *to, size_t size, fs_error *err);

/* What was read, and what was left out. */
typedef struct {
    int64_t bytes;          /* of the text */
    int64_t events;         /* in "traceEvents" */
    int64_t kept;           /* of those, or made from them, in the store */
    int64_t without_time;   /* left out: no "ts", or none that can be */
    int64_t unknown;        /* left out: of a category that Kineto has not */
    int64_t too_many;       /* left out: devices above FS_DEVICE_LIMIT */
    int64_t contradicting;  /* device work whose "External id" names another op than the one around its call, which it
                               counts for */
    int64_t overlapping;    /* host events that began within another one on their thread and ended after it */
    int64_t base;           /* "baseTimeNanoseconds": Unix time that its times count from, ns; 0 where it has none */
    int64_t process;        /* id of the process whose host threads come first, -1: the trace has none */
    bool truncated;         /* the text ends within the trace, after `bytes` */
    char first_unknown[64]; /* a category that was left out */
} fs_kineto_report;

/* FS_OUT_OF_MEMORY. fs_kineto_destroy takes NULL too. */
fs_status fs_kineto_create(fs_kineto **kineto, fs_error *err);
void fs_kineto_destroy(fs_kineto *kineto);

/* The text in order, in parts of any size, large ones by several threads; end with fs_kineto_finish. FS_VALUE_ERROR
 * names the byte where it is no trace and what should stand there; nothing more is to be fed then. */
fs_status fs_kineto_feed(fs_kineto *kineto, const char *text, size_t size, fs_error *err);

/* The whole text, of `size` bytes, by as many threads as pay. Instead of feeding. Errors as there, and `read`'s. */
fs_status fs_kineto_scan(fs_kineto *kineto, fs_kineto_read read, void *context, int64_t size, fs_error *err);

/* For tests: a thread pays from so many bytes of text on; 0 for the default. Not while any trace is read. */
void fs_kineto_set_piece_bytes(int64_t bytes);

/* The text is over: put what was read into an empty store. FS_VALUE_ERROR where it was no trace, FS_OUT_OF_MEMORY. */
fs_status fs_kineto_finish(fs_kineto *kineto, fs_store *store, fs_kineto_report *report, fs_error *err);

/* The members of the trace beside its events, as the text of a JSON object; it lives as long as kineto. */
const char *fs_kineto_head(const fs_kineto *kineto, size_t *size);

#endif
