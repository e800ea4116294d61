/* What an op of torch was called with, as a trace tells it: the signature of kind FS_SIGNATURE_TORCH (signature.h).
 *
 *   word 0         FS_SIGNATURE_TORCH << 56 | work is told << 32 | number of arguments
 *   then           an fs_torch_told, where work is told
 *   per argument   one word: type | dtype << 8 | has strides << 16 | ndim, number of tensors or text's bytes << 32,
 * then tensor       `ndim` words of shape and, if it has strides, `ndim` words of strides (in elements) tensor list
 * each tensor so: its word, its shape, its strides else         the text, filled up with zero bytes to whole words
 *
 * Equal calls have equal bytes. There is no limit to arguments, dimensions or text. What the op says of a collective
 * may follow (collective.h).
 */
#ifndef FS_STORE_TORCH_SIGNATURE_H
#define FS_STORE_TORCH_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What a dtype's numbers are. */
typedef enum { FS_TORCH_FLOAT, FS_TORCH_FLOAT8, FS_TORCH_FLOAT4, FS_TORCH_INTEGER, FS_TORCH_COMPLEX } fs_torch_kind;

typedef enum {
#define FS_TORCH_DTYPE(NAME, kineto, name, bytes, kind) FS_TORCH_##NAME,
#include "store/torch_dtypes.def"
#undef FS_TORCH_DTYPE
    FS_TORCH_DTYPE_COUNT,
    FS_TORCH_DTYPE_NONE = FS_TORCH_DTYPE_COUNT /* not told, or a type that no row has */
} fs_torch_dtype;

typedef struct {
    const char *kineto, *name;
    uint8_t size; /* bytes of an element; 0: not known */
    fs_torch_kind kind;
} fs_torch_dtype_row;

extern const fs_torch_dtype_row fs_torch_dtypes[FS_TORCH_DTYPE_COUNT + 1]; /* the last: FS_TORCH_DTYPE_NONE */

/* The dtype that Kineto writes so, or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_torch_dtype_find(const char *kineto, size_t size);

typedef enum {
    FS_TORCH_NOTHING,     /* None, or what Kineto has no type for: a generator, an undefined tensor */
    FS_TORCH_TENSOR,      /* a scalar tensor too: "double" of no dims is what a Python number becomes in `x * 2.0` */
    FS_TORCH_TENSOR_LIST, /* of no tensors where the trace leaves long lists out, as Kineto does above 30 of them */
    FS_TORCH_SCALAR,      /* a number, a bool, a string: `text` */
    FS_TORCH_SCALAR_LIST, /* numbers: `text` as "[1, 2]" */
} fs_torch_type;

typedef struct {
    uint8_t dtype; /* fs_torch_dtype */
    uint32_t ndim;
    const int64_t *shape;   /* may be unaligned to nothing less than 8 */
    const int64_t *strides; /* in elements; NULL: not told */
} fs_torch_tensor;

typedef struct {
    uint8_t type;           /* fs_torch_type */
    fs_torch_tensor tensor; /* of FS_TORCH_TENSOR */
    const char *text;       /* of the scalars, ended by a zero byte; "" of the rest and where no value is told */
    uint32_t count;         /* tensors in a FS_TORCH_TENSOR_LIST */
    const int64_t *list;    /* those, for fs_torch_next_tensor */
} fs_torch_argument;

/* The work of the call as the trace tells it, as flopscope's own traces do; NaN: not told. */
typedef struct {
    double flops, bytes_read, bytes_written;
    double bytes; /* both, where those are not told */
    char unit[16]; /* the name of the compute unit that does the FLOPs, the rest zero; "": not told */
} fs_torch_told;

enum { FS_TORCH_MAX_ARGUMENTS = 128 };

typedef struct fs_torch_call {
    uint32_t count; /* arguments that follow */
    bool whole;     /* false: there were more than FS_TORCH_MAX_ARGUMENTS; the first are here */
    const void *end; /* of those, where what follows the call begins if it is whole */
    /* What the bytes do not hold; NULL as decoded, and wherever it is not known. */
    const char *outer_name;            /* the op that encloses this one */
    const struct fs_torch_call *outer; /* and its call */
    const fs_torch_tensor *output;     /* the shape of the result, as another call of the trace tells it */
    bool untyped;                      /* the trace tells no types: what is FS_TORCH_NOTHING may be a number */
    fs_torch_told told;
    fs_torch_argument arguments[FS_TORCH_MAX_ARGUMENTS];
} fs_torch_call;

/* False, and a call of no arguments, where the bytes (8-aligned) are of another kind. What it fills in points into
 * bytes. */
bool fs_torch_decode(const void *bytes, size_t size, fs_torch_call *call);

/* Walk a list: *at begins as argument->list; call it argument->count times. */
void fs_torch_next_tensor(const int64_t **at, fs_torch_tensor *tensor);

/* Build one: begin, then an argument at a time. Its bytes are what fs_store_signature takes. All zero is an empty
 * builder; fs_torch_builder_clear gives its memory back. FS_OUT_OF_MEMORY. */
typedef struct {
    int64_t *words;
    uint32_t count, capacity;
    uint32_t list; /* the word of the tensor list that tensors go to now; 0: none */
} fs_torch_builder;

void fs_torch_builder_clear(fs_torch_builder *builder);
fs_status fs_torch_begin(fs_torch_builder *builder, fs_error *err);
/* Right after fs_torch_begin. */
fs_status fs_torch_add_told(fs_torch_builder *builder, const fs_torch_told *told, fs_error *err);
fs_status fs_torch_add_nothing(fs_torch_builder *builder, fs_error *err);
/* strides may be NULL. After fs_torch_add_list it goes to that list until another kind of argument follows or
 * fs_torch_end_list. */
fs_status fs_torch_add_tensor(fs_torch_builder *builder, const fs_torch_tensor *tensor, fs_error *err);
fs_status fs_torch_add_list(fs_torch_builder *builder, fs_error *err);
void fs_torch_end_list(fs_torch_builder *builder);
/* type: FS_TORCH_SCALAR or FS_TORCH_SCALAR_LIST. */
fs_status fs_torch_add_text(fs_torch_builder *builder, fs_torch_type type, const char *text, size_t size,
                            fs_error *err);

/* Bytes that follow the call, after its last argument. */
fs_status fs_torch_add_rest(fs_torch_builder *builder, const void *bytes, size_t size, fs_error *err);

static inline size_t fs_torch_size(const fs_torch_builder *builder)
{
    return builder->count * sizeof *builder->words;
}

#endif
