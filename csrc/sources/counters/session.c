/* A session is closed, or has an object of CUPTI. A failing step of opening closes it. The plan outlives sessions. */
#include "sources/counters/session.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "sources/counters/library.h"

enum { HARDWARE_BYTES = 16 << 10 /* of CUPTI's buffer for a sample; an H200 uses 12 to 14 KB */ };

static fs_status take_availability(int device, uint8_t **image, fs_error *err)
{
    static const char doing[] = "the counters of the GPU cannot be read";
    FS_COUNTERS_ARGUMENTS(pm_availability, arguments, .device = (size_t)device);
    FS_TRY(fs_counters_check(fs_counters->pm_availability(&arguments), doing, err));
    FS_TRY(FS_NEW_ZEROED(image, arguments.size, err));
    arguments.image = *image;
    return fs_counters_check(fs_counters->pm_availability(&arguments), doing, err);
}

static const fs_plan *plan_of(const fs_session *session)
{
    return &session->plans[session->live];
}

fs_status fs_session_plan(fs_session *session, fs_error *err)
{
    fs_plan *plan = &session->plans[false];
    FS_COUNTERS_ARGUMENTS(chip_name, chip, .device = (size_t)session->device);
    uint8_t *availability = NULL;
    fs_status status = fs_counters_check(fs_counters->chip_name(&chip), "the GPU's chip is unknown to CUPTI", err);
    if (status == FS_OK) status = take_availability(session->device, &availability, err);
    if (status == FS_OK) status = fs_plan_samples(plan, chip.chip, availability, err);
    if (status == FS_OK && plan->passes != 1)
        status = fs_fail(err, FS_RUNTIME_ERROR, "the counters of chip %s need %zu passes, but sampling has one",
                         chip.chip, plan->passes);
    if (status == FS_OK) status = fs_plan_live(&session->plans[true], plan, chip.chip, availability, err);
    if (status != FS_OK) fs_session_clear_plans(session);
    fs_free(availability);
    return status;
}

void fs_session_clear_plans(fs_session *session)
{
    fs_plan_clear(&session->plans[false]);
    fs_plan_clear(&session->plans[true]);
}

static fs_status configure(fs_session *session, uint32_t records, fs_error *err)
{
    const fs_plan *plan = plan_of(session);
    uint32_t cycles = plan->cycles_per_us;
    uint64_t interval = (uint64_t)session->interval_ns;
    FS_COUNTERS_ARGUMENTS(pm_config, config, .sampling = session->sampling, .size = plan->config_size,
                          .config = plan->config, .hardware_bytes = (size_t)records * HARDWARE_BYTES,
                          .interval = cycles > 0 ? interval * cycles / 1000 : interval,
                          .trigger = cycles > 0 ? FS_COUNTERS_BY_CYCLES : FS_COUNTERS_BY_TIME,
                          .append_mode = FS_COUNTERS_KEEP_OLDEST);
    int code = fs_counters->pm_config(&config);
    if (code == FS_COUNTERS_INVALID) { /* CUDA 12.6 has no append mode, and keeps the oldest */
        config.header.size = offsetof(fs_counters_pm_config, append_mode);
        code = fs_counters->pm_config(&config);
    }
    return fs_counters_check(code, "sampling cannot be configured", err);
}

fs_status fs_session_open(fs_session *session, int64_t interval_ns, uint32_t records, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(pm_enable, enable, .device = (size_t)session->device);
    FS_TRY(fs_counters_check(fs_counters->pm_enable(&enable), "the counters cannot be sampled", err));
    session->sampling = enable.sampling;
    session->interval_ns = interval_ns;
    session->running = session->broken = false;
    fs_status status = configure(session, records, err);
    if (status != FS_OK) fs_session_close(session);
    return status;
}

void fs_session_close(fs_session *session)
{
    if (session->sampling != NULL) {
        FS_COUNTERS_ARGUMENTS(pm_disable, arguments, .sampling = session->sampling);
        fs_counters->pm_disable(&arguments);
    }
    session->sampling = NULL;
    session->running = false;
    fs_session_drop_image(session);
}

