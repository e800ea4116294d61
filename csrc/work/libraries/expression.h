/* Sizes that follow from the arguments of a library's op, as its row writes them. Private to csrc/work.
 *
 *   src            the elements of argument src, of a list the sum; of a number, its value; of a flag, 0 or 1
 *   src.0 src.-1   a dimension of it; src.dim: the dimension that the number at argument dim selects
 *   16 0.5         a constant
 *   a*b/c+(d-e)    computed from left to right, but for parentheses
 *   a|b            b if a is unknown
 *
 * What is read, or a result, is such a size, ':' and its dtype: an argument that has or names it ("src", "dtype"), or a
 * dtype of torch
 * ("float32"), with '|' likewise. */
#ifndef FS_WORK_LIBRARIES_EXPRESSION_H
#define FS_WORK_LIBRARIES_EXPRESSION_H

#include "work/libraries/schema.h"

/* Return the size that a text begins with, up to a space, a ':', a '=' or its end. NaN: unknown. */
double fs_expression_size(const char *text, const fs_schema *schema, const fs_torch_call *call);

/* Return the bytes of the result that a text begins with, up to a space or its end. NaN: unknown. */
double fs_expression_bytes(const char *text, const fs_schema *schema, const fs_torch_call *call);

/* Return whether the text consists of sound names and operators for the schema: a test checks all rows. */
bool fs_expression_is_sound(const char *text, const fs_schema *schema);

#endif
