/* The call of a torch op, as a trace records it: the signature of kind FS_SIGNATURE_TORCH (signature.h).
 *
 *   word 0         FS_SIGNATURE_TORCH << 56 | has work << 32 | number of arguments
 *   then           an fs_torch_recorded, if the call has work
 *   per argument   one word: type | dtype << 8 | has strides << 16 | ndim, number of tensors or text's bytes << 32,
 *                  then a tensor:      `ndim` words of shape and, if it has strides, `ndim` words of strides (elements)
 *                       a tensor list: each tensor in this form: its word, its shape, its strides
 *                       others:        the text, padded with zero bytes to whole words
 *
 * Equal calls have equal bytes. Arguments, dimensions and text are unlimited. The op's collective may follow
 * (collective.h).
 */
#ifndef FS_STORE_TORCH_SIGNATURE_H
#define FS_STORE_TORCH_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "store/dtypes.h"

/* The kinds of numbers of a dtype. */
typedef enum { FS_TORCH_FLOAT, FS_TORCH_FLOAT8, FS_TORCH_FLOAT4, FS_TORCH_INTEGER, FS_TORCH_COMPLEX } fs_torch_kind;

typedef enum {
#define FS_TORCH_DTYPE_ENUM(NAME, ...) FS_TORCH_##NAME,
    FS_DTYPES(FS_TORCH_DTYPE_ENUM, FS_TORCH_DTYPE_ENUM)
#undef FS_TORCH_DTYPE_ENUM
        FS_TORCH_DTYPE_COUNT,
    FS_TORCH_DTYPE_NONE = FS_TORCH_DTYPE_COUNT /* missing, or a type without a row */
} fs_torch_dtype;

typedef struct {
    const char *name, *kineto, *c10;
    uint8_t size;   /* bytes of an element; 0: unknown */
    uint8_t number; /* of c10::ScalarType */
    fs_torch_kind kind;
} fs_torch_dtype_row;

extern const fs_torch_dtype_row fs_torch_dtypes[FS_TORCH_DTYPE_COUNT + 1]; /* the last: FS_TORCH_DTYPE_NONE */

/* The dtype with that name in Kineto, or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_torch_dtype_find(const char *kineto, size_t size);

/* The dtype with whose name in Kineto a text begins, or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_torch_dtype_begins(const char *text);

/* The dtype that torch.dtype prints so, or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_torch_dtype_named(const char *name, size_t size);

/* The dtype of that number in c10::ScalarType, or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_torch_dtype_numbered(double number);

typedef enum {
    FS_TORCH_NOTHING,     /* None, or an argument without a type in Kineto: a generator, an undefined tensor */
    FS_TORCH_TENSOR,      /* also a scalar tensor: the number in `x * 2.0` is a "double" without dims */
    FS_TORCH_TENSOR_LIST, /* empty if the trace omits long lists, as Kineto does for more than 30 tensors */
    FS_TORCH_SCALAR,      /* a number, a bool, a string: `text` */
    FS_TORCH_SCALAR_LIST, /* numbers: `text` as "[1, 2]" */
} fs_torch_type;

typedef struct {
    uint8_t dtype; /* fs_torch_dtype */
    uint32_t ndim;
    const int64_t *shape;   /* 8-aligned */
    const int64_t *strides; /* in elements; NULL: missing */
} fs_torch_tensor;

typedef struct {
    uint8_t type;           /* fs_torch_type */
    fs_torch_tensor tensor; /* of FS_TORCH_TENSOR */
    const char *text;       /* of scalars, ends in a zero byte; "" for other types and missing values */
    uint32_t count;         /* tensors of an FS_TORCH_TENSOR_LIST */
    const int64_t *list;    /* the tensors, for fs_torch_next_tensor */
} fs_torch_argument;

/* The work of the call as flopscope's own traces declare it; NaN: missing. */
typedef struct {
    double flops, bytes_read, bytes_written;
    double bytes;      /* read and written, if those are missing */
    char unit[16];     /* name of the compute unit that executes the FLOPs, padded with zeros; "": missing */
    char category[24]; /* of the op, where its name does not tell (work/category.h), likewise */
} fs_torch_recorded;

enum { FS_TORCH_MAX_ARGUMENTS = 128 };

typedef struct fs_torch_call {
    uint32_t count;  /* arguments that follow */
    bool whole;      /* false: there were more than FS_TORCH_MAX_ARGUMENTS; these are the first */
    const void *end; /* end of the call's bytes, if it is complete */
    size_t rest;     /* bytes that follow: its collective (collective.h) */
    /* Not stored in the bytes. NULL after decoding, and wherever it is unknown. */
    const char *outer_name;            /* the enclosing op */
    const struct fs_torch_call *outer; /* and its call */
    const fs_torch_tensor *output;     /* the shape of the result, from another call of the trace */
    const char *annotation;            /* the name of an enclosing annotation that tells the lengths of sequences */
    const struct fs_launch *launch;    /* of a kernel, for a rule that is registered for its name */
    bool shortened;                    /* not recorded: arguments at the end may be left out */
    bool untyped;                      /* the trace has no types: an FS_TORCH_NOTHING may be a number */
    fs_torch_recorded recorded;
    fs_torch_argument arguments[FS_TORCH_MAX_ARGUMENTS];
} fs_torch_call;

/* Decode a call. For bytes (8-aligned) of another kind, return false with no arguments. Pointers refer to bytes. */
bool fs_torch_decode(const void *bytes, size_t size, fs_torch_call *call);

/* Iterate over a list: start with *at = argument->list and call it argument->count times. */
void fs_torch_next_tensor(const int64_t **at, fs_torch_tensor *tensor);

/* Build a call: begin, then add one argument at a time. Its bytes are the argument of fs_store_signature. An all-zero
 * struct is an empty builder. fs_torch_builder_clear releases its memory. FS_OUT_OF_MEMORY. */
typedef struct {
    int64_t *words;
    uint32_t count, capacity;
    uint32_t list; /* the word of the current tensor list; 0: none */
} fs_torch_builder;

void fs_torch_builder_clear(fs_torch_builder *builder);
fs_status fs_torch_begin(fs_torch_builder *builder, fs_error *err);
/* Call it right after fs_torch_begin. */
fs_status fs_torch_add_recorded(fs_torch_builder *builder, const fs_torch_recorded *recorded, fs_error *err);
fs_status fs_torch_add_nothing(fs_torch_builder *builder, fs_error *err);
/* strides may be NULL. After fs_torch_add_list the tensor is added to that list, until another kind of argument or
 * fs_torch_end_list. */
fs_status fs_torch_add_tensor(fs_torch_builder *builder, const fs_torch_tensor *tensor, fs_error *err);
fs_status fs_torch_add_list(fs_torch_builder *builder, fs_error *err);
void fs_torch_end_list(fs_torch_builder *builder);
/* type: FS_TORCH_SCALAR or FS_TORCH_SCALAR_LIST. */
fs_status fs_torch_add_text(fs_torch_builder *builder, fs_torch_type type, const char *text, size_t size,
                            fs_error *err);

/* Append bytes to the call, after its last argument. */
fs_status fs_torch_add_rest(fs_torch_builder *builder, const void *bytes, size_t size, fs_error *err);

static inline size_t fs_torch_size(const fs_torch_builder *builder)
{
    return builder->count * sizeof *builder->words;
}

#endif
