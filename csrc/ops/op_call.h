/* Checks and error messages that all calls have in common. Private to the op layer. */
#ifndef FS_OPS_OP_CALL_H
#define FS_OPS_OP_CALL_H

#include "ops/op.h"

/* Fail with "op(float32 (3, 4) on cpu, …): problem". */
fs_status fs_call_fail(const fs_call *call, fs_error *err, fs_status status, const char *problem);

/* Check that tensor arguments are floats of one dtype on one device. */
fs_status fs_call_check_floats(const fs_call *call, fs_error *err);

/* Check that tensor arguments are on one device. */
fs_status fs_call_check_devices(const fs_call *call, fs_error *err);

#endif
