/* The kind of an op: decided by its rule, and for names without one by the patterns of category.def. */
#ifndef FS_WORK_CATEGORY_H
#define FS_WORK_CATEGORY_H

#include <stdbool.h>

/* X(NAME, name, series, dark, prose), in the order of legends. Pages draw a category in the colour of that series, as
 * much darker as `dark` says; series 0: the colour of what is unknown. */
#define FS_CATEGORY_LIST(X)                                                                                     \
    X(PRODUCT, "matrix product", 2, 0, "products of matrices and vectors, quantized and grouped ones included") \
    X(ATTENTION, "attention", 4, 0, "fused attention, forward and backward, with and without a cache")          \
    X(CONVOLUTION, "convolution", 2, 0.4, "convolutions, forward and backward")                                 \
    X(RECURRENT, "recurrent network", 4, 0.45, "layers of recurrent networks, scans of state space models")     \
    X(LINEAR_ALGEBRA, "linear algebra", 1, 0.45, "factorizations, solvers, Fourier transforms")                 \
    X(NORMALISATION, "normalisation", 3, 0, "softmax, layer, batch, group and RMS norms, forward and backward") \
    X(REDUCTION, "reduction", 6, 0, "sums, extrema, pooling, losses, scans, sorts, forward and backward")       \
    X(POINTWISE, "pointwise", 1, 0, "functions of one element of each argument, random numbers, optimizers")    \
    X(COPIES, "copies", 5, 0, "copies, casts, fills; by index: gathers, scatters, embeddings")                  \
    X(COMMUNICATION, "communication", 3, 0.45, "exchange with other devices")                                   \
    X(OTHER, "other", 0, 0, "views, allocations, queries, ranges, and names that tell nothing")

typedef enum {
    FS_CATEGORY_OF_FAMILY, /* of a rule: the category of its family */
#define FS_CATEGORY_ENUM(NAME, name, series, dark, prose) FS_CATEGORY_##NAME,
    FS_CATEGORY_LIST(FS_CATEGORY_ENUM)
#undef FS_CATEGORY_ENUM
        FS_CATEGORY_COUNT
} fs_category;

typedef struct {
    const char *name, *prose;
    int series;
    double dark;
} fs_category_row;

extern const fs_category_row fs_categories[FS_CATEGORY_COUNT]; /* the first is empty */

/* Return the category of an op, a range or, on_device, a kernel, copy or fill by its name ("aten::add_"). */
fs_category fs_category_of(const char *name, bool on_device);

#endif
