/* PM sampling: the counters of a whole device, read at equal times while programs run, at no cost to them.
 *
 *   window ─► [ sampling ][ decoding ][ sampling ][ decoding ] …   intervals that are too short to decode as they come
 *   live   ─► [ sampling, decoded by a thread as it comes ] …      FS_SAMPLER_LIVE_NS and longer
 *
 * CUPTI's buffer of records belongs to the device, and whatever does not fit the image that it is decoded to is lost.
 * So a window lasts until an image would be full, nothing is counted while its records are decoded (about 100 µs a
 * sample of all metrics), and then the next window begins: the first of FS_SAMPLER_WINDOW samples, those after it of a
 * part of that.
 *
 * Without a fixed interval, the first window has FS_SAMPLER_FIRST_NS, so that short programs are resolved kernel by
 * kernel:
 *
 *   [ window ][ if it goes on: decode some ][ live ][ window of a part ][ decode ] rest [ live ][ window of a part ] …
 *
 * Longer programs are counted live at FS_SAMPLER_LIVE_NS, without the metrics that take longest to decode, in between
 * windows for their kernels; from the start if the program, rather than a part of it, is sampled, as its first 0.1 s
 * are not what it does. Another interval needs another session: on an H200, 0.17 s without samples, in which the GPU
 * stands still for 2 to 4 ms. CUPTI refuses to start before all records are decoded, to change the interval of a
 * session, and to go on after its buffer was full.
 *
 * Live time is that in which the device worked: a program that compiles for a minute and then computes for 50 ms is
 * counted as one that computes at once. Idle samples are joined. Decoding them takes half a processor: a device that
 * has idled for FS_SAMPLER_IDLE_AFTER_NS is sampled at FS_SAMPLER_IDLE_NS until it has worked for
 * FS_SAMPLER_IDLE_UNTIL_NS.
 *
 * An H200 at its power limit runs at 1.3 % lower clocks while a session of CUPTI exists, which costs a training step
 * 1.1 %: at any interval, with two metrics or ten, even before sampling starts. So no session exists during the rests:
 * from FS_SAMPLER_RESTLESS_NS of work on, for a third of the work so far, and FS_SAMPLER_REST_NS at most. Whenever the
 * work comes, six tenths of it and more are counted.
 */
#ifndef FS_SOURCES_COUNTERS_SAMPLING_H
#define FS_SOURCES_COUNTERS_SAMPLING_H

#include "store/samples.h"
#include "store/store.h"

enum {
    FS_SAMPLER_LEAST_NS = 1000,
    FS_SAMPLER_FIRST_NS = 2500,
    FS_SAMPLER_LIVE_NS = 100000,
    FS_SAMPLER_IDLE_NS = 1000000,
    FS_SAMPLER_MOST_NS = 1000000000,
    FS_SAMPLER_WINDOW = 40960, /* samples of the first window */
    FS_SAMPLER_PARTS = 5,      /* of it; a later window is as long as one, or half as long */
};

/* Live samples between two windows, later and at first: of this much work of the device. */
#define FS_SAMPLER_LIVE_SPAN_NS INT64_C(6000000000)
#define FS_SAMPLER_FIRST_SPAN_NS INT64_C(1800000000)

/* When a device without work is sampled at FS_SAMPLER_IDLE_NS, and after how much work no more. */
#define FS_SAMPLER_IDLE_AFTER_NS INT64_C(10000000000)
#define FS_SAMPLER_IDLE_UNTIL_NS INT64_C(1000000000)

/* Work before the first rest, and the longest rest. */
#define FS_SAMPLER_RESTLESS_NS INT64_C(3000000000)
#define FS_SAMPLER_REST_NS INT64_C(3000000000)

#define FS_SAMPLER_IMAGE_BYTES ((size_t)3 << 30)

typedef struct {
    int device;
    int64_t interval_ns;     /* 0: adapts to the length of the run */
    uint32_t most_samples;   /* of all; later ones are lost. 0: FS_MOST_SAMPLES */
    uint32_t window;         /* samples of the first window; 0: FS_SAMPLER_WINDOW */
    bool begins_live;        /* if the interval adapts: without the first window */
    size_t most_image_bytes; /* of decoded samples of a window, which has fewer if need be; 0: FS_SAMPLER_IMAGE_BYTES */
} fs_sampler_options;

typedef struct fs_sampler fs_sampler;

/* Prepare to sample a device, which takes up to a second. FS_RUNTIME_ERROR says why its counters are unavailable;
 * FS_VALUE_ERROR: an interval that is out of range; FS_OUT_OF_MEMORY. */
fs_status fs_sampler_open(fs_sampler **sampler, const fs_sampler_options *options, fs_error *err);

/* Begin to sample. FS_RUNTIME_ERROR: CUPTI refused, or the sampler was stopped before; its session is closed. */
fs_status fs_sampler_start(fs_sampler *sampler, fs_error *err);

/* End sampling, decode what is left and give the counters back. Does nothing the second time and in a forked child.
 * FS_RUNTIME_ERROR: what failed meanwhile; the samples until then stay. Wait for the device before. */
fs_status fs_sampler_stop(fs_sampler *sampler, fs_error *err);

/* Accepts NULL; stops first. */
void fs_sampler_destroy(fs_sampler *sampler);

/* Append the samples that lie between two times to the store, and what is known of the device's L2. `unix_base`: the
 * store's times count from this Unix time in ns; FS_MISSING: they are those of fs_clock_now(). `begin` and `end` are
 * times of the store. */
fs_status fs_sampler_pour(const fs_sampler *sampler, fs_store *store, int64_t unix_base, int64_t begin, int64_t end,
                          fs_error *err);

typedef struct {
    uint32_t samples, overflows; /* overflows: times that records were lost because a buffer was full */
    int64_t lost;                /* samples that overflows lost, by the time that they took */
    int64_t first_interval_ns, last_interval_ns;
    uint32_t metrics; /* bits 1 << fs_metric: those that are counted */
} fs_sampler_report;

fs_sampler_report fs_sampler_last(const fs_sampler *sampler);

#endif
