/* The kind of an op: decided by its rule, and for names without one by the patterns of category.def. */
#ifndef FS_WORK_CATEGORY_H
#define FS_WORK_CATEGORY_H

#include <stdbool.h>

#include "base/colours.h"

/* X(NAME, name, COLOUR, dark, prose), in the order of legends. Pages draw a category in that colour of base/colours.h,
 * one of the series, as much darker as `dark` says. */
#define FS_CATEGORY_LIST(X)                                                                                         \
    X(PRODUCT, "matrix product", VERMILION, 0,                                                                      \
      "products of matrices and vectors, quantized and grouped ones included")                                      \
    X(ATTENTION, "attention", PURPLE, 0, "fused attention, forward and backward, with and without a cache")         \
    X(CONVOLUTION, "convolution", VERMILION, 0.4, "convolutions, forward and backward")                             \
    X(RECURRENT, "recurrent network", PURPLE, 0.45, "layers of recurrent networks, scans of state space models")    \
    X(LINEAR_ALGEBRA, "linear algebra", BLUE, 0.45, "factorizations, solvers, Fourier transforms")                  \
    X(NORMALISATION, "normalisation", GREEN, 0, "softmax, layer, batch, group and RMS norms, forward and backward") \
    X(REDUCTION, "reduction", SKY, 0, "sums, extrema, pooling, losses, scans, sorts, forward and backward")         \
    X(POINTWISE, "pointwise", BLUE, 0, "functions of one element of each argument, random numbers, optimizers")     \
    X(COPIES, "copies", ORANGE, 0, "copies, casts, fills; by index: gathers, scatters, embeddings")                 \
    X(COMMUNICATION, "communication", GREEN, 0.45, "exchange with other devices")                                   \
    X(OTHER, "other", GREY, 0, "views, allocations, queries, ranges, and names that tell nothing")

typedef enum {
    FS_CATEGORY_OF_FAMILY, /* of a rule: the category of its family */
#define FS_CATEGORY_ENUM(NAME, ...) FS_CATEGORY_##NAME,
    FS_CATEGORY_LIST(FS_CATEGORY_ENUM)
#undef FS_CATEGORY_ENUM
        FS_CATEGORY_COUNT
} fs_category;

typedef struct {
    const char *name, *prose;
    fs_colour colour;
    double dark;
} fs_category_row;

extern const fs_category_row fs_categories[FS_CATEGORY_COUNT]; /* the first is empty */

/* Return the category of an op, a range or, on_device, a kernel, copy or fill by its name ("aten::add_"). */
fs_category fs_category_of(const char *name, bool on_device);

/* Return the category with that name, or FS_CATEGORY_OF_FAMILY. */
fs_category fs_category_named(const char *name);

#endif
