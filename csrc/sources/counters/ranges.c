/* A session goes open, (begin, (push, pop)*, end)*, decode, take, close; `started` and `pushed` say how far it is, so
 * that closing it ends what is open. Calls that concern the session have its context current. A decoded session has
 * exactly as many ranges as were asked for, or is an error: counts that went to another kernel would be worse than
 * none. A forked child frees its memory and leaves CUPTI alone. */
#include "sources/counters/ranges.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/memory.h"
#include "sources/counters/library.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/library.h"

struct fs_ranges {
    fs_plan plan;
    fs_counters_hold hold;
    void *profiler; /* CUPTI's session; NULL: closed */
    uint8_t *image; /* of counters; CUPTI uses it until the session is closed */
    size_t image_size, count;
    fs_counter_group group;
    int index;
    fs_context context;
    bool started, pushed;
    uint32_t generation;
};

static fs_status take_availability(const fs_ranges *ranges, uint8_t **image, fs_error *err)
{
    static const char doing[] = "the counters of the GPU cannot be read";
    FS_COUNTERS_ARGUMENTS(range_availability, arguments, .context = ranges->context.context);
    FS_TRY(fs_counters_check(fs_counters->range_availability(&arguments), doing, err));
    FS_TRY(FS_NEW_ZEROED(image, arguments.size, err));
    arguments.image = *image;
    return fs_counters_check(fs_counters->range_availability(&arguments), doing, err);
}

static fs_status make_plan(fs_ranges *ranges, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(chip_name, chip, .device = (size_t)ranges->index);
    uint8_t *availability = NULL;
    fs_status status = fs_counters_check(fs_counters->chip_name(&chip), "the GPU's chip is unknown to CUPTI", err);
    if (status == FS_OK) status = take_availability(ranges, &availability, err);
    if (status == FS_OK) status = fs_plan_ranges(&ranges->plan, chip.chip, ranges->group, availability, err);
    fs_free(availability);
    return status;
}

static fs_status make_image(fs_ranges *ranges, fs_error *err)
{
    const char *metrics[FS_PLAN_METRICS];
    memcpy(metrics, ranges->plan.metrics, sizeof metrics);
    FS_COUNTERS_ARGUMENTS(range_data_size, size, .profiler = ranges->profiler, .metrics = metrics,
                          .count = ranges->plan.count, .ranges = ranges->count, .nodes = (uint32_t)ranges->count);
    FS_TRY(fs_counters_check(fs_counters->range_data_size(&size), "the counters' memory cannot be sized", err));
    ranges->image_size = size.size;
    FS_TRY(FS_NEW_ZEROED(&ranges->image, size.size, err));
    FS_COUNTERS_ARGUMENTS(range_data_init, init, .profiler = ranges->profiler, .size = size.size,
                          .image = ranges->image);
    return fs_counters_check(fs_counters->range_data_init(&init), "the counters' memory cannot be prepared", err);
}

static fs_status configure(fs_ranges *ranges, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(range_config, config, .profiler = ranges->profiler, .config_size = ranges->plan.config_size,
                          .config = ranges->plan.config, .size = ranges->image_size, .image = ranges->image,
                          .range = FS_COUNTERS_USER_RANGE, .replay = FS_COUNTERS_USER_REPLAY, .ranges = ranges->count,
                          .levels = 1, .least_level = 1, .level = 1);
    return fs_counters_check(fs_counters->range_config(&config), "the counters cannot be configured", err);
}

static fs_status open_profiler(fs_ranges *ranges, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(range_enable, enable, .context = ranges->context.context);
    FS_TRY(fs_counters_check(fs_counters->range_enable(&enable), "the counters cannot be used", err));
    ranges->profiler = enable.profiler;
    FS_TRY(make_image(ranges, err));
    return configure(ranges, err);
}

static void close_profiler(fs_ranges *ranges)
{
    if (ranges->profiler != NULL) {
        FS_COUNTERS_ARGUMENTS(range_disable, disable, .profiler = ranges->profiler);
        fs_counters->range_disable(&disable);
    }
    ranges->profiler = NULL;
    fs_plan_clear(&ranges->plan);
    fs_free(ranges->image);
    ranges->image = NULL;
}

/* The result of a call with the context current. */
#define WITHIN(ranges, call)                                      \
    __extension__({                                               \
        const bool entered_ = fs_context_enter(&ranges->context); \
        const int code_ = (call);                                 \
        fs_context_leave(entered_);                               \
        code_;                                                    \
    })

