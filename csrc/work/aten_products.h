/* The rules for ops that multiply: matrix products, convolutions, attention, recurrent networks. Private to csrc/work.
 *
 * The rows are in aten_products.def: FS_PRODUCT(name, family, option), a family being a function fs_count_FAMILY. They
 * count multiply-adds alone, of the algorithm: no epilogue, no padding of tiles.
 */
#ifndef FS_WORK_ATEN_PRODUCTS_H
#define FS_WORK_ATEN_PRODUCTS_H

#include "work/aten.h"

/* The unit that multiplies numbers of a dtype: tensor cores where they take it. float32 may run as TF32, which only the
 * kernels that ran tell. */
fs_unit_choice fs_products_unit(unsigned dtype);

/* X(family): what the option is. */
#define FS_PRODUCT_FAMILIES(X)                                                                   \
    X(product)        /* the first matrix's place; what is added stands before it */             \
    X(summed_product) /* likewise, the products of a batch added up */                           \
    X(vectors)        /* of two vectors: the place of the first */                               \
    X(outer)          /* likewise, each with each */                                             \
    X(linear)         /* input, weight of [outputs, inputs], bias */                             \
    X(scaled)         /* the place of the result's dtype */                                      \
    X(grouped)        /* likewise; matrices of groups that offsets part */                       \
    X(packed)         /* input, weight of [outputs, inputs] as 8-bit integers, scales */         \
    X(convolution)    /* a row of the places in aten_convolution.c */                            \
    X(convolution_backward)                                                                      \
    X(attention) /* a row of the places in aten_attention.c */                                   \
    X(attention_backward)                                                                        \
    X(rnn)     /* cuDNN's recurrent layers; 1: their gradients */                                \
    X(cell)    /* the elementwise half of a cell: 0 LSTM, 1 GRU, and their gradients, 2 and 3 */ \
    X(fourier) /* 0: complex to complex, 1: real to complex, 2: complex to real */               \
    X(factor)  /* n^3 times option / 6: a factorisation of square matrices */

#define FS_COUNT_FUNCTION(family) fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_PRODUCT_FAMILIES(FS_COUNT_FUNCTION)
#undef FS_COUNT_FUNCTION

#endif
