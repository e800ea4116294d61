/* The part of CUPTI that reads hardware counters, declared here for the reasons of cupti/abi.h: its host, Range
 * Profiler and PM sampling interfaces, with the layouts of CUDA 13.0, which later versions only extend. Each call takes
 * one struct that begins with its own size; CUDA 12.6 lacks the last member of pm_config. tests/c/counters_abi.cpp
 * checks the layouts against NVIDIA's headers, one of which is C++. */
#ifndef FS_SOURCES_COUNTERS_ABI_H
#define FS_SOURCES_COUNTERS_ABI_H

#include <stddef.h>
#include <stdint.h>

/* X(name here, NVIDIA's name, number) */
#define FS_COUNTERS_NUMBERS(X)                                                                  \
    X(FS_COUNTERS_SUCCESS, CUPTI_SUCCESS, 0)                                                    \
    X(FS_COUNTERS_INVALID, CUPTI_ERROR_INVALID_PARAMETER, 1)                                    \
    X(FS_COUNTERS_BAD_CONTEXT, CUPTI_ERROR_INVALID_CONTEXT, 3)                                  \
    X(FS_COUNTERS_BAD_OPERATION, CUPTI_ERROR_INVALID_OPERATION, 7)                              \
    X(FS_COUNTERS_NO_MEMORY, CUPTI_ERROR_OUT_OF_MEMORY, 8)                                      \
    X(FS_COUNTERS_ASLEEP, CUPTI_ERROR_NOT_INITIALIZED, 15)                                      \
    X(FS_COUNTERS_BAD_METRIC, CUPTI_ERROR_INVALID_METRIC_NAME, 17)                              \
    X(FS_COUNTERS_BUSY, CUPTI_ERROR_HARDWARE_BUSY, 26)                                          \
    X(FS_COUNTERS_UNSUPPORTED, CUPTI_ERROR_NOT_SUPPORTED, 27)                                   \
    X(FS_COUNTERS_VIRTUALIZED, CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED, 33)                \
    X(FS_COUNTERS_NO_PERMISSION, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, 35)                       \
    X(FS_COUNTERS_OLD_API, CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED, 36)                        \
    X(FS_COUNTERS_VGPU_PERMISSION, CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES, 40)  \
    X(FS_COUNTERS_CONFIDENTIAL, CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED, 41)           \
    X(FS_COUNTERS_CMP, CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED, 42)                                \
    X(FS_COUNTERS_MIG, CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, 43)                                \
    X(FS_COUNTERS_SLI, CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED, 44)                                \
    X(FS_COUNTERS_WSL, CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED, 45)                                \
    X(FS_COUNTERS_BAD_CHIP, CUPTI_ERROR_INVALID_CHIP_NAME, 46)                                  \
    X(FS_COUNTERS_UNKNOWN, CUPTI_ERROR_UNKNOWN, 999)                                            \
    X(FS_COUNTERS_RANGES, CUPTI_PROFILER_TYPE_RANGE_PROFILER, 0)                                \
    X(FS_COUNTERS_SAMPLES, CUPTI_PROFILER_TYPE_PM_SAMPLING, 1)                                  \
    X(FS_COUNTERS_BY_CYCLES, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL, 0)             \
    X(FS_COUNTERS_BY_TIME, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL, 1)                 \
    X(FS_COUNTERS_KEEP_OLDEST, CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST, 0)    \
    X(FS_COUNTERS_IMAGE_FULL, CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL, 1)        \
    X(FS_COUNTERS_USER_RANGE, CUPTI_UserRange, 2)                                               \
    X(FS_COUNTERS_USER_REPLAY, CUPTI_UserReplay, 3)                                             \
    X(FS_PC_NAME, CUPTI_STALL_REASON_STRING_SIZE, 128)                                          \
    X(FS_PC_CONTINUOUS, CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS, 1)                        \
    X(FS_PC_PERIOD, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD, 1)               \
    X(FS_PC_REASONS_WANTED, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON, 2)          \
    X(FS_PC_SCRATCH, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SCRATCH_BUFFER_SIZE, 3)          \
    X(FS_PC_MODE, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE, 5)                 \
    X(FS_PC_START_STOP, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_ENABLE_START_STOP_CONTROL, 6) \
    X(FS_PC_BUFFER, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER, 8)