void fs_session_drop_image(fs_session *session)
{
    fs_free(session->image);
    session->image = NULL;
    session->image_size = session->image_room = 0;
}

fs_status fs_session_make_image(fs_session *session, uint32_t samples, fs_error *err)
{
    const fs_plan *plan = plan_of(session);
    const char *metrics[FS_PLAN_METRICS];
    memcpy(metrics, plan->metrics, sizeof metrics);
    FS_COUNTERS_ARGUMENTS(pm_data_size, size, .sampling = session->sampling, .metrics = metrics, .count = plan->count,
                          .most = samples);
    FS_TRY(fs_counters_check(fs_counters->pm_data_size(&size), "the samples' memory cannot be sized", err));
    if (size.size > session->image_room) {
        fs_session_drop_image(session);
        session->image = fs_malloc_huge(size.size);
        if (session->image == NULL) return fs_no_memory(err);
        session->image_room = size.size;
    }
    session->image_size = size.size;
    FS_COUNTERS_ARGUMENTS(pm_data_init, arguments, .sampling = session->sampling, .size = session->image_size,
                          .image = session->image);
    return fs_counters_check(fs_counters->pm_data_init(&arguments), "the samples' memory cannot be prepared", err);
}

fs_status fs_session_start(fs_session *session, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(pm_start, arguments, .sampling = session->sampling);
    FS_TRY(fs_counters_check(fs_counters->pm_start(&arguments), "sampling cannot be started", err));
    session->decoded = fs_clock_now();
    session->running = session->first = true;
    return FS_OK;
}

fs_status fs_session_stop(fs_session *session, fs_error *err)
{
    if (!session->running) return FS_OK;
    FS_COUNTERS_ARGUMENTS(pm_stop, arguments, .sampling = session->sampling);
    session->running = false;
    session->ended = fs_clock_now();
    return fs_counters_check(fs_counters->pm_stop(&arguments), "sampling cannot be stopped", err);
}

static int64_t end_of(const fs_session *session)
{
    return session->running ? fs_clock_now() : session->ended;
}

int64_t fs_session_undecoded_ns(const fs_session *session)
{
    return end_of(session) - session->decoded;
}

fs_status fs_session_decode(fs_session *session, size_t *count, bool *lost, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(pm_decode, arguments, .sampling = session->sampling, .image = session->image,
                          .size = session->image_size);
    int64_t now = end_of(session);
    int code = fs_counters->pm_decode(&arguments);
    session->decoded = now;
    FS_COUNTERS_ARGUMENTS(pm_data_info, info, .image = session->image, .size = session->image_size);
    *count = 0;
    session->broken = *lost = code == FS_COUNTERS_NO_MEMORY;
    if (session->broken) return FS_OK;
    FS_TRY(fs_counters_check(code, "samples cannot be decoded", err));
    FS_TRY(fs_counters_check(fs_counters->pm_data_info(&info), "samples cannot be counted", err));
    *lost = arguments.overflow != 0 || arguments.reason == FS_COUNTERS_IMAGE_FULL;
    *count = info.completed;
    return FS_OK;
}

fs_status fs_session_take(fs_session *session, size_t index, fs_raw_samples *samples, fs_raw_sample **taken,
                          fs_error *err)
{
    const fs_plan *plan = plan_of(session);
    double values[FS_PLAN_METRICS];
    FS_COUNTERS_ARGUMENTS(pm_sample, sample, .sampling = session->sampling, .image = session->image,
                          .size = session->image_size, .index = index);
    *taken = NULL;
    FS_TRY(fs_counters_check(fs_counters->pm_sample(&sample), "a sample cannot be read", err));
    bool skipped = session->first || sample.start == 0;
    session->first = false;
    if (skipped) return FS_OK;
    FS_TRY(fs_plan_evaluate(plan, session->image, session->image_size, index, values, err));
    *taken = fs_raw_samples_add(samples, sample.start, sample.end);
    for (size_t i = 0; i < plan->count; i++) (*taken)->values[plan->keys[i]] = values[i] * plan->factors[i];
    return FS_OK;
}
