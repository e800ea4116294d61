/* The rules for ops that multiply: matrix products, convolutions, attention, recurrent networks. Private to
 * csrc/work/aten.
 *
 * The rows are in products.def: FS_PRODUCT(name, family, option), a family being a function fs_count_FAMILY. They
 * count multiply-adds alone, of the algorithm: no epilogue, no padding of tiles.
 */
#ifndef FS_WORK_ATEN_PRODUCTS_H
#define FS_WORK_ATEN_PRODUCTS_H

#include "work/aten/aten.h"

/* X(family): what the option is. */
#define FS_PRODUCT_FAMILIES(X)                                                          \
    X(product)        /* the first matrix's place; what is added stands before it */    \
    X(summed_product) /* likewise, the products of a batch added up */                  \
    X(int_product)    /* likewise, of int8 into int32 */                                \
    X(vectors)        /* of two vectors: the place of the first */                      \
    X(outer)          /* likewise, each with each */                                    \
    X(linear)         /* input, weight of [outputs, inputs], bias */                    \
    X(scaled)         /* unused: matrices of narrow numbers, their scales */            \
    X(grouped)        /* the place of the offsets that part matrices into groups */     \
    X(packed)         /* the place of scales: [outputs], or [groups, outputs, …] */   \
    X(distances)      /* of each row to each: 0 of two matrices, 1 of one and itself */ \
    X(convolution)    /* a row of convolution.h */                                      \
    X(convolution_backward)                                                             \
    X(convolution_part) /* one gradient, its shapes told by the op around it */         \
    X(attention)        /* a row of attention.h */                                      \
    X(attention_backward)                                                               \
    X(rnn)       /* a row of recurrent.c: layers of a recurrent network */              \
    X(rnn_layer) /* oneDNN's one layer, one direction; 1: its gradients */              \
    X(cell)      /* the elementwise half of a cell: a row of recurrent.c */             \
    X(fourier)   /* 0: complex to complex, 1: real to complex, 2: complex to real */    \
    X(factor)    /* a row of linalg.h */                                                \
    X(spectrum)  /* eigenvalues, singular values: a row of linalg.h */

#define FS_COUNT_FUNCTION(family) fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_PRODUCT_FAMILIES(FS_COUNT_FUNCTION)
#undef FS_COUNT_FUNCTION

#endif
