/* One thread of its own does all between start and stop; others wait for it. So the session, the image and the samples
 * need no lock, and only `ends` has one. A session is closed or has an interval, a buffer and, live, an image. A window
 * that broke (its records were lost) is never continued: the next one opens a session of its own, with half the records
 * if that may help. What was lost is an estimate, by time and interval. */
#include "sources/counters/sampling.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "sources/counters/raw_samples.h"
#include "sources/counters/library.h"
#include "sources/counters/session.h"
#include "sources/cupti/cupti.h"

enum {
    LIVE_RECORDS = 4096, /* that wait to be decoded, at most */
    LEAST_WINDOW = 64,
    LIVE_POLL_NS = 100000000,
    LEAST_POLL_NS = 1000000,
    IDLE_BYTES_PER_NS = 1,   /* of device memory: copies move more */
    PATIENCE_NS = 100000000, /* after the first window, until its samples are thinned out */
};

struct fs_sampler {
    fs_sampler_options options;
    fs_sampler_report report;
    fs_session session;
    fs_counters_hold hold;
    uint32_t window_samples; /* that CUPTI's buffer is made for */
    uint32_t part_samples;   /* of windows after the first, and half of it in programs of little work */
    int shrunk;              /* how often windows were halved, as records are longer than the buffer allows for */
    int slowed;              /* how often live intervals were doubled, as decoding is slower than they allow for */
    int64_t worked_ns;       /* of the device, within samples */
    int64_t live_until;      /* worked_ns at which live samples give way to a window */
    int64_t last_work;       /* when a live sample with work was last seen, by fs_clock_now() */
    int64_t wakes_at;        /* worked_ns at which a device that has idled is sampled as before; 0: it is */
    bool adapts;
    fs_raw_samples samples;
    fs_anchor from, to;
    int64_t l2_bytes;

    pthread_t thread;
    pthread_mutex_t lock; /* protects `ends` */
    pthread_cond_t changed;
    bool ends, has_thread;
    uint32_t generation; /* of the sampling process */
    fs_error failure;    /* of the thread */
};

/* Samples of a window after the first: fewer while their decoding would be much of the program. */
static uint32_t later_window(const fs_sampler *sampler)
{
    bool is_short = sampler->adapts && sampler->worked_ns < FS_SAMPLER_LIVE_SPAN_NS;
    return is_short ? sampler->part_samples / 2 : sampler->part_samples;
}

static uint32_t buffer_samples(const fs_sampler *sampler)
{
    return sampler->session.live && sampler->window_samples > LIVE_RECORDS ? LIVE_RECORDS : sampler->window_samples;
}

/* Let a window end before its samples take too much memory. */
static void limit_window(fs_sampler *sampler, size_t sample_bytes)
{
    size_t most = sampler->options.most_image_bytes / (sample_bytes + sample_bytes / 4 + 1);
    if (sampler->window_samples > most) sampler->window_samples = most > LEAST_WINDOW ? (uint32_t)most : LEAST_WINDOW;
}

/* Open a session, and begin a window if it `starts`: making the image takes time that can be sampled already. */
static fs_status open_session(fs_sampler *sampler, int64_t interval_ns, bool starts, fs_error *err)
{
    fs_session *session = &sampler->session;
    bool is_long = sampler->window_samples >> sampler->shrunk >= 2 * LEAST_WINDOW;
    if (session->broken && !session->live && is_long) sampler->shrunk++;
    session->live = interval_ns >= FS_SAMPLER_LIVE_NS;
    FS_TRY(fs_session_open(session, interval_ns, buffer_samples(sampler), err));
    fs_status status = starts ? fs_session_start(session, err) : FS_OK;
    if (status == FS_OK) status = fs_session_make_image(session, LEAST_WINDOW, err); /* which shows that it can be */
    if (status != FS_OK) {
        fs_session_close(session);
        return status;
    }
    if (!session->live) limit_window(sampler, session->image_size / LEAST_WINDOW);
    sampler->report.last_interval_ns = interval_ns;
    return FS_OK;
}

static fs_status open_again(fs_sampler *sampler, int64_t interval_ns, fs_error *err)
{
    fs_session_close(&sampler->session);
    return open_session(sampler, interval_ns, true, err);
}

/* Whether nothing ran during a sample: no unit was active, and no bytes moved but for the few of idle memory. The
 * samples themselves keep parts of the L2 busy. */
static bool is_idle(const fs_raw_sample *sample, int64_t interval_ns)
{
    double bytes = sample->values[FS_METRIC_DRAM_READ] + sample->values[FS_METRIC_DRAM_WRITTEN];
    for (int i = 0; i < FS_METRIC_COUNT; i++)
        if (i != FS_METRIC_L2_ACTIVE && i != FS_METRIC_L2_FABRIC && fs_metrics[i].kind == FS_METRIC_SHARE_KIND &&
            sample->values[i] > 0)
            return false;
    return bytes <= IDLE_BYTES_PER_NS * (double)interval_ns;
}

