/* The rules for multiply-adds: matrix products, convolutions, attention, recurrent networks. Private to csrc/work/aten.
 *
 * The rows are in products.def: FS_PRODUCT(name, family, option), where the family is a function fs_count_FAMILY. Only
 * the multiply-adds of the algorithm count: no epilogue, no padding of tiles. */
#ifndef FS_WORK_ATEN_PRODUCTS_H
#define FS_WORK_ATEN_PRODUCTS_H

#include "work/aten/aten.h"

/* X(family), with the meaning of the option. */
#define FS_PRODUCT_FAMILIES(X)                                                          \
    X(product)        /* place of the first matrix; the addend precedes it */           \
    X(summed_product) /* likewise; the products of a batch are summed */                \
    X(int_product)    /* likewise; int8 with an int32 result */                         \
    X(vectors)        /* dot product: place of the first vector */                      \
    X(outer)          /* likewise, outer product */                                     \
    X(linear)         /* arguments: input, weight [outputs, inputs], bias */            \
    X(scaled)         /* unused; low-precision matrices with scales */                  \
    X(grouped)        /* place of the offsets that divide matrices into groups */       \
    X(packed)         /* place of the scales: [outputs], or [groups, outputs, …] */     \
    X(distances)      /* pairwise distances of rows: 0 of two matrices, 1 within one */ \
    X(convolution)    /* row of convolution.h */                                        \
    X(convolution_backward)                                                             \
    X(convolution_part) /* one gradient; the enclosing op provides its shapes */        \
    X(attention)        /* row of attention.h */                                        \
    X(attention_backward)                                                               \
    X(rnn)       /* row of recurrent.c: layers of a recurrent network */                \
    X(rnn_layer) /* oneDNN's single layer and direction; 1: its gradients */            \
    X(cell)      /* the elementwise part of a cell: row of recurrent.c */               \
    X(fourier)   /* 0: complex to complex, 1: real to complex, 2: complex to real */    \
    X(factor)    /* row of linalg.h */                                                  \
    X(spectrum)  /* eigenvalues, singular values: row of linalg.h */

#define FS_COUNT_FUNCTION(family) fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_PRODUCT_FAMILIES(FS_COUNT_FUNCTION)
#undef FS_COUNT_FUNCTION

#endif
