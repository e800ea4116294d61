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
#include "sources/counters/anchor.h"
#include "sources/counters/library.h"
#include "sources/counters/plan.h"
#include "sources/counters/raw_samples.h"
#include "sources/cupti/cupti.h"

enum {
    HARDWARE_BYTES = 13 << 10, /* of CUPTI's buffer for a sample; an H200 uses 10 KB */
    LIVE_IMAGE = 2048,         /* samples */
    LEAST_WINDOW = 64,
    LIVE_POLL_NS = 20000000,
    PATIENCE_NS = 150000000, /* after the first window, until its samples are thinned out */
};

struct fs_sampler {
    fs_sampler_options options;
    fs_sampler_report report;
    fs_plan plan;
    fs_counters_hold hold;
    void *sampling; /* CUPTI's session; NULL: closed */
    uint8_t *image; /* of decoded samples */
    size_t image_size;
    uint32_t window_samples; /* that CUPTI's buffer is made for */
    uint32_t part_samples;   /* of windows after the first */
    int shrunk;              /* how often windows were halved, as records are longer than the buffer allows for */
    int64_t interval_ns, began, ended; /* of the session; of the window */
    int64_t opened, live_until;        /* by the host's clock */
    bool live, adapts, running;
    bool broken; /* records were lost, and the session delivers no more */
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

/* CUPTI's session ------------------------------------------------------------------------------------------------ */

static fs_status check(int code, const char *doing, fs_error *err)
{
    return code == FS_COUNTERS_SUCCESS ? FS_OK : fs_counters_fail(code, doing, err);
}

static fs_status reset_image(fs_sampler *sampler, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(pm_data_init, arguments, .sampling = sampler->sampling, .size = sampler->image_size,
                          .image = sampler->image);
    return check(fs_counters->pm_data_init(&arguments), "the samples' memory cannot be prepared", err);
}

static void drop_image(fs_sampler *sampler)
{
    fs_free(sampler->image);
    sampler->image = NULL;
}

static void close_session(fs_sampler *sampler)
{
    if (sampler->sampling != NULL) {
        FS_COUNTERS_ARGUMENTS(pm_disable, arguments, .sampling = sampler->sampling);
        fs_counters->pm_disable(&arguments);
    }
    sampler->sampling = NULL;
    drop_image(sampler);
}

static uint32_t buffer_samples(const fs_sampler *sampler)
{
    return sampler->live && sampler->window_samples > LIVE_IMAGE ? LIVE_IMAGE : sampler->window_samples;
}

static fs_status configure(fs_sampler *sampler, fs_error *err)
{
    uint32_t cycles = sampler->plan.cycles_per_us;
    uint64_t interval = (uint64_t)sampler->interval_ns;
    FS_COUNTERS_ARGUMENTS(
        pm_config, config, .sampling = sampler->sampling, .size = sampler->plan.config_size,
        .config = sampler->plan.config, .hardware_bytes = (size_t)buffer_samples(sampler) * HARDWARE_BYTES,
        .interval = cycles > 0 ? interval * cycles / 1000 : interval,
        .trigger = cycles > 0 ? FS_COUNTERS_BY_CYCLES : FS_COUNTERS_BY_TIME, .append_mode = FS_COUNTERS_KEEP_OLDEST);
    int code = fs_counters->pm_config(&config);
    if (code == FS_COUNTERS_INVALID) { /* CUDA 12.6 has no append mode, and keeps the oldest */
        config.header.size = offsetof(fs_counters_pm_config, append_mode);
        code = fs_counters->pm_config(&config);
    }
    return check(code, "sampling cannot be configured", err);
}

static fs_status make_image(fs_sampler *sampler, uint32_t samples, fs_error *err)
{
    const char *metrics[FS_PLAN_METRICS];
    memcpy(metrics, sampler->plan.metrics, sizeof metrics);
    FS_COUNTERS_ARGUMENTS(pm_data_size, size, .sampling = sampler->sampling, .metrics = metrics,
                          .count = sampler->plan.count, .most = samples);
    FS_TRY(check(fs_counters->pm_data_size(&size), "the samples' memory cannot be sized", err));
    drop_image(sampler);
    sampler->image_size = size.size;
    sampler->image = fs_malloc_huge(size.size);
    if (sampler->image == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u samples of counters (%zu bytes)", samples, size.size);
    return reset_image(sampler, err);
}

static fs_status start_window(fs_sampler *sampler, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(pm_start, arguments, .sampling = sampler->sampling);
    FS_TRY(check(fs_counters->pm_start(&arguments), "sampling cannot be started", err));
    sampler->began = fs_clock_now();
    sampler->running = true;
    return FS_OK;
}

static fs_status open_session(fs_sampler *sampler, int64_t interval_ns, fs_error *err)
{
    sampler->interval_ns = interval_ns;
    sampler->live = interval_ns >= FS_SAMPLER_LIVE_NS;
    if (sampler->broken && sampler->window_samples >> sampler->shrunk >= 2 * LEAST_WINDOW) sampler->shrunk++;
    FS_COUNTERS_ARGUMENTS(pm_enable, enable, .device = (size_t)sampler->options.device);
    FS_TRY(check(fs_counters->pm_enable(&enable), "the counters cannot be sampled", err));
    sampler->sampling = enable.sampling;
    sampler->broken = false;
    fs_status status = configure(sampler, err);
    /* That of a window is made when its samples are counted; here a small one shows that it can be. */
    if (status == FS_OK) status = make_image(sampler, sampler->live ? buffer_samples(sampler) : LEAST_WINDOW, err);
    if (status != FS_OK) close_session(sampler);
    else sampler->report.last_interval_ns = interval_ns;
    return status;
}

static fs_status open_again(fs_sampler *sampler, int64_t interval_ns, fs_error *err)
{
    close_session(sampler);
    FS_TRY(open_session(sampler, interval_ns, err));
    return start_window(sampler, err);
}

/* Decoding ------------------------------------------------------------------------------------------------------- */

static fs_status take_sample(fs_sampler *sampler, size_t index, bool first, fs_error *err)
{
    const fs_plan *plan = &sampler->plan;
    double values[FS_PLAN_METRICS];
    FS_COUNTERS_ARGUMENTS(pm_sample, sample, .sampling = sampler->sampling, .image = sampler->image,
                          .size = sampler->image_size, .index = index);
    FS_TRY(check(fs_counters->pm_sample(&sample), "a sample cannot be read", err));
    if (first || sample.start == 0) return FS_OK; /* the first sample of a window reaches back to an earlier time */
    FS_TRY(fs_plan_evaluate(plan, sampler->image, sampler->image_size, index, values, err));
    fs_raw_sample *taken = fs_raw_samples_add(&sampler->samples, sample.start, sample.end);
    for (size_t i = 0; i < plan->count; i++) taken->values[plan->keys[i]] = values[i] * plan->factors[i];
    return FS_OK;
}

/* Decode the records so far into the image. `*first`: the window began after the last time; cleared with its first
 * sample. `thinned`: what does not fit is not wanted. */
static fs_status decode(fs_sampler *sampler, bool *first, bool thinned, fs_error *err)
{
    int64_t window_ns = (sampler->running ? fs_clock_now() : sampler->ended) - sampler->began;
    FS_COUNTERS_ARGUMENTS(pm_decode, arguments, .sampling = sampler->sampling, .image = sampler->image,
                          .size = sampler->image_size);
    int code = fs_counters->pm_decode(&arguments);
    FS_COUNTERS_ARGUMENTS(pm_data_info, info, .image = sampler->image, .size = sampler->image_size);
    if (code == FS_COUNTERS_NO_MEMORY) { /* the buffer was full: its records are lost, and all later ones would be */
        sampler->broken = true;
        sampler->report.overflows++;
        sampler->report.lost += window_ns / sampler->interval_ns;
        return FS_OK;
    }
    FS_TRY(check(code, "samples cannot be decoded", err));
    FS_TRY(check(fs_counters->pm_data_info(&info), "samples cannot be counted", err));
    bool full = arguments.reason == FS_COUNTERS_IMAGE_FULL && !thinned;
    if (arguments.overflow != 0 || full) sampler->report.overflows++;
    size_t count = info.completed, room = sampler->options.most_samples - sampler->samples.count;
    if (count > room) {
        sampler->report.overflows += sampler->report.lost == 0;
        sampler->report.lost += (int64_t)(count - room);
        count = room;
    }
    if (info.completed == 0) return FS_OK;
    FS_TRY(fs_raw_samples_reserve(&sampler->samples, count, err));
    for (size_t i = 0; i < count; i++) {
        FS_TRY(take_sample(sampler, i, *first, err));
        *first = false;
    }
    return FS_OK;
}

static fs_status stop_window(fs_sampler *sampler, fs_error *err)
{
    if (!sampler->running) return FS_OK;
    FS_COUNTERS_ARGUMENTS(pm_stop, arguments, .sampling = sampler->sampling);
    sampler->running = false;
    sampler->ended = fs_clock_now();
    return check(fs_counters->pm_stop(&arguments), "sampling cannot be stopped", err);
}

/* Decode a window that was stopped, or only its first samples. */
static fs_status decode_window(fs_sampler *sampler, bool *first, bool thinned, fs_error *err)
{
    if (sampler->live) return decode(sampler, first, false, err);
    int64_t expected = (sampler->ended - sampler->began) / sampler->interval_ns;
    int64_t samples = expected + expected / 4 + LEAST_WINDOW; /* the interval may be of cycles at a higher clock */
    int64_t most = thinned ? sampler->part_samples : 2 * (int64_t)sampler->window_samples;
    FS_TRY(make_image(sampler, (uint32_t)(samples < most ? samples : most), err));
    fs_status status = decode(sampler, first, thinned, err);
    drop_image(sampler);
    return status;
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

/* Decode what has come so far of a session that goes on. */
static fs_status decode_live(fs_sampler *sampler, bool *first, fs_error *err)
{
    FS_TRY(decode(sampler, first, false, err));
    if (!sampler->broken) return reset_image(sampler, err);
    *first = true;
    return open_again(sampler, sampler->interval_ns, err);
}

/* The interval of live samples: longer in longer programs, so that their number is bounded. */
static int64_t live_interval(int64_t elapsed_ns)
{
    enum { SAMPLES_OF_ALL = 50000, LONGEST_NS = 10000000 };
    int64_t interval = elapsed_ns / SAMPLES_OF_ALL;
    if (interval < FS_SAMPLER_LATER_NS) return FS_SAMPLER_LATER_NS;
    return interval < LONGEST_NS ? interval : LONGEST_NS;
}

/* Begin the next window: in the same session, unless it is to have another interval. */
static fs_status begin_again(fs_sampler *sampler, bool *first, fs_error *err)
{
    *first = true;
    if (sampler->window_samples > sampler->part_samples) sampler->window_samples = sampler->part_samples;
    if (!sampler->adapts && !sampler->broken) return start_window(sampler, err);
    int64_t interval = sampler->interval_ns, now = fs_clock_now();
    if (sampler->adapts) interval = sampler->live ? FS_SAMPLER_FIRST_NS : live_interval(now - sampler->opened);
    FS_TRY(open_again(sampler, interval, err));
    sampler->live_until = fs_clock_now() + FS_SAMPLER_LIVE_SPAN_NS;
    return FS_OK;
}

/* End a window that is full. If the program goes on after the first, only a part of its samples is decoded, as nothing
 * is counted meanwhile. Sets *ends. */
static fs_status end_full_window(fs_sampler *sampler, bool *first, bool *ends, fs_error *err)
{
    bool thins = sampler->adapts && !sampler->live && sampler->window_samples > sampler->part_samples;
    FS_TRY(stop_window(sampler, err));
    *ends = thins && wait_for_end(sampler, PATIENCE_NS);
    return decode_window(sampler, first, thins && !*ends, err);
}

/* Between a window and what follows live, leave the GPU without a session. Returns true if sampling ends meanwhile. */
static bool rest(fs_sampler *sampler)
{
    if (!sampler->adapts || sampler->live) return false;
    close_session(sampler);
    int64_t quarter = (fs_clock_now() - sampler->opened) / 4;
    return wait_for_end(sampler, quarter < FS_SAMPLER_REST_NS ? quarter : FS_SAMPLER_REST_NS);
}

/* Sample until the end, and leave a window open that is to be ended with what it holds. */
static fs_status sample_on(fs_sampler *sampler, bool *first, fs_error *err)
{
    for (bool ends = false;;) {
        int64_t window_ns = (int64_t)(sampler->window_samples >> sampler->shrunk) * sampler->interval_ns / 20 * 19;
        if (wait_for_end(sampler, sampler->live ? LIVE_POLL_NS : window_ns)) return FS_OK;
        if (sampler->live && !is_full(sampler) && (!sampler->adapts || fs_clock_now() < sampler->live_until)) {
            FS_TRY(decode_live(sampler, first, err));
            continue;
        }
        FS_TRY(end_full_window(sampler, first, &ends, err));
        if (ends || is_full(sampler) || rest(sampler)) return FS_OK;
        FS_TRY(begin_again(sampler, first, err));
    }
}

static void *run(void *context)
{
    fs_sampler *sampler = context;
    bool first = true;
    fs_status status = sample_on(sampler, &first, &sampler->failure);
    if (status == FS_OK && sampler->running) {
        status = stop_window(sampler, &sampler->failure);
        if (status == FS_OK) status = decode_window(sampler, &first, false, &sampler->failure);
    }
    sampler->to = fs_anchor_take();
    close_session(sampler);
    sampler->failure.status = status;
    return NULL;
}

/* Start and stop -------------------------------------------------------------------------------------------------- */

static fs_status take_availability(int device, uint8_t **image, fs_error *err)
{
    static const char doing[] = "the counters of the GPU cannot be read";
    FS_COUNTERS_ARGUMENTS(pm_availability, arguments, .device = (size_t)device);
    FS_TRY(check(fs_counters->pm_availability(&arguments), doing, err));
    *image = fs_calloc(1, arguments.size);
    if (*image == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %zu bytes of counters", arguments.size);
    arguments.image = *image;
    return check(fs_counters->pm_availability(&arguments), doing, err);
}

static fs_status make_plan(fs_sampler *sampler, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(chip_name, chip, .device = (size_t)sampler->options.device);
    uint8_t *availability = NULL;
    fs_status status = check(fs_counters->chip_name(&chip), "the GPU's chip is unknown to CUPTI", err);
    if (status == FS_OK) status = take_availability(sampler->options.device, &availability, err);
    if (status == FS_OK) status = fs_plan_samples(&sampler->plan, chip.chip, availability, err);
    fs_free(availability);
    if (status == FS_OK && sampler->plan.passes != 1)
        status = fs_fail(err, FS_RUNTIME_ERROR, "the counters of chip %s need %zu passes, but sampling has one",
                         chip.chip, sampler->plan.passes);
    for (size_t i = 0; i < sampler->plan.count; i++) sampler->report.metrics |= UINT32_C(1) << sampler->plan.keys[i];
    return status;
}

static fs_status try_to_open(void *what, fs_error *err)
{
    fs_sampler *sampler = what;
    fs_status status = make_plan(sampler, err);
    if (status == FS_OK) status = open_session(sampler, sampler->report.first_interval_ns, err);
    if (status != FS_OK) fs_plan_clear(&sampler->plan);
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
    if (made == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the counters");
    made->options = *options;
    if (options->most_samples == 0) made->options.most_samples = FS_MOST_SAMPLES;
    made->generation = fs_fork_generation();
    made->adapts = options->interval_ns == 0;
    made->window_samples = options->window > 0 ? options->window : FS_SAMPLER_WINDOW;
    made->part_samples = made->window_samples / FS_SAMPLER_PARTS;
    made->report.first_interval_ns = !made->adapts          ? options->interval_ns
                                     : options->begins_live ? FS_SAMPLER_LATER_NS
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
    close_session(sampler);
    fs_plan_clear(&sampler->plan);
    fs_counters_release(&sampler->hold);
}

fs_status fs_sampler_start(fs_sampler *sampler, fs_error *err)
{
    if (sampler->sampling == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "sampling has ended before");
    sampler->opened = fs_clock_now();
    sampler->live_until = sampler->opened + FS_SAMPLER_FIRST_SPAN_NS;
    fs_status status = start_window(sampler, err);
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
