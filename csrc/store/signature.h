/* The arguments of an event as compact bytes that can be interned: equal calls have equal bytes. The highest byte of
 * word 0 is the kind (fs_signature_kind):
 *
 * An op's call:
 *   word 0       flags (FS_SIGNATURE_…) | device kind << 32 | device index << 40
 *   per argument one word of fs_argument's small fields, then `ndim` words of shape and, unless the argument is dense,
 * `ndim` words of strides (in elements)
 * The launch of device work (fs_launch), the work of a range or of an op that is one launch (fs_given_work) and the
 * memory after a change of it (fs_memory_state): word 0, then the struct. The kernel that an API call launches: word 0,
 * its launch (grid and block only), then its name. The call of a torch op: torch_signature.h. What a range says beside
 * its name: note.h.
 */
#ifndef FS_STORE_SIGNATURE_H
#define FS_STORE_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    FS_SIGNATURE_CALL,
    FS_SIGNATURE_LAUNCH,
    FS_SIGNATURE_WORK,
    FS_SIGNATURE_TORCH,
    FS_SIGNATURE_MEMORY,
    FS_SIGNATURE_KERNEL, /* of an API call: the launch of a kernel, as after word 0 of FS_SIGNATURE_LAUNCH, and its name
                          */
    FS_SIGNATURE_NOTE,   /* of a range: note.h */
} fs_signature_kind;

/* Flags of a call. */
enum { FS_SIGNATURE_TF32 = 1 /* float32 products may use TF32 */ };

enum { FS_SIGNATURE_MAX_ARGUMENTS = 8, FS_SIGNATURE_MAX_DIMS = 8, FS_SAME_AS_NONE = 255 };

typedef enum {
    FS_ARGUMENT_IN,
    FS_ARGUMENT_OUT,    /* written only; not an input: excluded from input_shapes */
    FS_ARGUMENT_INOUT,  /* read and written: the tensor of an in-place op */
    FS_ARGUMENT_TARGET, /* written only, but passed by the caller (fill_): included in input_shapes, not read */
    FS_ARGUMENT_SCALAR  /* a number from the host: no memory */
} fs_argument_role;

typedef struct {
    uint8_t role;  /* fs_argument_role */
    uint8_t dtype; /* an fs_dtype, FS_DTYPE_NONE for a scalar */
    uint8_t ndim;
    uint8_t same_as; /* index of an earlier argument with the same memory, or FS_SAME_AS_NONE */
    uint8_t dense;   /* C order without gaps: strides are implied */
    const int64_t *shape;
    const int64_t *strides; /* NULL if dense */
} fs_argument;

typedef struct {
    uint32_t flags;
    uint8_t device_kind, device_index;
    uint8_t argument_count;
    fs_argument arguments[FS_SIGNATURE_MAX_ARGUMENTS];
} fs_signature;

enum { FS_SIGNATURE_MAX_BYTES = 8 * (1 + FS_SIGNATURE_MAX_ARGUMENTS * (1 + 2 * FS_SIGNATURE_MAX_DIMS)) };

/* Write the signature to bytes (FS_SIGNATURE_MAX_BYTES, 8-aligned). Return the size used. */
size_t fs_signature_encode(const fs_signature *signature, void *bytes);
/* Decode a call. The arguments' shapes point into bytes (8-aligned). Other kinds of signature have no arguments. */
void fs_signature_decode(const void *bytes, size_t size, fs_signature *signature);

fs_signature_kind fs_signature_kind_of(const void *bytes);

/* Write word 0 of a kind (8 bytes). */
void fs_signature_begin(fs_signature_kind kind, void *bytes);

/* The launch of a kernel. A copy or a fill has only a graph and a context. */
typedef struct fs_launch {
    uint32_t grid[3], block[3], cluster[3]; /* grid of 0: not a kernel; cluster of 0: none */
    uint32_t registers;                     /* per thread */
    uint32_t static_shared, dynamic_shared; /* bytes per block */
    uint32_t graph;                         /* id of the CUDA graph that launched it, 0: none */
    uint32_t context;
    uint64_t graph_node;
} fs_launch;

/* What the work of an op that is one launch rests on. */
typedef enum {
    FS_LAUNCH_NONE,   /* no launch: a range */
    FS_LAUNCH_STATED, /* declared by the kernel */
    FS_LAUNCH_AT_MOST /* its arguments limit the bytes */
} fs_launch_basis;

/* The declared work of a range, or the work of a launch. NaN: unknown. */
typedef struct {
    double flops, bytes;
    char unit[16];   /* name of the compute unit that executes the FLOPs, padded with zeros; "": not declared */
    uint64_t launch; /* an fs_launch_basis */
} fs_given_work;

/* The memory of a device after a change, as its allocator saw it. */
typedef struct {
    int64_t allocated, reserved; /* bytes; -1: unknown */
    uint64_t address;            /* of the block; 0: unknown */
} fs_memory_state;

/* The longest name of a kernel that a signature holds; longer ones are cut. */
enum { FS_KERNEL_NAME_BYTES = 4096 };

enum {
    FS_LAUNCH_BYTES = 8 + sizeof(fs_launch),
    FS_GIVEN_WORK_BYTES = 8 + sizeof(fs_given_work),
    FS_MEMORY_STATE_BYTES = 8 + sizeof(fs_memory_state),
    FS_KERNEL_BYTES = FS_LAUNCH_BYTES + FS_KERNEL_NAME_BYTES + 1,
};

/* Write FS_LAUNCH_BYTES, FS_GIVEN_WORK_BYTES or FS_MEMORY_STATE_BYTES; decode them, false if the bytes are of another
 * kind. */
void fs_launch_encode(const fs_launch *launch, void *bytes);
bool fs_launch_decode(const void *bytes, fs_launch *launch);
void fs_given_work_encode(const fs_given_work *work, void *bytes);
bool fs_given_work_decode(const void *bytes, fs_given_work *work);
void fs_memory_state_encode(const fs_memory_state *state, void *bytes);
bool fs_memory_state_decode(const void *bytes, fs_memory_state *state);

/* Write the kernel that an API call launches, at most FS_KERNEL_BYTES. Return the size used. Decoding returns its name,
 * NULL for bytes of another kind. */
size_t fs_kernel_encode(const fs_launch *launch, const char *name, size_t size, void *bytes);
const char *fs_kernel_decode(const void *bytes, fs_launch *launch);

#endif
