/* work gives an event its FLOPs and bytes from its name and its signature (conventions: docs/counting.md). */
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
    /* The numbers are per element, bytes in elements: of lists of tensors, whose dtype a trace leaves out, and of what
     * indices pick, whose number it does. Where `item` or list_elements is NaN, the launched kernels tell the bytes of
     * an element, and how many there are at most. */
    bool of_launched;
    double list_elements, item;
    double most_read; /* bytes: no more are read, however often; NaN: no limit */
    bool at_most;     /* the arguments tell only how much there is at most */
    bool apart;       /* of this op alone: what ops inside it do is not part of it */
    bool stated;      /* by the program; where it states no unit, any may do the FLOPs */
    /* Nothing is known yet. Ask again with fs_torch_call.outer (of_outer) or fs_torch_call.output (of_gradient) set. */
    bool of_outer, of_gradient;
} fs_work;

/* Nothing is known. */
extern const fs_work fs_work_unknown;

/* The work of one call. Names are looked up with their namespace ("flopscope::add"). */
fs_work fs_work_of(const char *name, const fs_signature *signature);

/* The work of a call of torch's, from a trace: by its name, like "aten::mm" or "triton_poi_fused_add_0"; what no rule
 * knows of it as the trace tells it. */
fs_work fs_work_of_torch(const char *name, const fs_torch_call *call);

/* Whether all tensors of such an op have one dtype, so that its kernels tell it where the trace does not. */
bool fs_work_has_one_dtype(const char *name);

/* Whether the call computes a gradient and tells the shape of the result of the op whose gradient it is. */
bool fs_work_is_gradient(const char *name, const fs_torch_call *call);

/* The shape of the result of a call, as a call of its gradient tells it: a tensor of the latter, or NULL where that is
 * a gradient of other shapes or of another op. */
const fs_torch_tensor *fs_work_result_told(const char *gradient_name, const fs_torch_call *gradient, const char *name,
                                           const fs_torch_call *call);

/* The work that a program stated of a range. */
fs_work fs_work_stated(const fs_given_work *given);

#endif
