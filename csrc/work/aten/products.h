/* The rules for multiply-adds: matrix products, convolutions, attention, recurrent networks. Private to csrc/work/aten.
 *
 * The rows are in products.def: FS_PRODUCT(name, family, option), where the family is a function fs_count_FAMILY. Only
 * the multiply-adds of the algorithm count: no epilogue, no padding of tiles. */
#ifndef FS_WORK_ATEN_PRODUCTS_H
#define FS_WORK_ATEN_PRODUCTS_H

#include "work/aten/aten.h"

/* X(family, CATEGORY of its ops), with the meaning of the option. */
#define FS_PRODUCT_FAMILIES(X)                                                                      \
    X(product, PRODUCT)         /* place of the first matrix; the addend precedes it */             \
    X(summed_product, PRODUCT)  /* likewise; the products of a batch are summed */                  \
    X(int_product, PRODUCT)     /* likewise; int8 with an int32 result */                           \
    X(vectors, PRODUCT)         /* dot product: place of the first vector */                        \
    X(outer, PRODUCT)           /* likewise, outer product */                                       \
    X(linear, PRODUCT)          /* arguments: input, weight [outputs, inputs], bias */              \
    X(scaled, PRODUCT)          /* unused; low-precision matrices with scales */                    \
    X(grouped, PRODUCT)         /* place of the offsets that divide matrices into groups */         \
    X(packed, PRODUCT)          /* place of the scales: [outputs], or [groups, outputs, …] */       \
    X(compressed, PRODUCT)      /* place of the dtype; a matrix with 2 of 4 elements */             \
    X(distances, REDUCTION)     /* pairwise distances of rows: 0 of two matrices, 1 within one */   \
    X(convolution, CONVOLUTION) /* row of convolution.h */                                          \
    X(convolution_backward, CONVOLUTION)                                                            \
    X(convolution_part, CONVOLUTION) /* one gradient; the enclosing op provides its shapes */       \
    X(attention, ATTENTION)          /* row of attention.h */                                       \
    X(attention_backward, ATTENTION)                                                                \
    X(rnn, RECURRENT)           /* row of products.c: layers of a recurrent network */              \
    X(rnn_layer, RECURRENT)     /* oneDNN's layer of one direction; 1: its gradients; 2: a step */  \
    X(recurrent, RECURRENT)     /* torch's layers, which call these, with lists of their weights */ \
    X(cell, POINTWISE)          /* the elementwise part of a cell: row of products.c */             \
    X(fourier, LINEAR_ALGEBRA)  /* 0: complex to complex, 1: real to complex, 2: complex to real */ \
    X(factor, LINEAR_ALGEBRA)   /* row of linalg.h */                                               \
    X(spectrum, LINEAR_ALGEBRA) /* eigenvalues, singular values: row of linalg.h */

#define FS_COUNT_FUNCTION(family, CATEGORY) \
    fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_PRODUCT_FAMILIES(FS_COUNT_FUNCTION)
#undef FS_COUNT_FUNCTION

/* Helpers shared by the rules for multiply-adds: the unit that multiplies, and access to arguments. Private to
 * csrc/work/aten. */

/* Return the FLOPs of a multiply-add; a complex one takes four real ones. */
double fs_products_flops_each(unsigned dtype);

/* Return the number at a place: `absent` if the call has no such argument, NaN if the trace does not record it. */
double fs_products_number(const fs_torch_call *call, int place, double absent);

/* Return a flag as 1 or 0: 0 if the call has no such argument, NaN if the trace does not record it. */
double fs_products_flag(const fs_torch_call *call, int place);

#endif
