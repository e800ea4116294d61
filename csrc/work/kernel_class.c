/* Three tables, of which the first pattern that fits decides: the class of a kernel, the dtype of its elements, and the
 * kernels of PyTorch whose template arguments tell how much they cover. An extent is an upper bound; NaN and 0 mean
 * unknown. */
#include "work/kernel_class.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "work/names.h"

static const fs_pattern patterns[] = {
#define FS_KERNEL_PATTERN(CLASS, pattern) {pattern, FS_KERNEL_##CLASS, 1},
#include "work/kernel_class.def"
#undef FS_KERNEL_PATTERN
};
FS_PATTERN_INDEX(pattern_index, patterns)

static const fs_pattern types[] = {
#define FS_KERNEL_DTYPE(DTYPE, pattern) {pattern, FS_TORCH_##DTYPE, 1},
#include "work/kernel_dtype.def"
#undef FS_KERNEL_DTYPE
};
FS_PATTERN_INDEX(type_index, types)

/* The demangled name of a template includes its return type. */
static const char *without_return(const char *name)
{
    static const char nothing[] = "void ";
    return strncmp(name, nothing, sizeof nothing - 1) == 0 ? name + sizeof nothing - 1 : name;
}

fs_kernel_class fs_kernel_class_of(const char *name)
{
    return (fs_kernel_class)fs_pattern_value(&pattern_index, without_return(name), 1, FS_KERNEL_OTHER);
}

fs_torch_dtype fs_kernel_dtype(const char *name)
{
    return (fs_torch_dtype)fs_pattern_value(&type_index, name, 1, FS_TORCH_DTYPE_NONE);
}

bool fs_kernel_saves_flops(const char *name)
{
    /* Of cuDNN and MIOpen. */
    static const char *const algorithms[] = {"winograd",  "Winograd",  "miopenSp3AsmConv",
                                             "fft2d_r2c", "fft2d_c2r", "ConvFFT"};
    return FS_ANY(i, sizeof algorithms / sizeof *algorithms, strstr(name, algorithms[i]) != NULL);
}

/* Extents ---------------------------------------------------------------------------------------------------------- */

/* Return the bytes of the type with which the text begins; 0: not recognized. */
static int size_of_type(const char *name)
{
    return fs_torch_dtypes[fs_torch_dtype_begins(name)].size;
}

static int size_of_number(const char *name)
{
    int size = atoi(name);
    return size > 0 && size <= 16 ? size : 0;
}

/* "float" or, after its name, the number of OpaqueType<4u>. */
static int size_of_either(const char *name)
{
    int size = size_of_type(name);
    return size > 0 ? size : size_of_number(name);
}

/* How to compute the number of elements that a kernel covers at most. */
typedef enum {
    COVERS_UNKNOWN,
    COVERS_CHUNKS,       /* one chunk of a list per block: MultiTensorApply.cuh, kChunkSize */
    COVERS_THREADS,      /* one element per thread */
    COVERS_THREAD_ITEMS, /* template arguments: threads of a block, elements of a thread */
} coverage;

enum { CHUNK_ELEMENTS = 65536 };

/* PyTorch's kernels (aten/src/ATen/native/cuda), by template name. The size of an element, as a type or a number of
 * bytes, follows the text `before`, as first or second argument. */
static const struct {
    const char *kernel, *before;
    int (*size)(const char *text);
    coverage covers;
} extents[] = {
    {"multi_tensor_apply_kernel<", "Functor<", size_of_type, COVERS_CHUNKS},
    {"CatArrayBatchedCopy", "<", size_of_either, COVERS_UNKNOWN},
    {"chunk_cat_cuda_kernel<", "", size_of_type, COVERS_UNKNOWN},
    {"index_elementwise_kernel<", "OpaqueType<", size_of_number, COVERS_THREAD_ITEMS},
    {"vectorized_gather_kernel<", "", size_of_number, COVERS_THREADS},
    {"elementwise_kernel_with_index<", NULL, NULL, COVERS_THREADS},
};

/* Return what follows the text in the name, or NULL. */
static const char *after(const char *name, const char *text)
{
    const char *found = strstr(name, text);
    return found != NULL ? found + strlen(text) : NULL;
}

static double product_of(const uint32_t *sizes)
{
    return (double)sizes[0] * sizes[1] * sizes[2];
}

static double covered(coverage covers, const char *arguments, const fs_launch *launch)
{
    char *end = NULL;
    long threads;
    if (launch == NULL || launch->grid[0] == 0) return NAN;
    switch (covers) {
    case COVERS_CHUNKS:
        return CHUNK_ELEMENTS * (double)launch->grid[0];
    case COVERS_THREADS:
        return product_of(launch->grid) * product_of(launch->block);
    case COVERS_THREAD_ITEMS:
        threads = strtol(arguments, &end, 10);
        if (*end != ',' || threads < 1) return NAN;
        return product_of(launch->grid) * (double)threads * (double)strtol(end + 1, NULL, 10);
    case COVERS_UNKNOWN:
        break;
    }
    return NAN;
}

fs_kernel_extent fs_kernel_extent_of(const char *name, const fs_launch *launch)
{
    fs_kernel_extent extent = {NAN, 0};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        const char *arguments = after(name, extents[i].kernel);
        if (arguments == NULL) continue;
        const char *size = extents[i].before != NULL ? arguments : NULL;
        for (int tries = 0; tries < 2 && extent.size == 0 && size != NULL; tries++) {
            size = after(size, extents[i].before);
            if (size != NULL) extent.size = extents[i].size(size);
        }
        extent.elements = covered(extents[i].covers, arguments, launch);
        break;
    }
    return extent;
}
