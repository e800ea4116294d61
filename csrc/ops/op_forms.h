/* From a call to a plan: what each form of op checks, and how it computes. Private to the op layer. */
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
    bool reads_target; /* … which is read too */
    bool elementwise;  /* element i of the output needs element i of the inputs only */
    bool dense_out;    /* compute writes dense outputs only */
    /* Fill `out`, which has elements. */
    fs_status (*compute)(const fs_plan *plan, const fs_tensor *out, fs_error *err);
};

/* One planner a form: check the call's arguments, set the plan. */
#define FS_PLAN_DECLARE(NAME, text_signature) fs_status FS_PLAN_##NAME(fs_plan *plan, fs_error *err);
FS_FORM_LIST(FS_PLAN_DECLARE)
#undef FS_PLAN_DECLARE

/* Every element becomes `value`. Leaves no event, as the two below. */
fs_status fs_tensor_fill(const fs_tensor *out, double value, fs_error *err);

/* Copy `source` to `target` on the same device, broadcasting and converting. */
fs_status fs_tensor_convert(const fs_tensor *target, const fs_tensor *source, fs_error *err);

/* Either a reference to `tensor`, or a dense copy of it. Release `dense` in both cases. */
fs_status fs_tensor_densify(const fs_tensor *tensor, fs_tensor *dense, fs_error *err);

#endif
