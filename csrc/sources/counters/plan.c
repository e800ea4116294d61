/* All that is known of chips stands in chips.def, as three tables with a bit for each generation; the code asks CUPTI
 * which of a generation's metrics this very chip has. So a plan never holds a metric that CUPTI refuses, and a metric
 * that is missing is NaN in the end. Of ranges, several rows of one key add up to one counter. */
#include "sources/counters/plan.h"

#include <string.h>

#include "base/memory.h"
#include "sources/counters/library.h"
#include "store/samples.h"

#define GROUP_NAME(NAME, name, prose) #name,
const char *const fs_counter_group_names[FS_COUNTER_GROUP_COUNT] = {FS_COUNTER_GROUP_LIST(GROUP_NAME)};

/* Generations of chips as bits. */
enum {
#define FS_CHIPS(generation, prefix, cycles_per_us) generation##_AT,
#include "sources/counters/chips.def"
    GENERATIONS
};
enum {
#define FS_CHIPS(generation, prefix, cycles_per_us) generation = 1 << generation##_AT,
#include "sources/counters/chips.def"
    ALL = (1 << GENERATIONS) - 1
};

static const struct {
    const char *prefix;
    uint32_t cycles_per_us;
} generations[GENERATIONS] = {
#define FS_CHIPS(generation, prefix, cycles_per_us) {prefix, cycles_per_us},
#include "sources/counters/chips.def"
};

static const struct {
    fs_metric metric;
    int generations;
    const char *name;
    double factor;
} sampled[] = {
#define FS_SAMPLED(metric, generations, name, factor) {FS_METRIC_##metric, generations, name, factor},
#include "sources/counters/chips.def"
};

static const struct {
    const char *key;
    int generations;
    fs_counter_group group;
    const char *name;
    double factor;
    const char *unit, *prose;
} counted[] = {
#define FS_COUNTED(key, generations, group, name, factor, unit, prose) \
    {#key, generations, FS_COUNTER_GROUP_##group, name, factor, unit, prose},
#include "sources/counters/chips.def"
};
enum { SAMPLED = sizeof sampled / sizeof *sampled, COUNTED = sizeof counted / sizeof *counted };

int fs_plan_metric_of(const char *name, double *factor)
{
    for (size_t i = 0; i < SAMPLED; i++) {
        if (strcmp(sampled[i].name, name) != 0) continue;
        *factor = sampled[i].factor;
        return (int)sampled[i].metric;
    }
    return -1;
}

/* The first row of chips.def with the same key. */
static size_t first_of(size_t row)
{
    size_t first = 0;
    while (strcmp(counted[first].key, counted[row].key) != 0) first++;
    return first;
}

size_t fs_counter_row_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < COUNTED; i++) count += first_of(i) == i;
    return count;
}

/* The place of a row's key among the distinct ones. */
static size_t key_of(size_t row)
{
    size_t place = 0;
    for (size_t i = 0; i < first_of(row); i++) place += first_of(i) == i;
    return place;
}

fs_counter_row fs_counter_row_at(size_t index)
{
    size_t row = 0;
    while (first_of(row) != row || key_of(row) != index) row++;
    return (fs_counter_row){counted[row].key, counted[row].unit, counted[row].prose, counted[row].group};
}

const char *fs_counter_of_stall(const char *reason)
{
    static const char before[] = "smsp__average_warps_issue_stalled_", after[] = "_per_issue_active.ratio";
    size_t length = strlen(reason);
    for (size_t i = 0; i < COUNTED; i++) {
        const char *name = counted[i].name;
        if (strncmp(name, before, sizeof before - 1) != 0) continue;
        name += sizeof before - 1;
        if (strncmp(name, reason, length) == 0 && strcmp(name + length, after) == 0) return counted[i].key;
    }
    return NULL;
}

static fs_status generation_of(const char *chip, int *generation, fs_error *err)
{
    for (int i = 0; i < GENERATIONS; i++) {
        if (strncmp(chip, generations[i].prefix, strlen(generations[i].prefix)) != 0) continue;
        *generation = i;
        return FS_OK;
    }
    return fs_fail(
        err, FS_RUNTIME_ERROR,
        "the counters of this GPU (chip %s) are unknown to flopscope, which reads those of A100, Ampere, Ada, "
        "Hopper and Blackwell GPUs",
        chip);
}

static fs_status open_host(const fs_plan *plan, const char *chip, const uint8_t *availability, void **host,
                           fs_error *err)
{
    FS_COUNTERS_ARGUMENTS(host_open, open, .type = plan->for_samples ? FS_COUNTERS_SAMPLES : FS_COUNTERS_RANGES,
                          .chip = chip, .availability = availability);
    int code = fs_counters->host_open(&open);
    *host = open.host;
    return fs_counters_check(code, "counters cannot be planned", err);
}

static void close_host(void *host)
{
    if (host == NULL) return;
    FS_COUNTERS_ARGUMENTS(host_close, arguments, .host = host);
    fs_counters->host_close(&arguments);
}

/* Whether CUPTI takes the metric. A host object that refused one may keep it, so each is asked of one of its own. */
static bool is_available(const fs_plan *plan, const char *chip, const uint8_t *availability, const char *metric)
{
    void *host;
    if (open_host(plan, chip, availability, &host, NULL) != FS_OK) return false;
    FS_COUNTERS_ARGUMENTS(host_add, add, .host = host, .metrics = &metric, .count = 1);
    bool taken = fs_counters->host_add(&add) == FS_COUNTERS_SUCCESS;
    close_host(host);
    return taken;
}

static bool has_key(const fs_plan *plan, int key)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->keys[i] == key) return true;
    return false;
}