/* Samples that an image for the records since the last one must have room for. */
static uint32_t expected(const fs_sampler *sampler, bool thinned)
{
    const fs_session *session = &sampler->session;
    int64_t records = fs_session_undecoded_ns(session) / session->interval_ns;
    int64_t most = session->live ? buffer_samples(sampler) : 2 * (int64_t)sampler->window_samples;
    if (thinned) most = later_window(sampler) / 2;
    records += session->running ? records + 4 * LEAST_WINDOW  /* come while these are decoded */
                                : records / 4 + LEAST_WINDOW; /* as the interval may be of cycles at a higher clock */
    return (uint32_t)(records < most ? records : most);
}

/* Take the records so far. `thinned`: those that do not fit the image are not wanted. */
static fs_status decode(fs_sampler *sampler, bool thinned, fs_error *err)
{
    fs_session *session = &sampler->session;
    fs_sampler_report *report = &sampler->report;
    int64_t waiting_ns = fs_session_undecoded_ns(session);
    size_t count, room = sampler->options.most_samples - sampler->samples.count;
    bool lost;
    FS_TRY(fs_session_make_image(session, expected(sampler, thinned), err));
    FS_TRY(fs_session_decode(session, &count, &lost, err));
    if (lost && !thinned) report->overflows++;
    if (session->broken) report->lost += waiting_ns / session->interval_ns;
    if (count > room) {
        report->overflows += report->lost == 0;
        report->lost += (int64_t)(count - room);
        count = room;
    }
    FS_TRY(fs_raw_samples_reserve(&sampler->samples, count, err));
    for (size_t i = 0; i < count; i++) {
        fs_raw_sample *taken;
        FS_TRY(fs_session_take(session, i, &sampler->samples, &taken, err));
        if (taken == NULL) continue;
        taken->idle = is_idle(taken, session->interval_ns);
        if (!taken->idle) sampler->worked_ns += session->interval_ns;
        if (sampler->adapts) fs_raw_samples_join_idle(&sampler->samples);
    }
    if (!session->live) fs_session_drop_image(session); /* it is large */
    return FS_OK;
}

/* The thread ------------------------------------------------------------------------------------------------------ */

/* Wait until the sampler ends, which returns true, or a time passes. */
static bool wait_for_end(fs_sampler *sampler, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&sampler->lock);
    int code = 0;
    while (!sampler->ends && code == 0) code = pthread_cond_timedwait(&sampler->changed, &sampler->lock, &until);
    bool ends = sampler->ends;
    pthread_mutex_unlock(&sampler->lock);
    return ends;
}

static bool is_full(const fs_sampler *sampler)
{
    return sampler->samples.count >= sampler->options.most_samples;
}

/* The interval of live samples: longer in programs with more work, so that their number is bounded. */
static int64_t live_interval(const fs_sampler *sampler)
{
    enum { SAMPLES_OF_ALL = 50000, LONGEST_NS = 10000000 };
    int64_t interval = sampler->worked_ns / SAMPLES_OF_ALL, least = FS_SAMPLER_LIVE_NS << sampler->slowed;
    if (sampler->wakes_at > 0 && least < FS_SAMPLER_IDLE_NS) least = FS_SAMPLER_IDLE_NS;
    if (interval < least) interval = least;
    return interval < LONGEST_NS ? interval : LONGEST_NS;
}

/* Whether live samples are to have another interval from now on, as the device has idled for long, or works again. */
static bool changes_pace(fs_sampler *sampler, bool worked)
{
    int64_t now = fs_clock_now();
    bool was_idle = sampler->wakes_at > 0;
    if (worked) sampler->last_work = now;
    if (!sampler->adapts) return false;
    if (was_idle ? sampler->worked_ns < sampler->wakes_at : now - sampler->last_work < FS_SAMPLER_IDLE_AFTER_NS)
        return false;
    sampler->wakes_at = was_idle ? 0 : sampler->worked_ns + FS_SAMPLER_IDLE_UNTIL_NS;
    sampler->last_work = now;
    return true;
}

/* Decode what has come so far of a session that goes on. If it fills faster than it is decoded, it is to have longer
 * intervals. */