enum {
#define FS_COUNTERS_ENUM(ours, theirs, number) ours = number,
    FS_COUNTERS_NUMBERS(FS_COUNTERS_ENUM)
#undef FS_COUNTERS_ENUM
};

/* What the calls of PC sampling point to; those of two calls without a pointer that stays NULL. */
typedef struct {
    int type, status;
    union {
        struct {
            size_t count;
            uint32_t *indices;
        } reasons;
        uint32_t number;
        size_t size;
        void *buffer;
        uint64_t room[3];
    } value;
} fs_pc_setting;

typedef struct {
    uint32_t reason, samples;
} fs_pc_count;

typedef struct {
    size_t size;
    uint64_t crc, offset; /* of the module's code; of the instruction in the function's */
    uint32_t index, pad;
    char *function;
    size_t count;
    fs_pc_count *counts;
    uint32_t correlation;
} fs_pc_record;

typedef struct {
    size_t size, room; /* room for records */
    uint64_t samples, dropped;
    size_t count, remaining; /* records here, and still to be taken */
    uint64_t range;
    fs_pc_record *records;
    uint64_t unknown; /* samples of kernels that are not the program's */
    uint8_t full;
} fs_pc_data;

typedef struct {
    size_t size;
    const void *cubin;
    const char *function;
    size_t cubin_size;
    uint32_t line;
    uint64_t offset;
    char *file, *directory;
} fs_pc_source;

typedef struct {
    size_t size, cubin_size;
    const void *cubin;
    uint64_t crc;
} fs_pc_crc;

/* The arguments of the calls. CALL(field of fs_counters_functions, symbol, NVIDIA's struct): members, which are
 * MEMBER(type, name, NVIDIA's name). Every struct begins with its size and a pointer that stays NULL. */
