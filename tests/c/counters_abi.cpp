/* Checks that the declarations of csrc/sources/counters/abi.h agree with NVIDIA's headers, one of which is C++.
 * Compiled by tests/counters/test_counter_metrics.py where the headers of CUDA 13 are installed. */
#include <cuda.h>
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
FS_COUNTERS_CALLS(CHECK_CALL, CHECK_MEMBER)
