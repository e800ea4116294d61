/* Numbers of arguments are doubles, for which unknown is NaN and every product is defined: a trace may hold any
 * size, and arithmetic here must neither overflow nor trap. Texts that are no numbers, or numbers beyond 2^53, are
 * unknown. */
#include "work/aten/sizes.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double fs_sizes_elements(const fs_torch_tensor *tensor)
{
    double count = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) count *= (double)tensor->shape[d];
    return count;
}

double fs_sizes_distinct(const fs_torch_tensor *tensor)
{
    double count = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (tensor->strides == NULL || tensor->strides[d] != 0 || tensor->shape[d] == 0)
            count *= (double)tensor->shape[d];
    return count;
}

double fs_sizes_item(unsigned dtype)
{
    return dtype < FS_TORCH_DTYPE_COUNT ? (double)fs_torch_dtypes[dtype].size : (double)NAN;
}

double fs_sizes_from_end(const fs_torch_tensor *tensor, uint32_t from_end)
{
    return from_end <= tensor->ndim ? (double)tensor->shape[tensor->ndim - from_end] : 1;
}

double fs_sizes_list_elements(const fs_torch_argument *list)
{
    double elements = 0;
    fs_torch_tensor tensor;
    const int64_t *at = list->list;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_torch_next_tensor(&at, &tensor);
        elements += fs_sizes_elements(&tensor);
    }
    return list->count > 0 ? elements : (double)NAN;
}

double fs_sizes_read(const fs_torch_tensor *tensor)
{
    return fs_sizes_distinct(tensor) * fs_sizes_item(tensor->dtype);
}

const fs_torch_tensor *fs_sizes_tensor(const fs_torch_call *call, unsigned place)
{
    if (place >= call->count || call->arguments[place].type != FS_TORCH_TENSOR) return NULL;
    return &call->arguments[place].tensor;
}

const char *fs_sizes_text(const fs_torch_call *call, unsigned place)
{
    return place < call->count ? call->arguments[place].text : "";
}

bool fs_sizes_is_unrecorded(const fs_torch_call *call, unsigned place)
{
    if (place >= call->count || *call->arguments[place].text != 0) return false;
    unsigned type = call->arguments[place].type;
    return type == FS_TORCH_SCALAR || type == FS_TORCH_SCALAR_LIST || (type == FS_TORCH_NOTHING && call->untyped);
}

/* Larger sizes, axes or counts are invalid: "nan", "inf", "1e308". */
#define LARGEST 0x1p53

int fs_sizes_numbers(const char *text, double *numbers, int capacity)
{
    int count = 0;
    bool list = *text == '[';
    if (list) text++;
    for (;;) {
        char *end;
        while (isspace((unsigned char)*text) || *text == ',') text++;
        double number = strtod(text, &end);
        if (end == text) return count > 0 || (list && *text == ']') ? count : -1;
        if (!(fabs(number) <= LARGEST)) return -1;
        if (count == capacity) return count;
        numbers[count++] = number;
        text = end;
    }
}

double fs_sizes_number(const char *text, double missing)
{
    double number;
    return fs_sizes_numbers(text, &number, 1) == 1 ? number : missing;
}

bool fs_sizes_is_true(const char *text)
{
    return strcmp(text, "True") == 0 || strcmp(text, "true") == 0;
}

fs_torch_dtype fs_sizes_dtype_of(const char *text)
{
    return fs_torch_dtype_numbered(fs_sizes_number(text, -1));
}

bool fs_sizes_is_float(unsigned dtype)
{
    return dtype < FS_TORCH_DTYPE_COUNT && fs_torch_dtypes[dtype].kind != FS_TORCH_INTEGER;
}

fs_work fs_sizes_work(double flops, double bytes_read, double bytes_written, fs_unit_choice unit)
{
    fs_work work = fs_work_unknown;
    work.flops = flops;
    work.bytes_read = bytes_read;
    work.bytes_written = bytes_written;
    work.unit = unit;
    work.bytes_moved = bytes_read + bytes_written;
    return work;
}
