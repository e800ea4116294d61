/* A plan: metrics of one chip, and CUPTI's configuration to count them. Private to csrc/sources/counters, and to the
 * tests of chips.def through the binding. */
#ifndef FS_SOURCES_COUNTERS_PLAN_H
#define FS_SOURCES_COUNTERS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(NAME, name, prose): the groups of chips.def, each counted apart */
#define FS_COUNTER_GROUP_LIST(X)                                   \
    X(MEMORY, memory, "traffic, occupancy, activity")              \
    X(UNITS, units, "activity of pipes, of the L1 and of issue")   \
    X(ISSUE, issue, "instructions and warps that may issue")       \
    X(SCALAR, scalar, "floating-point instructions by dtype")      \
    X(TENSOR_BF16, bf16_tensor, "tensor cores with bf16 operands") \
    X(TENSOR_FP16, fp16_tensor, "tensor cores with fp16 operands") \
    X(TENSOR_TF32, tf32_tensor, "tensor cores with tf32 operands") \
    X(TENSOR_FP64, fp64_tensor, "tensor cores with fp64 operands") \
    X(TENSOR_INT8, int8_tensor, "tensor cores with int8 operands") \
    X(TENSOR_FP8, fp8_tensor, "tensor cores with fp8 operands")    \
    X(STALLS, stalls, "what warps wait for")                       \
    X(ACCESS, access, "how memory is accessed, and by how many threads")

typedef enum {
#define FS_COUNTER_GROUP_ENUM(NAME, name, prose) FS_COUNTER_GROUP_##NAME,
    FS_COUNTER_GROUP_LIST(FS_COUNTER_GROUP_ENUM)
#undef FS_COUNTER_GROUP_ENUM
        FS_COUNTER_GROUP_COUNT
} fs_counter_group;

extern const char *const fs_counter_group_names[FS_COUNTER_GROUP_COUNT];

/* What the Range Profiler counts, each name once, in the order of chips.def. */
typedef struct {
    const char *name, *unit, *prose;
    fs_counter_group group;
} fs_counter_row;

size_t fs_counter_row_count(void);
fs_counter_row fs_counter_row_at(size_t index);

/* The counter of warps that wait for this, by the last part of the name of CUPTI's reason ("barrier"); NULL: none. */
const char *fs_counter_of_stall(const char *reason);

/* The metric of the store (fs_metric) that CUPTI samples under this name on some chip, and how many of the metric's
 * unit one of CUPTI's is; -1: none. */
int fs_plan_metric_of(const char *name, double *factor);

enum { FS_PLAN_METRICS = 16 };

typedef struct {
    const char *metrics[FS_PLAN_METRICS]; /* CUPTI's names; static */
    int keys[FS_PLAN_METRICS];            /* fs_metric of samples, index of fs_counter_row_at of ranges */
    double factors[FS_PLAN_METRICS];
    size_t count, passes, config_size;
    uint8_t *config;
    void *host;
    uint32_t cycles_per_us; /* of sampling; 0: sampled by time */
    bool for_samples;
} fs_plan;

/* Plan what PM sampling of a chip (CUPTI's name, "GH100") counts, or one group for the Range Profiler. Metrics that the
 * chip or, by `availability` (CUPTI's image; NULL: assume all), this GPU lacks are left out. FS_RUNTIME_ERROR: nothing
 * is left, an unknown chip, a failure of CUPTI. A plan that is zeroed is empty. */
fs_status fs_plan_samples(fs_plan *plan, const char *chip, const uint8_t *availability, fs_error *err);
fs_status fs_plan_ranges(fs_plan *plan, const char *chip, fs_counter_group group, const uint8_t *availability,
                         fs_error *err);

/* Plan for live samples: the metrics of a plan without those whose records take longest to decode, the pipes of FMA and
 * fp64, and parts of caches. With the pipes an H200's host takes 120 µs for a sample, which is longer than live samples
 * are apart; without, 85.
 * Errors as above. */
fs_status fs_plan_live(fs_plan *plan, const fs_plan *whole, const char *chip, const uint8_t *availability,
                       fs_error *err);
void fs_plan_clear(fs_plan *plan);

/* The values of the plan's metrics in sample or range `index` of CUPTI's counter data; values has room for each. */
fs_status fs_plan_evaluate(const fs_plan *plan, const uint8_t *image, size_t size, size_t index, double *values,
                           fs_error *err);

/* The names of all chips that CUPTI knows; a list that it owns. */
fs_status fs_plan_chips(const char *const **chips, size_t *count, fs_error *err);

#endif
