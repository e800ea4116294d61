/* FLOPs of kernels that torch.compile generated, from the ops in their names. Private to csrc/work/aten. */
#ifndef FS_WORK_ATEN_GENERATED_H
#define FS_WORK_ATEN_GENERATED_H

#include "work/aten/aten.h"

/* Add an estimate of the FLOPs to the work of a kernel: "triton_poi_fused_mul_silu_0" over `points`, or a template,
 * "triton_tem_fused_mm_1", by its tensors. The name has each op once, whatever the number of its uses. The work is
 * unchanged if some op of the name is unknown. */
void fs_generated_flops(const char *name, const fs_torch_call *call, double points, fs_work *work);

/* Return the row of an op without its namespace, or NULL: aten.c. */
const fs_aten_rule *fs_aten_find(const char *name, size_t size);

#endif
