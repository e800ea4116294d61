/* The rules for ops that go over elements: pointwise, reductions, copies, indexing, … Private to csrc/work/aten.
 *
 * The rows are in elements.def: FS_ATEN(name, family, flops, option). A family is a function fs_count_FAMILY here;
 * `flops` is per element, of what the family says; `option` is a sum of what follows.
 *
 * Places count arguments as the op's schema lists them. An op that is given more arguments than its schema has was
 * called with `out=`: those are written, not read.
 */
#ifndef FS_WORK_ATEN_ELEMENTS_H
#define FS_WORK_ATEN_ELEMENTS_H

#include "work/aten/aten.h"
#include "work/aten/sizes.h"

/* Options ---------------------------------------------------------------------------------------------------------- */

enum {
    /* Fields of 4 bits: FS_DTYPE_AT * 3. */
    FS_ARGUMENTS = 1 << 0, /* how many arguments the schema has; 0: as many as there are, without `out=` */
    FS_DTYPE_AT = 1 << 4,  /* the place of a dtype, which the result has if it is given; 0: none */
    FS_LIKE = 1 << 8,      /* 1 + the place that the result has the shape and dtype of; 0: all broadcast */
    FS_PLACE = 1 << 12,    /* a place, or a row, that the family tells */
    /* Flags of the result: */
    FS_GIVES_BOOLS = 1 << 16,   /* is bools */
    FS_GIVES_INDICES = 1 << 17, /* is int64 */
    FS_GIVES_REAL = 1 << 18,    /* is floats where the arguments are complex */
    FS_GIVES_FLOATS = 1 << 19,  /* is float32 where the arguments are integers */
    FS_GIVES_COMPLEX = 1 << 20, /* is complex where the arguments are floats */
    FS_GIVES_SUMS = 1 << 21,    /* is int64 where the arguments are integers */
    /* Written beside the result, of as many elements: */
    FS_AND_BOOLS = 1 << 22,
    FS_AND_INDICES = 1 << 23,
    FS_AND_TWIN = 1 << 24, /* another like it */
    /* Else: */
    FS_WRITES_FIRST = 1 << 25, /* the first argument is written or only looked at, not read */
    FS_OF_MEANS = 1 << 26,     /* of windows: their average, not their largest element */
    FS_BY_ROWS = 1 << 27, /* of indices: each is of all that lies at it along the axis at place 1, not of one element */
};

static inline unsigned fs_option(const fs_aten_rule *rule, int field)
{
    return (unsigned)(rule->option / field) & 15u;
}

static inline bool fs_has(const fs_aten_rule *rule, int flag)
{
    return (rule->option & flag) != 0;
}

/* Where the norms have their arguments: rows of reduce.c, named by PLACE. */
enum {
    FS_NORM_LAYER,
    FS_NORM_RMS,
    FS_NORM_GROUP,
    FS_NORM_BATCH,
    FS_NORM_BATCH_TRAINS,
    FS_NORM_BATCH_NEVER_TRAINS,
    FS_NORM_BATCH_STATISTICS,
};

/* The fused optimizers: rows of lists.c, likewise. */
enum { FS_OPTIMIZER_ADAM, FS_OPTIMIZER_SGD, FS_OPTIMIZER_ADAGRAD };

/* Families --------------------------------------------------------------------------------------------------------- */

/* X(family). Each is described where it is defined. */
#define FS_ATEN_FAMILIES(X)                                                                                      \
    X(pointwise)                                                                                                 \
    X(view)                                                                                                      \
    X(moves)                                                                                                     \
    X(glu)                                                                                                       \
    X(glu_backward)                                                                                              \
    X(loss) /* pointwise.c */                                                                                    \
    X(reduce)                                                                                                    \
    X(norm)                                                                                                      \
    X(norm_backward) /* reduce.c */                                                                              \
    X(pool)                                                                                                      \
    X(pool_to)                                                                                                   \
    X(spread)                                                                                                    \
    X(resize)                                                                                                    \
    X(resize_backward) X(pad) /* windows.c */                                                                    \
        X(grid_sample) X(grid_sample_backward) X(unfold) X(fold) X(gather) X(embedding) X(embedding_backward)    \
            X(embedding_bag) /* index.c */                                                                       \
        X(scatter) X(index_put) X(nll) X(nll_backward) X(pick) X(range) X(index) X(list) X(join) X(chunk_cat)    \
            X(optimizer) /* lists.c */                                                                           \
        X(apart) X(triangle) X(triangle_indices) X(histogram) X(nonzero) X(select) X(unique) X(repeat) X(narrow) \
            X(permute) X(blocks) X(swizzle) /* parts.c */

#define FS_COUNT_FUNCTION(family) fs_work fs_count_##family(const fs_aten_rule *rule, const fs_torch_call *call);
FS_ATEN_FAMILIES(FS_COUNT_FUNCTION)
#undef FS_COUNT_FUNCTION

/* What families share ---------------------------------------------------------------------------------------------- */

/* The op works on its first argument: "add_". A rule's name is that of the call while it counts. */
bool fs_is_in_place(const fs_aten_rule *rule);

/* The arguments before those of `out=`, and the first tensor after them, or NULL. */
unsigned fs_inputs(const fs_aten_rule *rule, const fs_torch_call *call);
const fs_torch_tensor *fs_out_tensor(const fs_aten_rule *rule, const fs_torch_call *call);

/* What a result has whose arguments promote to `dtype`, by the rule's flags. */
unsigned fs_result_dtype(const fs_aten_rule *rule, unsigned dtype);

/* Bytes of so many elements of a result, and of what is written beside it. */
double fs_result_bytes(const fs_aten_rule *rule, double elements, unsigned dtype);

/* Work that is at most so much. */
fs_work fs_at_most(fs_work work);

/* Of elements of so many bytes whose number only the launched kernels tell: FLOPs, elements read and written for each;
 * most_read as in fs_work. */
fs_work fs_of_launched(double flops, double read, double written, double item, double most_read);

/* `each` FLOPs for each of the elements where they are floats, 0 where not, NaN where that is not known. */
double fs_flops_of(double each, double elements, unsigned dtype);

/* The rule of an op over lists of tensors (`_foreach_add_`), from that of the op over one; count is NULL where nothing
 * can be said. */
fs_aten_rule fs_aten_foreach(const fs_aten_rule *rule);

/* The rule of the gradient of a pointwise op that has no row of its own; count is NULL likewise. */
fs_aten_rule fs_aten_backward(const fs_aten_rule *rule);

#endif
