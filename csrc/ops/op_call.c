/* Every error of a call begins with the call as it was written, "add(float32 (2, 3) on cpu, 4): ", and then says the
 * problem. The text is cut where it does not fit, never left out. */
#include "ops/op_call.h"

#include <stdio.h>

fs_status fs_call_fail(const fs_call *call, fs_error *err, fs_status status, const char *problem)
{
    char text[700], one[200];
    size_t used = (size_t)snprintf(text, sizeof text, "%s(", call->op->name);
    bool first = true;
    for (int i = 0; i < 3; i++) {
        if (call->in[i] == NULL && !call->is_scalar[i]) continue;
        if (call->is_scalar[i]) {
            snprintf(one, sizeof one, "%g", call->scalar[i]);
        } else {
            fs_tensor_text(call->in[i], one, sizeof one);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, first ? "%s" : ", %s", one);
        first = false;
    }
    if (call->out != NULL) {
        snprintf(text + used, sizeof text - used, first ? "out=%s" : ", out=%s",
                 fs_tensor_text(call->out, one, sizeof one));
    }
    return fs_fail(err, status, "%s): %s", text, problem);
}

fs_status fs_call_check_floats(const fs_call *call, fs_error *err)
{
    const fs_tensor *first = NULL;
    for (int i = 0; i < 3; i++) {
        const fs_tensor *in = call->in[i];
        if (in == NULL) continue;
        if (!fs_dtype_is_float(in->dtype)) {
            return fs_call_fail(call, err, FS_TYPE_ERROR,
                                "the dtype must be " FS_FLOATS_TEXT "; cast with x.to(\"float32\")");
        }
        if (first == NULL) first = in;
        if (in->dtype != first->dtype) {
            return fs_call_fail(call, err, FS_TYPE_ERROR, "the dtypes differ; cast one with x.to(dtype)");
        }
    }
    return fs_call_check_devices(call, err);
}

fs_status fs_call_check_devices(const fs_call *call, fs_error *err)
{
    const fs_tensor *first = NULL;
    for (int i = 0; i < 3; i++) {
        const fs_tensor *in = call->in[i];
        if (in == NULL) continue;
        if (first == NULL) first = in;
        if (!fs_device_equal(in->device, first->device))
            return fs_call_fail(call, err, FS_VALUE_ERROR, "the devices differ; move one with x.to(device)");
    }
    return FS_OK;
}
