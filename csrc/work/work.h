/* work gives an event its FLOPs and bytes from its name and its signature (conventions: README, "What is counted"). */
#ifndef FS_WORK_WORK_H
#define FS_WORK_WORK_H

#include "device/peaks.h"
#include "store/signature.h"
#include "store/torch_signature.h"

/* Each number is NaN where no rule knows it; 0 says that there is none. */
typedef struct {
    double flops;
    double bytes_read, bytes_written; /* compulsory traffic of device memory */
    double bytes_moved;               /* both; known without them where a program stated it */
    fs_unit_choice unit;              /* that does the FLOPs: fs_peaks_flops(peaks, unit, NULL) is its rate */
    /* The numbers are per element of lists of tensors, bytes in elements. The launched kernels tell their type, and,
     * where list_elements is NaN, how many there are at most: a trace leaves the sizes of long tensor lists out. */
    bool of_launched;
    double list_elements;
    bool any_unit; /* nothing says which unit does them: the program stated FLOPs, not a dtype */
} fs_work;

/* Nothing is known. */
extern const fs_work fs_work_unknown;

/* The work of one call. Names are looked up with their namespace ("flopscope::add"). */
fs_work fs_work_of(const char *name, const fs_signature *signature);

/* The work of a call of torch's, from a trace: by its name, like "aten::mm" or "triton_poi_fused_add_0"; what no rule
 * knows of it as the trace tells it. */
fs_work fs_work_of_torch(const char *name, const fs_torch_call *call);

/* The work that a program stated of a range. */
fs_work fs_work_stated(const fs_given_work *given);

#endif
