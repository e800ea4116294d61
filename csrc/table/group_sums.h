/* Sums of a table's rows by group: of a category, of a module with the modules within it, of all rows. */
#ifndef FS_TABLE_GROUP_SUMS_H
#define FS_TABLE_GROUP_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The columns that are summed, as a table shows them: times in µs. X(name) */
#define FS_SUMMED_INTEGERS(X)   \
    X(count)                    \
    X(self_cpu_memory_usage)    \
    X(cpu_memory_usage)         \
    X(self_device_memory_usage) \
    X(device_memory_usage)      \
    X(is_user_annotation)
#define FS_SUMMED_NUMBERS(X)  \
    X(self_cpu_time_total)    \
    X(cpu_time_total)         \
    X(self_device_time_total) \
    X(device_time_total)      \
    X(device_busy_time)       \
    X(flops)                  \
    X(bytes_read)             \
    X(bytes_written)          \
    X(bytes_total_moved)      \
    X(roofline_time)          \
    X(headroom)               \
    X(tflops_per_s)           \
    X(gbytes_per_s)           \
    X(pct_peak_flops)         \
    X(pct_peak_bandwidth)     \
    X(pct_roofline)

#define FS_SUMMED_ENUM(name) FS_SUMMED_##name,
enum { FS_SUMMED_INTEGERS(FS_SUMMED_ENUM) FS_SUMMED_INTEGER_COUNT };
enum { FS_SUMMED_NUMBERS(FS_SUMMED_ENUM) FS_SUMMED_NUMBER_COUNT };
#undef FS_SUMMED_ENUM

/* The columns of a sum. X(type, name, description) */
#define FS_GROUP_SUM_LIST(X)                                                                      \
    X(int64_t, first, "the first row whose work counts; -1: none")                                \
    X(int64_t, rows, "number of rows, with those of the groups within")                           \
    X(int64_t, count, "")                                                                         \
    X(int64_t, self_cpu_memory_usage, "")                                                         \
    X(int64_t, cpu_memory_usage, "with the groups within")                                        \
    X(int64_t, self_device_memory_usage, "")                                                      \
    X(int64_t, device_memory_usage, "with the groups within")                                     \
    X(double, self_cpu_time_total, "")                                                            \
    X(double, cpu_time_total, "with the groups within")                                           \
    X(double, self_device_time_total, "")                                                         \
    X(double, device_time_total, "with the groups within")                                        \
    X(double, device_busy_time, "")                                                               \
    X(double, flops, "what is known of it; NaN: nothing")                                         \
    X(double, flops_total, "the same, with the groups within")                                    \
    X(double, bytes_read, "what is known of it; NaN: nothing")                                    \
    X(double, bytes_written, "what is known of it; NaN: nothing")                                 \
    X(double, bytes_total_moved, "what is known of it; NaN: nothing")                             \
    X(double, tflops_per_s, "work of the rows with a known rate per time that it took")           \
    X(double, gbytes_per_s, "work of the rows with a known rate per time that it took")           \
    X(double, arithmetic_intensity, "flops / bytes_total_moved; NaN if no bytes are moved")       \
    X(double, roofline_time, "what is known of it; NaN: nothing")                                 \
    X(double, headroom, "what is known of it; NaN: nothing")                                      \
    X(double, pct_peak_flops, "mean, weighted by the time of the rows: roofline_time + headroom") \
    X(double, pct_peak_bandwidth, "the same")                                                     \
    X(double, pct_roofline, "the same")                                                           \
    X(double, pct_roofline_total, "the same, with the groups within")

typedef struct {
#define FS_GROUP_SUM_FIELD(type, name, prose) type name;
    FS_GROUP_SUM_LIST(FS_GROUP_SUM_FIELD)
#undef FS_GROUP_SUM_FIELD
} fs_group_sum;

typedef struct {
    uint32_t row_count, group_count;
    const int64_t *integers; /* FS_SUMMED_INTEGERS, column after column */
    const double *numbers;   /* FS_SUMMED_NUMBERS, likewise; NaN: unknown */
    const int64_t *groups;   /* by row; -1: the row is not summed */
    /* By group, the group around it, which precedes it, or -1. NULL: total times and memory are not those of groups
     * within, but the sums of those columns, in which rows that enclose others count them again. */
    const int64_t *parents;
    bool on_device;     /* rates refer to busy time, else to host time */
    double device_time; /* of the whole profile: what the groups leave of it is one more sum. NaN: unknown */
} fs_group_request;

/* Sum the rows of each group into sums[group]; there is room for one more. *has_left: the device time that belongs to
 * no group is more than rounding loses, and is sums[group_count]. FS_VALUE_ERROR: a group or parent that there is not;
 * FS_OUT_OF_MEMORY. */
fs_status fs_group_sums(const fs_group_request *request, fs_group_sum *sums, bool *has_left, fs_error *err);

#endif
