/* A module of XLA's HLO, read from its text (hlo/text.c) or its protobuf (hlo/proto.c): computations of instructions.
 *
 *   texts        every name and text, by id (base/intern.h)
 *   numbers      sizes of shapes, and values of attributes
 *   shapes       arrays and tuples, by id; equal ones may have several ids
 *   operands     ids of instructions; FS_NONE: one that the module lacks
 *   called       ids of computations; FS_NONE likewise. Those of a while: its body, then its condition
 *   attributes   those of an instruction one after the other
 *   instructions in the order of the file: those of a computation one after the other, scheduled if the module is
 *   computations the entry is one of them
 *
 * Lists refer to parts of these arrays, which are no null pointers in a module that was read. An id that is not FS_NONE
 * is valid. Operands precede the instructions that use them, in a module that was read without an error, and no
 * computation calls itself: recursion over operands or called computations ends. It is at most FS_HLO_MOST_DEPTH deep
 * over called computations.
 */
#ifndef FS_WORK_HLO_HLO_H
#define FS_WORK_HLO_HLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/intern.h"
#include "base/status.h"
#include "store/store.h"

enum {
    FS_HLO_MOST_RANK = 64,
    FS_HLO_MOST_DEPTH = 64, /* of called computations, and of nested tuples */
    FS_HLO_MOST_GROUPS = 127,
};

/* Element types: X(NAME, text, bits of an element). 0: not an array of elements. */
/* clang-format off */
#define FS_HLO_TYPES(X) \
    X(INVALID, "", 0) X(PRED, "pred", 8) X(S1, "s1", 1) X(S2, "s2", 2) X(S4, "s4", 4) X(S8, "s8", 8) \
    X(S16, "s16", 16) X(S32, "s32", 32) X(S64, "s64", 64) X(U1, "u1", 1) X(U2, "u2", 2) X(U4, "u4", 4) \
    X(U8, "u8", 8) X(U16, "u16", 16) X(U32, "u32", 32) X(U64, "u64", 64) X(F4E2M1FN, "f4e2m1fn", 4) \
    X(F8E3M4, "f8e3m4", 8) X(F8E4M3, "f8e4m3", 8) X(F8E4M3FN, "f8e4m3fn", 8) X(F8E4M3FNUZ, "f8e4m3fnuz", 8) \
    X(F8E4M3B11FNUZ, "f8e4m3b11fnuz", 8) X(F8E5M2, "f8e5m2", 8) X(F8E5M2FNUZ, "f8e5m2fnuz", 8) \
    X(F8E8M0FNU, "f8e8m0fnu", 8) X(F16, "f16", 16) X(BF16, "bf16", 16) X(F32, "f32", 32) X(F64, "f64", 64) \
    X(C64, "c64", 64) X(C128, "c128", 128) X(TUPLE, "tuple", 0) X(TOKEN, "token", 0) X(OPAQUE, "opaque", 0) \
    X(BUFFER, "b", 0)
/* clang-format on */

typedef enum {
#define FS_HLO_TYPE(NAME, text, bits) FS_HLO_##NAME,
    FS_HLO_TYPES(FS_HLO_TYPE)
#undef FS_HLO_TYPE
        FS_HLO_TYPE_COUNT
} fs_hlo_type;

typedef struct {
    uint32_t first, count;
} fs_hlo_list;

typedef struct {
    fs_hlo_type type;
    fs_hlo_list sizes;  /* of an array, in numbers; a dynamic size is its limit; -1: it has none */
    fs_hlo_list layout; /* in numbers: dimensions from the fastest to the slowest; empty: the last is the fastest */
    fs_hlo_list parts;  /* of a tuple, in shape_parts; of a buffer the shape in it */
    int64_t space;      /* of memory: 0 the device's, 5 the host's */
} fs_hlo_shape;

/* Attributes that are used, as lists of numbers. X(NAME, name in the text). Those without a name are made from others:
 * a window is {size=3x3 pad=1_1x1_1 stride=2x2 …}, dim_labels=b01f_01io->b01f. What a window leaves out is missing:
 * strides and dilations of 1, pads of 0. The size of groups is the number of ids in each of replica_groups, if all have
 * as many; GLOBAL_IDS: those are of devices. PRECISION has a number for each factor of a product: 0 the default, 1
 * high, 2 highest. Labels of a dimension: its place among the spatial ones, or one of fs_hlo_label. */
/* clang-format off */
#define FS_HLO_ATTRIBUTES(X) \
    X(DIMENSIONS, "dimensions") X(LHS_CONTRACTING, "lhs_contracting_dims") \
    X(RHS_CONTRACTING, "rhs_contracting_dims") X(LHS_BATCH, "lhs_batch_dims") X(RHS_BATCH, "rhs_batch_dims") \
    X(PARAMETER, "") X(TRIP_COUNT, "") X(SLICE_SIZES, "slice_sizes") X(WINDOW_SIZE, "") X(WINDOW_STRIDE, "") \
    X(WINDOW_PAD_LOW, "") X(WINDOW_PAD_HIGH, "") X(WINDOW_LHS_DILATE, "") X(WINDOW_RHS_DILATE, "") X(LHS_LABELS, "") \
    X(RHS_LABELS, "") X(OUT_LABELS, "") X(FFT_LENGTH, "fft_length") X(GROUP_SIZE, "") X(CHANNEL, "channel_id") \
    X(GLOBAL_IDS, "") X(PRECISION, "")
