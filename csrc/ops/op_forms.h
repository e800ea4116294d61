/* From a call to a plan: the checks and the computation of each form of op. Private to the op layer. */
#ifndef FS_OPS_OP_FORMS_H
#define FS_OPS_OP_FORMS_H

#include "ops/op.h"

typedef struct fs_plan fs_plan;
struct fs_plan {
    const fs_call *call;
    fs_dtype dtype; /* of the output, as are device and shape */
    fs_device device;
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    bool in_place;     /* the output is call->in[0] … */
    bool reads_target; /* … which is also read */
    bool elementwise;  /* element i of the output depends only on element i of the inputs */
    bool dense_out;    /* compute needs a dense output */
    /* Fill `out`, which is not empty. */
    fs_status (*compute)(const fs_plan *plan, const fs_tensor *out, fs_error *err);
};

/* One planner per form: check the call's arguments and fill in the plan. */
#define FS_PLAN_DECLARE(NAME, text_signature) fs_status FS_PLAN_##NAME(fs_plan *plan, fs_error *err);
FS_FORM_LIST(FS_PLAN_DECLARE)
#undef FS_PLAN_DECLARE

/* Set every element to `value`. Records no event, nor do the two functions below. */
fs_status fs_tensor_fill(const fs_tensor *out, double value, fs_error *err);

/* Copy `source` to `target` on the same device, broadcasting and converting. */
fs_status fs_tensor_convert(const fs_tensor *target, const fs_tensor *source, fs_error *err);

/* A view with the last two axes swapped, which holds no reference. */
fs_tensor fs_tensor_transposed(const fs_tensor *x);

/* Return a reference to `tensor`, or a dense copy of it. Release `dense` in both cases. */
fs_status fs_tensor_densify(const fs_tensor *tensor, fs_tensor *dense, fs_error *err);

/* Checks and error messages that all calls have in common. Private to the op layer. */

/* Fail with "op(float32 (3, 4) on cpu, …): problem". */
fs_status fs_call_fail(const fs_call *call, fs_error *err, fs_status status, const char *problem);

/* Check that tensor arguments are floats of one dtype on one device. */
fs_status fs_call_check_floats(const fs_call *call, fs_error *err);

/* Check that tensor arguments are on one device. */
fs_status fs_call_check_devices(const fs_call *call, fs_error *err);

#endif