#define FS_COUNTERS_CALLS(CALL, MEMBER)                                                                                \
    CALL(initialize, cuptiProfilerInitialize, CUpti_Profiler_Initialize_Params, )                                      \
    CALL(chip_name, cuptiDeviceGetChipName, CUpti_Device_GetChipName_Params,                                           \
         MEMBER(size_t, device, deviceIndex) MEMBER(const char *, chip, pChipName))                                    \
    CALL(host_open, cuptiProfilerHostInitialize, CUpti_Profiler_Host_Initialize_Params,                                \
         MEMBER(int, type, profilerType) MEMBER(const char *, chip, pChipName)                                         \
             MEMBER(const uint8_t *, availability, pCounterAvailabilityImage) MEMBER(void *, host, pHostObject))       \
    CALL(host_close, cuptiProfilerHostDeinitialize, CUpti_Profiler_Host_Deinitialize_Params,                           \
         MEMBER(void *, host, pHostObject))                                                                            \
    CALL(host_chips, cuptiProfilerHostGetSupportedChips, CUpti_Profiler_Host_GetSupportedChips_Params,                 \
         MEMBER(size_t, count, numChips) MEMBER(const char *const *, chips, ppChipNames))                              \
    CALL(host_add, cuptiProfilerHostConfigAddMetrics, CUpti_Profiler_Host_ConfigAddMetrics_Params,                     \
         MEMBER(void *, host, pHostObject) MEMBER(const char **, metrics, ppMetricNames)                               \
             MEMBER(size_t, count, numMetrics))                                                                        \
    CALL(host_config_size, cuptiProfilerHostGetConfigImageSize, CUpti_Profiler_Host_GetConfigImageSize_Params,         \
         MEMBER(void *, host, pHostObject) MEMBER(size_t, size, configImageSize))                                      \
    CALL(host_config, cuptiProfilerHostGetConfigImage, CUpti_Profiler_Host_GetConfigImage_Params,                      \
         MEMBER(void *, host, pHostObject) MEMBER(size_t, size, configImageSize)                                       \
             MEMBER(uint8_t *, image, pConfigImage))                                                                   \
    CALL(host_passes, cuptiProfilerHostGetNumOfPasses, CUpti_Profiler_Host_GetNumOfPasses_Params,                      \
         MEMBER(size_t, size, configImageSize) MEMBER(uint8_t *, image, pConfigImage)                                  \
             MEMBER(size_t, passes, numOfPasses))                                                                      \
    CALL(host_evaluate, cuptiProfilerHostEvaluateToGpuValues, CUpti_Profiler_Host_EvaluateToGpuValues_Params,          \
         MEMBER(void *, host, pHostObject) MEMBER(const uint8_t *, image, pCounterDataImage)                           \
             MEMBER(size_t, size, counterDataImageSize) MEMBER(size_t, index, rangeIndex)                              \
                 MEMBER(const char **, metrics, ppMetricNames) MEMBER(size_t, count, numMetrics)                       \
                     MEMBER(double *, values, pMetricValues))                                                          \
    CALL(pm_availability, cuptiPmSamplingGetCounterAvailability, CUpti_PmSampling_GetCounterAvailability_Params,       \
         MEMBER(size_t, device, deviceIndex) MEMBER(size_t, size, counterAvailabilityImageSize)                        \
             MEMBER(uint8_t *, image, pCounterAvailabilityImage))                                                      \
    CALL(pm_enable, cuptiPmSamplingEnable, CUpti_PmSampling_Enable_Params,                                             \
         MEMBER(size_t, device, deviceIndex) MEMBER(void *, sampling, pPmSamplingObject))                              \
    CALL(pm_disable, cuptiPmSamplingDisable, CUpti_PmSampling_Disable_Params,                                          \
         MEMBER(void *, sampling, pPmSamplingObject))                                                                  \
    CALL(pm_config, cuptiPmSamplingSetConfig, CUpti_PmSampling_SetConfig_Params,                                       \
         MEMBER(void *, sampling, pPmSamplingObject) MEMBER(size_t, size, configSize)                                  \
             MEMBER(const uint8_t *, config, pConfig) MEMBER(size_t, hardware_bytes, hardwareBufferSize)               \
                 MEMBER(uint64_t, interval, samplingInterval) MEMBER(int, trigger, triggerMode)                        \
                     MEMBER(int, append_mode, hwBufferAppendMode))                                                     \
    CALL(pm_data_size, cuptiPmSamplingGetCounterDataSize, CUpti_PmSampling_GetCounterDataSize_Params,                  \
         MEMBER(void *, sampling, pPmSamplingObject) MEMBER(const char **, metrics, pMetricNames)                      \
             MEMBER(size_t, count, numMetrics) MEMBER(uint32_t, most, maxSamples)                                      \
                 MEMBER(size_t, size, counterDataSize))                                                                \
    CALL(pm_data_init, cuptiPmSamplingCounterDataImageInitialize, CUpti_PmSampling_CounterDataImage_Initialize_Params, \
         MEMBER(void *, sampling, pPmSamplingObject) MEMBER(size_t, size, counterDataSize)                             \
             MEMBER(uint8_t *, image, pCounterData))                                                                   \
    CALL(pm_start, cuptiPmSamplingStart, CUpti_PmSampling_Start_Params, MEMBER(void *, sampling, pPmSamplingObject))   \
    CALL(pm_stop, cuptiPmSamplingStop, CUpti_PmSampling_Stop_Params, MEMBER(void *, sampling, pPmSamplingObject))      \
    CALL(pm_decode, cuptiPmSamplingDecodeData, CUpti_PmSampling_DecodeData_Params,                                     \
         MEMBER(void *, sampling, pPmSamplingObject) MEMBER(uint8_t *, image, pCounterDataImage)                       \
             MEMBER(size_t, size, counterDataImageSize) MEMBER(int, reason, decodeStopReason)                          \
                 MEMBER(uint8_t, overflow, overflow))                                                                  \
    CALL(pm_data_info, cuptiPmSamplingGetCounterDataInfo, CUpti_PmSampling_GetCounterDataInfo_Params,                  \
         MEMBER(const uint8_t *, image, pCounterDataImage) MEMBER(size_t, size, counterDataImageSize)                  \
             MEMBER(size_t, total, numTotalSamples) MEMBER(size_t, populated, numPopulatedSamples)                     \
                 MEMBER(size_t, completed, numCompletedSamples))                                                       \
    CALL(pm_sample, cuptiPmSamplingCounterDataGetSampleInfo, CUpti_PmSampling_CounterData_GetSampleInfo_Params,        \
         MEMBER(void *, sampling, pPmSamplingObject) MEMBER(const uint8_t *, image, pCounterDataImage)                 \
             MEMBER(size_t, size, counterDataImageSize) MEMBER(size_t, index, sampleIndex)                             \
                 MEMBER(uint64_t, start, startTimestamp) MEMBER(uint64_t, end, endTimestamp))                          \
    CALL(range_availability, cuptiProfilerGetCounterAvailability, CUpti_Profiler_GetCounterAvailability_Params,        \
         MEMBER(void *, context, ctx) MEMBER(size_t, size, counterAvailabilityImageSize)                               \
             MEMBER(uint8_t *, image, pCounterAvailabilityImage))                                                      \
    CALL(range_enable, cuptiRangeProfilerEnable, CUpti_RangeProfiler_Enable_Params,                                    \
         MEMBER(void *, context, ctx) MEMBER(void *, profiler, pRangeProfilerObject))                                  \
    CALL(range_disable, cuptiRangeProfilerDisable, CUpti_RangeProfiler_Disable_Params,                                 \
         MEMBER(void *, profiler, pRangeProfilerObject))                                                               \
    CALL(range_data_size, cuptiRangeProfilerGetCounterDataSize, CUpti_RangeProfiler_GetCounterDataSize_Params,         \
         MEMBER(void *, profiler, pRangeProfilerObject) MEMBER(const char **, metrics, pMetricNames)                   \
             MEMBER(size_t, count, numMetrics) MEMBER(size_t, ranges, maxNumOfRanges)                                  \
                 MEMBER(uint32_t, nodes, maxNumRangeTreeNodes) MEMBER(size_t, size, counterDataSize))                  \
    CALL(range_data_init, cuptiRangeProfilerCounterDataImageInitialize,                                                \
         CUpti_RangeProfiler_CounterDataImage_Initialize_Params,                                                       \
         MEMBER(void *, profiler, pRangeProfilerObject) MEMBER(size_t, size, counterDataSize)                          \
             MEMBER(uint8_t *, image, pCounterData))                                                                   \
    CALL(range_config, cuptiRangeProfilerSetConfig, CUpti_RangeProfiler_SetConfig_Params,                              \
         MEMBER(void *, profiler, pRangeProfilerObject) MEMBER(size_t, config_size, configSize)                        \
             MEMBER(const uint8_t *, config, pConfig) MEMBER(size_t, size, counterDataImageSize)                       \
                 MEMBER(uint8_t *, image, pCounterDataImage) MEMBER(int, range, range) MEMBER(int, replay, replayMode) \
                     MEMBER(size_t, ranges, maxRangesPerPass) MEMBER(uint16_t, levels, numNestingLevels)               \
                         MEMBER(uint16_t, least_level, minNestingLevel) MEMBER(size_t, pass, passIndex)                \
                             MEMBER(uint16_t, level, targetNestingLevel))                                              \
    CALL(range_start, cuptiRangeProfilerStart, CUpti_RangeProfiler_Start_Params,                                       \
         MEMBER(void *, profiler, pRangeProfilerObject))                                                               \
    CALL(range_stop, cuptiRangeProfilerStop, CUpti_RangeProfiler_Stop_Params,                                          \
         MEMBER(void *, profiler, pRangeProfilerObject) MEMBER(size_t, pass, passIndex)                                \
             MEMBER(size_t, level, targetNestingLevel) MEMBER(uint8_t, complete, isAllPassSubmitted))                  \
    CALL(range_push, cuptiRangeProfilerPushRange, CUpti_RangeProfiler_PushRange_Params,                                \
         MEMBER(void *, profiler, pRangeProfilerObject) MEMBER(const char *, name, pRangeName))                        \
    CALL(range_pop, cuptiRangeProfilerPopRange, CUpti_RangeProfiler_PopRange_Params,                                   \
         MEMBER(void *, profiler, pRangeProfilerObject))                                                               \
    CALL(range_decode, cuptiRangeProfilerDecodeData, CUpti_RangeProfiler_DecodeData_Params,                            \
         MEMBER(void *, profiler, pRangeProfilerObject) MEMBER(size_t, dropped, numOfRangeDropped))                    \
    CALL(range_data_info, cuptiRangeProfilerGetCounterDataInfo, CUpti_RangeProfiler_GetCounterDataInfo_Params,         \
         MEMBER(const uint8_t *, image, pCounterDataImage) MEMBER(size_t, size, counterDataImageSize)                  \
             MEMBER(size_t, count, numTotalRanges))                                                                    \
    CALL(pc_enable, cuptiPCSamplingEnable, CUpti_PCSamplingEnableParams, MEMBER(void *, context, ctx))                 \
    CALL(pc_disable, cuptiPCSamplingDisable, CUpti_PCSamplingDisableParams, MEMBER(void *, context, ctx))              \
    CALL(pc_start, cuptiPCSamplingStart, CUpti_PCSamplingStartParams, MEMBER(void *, context, ctx))                    \
    CALL(pc_stop, cuptiPCSamplingStop, CUpti_PCSamplingStopParams, MEMBER(void *, context, ctx))                       \
    CALL(pc_reason_count, cuptiPCSamplingGetNumStallReasons, CUpti_PCSamplingGetNumStallReasonsParams,                 \
         MEMBER(void *, context, ctx) MEMBER(size_t *, count, numStallReasons))                                        \
    CALL(pc_reasons, cuptiPCSamplingGetStallReasons, CUpti_PCSamplingGetStallReasonsParams,                            \
         MEMBER(void *, context, ctx) MEMBER(size_t, count, numStallReasons)                                           \
             MEMBER(uint32_t *, indices, stallReasonIndex) MEMBER(char **, names, stallReasons))                       \
    CALL(pc_configure, cuptiPCSamplingSetConfigurationAttribute, CUpti_PCSamplingConfigurationInfoParams,              \
         MEMBER(void *, context, ctx) MEMBER(size_t, count, numAttributes)                                             \
             MEMBER(fs_pc_setting *, settings, pPCSamplingConfigurationInfo))                                          \
    CALL(pc_take, cuptiPCSamplingGetData, CUpti_PCSamplingGetDataParams,                                               \
         MEMBER(void *, context, ctx) MEMBER(void *, data, pcSamplingData))

