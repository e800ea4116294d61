/* Sizes of what a call of torch's was given, for the rules that go over elements. Private to csrc/work/aten.
 *
 * Unknown is NaN, and stays NaN in every sum and product. Texts are what Kineto writes: "[1, 2]", "1", "True", "".
 */
#ifndef FS_WORK_ATEN_SIZES_H
#define FS_WORK_ATEN_SIZES_H

#include "store/torch_signature.h"
#include "work/work.h"

/* Elements; those with memory of their own (one along a dimension of stride 0); bytes of an element. */
double fs_sizes_elements(const fs_torch_tensor *tensor);
double fs_sizes_distinct(const fs_torch_tensor *tensor);
double fs_sizes_item(unsigned dtype);

/* The bytes of the distinct elements: what reading the tensor moves. */
double fs_sizes_read(const fs_torch_tensor *tensor);

/* The tensor at a place, or NULL where the call has none there. */
const fs_torch_tensor *fs_sizes_tensor(const fs_torch_call *call, unsigned place);

/* The text of a scalar at a place; "" where there is none. */
/* Whether the op was called with a number or a list of numbers there that the trace does not tell, as torch's do not up
 * to 1.12. */
bool fs_sizes_is_untold(const fs_torch_call *call, unsigned place);

const char *fs_sizes_text(const fs_torch_call *call, unsigned place);

/* Numbers of a text, a list's or a single one, at most `capacity`; how many there were, -1 where it holds none, or one
 * that is not finite. */
int fs_sizes_numbers(const char *text, double *numbers, int capacity);

/* The number of a text, or `missing`. */
double fs_sizes_number(const char *text, double missing);

bool fs_sizes_is_true(const char *text);

/* The dtype of the ScalarType that a text names by its number (c10/core/ScalarType.h): "15" is bfloat16.
 * FS_TORCH_DTYPE_NONE where it names none. */
fs_torch_dtype fs_sizes_dtype_of(const char *text);

bool fs_sizes_is_float(unsigned dtype); /* complex and 8-bit floats too */

/* The unit that does pointwise work of a dtype: float32 for what is narrower, none for integers. */
fs_unit_choice fs_sizes_unit(unsigned dtype);

/* Fill in the sum of both directions. */
fs_work fs_sizes_work(double flops, double bytes_read, double bytes_written, fs_unit_choice unit);

#endif
