/* The op table, and running an op: check, broadcast, allocate, notify the observer, call the backend. */
#ifndef FS_OPS_OP_H
#define FS_OPS_OP_H

#include <stdint.h>

#include "ops/backend.h"

/* The parameters of a family of ops. X(NAME, Python's text signature) */
#define FS_FORM_LIST(X)                                                         \
    X(UNARY, "(x, *, out=None)")                                                \
    X(BINARY, "(a, b, *, out=None)")                                            \
    X(UNARY_IN_PLACE, "(x)")                                                    \
    X(BINARY_IN_PLACE, "(x, other)")                                            \
    X(REDUCE, "(x, axis=None, keepdims=False, *, out=None)")                    \
    X(VAR, "(x, axis=None, keepdims=False, *, correction=1, out=None)")         \
    X(CUMSUM, "(x, axis=-1, *, out=None)")                                      \
    X(SOFTMAX, "(x, axis=-1, *, out=None)")                                     \
    X(LAYER_NORM, "(x, weight=None, bias=None, eps=1e-05, *, out=None)")        \
    X(RMS_NORM, "(x, weight=None, eps=1e-05, *, out=None)")                     \
    X(MATMUL, "(a, b, *, allow_tf32=False, out=None)")                          \
    X(ADDMM, "(bias, a, b, *, allow_tf32=False, out=None)")                     \
    X(COPY, "(x, *, out=None)")                                                 \
    X(CAST, "(x, dtype, *, out=None)")                                          \
    X(COPY_IN_PLACE, "(x, source)")                                             \
    X(CREATE, "(shape, *, dtype='float32', device=None, out=None)")             \
    X(CREATE_FULL, "(shape, value, *, dtype='float32', device=None, out=None)") \
    X(FILL_IN_PLACE, "(x, value)")                                              \
    X(RANDOM_IN_PLACE, "(x, a, b)")

typedef enum {
#define FS_FORM_ENUM(NAME, text_signature) FS_FORM_##NAME,
    FS_FORM_LIST(FS_FORM_ENUM)
#undef FS_FORM_ENUM
        FS_FORM_COUNT
} fs_form;

/* How FLOPs are computed from the shapes (docs/counting.md). */
typedef enum {
    FS_FLOPS_NONE,       /* data movement and random numbers: 0 */
    FS_FLOPS_PER_OUTPUT, /* flops_each per output element */
    FS_FLOPS_PER_INPUT,  /* flops_each per input element, and 1 more for each weight or bias */
    FS_FLOPS_MATMUL      /* 2 m n k of the last two arguments */
} fs_flops_rule;

typedef struct {
    const char *name; /* without the namespace: "add_" */
    const char *prose;
    fs_form form;
    int id; /* for the backend: fs_unary_id, fs_binary_id, fs_reduction_id, fs_rowwise_id, fs_random_id */
    fs_flops_rule flops;
    double flops_each;
} fs_op;

/* All ops. Events are named FS_OP_NAMESPACE followed by the name. */
#define FS_OP_NAMESPACE "flopscope::"
extern const fs_op fs_ops[];
extern const int fs_op_count;
const fs_op *fs_op_find(const char *name); /* without the namespace; NULL if unknown */

/* A call. Unused fields are zero. */
typedef struct {
    const fs_op *op;
    const fs_tensor *in[3]; /* by position; NULL: missing, or a scalar */
    bool is_scalar[3];
    double scalar[3];
    const fs_tensor *out; /* NULL: allocate */
    bool over_everything, keepdims, allow_tf32;
    double eps, correction;
    fs_dtype dtype;   /* of a cast or creation */
    fs_device device; /* of a creation, or the target of a copy */
    bool to_device;   /* the copy may cross devices */
    int ndim;         /* of the shape of a creation */
    int64_t shape[FS_MAX_DIMS];
} fs_call;

/* Run the call. `result` receives a reference to the output (for in-place ops: to the first input). Errors name the op,
 * the shapes, dtypes and devices. On failure no reference is held. Thread-safe. */
fs_status fs_op_run(const fs_call *call, fs_tensor *result, fs_error *err);

/* The stream of random numbers that rand, randn, uniform_ and normal_ draw from. The same on every device. */

/* Restart the stream from a seed. Thread-safe, like the function below. */
void fs_op_seed(uint64_t seed);

/* Reserve `count` draws of the random stream. */
void fs_random_take(int64_t count, uint64_t *seed, uint64_t *offset);

#endif
