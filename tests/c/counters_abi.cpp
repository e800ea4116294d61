/* Checks that the declarations of csrc/sources/counters/abi.h agree with NVIDIA's headers, one of which is C++.
 * Compiled by tests/counters/test_counter_metrics.py where the headers of CUDA 13 are installed. */
#include <cuda.h>
#include <cupti_pcsampling.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>

#include "sources/counters/abi.h"

#define CHECK_NUMBER(ours, theirs, number) static_assert((int)ours == (int)theirs, #theirs);
FS_COUNTERS_NUMBERS(CHECK_NUMBER)

/* Each member lies where NVIDIA's does, and the size is that of NVIDIA's macro. */
template <class Ours, class Theirs> struct checked;
#define CHECK_MEMBER(type, name, theirs_name) \
    static_assert(offsetof(ours, name) == offsetof(theirs, theirs_name), #theirs_name);
#define CHECK_CALL(call, symbol, struct_name, members)                                                  \
    namespace check_##call                                                                              \
    {                                                                                                   \
        typedef fs_counters_##call ours;                                                                \
        typedef struct_name theirs;                                                                     \
        members static_assert(offsetof(ours, past) == struct_name##_STRUCT_SIZE, #struct_name);         \
        static_assert(offsetof(ours, header.reserved) == offsetof(theirs, pPriv), #struct_name "priv"); \
    }

/* The names of the sizes of PC sampling. */
#define CUpti_PCSamplingEnableParams_STRUCT_SIZE CUpti_PCSamplingEnableParamsSize
#define CUpti_PCSamplingDisableParams_STRUCT_SIZE CUpti_PCSamplingDisableParamsSize
#define CUpti_PCSamplingStartParams_STRUCT_SIZE CUpti_PCSamplingStartParamsSize
#define CUpti_PCSamplingStopParams_STRUCT_SIZE CUpti_PCSamplingStopParamsSize
#define CUpti_PCSamplingGetNumStallReasonsParams_STRUCT_SIZE CUpti_PCSamplingGetNumStallReasonsParamsSize
#define CUpti_PCSamplingGetStallReasonsParams_STRUCT_SIZE CUpti_PCSamplingGetStallReasonsParamsSize
#define CUpti_PCSamplingConfigurationInfoParams_STRUCT_SIZE CUpti_PCSamplingConfigurationInfoParamsSize
#define CUpti_PCSamplingGetDataParams_STRUCT_SIZE CUpti_PCSamplingGetDataParamsSize
FS_COUNTERS_CALLS(CHECK_CALL, CHECK_MEMBER)

#define CHECK_FIELD(ours, name, theirs, theirs_name) \
    static_assert(offsetof(ours, name) == offsetof(theirs, theirs_name), #theirs "." #theirs_name)
CHECK_FIELD(fs_pc_setting, value, CUpti_PCSamplingConfigurationInfo, attributeData);
static_assert(sizeof(fs_pc_setting) == sizeof(CUpti_PCSamplingConfigurationInfo), "CUpti_PCSamplingConfigurationInfo");
CHECK_FIELD(fs_pc_count, samples, CUpti_PCSamplingStallReason, samples);
CHECK_FIELD(fs_pc_record, offset, CUpti_PCSamplingPCData, pcOffset);
CHECK_FIELD(fs_pc_record, counts, CUpti_PCSamplingPCData, stallReason);
static_assert(sizeof(fs_pc_record) == sizeof(CUpti_PCSamplingPCData), "CUpti_PCSamplingPCData");
CHECK_FIELD(fs_pc_data, remaining, CUpti_PCSamplingData, remainingNumPcs);
CHECK_FIELD(fs_pc_data, full, CUpti_PCSamplingData, hardwareBufferFull);
CHECK_FIELD(fs_pc_source, line, CUpti_GetSassToSourceCorrelationParams, lineNumber);
CHECK_FIELD(fs_pc_source, directory, CUpti_GetSassToSourceCorrelationParams, dirName);
CHECK_FIELD(fs_pc_crc, crc, CUpti_GetCubinCrcParams, cubinCrc);