static fs_status decode_live(fs_sampler *sampler, fs_error *err)
{
    enum { MOST_SLOWED = 6 };
    int64_t before = sampler->worked_ns;
    FS_TRY(decode(sampler, false, err));
    bool other = changes_pace(sampler, sampler->worked_ns > before);
    if (!sampler->session.broken && !other) return FS_OK;
    if (sampler->session.broken && sampler->slowed < MOST_SLOWED) sampler->slowed++;
    return open_again(sampler, sampler->adapts ? live_interval(sampler) : sampler->session.interval_ns, err);
}

/* Begin the next window: in the same session, unless it is to have another interval. */
static fs_status begin_again(fs_sampler *sampler, fs_error *err)
{
    sampler->window_samples = later_window(sampler);
    if (!sampler->adapts && !sampler->session.broken) return fs_session_start(&sampler->session, err);
    int64_t interval = sampler->session.interval_ns;
    if (sampler->adapts) interval = sampler->session.live ? FS_SAMPLER_FIRST_NS : live_interval(sampler);
    bool is_first = sampler->worked_ns < FS_SAMPLER_FIRST_SPAN_NS;
    sampler->live_until = sampler->worked_ns + (is_first ? FS_SAMPLER_FIRST_SPAN_NS : FS_SAMPLER_LIVE_SPAN_NS);
    sampler->last_work = fs_clock_now();
    return open_again(sampler, interval, err);
}

/* End a window that is full. If the program goes on after the first, few of its samples are decoded, as nothing is
 * counted meanwhile. Sets *ends. */
static fs_status end_full_window(fs_sampler *sampler, bool *ends, fs_error *err)
{
    bool thins = sampler->adapts && !sampler->session.live && sampler->window_samples > sampler->part_samples;
    FS_TRY(fs_session_stop(&sampler->session, err));
    *ends = thins && wait_for_end(sampler, PATIENCE_NS);
    return decode(sampler, thins && !*ends, err);
}

/* Between a window and what follows live, leave the GPU without a session. Returns true if sampling ends meanwhile. */
static bool rest(fs_sampler *sampler)
{
    if (!sampler->adapts || sampler->session.live || sampler->worked_ns < FS_SAMPLER_RESTLESS_NS) return false;
    fs_session_close(&sampler->session);
    int64_t third = sampler->worked_ns / 3;
    return wait_for_end(sampler, third < FS_SAMPLER_REST_NS ? third : FS_SAMPLER_REST_NS);
}

/* Sample until the end, and leave a window open that is to be ended with what it holds. */
static fs_status sample_on(fs_sampler *sampler, fs_error *err)
{
    int64_t looked = fs_clock_now(); /* at live samples */
    for (bool ends = false;;) {
        int64_t window = sampler->window_samples >> sampler->shrunk, interval = sampler->session.interval_ns;
        int64_t left = looked + LIVE_POLL_NS - fs_clock_now(); /* decoding takes a part of it */
        if (left < LEAST_POLL_NS) left = LEAST_POLL_NS;
        if (wait_for_end(sampler, sampler->session.live ? left : window * interval / 20 * 19)) return FS_OK;
        if (sampler->session.live && !is_full(sampler) &&
            (!sampler->adapts || sampler->worked_ns < sampler->live_until)) {
            looked = fs_clock_now();
            FS_TRY(decode_live(sampler, err));
            continue;
        }
        FS_TRY(end_full_window(sampler, &ends, err));
        if (ends || is_full(sampler) || rest(sampler)) return FS_OK;
        FS_TRY(begin_again(sampler, err));
    }
}

static void *run(void *context)
{
    fs_sampler *sampler = context;
    fs_status status = sample_on(sampler, &sampler->failure);
    if (status == FS_OK && sampler->session.running) {
        status = fs_session_stop(&sampler->session, &sampler->failure);
        if (status == FS_OK) status = decode(sampler, false, &sampler->failure);
    }
    sampler->to = fs_anchor_take();
    fs_session_close(&sampler->session);
    sampler->failure.status = status;
    return NULL;
}

/* Start and stop -------------------------------------------------------------------------------------------------- */

static fs_status try_to_open(void *what, fs_error *err)
{
    fs_sampler *sampler = what;
    const fs_plan *plan = &sampler->session.plans[false];
    FS_TRY(fs_session_plan(&sampler->session, err));
    for (size_t i = 0; i < plan->count; i++) sampler->report.metrics |= UINT32_C(1) << plan->keys[i];
    fs_status status = open_session(sampler, sampler->report.first_interval_ns, false, err);
    if (status != FS_OK) fs_session_clear_plans(&sampler->session);
    return status;
}

static fs_status check_options(const fs_sampler_options *options, fs_error *err)
{
    int64_t ns = options->interval_ns;
    if (ns == 0 || (ns >= FS_SAMPLER_LEAST_NS && ns <= FS_SAMPLER_MOST_NS)) return FS_OK;
    return fs_fail(err, FS_VALUE_ERROR, "the interval of counters is 1 µs to 1 s, not %g µs", (double)ns / 1000);
}