static fs_status try_to_open(void *what, fs_error *err)
{
    fs_ranges *ranges = what;
    bool entered = fs_context_enter(&ranges->context);
    fs_status status = make_plan(ranges, err);
    if (status == FS_OK) status = open_profiler(ranges, err);
    if (status != FS_OK) close_profiler(ranges);
    fs_context_leave(entered);
    return status;
}

fs_status fs_ranges_open(fs_ranges **ranges, int device, fs_counter_group group, size_t count, fs_error *err)
{
    *ranges = NULL;
    if (fs_counters == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    fs_ranges *made = fs_calloc(1, sizeof *made);
    if (made == NULL) return fs_no_memory(err);
    made->index = device;
    made->group = group;
    made->count = count;
    made->generation = fs_fork_generation();
    fs_status status = fs_context_retain(&made->context, device, err);
    if (status == FS_OK) status = fs_counters_open(&made->hold, try_to_open, made, err);
    if (status == FS_OK) *ranges = made;
    else fs_ranges_close(made);
    return status;
}

fs_status fs_ranges_begin(fs_ranges *ranges, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(range_start, start, .profiler = ranges->profiler);
    int code = WITHIN(ranges, fs_counters->range_start(&start));
    ranges->started = code == FS_COUNTERS_SUCCESS;
    return fs_counters_check(code, "counting cannot be started", err);
}

/* CUPTI orders ranges as they first come, and tells them apart by their names. */
fs_status fs_ranges_push(fs_ranges *ranges, size_t index, fs_error *err)
{
    char name[24];
    snprintf(name, sizeof name, "%zu", index);
    FS_COUNTERS_ARGUMENTS(range_push, push, .profiler = ranges->profiler, .name = name);
    int code = WITHIN(ranges, fs_counters->range_push(&push));
    ranges->pushed = code == FS_COUNTERS_SUCCESS;
    return fs_counters_check(code, "counting cannot be started", err);
}

fs_status fs_ranges_pop(fs_ranges *ranges, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(range_pop, pop, .profiler = ranges->profiler);
    int code = WITHIN(ranges, fs_counters->range_pop(&pop));
    ranges->pushed = false;
    return fs_counters_check(code, "counting cannot be ended", err);
}

fs_status fs_ranges_end(fs_ranges *ranges, bool *complete, fs_error *err)
{
    fs_status popped = ranges->pushed ? fs_ranges_pop(ranges, err) : FS_OK;
    FS_COUNTERS_ARGUMENTS(range_stop, stop, .profiler = ranges->profiler);
    int stopped = WITHIN(ranges, ranges->started ? fs_counters->range_stop(&stop) : FS_COUNTERS_SUCCESS);
    ranges->started = false;
    *complete = stop.complete != 0;
    if (popped != FS_OK) return popped;
    return fs_counters_check(stopped, "counting cannot be ended", err);
}

static const char reading[] = "the counts cannot be read";

fs_status fs_ranges_decode(fs_ranges *ranges, fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(range_decode, decode, .profiler = ranges->profiler);
    int decoded = WITHIN(ranges, fs_counters->range_decode(&decode));
    FS_TRY(fs_counters_check(decoded, reading, err));
    FS_COUNTERS_ARGUMENTS(range_data_info, info, .image = ranges->image, .size = ranges->image_size);
    FS_TRY(fs_counters_check(fs_counters->range_data_info(&info), reading, err));
    if (decode.dropped == 0 && info.count == ranges->count) return FS_OK;
    return fs_fail(err, FS_RUNTIME_ERROR, "%s: CUPTI has those of %zu pieces of work, not of %zu", reading, info.count,
                   ranges->count);
}

fs_status fs_ranges_take(fs_ranges *ranges, size_t index, double *values, fs_error *err)
{
    double counts[FS_PLAN_METRICS];
    for (size_t i = 0; i < fs_counter_row_count(); i++) values[i] = NAN;
    FS_TRY(fs_plan_evaluate(&ranges->plan, ranges->image, ranges->image_size, index, counts, err));
    for (size_t i = 0; i < ranges->plan.count; i++) {
        double *value = &values[ranges->plan.keys[i]];
        *value = (isnan(*value) ? 0 : *value) + counts[i] * ranges->plan.factors[i];
    }
    return FS_OK;
}

void fs_ranges_close(fs_ranges *ranges)
{
    bool complete;
    if (ranges == NULL) return;
    if (ranges->generation == fs_fork_generation()) {
        if (ranges->profiler != NULL) FS_IGNORE(fs_ranges_end(ranges, &complete, NULL));
        bool entered = fs_context_enter(&ranges->context);
        close_profiler(ranges);
        fs_context_leave(entered);
        fs_counters_release(&ranges->hold);
        fs_context_release(&ranges->context);
    }
    fs_free(ranges->image);
    fs_free(ranges);
}