/* fs_counters_<call>: the arguments of a call. `past` follows the last of them: NVIDIA's sizes leave out the padding.
 */
typedef struct {
    size_t size;
    void *reserved;
} fs_counters_header;

#define FS_COUNTERS_MEMBER(type, name, theirs) type name;
#define FS_COUNTERS_STRUCT(call, symbol, theirs, members) \
    typedef struct {                                      \
        fs_counters_header header;                        \
        members char past;                                \
    } fs_counters_##call;
FS_COUNTERS_CALLS(FS_COUNTERS_STRUCT, FS_COUNTERS_MEMBER)
#undef FS_COUNTERS_STRUCT
#undef FS_COUNTERS_MEMBER

typedef struct {
#define FS_COUNTERS_NO_MEMBER(type, name, theirs)
#define FS_COUNTERS_FIELD(call, symbol, theirs, members) int (*call)(fs_counters_##call *);
    FS_COUNTERS_CALLS(FS_COUNTERS_FIELD, FS_COUNTERS_NO_MEMBER)
#undef FS_COUNTERS_FIELD
    int (*result_text)(int, const char **); /* cuptiGetResultString */
    int (*timestamp)(uint64_t *);           /* cuptiGetTimestamp */
    int (*pc_source)(fs_pc_source *);       /* cuptiGetSassToSourceCorrelation */
    int (*pc_crc)(fs_pc_crc *);             /* cuptiGetCubinCrc */
} fs_counters_functions;

/* Arguments of a call: FS_COUNTERS_ARGUMENTS(chip_name, arguments, .device = 0); */
#define FS_COUNTERS_ARGUMENTS(call, name, ...) \
    fs_counters_##call name = {.header = {offsetof(fs_counters_##call, past), NULL}, ##__VA_ARGS__}

#endif
