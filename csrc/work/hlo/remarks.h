/* What in a program makes an instruction needless or slow, as far as its module shows. */
#ifndef FS_WORK_HLO_REMARKS_H
#define FS_WORK_HLO_REMARKS_H

#include "work/hlo/hlo.h"

/* Write one of these, and return true; return false, and write nothing, if none is true. `room` is at least 16 bytes.
 *
 *   argument=NAME    it copies an argument of the entry, which is not donated; nothing else reads the argument, and a
 *                    result has its shape, so that donation would make the copy needless
 *   transposed=AXES NAME  it only moves an argument of the entry to another order of axes, "0,2,3,1" (empty: not known
 *                    whole), which the program did not ask for; nothing else reads the argument
 *   carry=SHAPE      in a loop's body, it copies an array of the carry
 *   callback=TARGET  it calls Python on the host
 *   precision=NAME   a product of float32 that was asked to be more precise than the default: "high", "highest"
 *   widened=TYPE     a product of float32 factors that are converted from this type of 16 bits: "bf16", "f16" */
bool fs_hlo_remark(const fs_hlo_module *module, uint32_t instruction, char *text, size_t room);

#endif