/* clang-format on */

typedef enum {
#define FS_HLO_ATTRIBUTE(NAME, text) FS_HLO_##NAME,
    FS_HLO_ATTRIBUTES(FS_HLO_ATTRIBUTE)
#undef FS_HLO_ATTRIBUTE
        FS_HLO_ATTRIBUTE_COUNT
} fs_hlo_attribute_key;

typedef enum {
    FS_HLO_LABEL_BATCH = -1,
    FS_HLO_LABEL_FEATURE = -2,
    FS_HLO_LABEL_INPUT = -2,
    FS_HLO_LABEL_OUTPUT = -1
} fs_hlo_label;

typedef struct {
    fs_hlo_attribute_key key;
    fs_hlo_list values; /* in numbers */
} fs_hlo_attribute;

/* Texts are ids; FS_NONE: the instruction has none. */
typedef struct {
    uint32_t name;
    uint32_t opcode; /* its text: "fusion", "custom-call" */
    uint32_t shape;
    uint32_t computation;
    fs_hlo_list operands, called, attributes;
    uint32_t op_name; /* of its metadata: "jit(step)/jvp(attention)/dot_general" */
    uint32_t kernel;  /* deduplicated_name: the kernel bears it, with [.-] as _; FS_NONE: the instruction's name */
    uint32_t frame;   /* of the program's stack, in frames */
    uint32_t target;  /* custom_call_target */
    uint32_t kind;    /* of a fusion: "kLoop"; of a comparison: its direction; of fft: its type; of random bits: their
                         algorithm; of a constant: its literal, if short */
    uint32_t config;  /* backend_config: JSON, or another text */
    uint32_t groups;  /* replica_groups or source_target_pairs, the first FS_HLO_MOST_GROUPS bytes */
    bool root;
} fs_hlo_instruction;

typedef struct {
    uint32_t name;
    fs_hlo_list instructions; /* ids */
    uint32_t root;            /* an instruction */
} fs_hlo_computation;

/* A place in the program that was traced, and the one that called it (FS_NONE: none). */
typedef struct {
    uint32_t file, function; /* texts; FS_NONE: unknown */
    int64_t line;            /* 0: unknown */
    uint32_t parent;
} fs_hlo_frame;

typedef struct {
    fs_intern texts;
    int64_t *numbers;
    uint32_t *shape_parts, *operands, *called;
    fs_hlo_shape *shapes;
    fs_hlo_attribute *attributes;
    fs_hlo_instruction *instructions;
    fs_hlo_computation *computations;
    fs_hlo_frame *frames;
    int64_t *donors; /* parameters of the entry whose memory is given to results */
    uint32_t number_count, shape_part_count, operand_count, called_count, shape_count, attribute_count,
        instruction_count, computation_count, frame_count, donor_count;
    uint32_t number_capacity, shape_part_capacity, operand_capacity, called_capacity, shape_capacity,
        attribute_capacity, instruction_capacity, computation_capacity, frame_capacity, donor_capacity;
    uint32_t name;  /* of the module: "jit_step" */
    uint32_t entry; /* a computation */
    bool scheduled; /* is_scheduled=true */
    uint32_t partitions, replicas;
} fs_hlo_module;

/* Read a module from its text. An all-zero struct is an empty module. On failure (FS_VALUE_ERROR with the line and
 * what is wrong there, or FS_OUT_OF_MEMORY) the module is empty. */
fs_status fs_hlo_read_text(fs_hlo_module *module, const char *text, size_t size, fs_error *err);

/* Read a module from the bytes of an HloProto or HloModuleProto. The same failures, with the byte. It equals what its
 * text gives but for the literals of constants, which it lacks. */
fs_status fs_hlo_read_proto(fs_hlo_module *module, const void *bytes, size_t size, fs_error *err);

/* Return whether these bytes are no text, but the protobuf of a module. */
bool fs_hlo_is_proto(const void *bytes, size_t size);

void fs_hlo_clear(fs_hlo_module *module);

/* Return an attribute's values and their number; NULL and 0 if the instruction lacks it. */
const int64_t *fs_hlo_values(const fs_hlo_module *module, uint32_t instruction, fs_hlo_attribute_key key,
                             uint32_t *count);

/* Return the text, or NULL for FS_NONE. */
const char *fs_hlo_text(const fs_hlo_module *module, uint32_t text);

/* Return the elements and the bytes of a shape, of a tuple those of its parts; NaN: unknown. */
double fs_hlo_elements(const fs_hlo_module *module, uint32_t shape);
double fs_hlo_bytes(const fs_hlo_module *module, uint32_t shape);

#endif