static void add(fs_plan *plan, const char *chip, const uint8_t *availability, const char *name, int key, double factor)
{
    if (plan->count == FS_PLAN_METRICS || !is_available(plan, chip, availability, name)) return;
    plan->metrics[plan->count] = name;
    plan->keys[plan->count] = key;
    plan->factors[plan->count++] = factor;
}

static fs_status take_config(fs_plan *plan, fs_error *err)
{
    static const char doing[] = "counters cannot be configured";
    FS_COUNTERS_ARGUMENTS(host_add, add, .host = plan->host, .metrics = plan->metrics, .count = plan->count);
    int code = fs_counters->host_add(&add);
    FS_COUNTERS_ARGUMENTS(host_config_size, size, .host = plan->host);
    if (code == FS_COUNTERS_SUCCESS) code = fs_counters->host_config_size(&size);
    if (code != FS_COUNTERS_SUCCESS) return fs_counters_fail(code, doing, err);
    plan->config_size = size.size;
    FS_TRY(FS_NEW_ZEROED(&plan->config, size.size, err));
    FS_COUNTERS_ARGUMENTS(host_config, config, .host = plan->host, .size = size.size, .image = plan->config);
    code = fs_counters->host_config(&config);
    FS_COUNTERS_ARGUMENTS(host_passes, passes, .size = size.size, .image = plan->config);
    if (code == FS_COUNTERS_SUCCESS) code = fs_counters->host_passes(&passes);
    plan->passes = passes.passes;
    return fs_counters_check(code, doing, err);
}

static fs_status finish(fs_plan *plan, const char *chip, const uint8_t *availability, fs_error *err)
{
    fs_status status = open_host(plan, chip, availability, &plan->host, err);
    if (status == FS_OK && plan->count == 0)
        status = fs_fail(err, FS_RUNTIME_ERROR, "this GPU (chip %s) has none of these counters", chip);
    if (status == FS_OK) status = take_config(plan, err);
    if (status != FS_OK) fs_plan_clear(plan);
    return status;
}

fs_status fs_plan_samples(fs_plan *plan, const char *chip, const uint8_t *availability, fs_error *err)
{
    int generation = 0;
    *plan = (fs_plan){.for_samples = true};
    if (fs_counters == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    FS_TRY(generation_of(chip, &generation, err));
    plan->cycles_per_us = generations[generation].cycles_per_us;
    for (size_t i = 0; i < SAMPLED; i++)
        if ((sampled[i].generations >> generation & 1) != 0 && !has_key(plan, (int)sampled[i].metric))
            add(plan, chip, availability, sampled[i].name, (int)sampled[i].metric, sampled[i].factor);
    FS_TRY(finish(plan, chip, availability, err));
    while (plan->passes > 1 && plan->count > 1) { /* a GPU that needs more than others of its chip: drop the last */
        close_host(plan->host);
        fs_free(plan->config);
        plan->config = NULL;
        plan->count--;
        FS_TRY(finish(plan, chip, availability, err));
    }
    return FS_OK;
}

/* Of which the records take longest to decode. */
static const bool slow[FS_METRIC_COUNT] = {
    [FS_METRIC_FMA_ACTIVE] = true, [FS_METRIC_FP64_ACTIVE] = true, [FS_METRIC_L1_ACTIVE] = true,
    [FS_METRIC_L2_ACTIVE] = true,  [FS_METRIC_L2_FABRIC] = true,
};

fs_status fs_plan_live(fs_plan *plan, const fs_plan *whole, const char *chip, const uint8_t *availability,
                       fs_error *err)
{
    *plan = (fs_plan){.for_samples = true, .cycles_per_us = whole->cycles_per_us};
    for (size_t i = 0; i < whole->count; i++) {
        if (slow[whole->keys[i]]) continue;
        plan->metrics[plan->count] = whole->metrics[i];
        plan->keys[plan->count] = whole->keys[i];
        plan->factors[plan->count++] = whole->factors[i];
    }
    return finish(plan, chip, availability, err);
}

fs_status fs_plan_ranges(fs_plan *plan, const char *chip, fs_counter_group group, const uint8_t *availability,
                         fs_error *err)
{
    int generation = 0;
    *plan = (fs_plan){.for_samples = false};
    if (fs_counters == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    FS_TRY(generation_of(chip, &generation, err));
    for (size_t i = 0; i < COUNTED; i++)
        if (counted[i].group == group && (counted[i].generations >> generation & 1) != 0)
            add(plan, chip, availability, counted[i].name, (int)key_of(i), counted[i].factor);
    return finish(plan, chip, availability, err);
}

void fs_plan_clear(fs_plan *plan)
{
    close_host(plan->host);
    fs_free(plan->config);
    *plan = (fs_plan){0};
}

fs_status fs_plan_evaluate(const fs_plan *plan, const uint8_t *image, size_t size, size_t index, double *values,
                           fs_error *err)
{
    const char *metrics[FS_PLAN_METRICS];
    memcpy(metrics, plan->metrics, sizeof metrics); /* CUPTI takes names that it might change */
    FS_COUNTERS_ARGUMENTS(host_evaluate, arguments, .host = plan->host, .image = image, .size = size, .index = index,
                          .metrics = metrics, .count = plan->count, .values = values);
    int code = fs_counters->host_evaluate(&arguments);
    return fs_counters_check(code, "counters cannot be evaluated", err);
}

fs_status fs_plan_chips(const char *const **chips, size_t *count, fs_error *err)
{
    if (fs_counters == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    FS_COUNTERS_ARGUMENTS(host_chips, arguments);
    int code = fs_counters->host_chips(&arguments);
    *chips = arguments.chips;
    *count = code == FS_COUNTERS_SUCCESS ? arguments.count : 0;
    return fs_counters_check(code, "the chips cannot be listed", err);
}
