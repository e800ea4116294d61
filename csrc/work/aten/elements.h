/* The rules for elementwise work: pointwise, reductions, copies, indexing, … Private to csrc/work/aten.
 *
 * The rows are in elements.def: FS_ATEN(name, family, flops, option). A family is a function fs_count_FAMILY declared
 * here; `flops` is per element, as defined by the family; `option` is a sum of the options below.
 *
 * Places are argument positions in the op's schema. An op with more arguments than its schema was called with `out=`:
 * those are written, not read. */
#ifndef FS_WORK_ATEN_ELEMENTS_H
#define FS_WORK_ATEN_ELEMENTS_H

#include "work/aten/aten.h"
#include "work/aten/sizes.h"

/* Options ---------------------------------------------------------------------------------------------------------- */

enum {
    /* Fields of 4 bits: FS_DTYPE_AT * 3. */
    FS_ARGUMENTS = 1 << 0, /* number of arguments in the schema; 0: all that the call has, without `out=` */
    FS_DTYPE_AT = 1 << 4,  /* place of a dtype argument that overrides the result's dtype; 0: none */
    FS_LIKE = 1 << 8, /* 1 + the place of the argument with the result's shape and dtype; 0: all arguments broadcast */
    FS_PLACE = 1 << 12, /* a place or a row, defined by the family */
    /* Flags of the result's dtype: */
    FS_GIVES_BOOLS = 1 << 16,   /* bool */
    FS_GIVES_INDICES = 1 << 17, /* int64 */
    FS_GIVES_REAL = 1 << 18,    /* real if the arguments are complex */
    FS_GIVES_FLOATS = 1 << 19,  /* float32 if the arguments are integers */
    FS_GIVES_COMPLEX = 1 << 20, /* complex if the arguments are floats */
    FS_GIVES_SUMS = 1 << 21,    /* int64 if the arguments are integers */
    /* Also written, with as many elements as the result: */
    FS_AND_BOOLS = 1 << 22,
    FS_AND_INDICES = 1 << 23,
    FS_AND_TWIN = 1 << 24, /* a second tensor like the result */
    /* Others: */
    FS_WRITES_FIRST = 1 << 25, /* the first argument is written or only its shape is used; it is not read */
    FS_OF_MEANS = 1 << 26,     /* windows: average pooling, not max pooling */
    FS_BY_ROWS = 1 << 27,      /* indices: each selects a slice of the axis at place 1, not one element */
};

static inline unsigned fs_option(const fs_aten_rule *rule, int field)
{
    return (unsigned)(rule->option / field) & 15u;
}

static inline bool fs_has(const fs_aten_rule *rule, int flag)
{
    return (rule->option & flag) != 0;
}

/* The argument layouts of norms: rows of reduce.c, selected by PLACE. */
enum {
    FS_NORM_LAYER,
    FS_NORM_RMS,
    FS_NORM_GROUP,
    FS_NORM_BATCH,
    FS_NORM_BATCH_TRAINS,
    FS_NORM_BATCH_NEVER_TRAINS,
    FS_NORM_BATCH_STATISTICS,
};

/* The fused optimizers: rows of lists.c, selected by PLACE. */
enum { FS_OPTIMIZER_ADAM, FS_OPTIMIZER_SGD, FS_OPTIMIZER_ADAGRAD };

/* Families --------------------------------------------------------------------------------------------------------- */

/* X(family, CATEGORY of its ops). Each is documented at its definition. */
/* clang-format off */
#define FS_ATEN_FAMILIES(X)                                                                                     \
    /* pointwise.c */                                                                                           \
    X(pointwise, POINTWISE) X(view, OTHER) X(moves, COPIES) X(glu, POINTWISE) X(glu_backward, POINTWISE)        \
    X(loss, REDUCTION)                                                                                          \
    /* reduce.c */                                                                                              \
    X(reduce, REDUCTION) X(norm, NORMALISATION) X(norm_backward, NORMALISATION)                                 \
    /* windows.c */                                                                                             \
    X(pool, REDUCTION) X(pool_to, REDUCTION) X(spread, REDUCTION) X(resize, POINTWISE)                          \
    X(resize_backward, POINTWISE) X(pad, COPIES)                                                                \
    /* index.c */                                                                                               \
    X(grid_sample, POINTWISE) X(grid_sample_backward, POINTWISE) X(unfold, COPIES) X(fold, COPIES)              \
    X(gather, COPIES) X(embedding, COPIES) X(embedding_backward, COPIES) X(embedding_bag, COPIES)               \
    /* lists.c */                                                                                               \
    X(scatter, COPIES) X(index_put, COPIES) X(nll, REDUCTION) X(nll_backward, REDUCTION) X(pick, REDUCTION)     \
    X(range, COPIES) X(index, COPIES) X(list, POINTWISE) X(join, COPIES) X(chunk_cat, COPIES)                   \
    X(block_diagonal, COPIES) X(optimizer, POINTWISE)                                                           \
    /* parts.c */                                                                                               \
    X(apart, REDUCTION) X(triangle, POINTWISE) X(triangle_indices, COPIES) X(histogram, REDUCTION)              \
    X(nonzero, COPIES) X(select, COPIES) X(unique, REDUCTION) X(repeat, COPIES) X(narrow, COPIES)               \
    X(permute, COPIES) X(blocks, POINTWISE) X(swizzle, COPIES)
/* clang-format on */

#define FS_COUNT_FUNCTION(family, CATEGORY) \
    fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_ATEN_FAMILIES(FS_COUNT_FUNCTION)
#undef FS_COUNT_FUNCTION

/* Shared helpers --------------------------------------------------------------------------------------------------- */

/* Return whether the op works in place: "add_". rule->name is the name in the call. */
bool fs_is_in_place(const fs_aten_rule *rule);

/* Return the number of arguments before those of `out=`, and the first tensor after them, or NULL. */
unsigned fs_inputs(const fs_aten_rule *rule, const fs_torch_call *call);
const fs_torch_tensor *fs_out_tensor(const fs_aten_rule *rule, const fs_torch_call *call);

/* Return the result's dtype, by the rule's flags, for arguments that promote to `dtype`. */
unsigned fs_result_dtype(const fs_aten_rule *rule, unsigned dtype);

/* Return the dtype to which tensors of two dtypes promote. */
unsigned fs_promoted(unsigned a, unsigned b);

/* Return the bytes of a result of so many elements and of the tensors written besides it. */
double fs_result_bytes(const fs_aten_rule *rule, double elements, unsigned dtype);

/* Return the work marked as an upper bound. */
fs_work fs_at_most(fs_work work);

/* Return work whose element count only the launched kernels determine: FLOPs, elements read and written per element,
 * bytes of an element; most_read as in fs_work. */
fs_work fs_of_launched(double flops, double read, double written, double item, double most_read);

/* Return each * elements for floats, 0 for other dtypes, NaN if the dtype is unknown. */
double fs_flops_of(double each, double elements, unsigned dtype);

/* Derive the rule of an op over lists of tensors (`_foreach_add_`) from that of the op on one tensor; count is NULL if
 * there is none. */
fs_aten_rule fs_aten_foreach(const fs_aten_rule *rule);

/* Derive the rule of the gradient of a pointwise op without a row; count is NULL likewise. */
fs_aten_rule fs_aten_backward(const fs_aten_rule *rule);

#endif
