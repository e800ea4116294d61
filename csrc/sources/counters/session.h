/* A session of PM sampling: CUPTI's object for a device, its buffer of records, and the image that records are decoded
 * to. Private to the counters; one thread uses it at a time.
 *
 * The buffer belongs to the device. Records that fill it up are lost, and the session then delivers no more: it is
 * broken. Records that do not fit the image are lost as well, but the session goes on. Another interval needs another
 * session. */
#ifndef FS_SOURCES_COUNTERS_SESSION_H
#define FS_SOURCES_COUNTERS_SESSION_H

#include "sources/counters/plan.h"
#include "sources/counters/raw_samples.h"

typedef struct {
    int device;
    fs_plan plans[2]; /* of windows, of live samples */
    void *sampling;   /* CUPTI's object; NULL: closed */
    uint8_t *image;   /* of decoded samples; NULL: none */
    size_t image_size, image_room;
    int64_t interval_ns, ended; /* of the samples; of the window, by fs_clock_now() */
    int64_t decoded;            /* when records were last decoded, or the window began */
    bool running, first;        /* first: no sample of the window has been taken */
    bool live;                  /* the plan: records are decoded while they come */
    bool broken;                /* of the last session, also after it was closed */
} fs_session;

/* Plan what the device's chip counts, before the first session. FS_RUNTIME_ERROR: its counters are unavailable.
 * FS_OUT_OF_MEMORY. */
fs_status fs_session_plan(fs_session *session, fs_error *err);
void fs_session_clear_plans(fs_session *session);

/* Open one with room for as many records, by the plan that is set. FS_RUNTIME_ERROR: CUPTI refused. FS_OUT_OF_MEMORY.
 */
fs_status fs_session_open(fs_session *session, int64_t interval_ns, uint32_t records, fs_error *err);

/* Does nothing if it is closed. */
void fs_session_close(fs_session *session);

/* Make an empty image for as many samples, in the memory of the one before if that is enough. It takes CUPTI 16 µs and
 * more a sample, so it is not to have room for many more than come. */
fs_status fs_session_make_image(fs_session *session, uint32_t samples, fs_error *err);
void fs_session_drop_image(fs_session *session);

/* Begin and end a window. Ending does nothing if none is open. */
fs_status fs_session_start(fs_session *session, fs_error *err);
fs_status fs_session_stop(fs_session *session, fs_error *err);

/* Decode the records so far into the image, and count its samples. `*lost`: records did not fit, into the buffer, which
 * breaks the session, or into the image. FS_RUNTIME_ERROR: CUPTI failed. */
fs_status fs_session_decode(fs_session *session, size_t *count, bool *lost, fs_error *err);

/* Read a sample of the image, and append it, for which there must be room; `*taken` is NULL for one that covers no
 * time, or the first of a window, which reaches back to an earlier time. Metrics that the plan lacks are NaN. */
fs_status fs_session_take(fs_session *session, size_t index, fs_raw_samples *samples, fs_raw_sample **taken,
                          fs_error *err);

/* The part of the window, in ns, whose records wait to be decoded. */
int64_t fs_session_undecoded_ns(const fs_session *session);

#endif