static fs_status start_thread(fs_sampler *sampler, fs_error *err)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_cond_init(&sampler->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&sampler->thread, NULL, run, sampler);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sampler->has_thread = code == 0;
    return code == 0 ? FS_OK : fs_fail(err, FS_RUNTIME_ERROR, "no thread for the counters (error %d)", code);
}

fs_status fs_sampler_open(fs_sampler **sampler, const fs_sampler_options *options, fs_error *err)
{
    *sampler = NULL;
    if (fs_counters == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    FS_TRY(check_options(options, err));
    fs_sampler *made = fs_calloc(1, sizeof *made);
    if (made == NULL) return fs_no_memory(err);
    made->options = *options;
    made->session.device = options->device;
    if (options->most_samples == 0) made->options.most_samples = FS_MOST_SAMPLES;
    if (options->most_image_bytes == 0) made->options.most_image_bytes = FS_SAMPLER_IMAGE_BYTES;
    made->generation = fs_fork_generation();
    made->adapts = options->interval_ns == 0;
    made->window_samples = options->window > 0 ? options->window : FS_SAMPLER_WINDOW;
    made->part_samples = made->window_samples / FS_SAMPLER_PARTS;
    made->report.first_interval_ns = !made->adapts          ? options->interval_ns
                                     : options->begins_live ? FS_SAMPLER_LIVE_NS
                                                            : FS_SAMPLER_FIRST_NS;
    made->l2_bytes = fs_driver_l2_bytes(options->device);
    fs_status status = fs_counters_open(&made->hold, try_to_open, made, err);
    if (status == FS_OK) *sampler = made;
    else fs_free(made);
    return status;
}

/* End what was opened: CUPTI's objects, before CUPTI may be detached. */
static void release(fs_sampler *sampler)
{
    fs_session_close(&sampler->session);
    fs_session_clear_plans(&sampler->session);
    fs_counters_release(&sampler->hold);
}

fs_status fs_sampler_start(fs_sampler *sampler, fs_error *err)
{
    if (sampler->session.sampling == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "sampling has ended before");
    sampler->live_until = FS_SAMPLER_FIRST_SPAN_NS;
    sampler->last_work = fs_clock_now();
    fs_status status = fs_session_start(&sampler->session, err);
    if (status == FS_OK) {
        sampler->from = fs_anchor_take();
        status = start_thread(sampler, err);
    }
    if (status != FS_OK) release(sampler);
    return status;
}

fs_status fs_sampler_stop(fs_sampler *sampler, fs_error *err)
{
    if (sampler->generation != fs_fork_generation()) return FS_OK;
    if (!sampler->has_thread) {
        release(sampler);
        return FS_OK;
    }
    pthread_mutex_lock(&sampler->lock);
    sampler->ends = true;
    pthread_cond_signal(&sampler->changed);
    pthread_mutex_unlock(&sampler->lock);
    pthread_join(sampler->thread, NULL);
    sampler->has_thread = false;
    release(sampler);
    sampler->report.samples = sampler->samples.count;
    pthread_cond_destroy(&sampler->changed);
    pthread_mutex_destroy(&sampler->lock);
    if (sampler->failure.status != FS_OK && err != NULL) *err = sampler->failure;
    return sampler->failure.status;
}

void fs_sampler_destroy(fs_sampler *sampler)
{
    if (sampler == NULL) return;
    if (sampler->generation != fs_fork_generation()) return; /* the thread may have been changing it at the fork */
    FS_IGNORE(fs_sampler_stop(sampler, NULL));
    fs_raw_samples_clear(&sampler->samples);
    fs_free(sampler);
}

fs_status fs_sampler_pour(const fs_sampler *sampler, fs_store *store, int64_t unix_base, int64_t begin, int64_t end,
                          fs_error *err)
{
    fs_device_facts facts = fs_store_device(store, sampler->options.device);
    if (facts.l2_bytes < 0 && sampler->l2_bytes > 0) {
        facts.l2_bytes = sampler->l2_bytes;
        FS_TRY(fs_store_set_device(store, sampler->options.device, &facts, err));
    }
    const fs_raw_clock clock = {sampler->from, sampler->to, unix_base, begin, end};
    for (int metric = 0; metric < FS_METRIC_COUNT; metric++)
        if ((sampler->report.metrics >> metric & 1) != 0)
            FS_TRY(
                fs_raw_samples_pour(&sampler->samples, &clock, store, sampler->options.device, (fs_metric)metric, err));
    return FS_OK;
}

fs_sampler_report fs_sampler_last(const fs_sampler *sampler)
{
    return sampler->report;
}
