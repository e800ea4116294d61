/* The argument list of a library's op, as the rows of csrc/work/libraries write it. Private to csrc/work.
 *
 *   "result! input weight eps#"              one word an argument, in the order of the op's schema
 *
 *   name      a tensor that is read              name!  written          name&  read and written
 *   name[]    a table, of which the rows are touched that the index selects; name[]! likewise written
 *   name@     an index: one row of each table per element; it is read
 *   name=N    a cache that receives as many elements as argument N has: written, not read
 *   name#     not a tensor: a number, a text, a list
 *   name~     anything; it counts nothing (a workspace, lengths that stay on the host)
 *   name/     a tensor whose shape matters, but whose bytes the family counts
 *   name%     a list of tensors that are read; name%! written, name%& both; name%:int64: of that dtype, as a trace
 *             does not tell the dtypes in a list
 *   …?        after any of these: may be None
 *   |         arguments after it exist in some versions only
 *   ...       any further arguments
 *   < a:b     what is read of arguments that are marked "/"
 *   > N a:b   results: like argument N; or of a size and a dtype
 *   = a       a size: what FLOPs count for (`formula`)
 *   ? a=b     sizes that must be equal, if both are known; a|1=a|2: a must be known
 *
 *   ^         before all: the arguments are those of the op of the forward pass; the op is its gradient
 *
 * A call fits if it has as many arguments, each of its kind, and the sizes are equal. Another version of the library
 * does not fit, and has no work rather than a wrong one. */
#ifndef FS_WORK_LIBRARIES_SCHEMA_H
#define FS_WORK_LIBRARIES_SCHEMA_H

#include "store/torch_signature.h"

typedef enum {
    FS_ROLE_READ,
    FS_ROLE_WRITTEN,
    FS_ROLE_MODIFIED,
    FS_ROLE_TABLE,
    FS_ROLE_TABLE_WRITTEN,
    FS_ROLE_INDEX,
    FS_ROLE_CACHE,
    FS_ROLE_NUMBER,
    FS_ROLE_IGNORED,
    FS_ROLE_SHAPE,
    FS_ROLE_LIST,
    FS_ROLE_LIST_WRITTEN,
    FS_ROLE_LIST_MODIFIED,
} fs_role;

enum { FS_SCHEMA_MOST = FS_TORCH_MAX_ARGUMENTS, FS_SCHEMA_NAME = 24 };

typedef struct {
    char name[FS_SCHEMA_NAME];
    uint8_t role;  /* fs_role */
    uint8_t like;  /* of a cache: the argument */
    uint8_t dtype; /* of a list: fs_torch_dtype */
    bool optional;
} fs_schema_argument;

typedef struct {
    uint32_t least, most; /* number of arguments */
    fs_schema_argument arguments[FS_SCHEMA_MOST];
    bool of_forward;
    const char *reads, *results, *flops, *conditions; /* the rest of the row, each from its mark on; NULL: none */
} fs_schema;

/* Parse a row. The rows are correct: a test parses all. Return false if not. */
bool fs_schema_parse(const char *text, fs_schema *schema);

/* Parse a row that is known to be correct. */
fs_schema fs_schema_of(const char *text);

/* Return the tensor at a place, without those of no dimensions, which may be numbers; NULL: there is none. */
const fs_torch_tensor *fs_schema_tensor_at(const fs_torch_call *call, uint32_t place);

/* Return the tensor of the argument with a name; NULL: none, or not a tensor. */
const fs_torch_tensor *fs_schema_tensor(const fs_schema *schema, const fs_torch_call *call, const char *name);

/* Return the number at the argument with a name; NaN: there is none. */
double fs_schema_number(const fs_schema *schema, const fs_torch_call *call, const char *name);

/* Return whether an argument is a list of tensors; their dtype. */
bool fs_schema_is_list(const fs_torch_call *call, int place);
fs_torch_dtype fs_schema_list_dtype(const fs_schema *schema, const fs_torch_call *call, int place);

/* Return the place of the argument with a name; -1: none. */
int fs_schema_place(const fs_schema *schema, const char *name);

/* Sizes that follow from the arguments of a library's op, as its row writes them. Private to csrc/work.
 *
 *   src            the elements of argument src, of a list the sum; of a number, its value; of a flag, 0 or 1
 *   src.0 src.-1   a dimension of it; src.dim: the dimension that the number at argument dim selects
 *   16 0.5         a constant
 *   a*b/c+(d-e)    computed from left to right, but for parentheses
 *   a|b            b if a is unknown
 *
 * What is read, or a result, is such a size, ':' and its dtype: an argument that has or names it ("src", "dtype"), or a
 * dtype of torch
 * ("float32"), with '|' likewise. */

/* Return the size that a text begins with, up to a space, a ':', a '=' or its end. NaN: unknown. */
double fs_expression_size(const char *text, const fs_schema *schema, const fs_torch_call *call);

/* Return the bytes of the result that a text begins with, up to a space or its end. NaN: unknown. */
double fs_expression_bytes(const char *text, const fs_schema *schema, const fs_torch_call *call);

/* Return whether the text consists of sound names and operators for the schema: a test checks all rows. */
bool fs_expression_is_sound(const char *text, const fs_schema *schema);

#endif
