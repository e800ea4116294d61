/* Sizes of the arguments of a torch call, for the elementwise rules. Private to csrc/work.
 *
 * Unknown is NaN, which propagates through sums and products. Texts are as Kineto writes them: "[1, 2]", "1", "True",
 * "". */
#ifndef FS_WORK_ATEN_SIZES_H
#define FS_WORK_ATEN_SIZES_H

#include "store/torch_signature.h"
#include "work/work.h"

/* Return the number of elements; of those with distinct memory (one along a dimension of stride 0); the bytes of an
 * element. */
double fs_sizes_elements(const fs_torch_tensor *tensor);
double fs_sizes_distinct(const fs_torch_tensor *tensor);
double fs_sizes_item(unsigned dtype);

/* Return the size of a dimension, from 1, the last, on; 1 if there is none. */
double fs_sizes_from_end(const fs_torch_tensor *tensor, uint32_t from_end);

/* Return the elements of all tensors of a list; NaN if it has none. */
double fs_sizes_list_elements(const fs_torch_argument *list);

/* Return the bytes of the distinct elements: the traffic of reading the tensor. */
double fs_sizes_read(const fs_torch_tensor *tensor);

/* Return the tensor at a place, or NULL if there is none. */
const fs_torch_tensor *fs_sizes_tensor(const fs_torch_call *call, unsigned place);

/* Return whether the op was called with a number or a list of numbers at a place that the trace does not record, as up
 * to torch 1.12. */
bool fs_sizes_is_unrecorded(const fs_torch_call *call, unsigned place);

/* Return the text of a scalar at a place; "" if there is none. */
const char *fs_sizes_text(const fs_torch_call *call, unsigned place);

/* Parse the numbers of a text, a list or a single number, at most `capacity`. Returns their count, -1 if there is none
 * or one is not finite. */
int fs_sizes_numbers(const char *text, double *numbers, int capacity);

/* Parse one number; `missing` if there is none. */
double fs_sizes_number(const char *text, double missing);

bool fs_sizes_is_true(const char *text);

/* Return the dtype of the ScalarType number in a text (c10/core/ScalarType.h): "15" is bfloat16. FS_TORCH_DTYPE_NONE if
 * there is none. */
fs_torch_dtype fs_sizes_dtype_of(const char *text);

bool fs_sizes_is_float(unsigned dtype); /* including complex and 8-bit floats */

/* Build work, filling in the sum of both directions. */
fs_work fs_sizes_work(double flops, double bytes_read, double bytes_written, fs_unit_choice unit);

#endif
