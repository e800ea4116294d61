/* The rules for ops of other libraries than torch, one file a library. Private to csrc/work.
 *
 *   FS_LIBRARY(name, family, flops, option, arguments)
 *   FS_LIBRARY_AS(CATEGORY, name, …)     of another category (category.h) than its family
 *
 *   name       the op's full name in a trace: "_C::rms_norm", or that of an autograd Function: "LigerRMSNormFunction"
 *   family     a function of families.c, listed below
 *   flops      parameter of the family
 *   option     further parameter of the family
 *   arguments  the op's argument list (schema.h); a call that does not fit has no work
 *
 * An op whose arguments differ among versions of its library has a row for each, one after the other.
 *
 * The work of an autograd Function is dropped where the ops inside it do it, as with any op (table/totals.c). */
#ifndef FS_WORK_LIBRARIES_LIBRARIES_H
#define FS_WORK_LIBRARIES_LIBRARIES_H

#include "work/aten/aten.h"

/* The rows; the list ends with a NULL name. */
extern const fs_aten_rule fs_library_rules[];

/* X(family): what it counts. Bytes are those of the arguments by their roles, and what a comment adds. */
#define FS_LIBRARY_FAMILIES(X)                                                                                         \
    X(each, POINTWISE) /* flops per element of argument `option`; ALL_MODIFIED: of all arguments read and written */   \
    X(formula, POINTWISE)      /* flops per unit of the size after "="; option: FS_ON_PRODUCTS and others below */     \
    X(matrix, PRODUCT)         /* 2 M N K flops / 2: x [.., K], w of a layout in `option`; the result is [.., N] */    \
    X(packed_product, PRODUCT) /* sizes from arguments m, n, k; or x [.., K] and a width N from `option` */            \
    X(experts, PRODUCT)        /* a layer of experts: x [T, H], w1 [E, 2 I, H], w2 [E, H, I], ids [T, k] */            \
    X(attention, ATTENTION)    /* attention: row of aten/attention.h in `option` */                                    \
    X(attention_backward, ATTENTION)                                                                                   \
    X(attend_cached, ATTENTION)        /* to a cache of keys: lengths from the annotation of the step, else a bound */ \
    X(embedding_bags, COPIES)          /* FBGEMM's tables: indices, offsets, total width */                            \
    X(embedding_bags_backward, COPIES) /* numbers read and written of a row in `option`; 0: writes its gradient */     \
    X(quantized_bags, COPIES)          /* the same of rows of a few bits */                                            \
    X(sampled, REDUCTION)     /* flops per sampled point of a region: torchvision's roi_align; places in `option` */   \
    X(convolved, CONVOLUTION) /* a causal convolution: x [b, d, l] or [tokens, d], w [d, width] */                     \
    X(scanned, RECURRENT)     /* selective scan: u [b, d, l], A [d, n] */                                              \
    X(grouped_rows, PRODUCT)  /* x [M, K] and w [G, K, N] or [G, N, K]: each row with one matrix of the group */       \
    X(products_of_lists, PRODUCT) /* x [M, K] and w of a layout, pairs of two lists */                                 \
    X(grouped_linear, PRODUCT)    /* x [M, K], and a weight [N, K] of each group among the other arguments */          \
    X(segments,                                                                                                        \
      REDUCTION) /* runs of src, from indptr to indptr, to one each; FS_WITH_PLACES: and its place, as int64 */        \
    X(expert_rows, PRODUCT)      /* rows of experts, sorted: x [R, H], w1 [E, 2 I, H], w2 [E, H, I] */                 \
    X(hidden_experts, PRODUCT)   /* a layer of experts whose weights the op hides: its kernels tell (kernels.h) */     \
    X(exchanged, COMMUNICATION)  /* all-reduce and the like: bytes of tensors only; the time is not this device's */   \
    X(collective, COMMUNICATION) /* torch's record of a collective: its sizes, or those of its callers */

enum {
    FS_ALL_MODIFIED = -1, /* `each` */
    FS_NO_ELEMENTS = -2,  /* `each`: 0 FLOPs, whatever the dtype */
};

/* Options of `formula`. */
enum {
    FS_ON_PRODUCTS = 1, /* multiply-adds, in the dtype of the argument factor, q, x or a */
    FS_BOUND = 2,       /* bytes or FLOPs are a bound */
    FS_EXCHANGE = 4,    /* it waits for other devices */
    FS_APART = 8,       /* ops inside it do other work */
    FS_FOUR_BITS = 16,  /* the factors are packed, two numbers a byte: their dtype tells no unit */
};

/* Option of `embedding_bags_backward`: so many numbers for each number of a row, and the rest for each row. */
enum { FS_NUMBER_STATE = 16 };

/* Whether an autograd node is the gradient of a lookup in FBGEMM's tables: of the one with that name. */
bool fs_bags_is_gradient(const char *node);
bool fs_bags_is_gradient_of(const char *node, const char *lookup);

/* Return whether the result of the lookup can have the shape of the gradient. */
bool fs_bags_fit(const char *lookup, const fs_torch_call *call, const fs_torch_tensor *gradient);

/* Layouts of `matrix`. */
enum {
    FS_WEIGHT_NK = 0,     /* w [N, K] */
    FS_WEIGHT_KN = 1,     /* w [K, N] */
    FS_WEIGHT_EITHER = 2, /* the axis of w that equals K; [N, K] if both do */
    FS_HALF_BYTES = 4,    /* both hold two numbers a byte */
    FS_WEIGHT_PACKED = 8, /* w holds two numbers a byte along K */
    FS_GIVES_HALF = 16,   /* the result is bfloat16 whatever the inputs are, unless a dtype argument says */
    FS_GIVES_INT32 = 32,  /* the result is int32 */
    FS_OF_GRADIENT = 64,  /* `grouped_linear` */
};

/* Where `packed_product` finds the width N of the result. */
typedef enum {
    FS_WIDTH_NAMED,   /* the argument n; k and m, if the op has them, must agree with x */
    FS_WIDTH_COLUMNS, /* weight [K * bits / 32, N] */
    FS_WIDTH_WORDS,   /* weight [K, N / 8]: a word holds 8 numbers */
    FS_WIDTH_SHAPE,   /* the argument shape: [N, K] */
    FS_WIDTH_BYTES,   /* the size of the weight: a byte holds 2 numbers */
} fs_packed_width;

/* Options of `sampled` and `segments`. */
enum {
    FS_WITH_PLACES = 1, /* with each result, where it is from */
    FS_BY_PLACE = 2,    /* each place of the result has channels of its own */
};

#define FS_LIBRARY_FUNCTION(family, CATEGORY) \
    fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_LIBRARY_FAMILIES(FS_LIBRARY_FUNCTION)
#undef FS_LIBRARY_FUNCTION

#endif
