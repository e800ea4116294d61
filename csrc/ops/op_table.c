/* The rows of pointwise.def and ops.def, as one array: each pointwise row makes two, one of them in place. The id is
 * the place in its list, by which backends choose a loop or a kernel. */
#include <string.h>

#include "ops/op.h"

#define UNARY_ROWS(op, value, text)                                              \
    {#op, "Return " text, FS_FORM_UNARY, FS_UNARY_##op, FS_FLOPS_PER_OUTPUT, 1}, \
        {#op "_", "Set x to " text, FS_FORM_UNARY_IN_PLACE, FS_UNARY_##op, FS_FLOPS_PER_OUTPUT, 1},
#define BINARY_ROWS(op, value, text)                                               \
    {#op, "Return " text, FS_FORM_BINARY, FS_BINARY_##op, FS_FLOPS_PER_OUTPUT, 1}, \
        {#op "_",                                                                  \
         "Set x to " text ", where a is x and b is other",                         \
         FS_FORM_BINARY_IN_PLACE,                                                  \
         FS_BINARY_##op,                                                           \
         FS_FLOPS_PER_OUTPUT,                                                      \
         1},
#define OTHER_ROW(op, form, id, rule, each, text) {#op, text, FS_FORM_##form, id, FS_FLOPS_##rule, each},

const fs_op fs_ops[] = {
#define FS_UNARY UNARY_ROWS
#define FS_BINARY BINARY_ROWS
#include "ops/pointwise.def"
#undef FS_UNARY
#undef FS_BINARY
#define FS_OP OTHER_ROW
#include "ops/ops.def"
#undef FS_OP
};
const int fs_op_count = (int)(sizeof fs_ops / sizeof *fs_ops);

const fs_op *fs_op_find(const char *name)
{
    for (int i = 0; i < fs_op_count; i++) {
        if (strcmp(fs_ops[i].name, name) == 0) return &fs_ops[i];
    }
    return NULL;
}
