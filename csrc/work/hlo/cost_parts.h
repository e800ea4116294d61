/* The parts of HLO's cost model. Private to csrc/work/hlo.
 *
 *   opcodes.def ── opcodes.c     the row of an opcode, and what it is on the device
 *   library.def ── flops.c       FLOPs of an instruction, of windows, and of custom calls by their backend_config
 *                  cost.c        what a computation computes, needs of its parameters, and writes; the work of an
 *                                instruction of the schedule, and the instructions that run
 *
 * Unknown is NaN, which sums and products keep. */
#ifndef FS_WORK_HLO_COST_PARTS_H
#define FS_WORK_HLO_COST_PARTS_H

#include "store/torch_signature.h"
#include "work/hlo/cost.h"

/* What an instruction needs of its operands, if a share of its result is needed. */
typedef enum {
    FS_NEED_NONE,
    FS_NEED_EACH,    /* as many elements as of the result, at most all: pointwise, slices, broadcasts */
    FS_NEED_SCALED,  /* the same share: reductions, concatenations, tuples */
    FS_NEED_ALL,     /* all of each; of the operand of a convolution what its windows meet */
    FS_NEED_PICKED,  /* of the first as EACH; of the others, which are indices, the same share */
    FS_NEED_UPDATE,  /* dynamic-update-slice: operand, update, indices */
    FS_NEED_SCATTER, /* operands, indices, updates */
    FS_NEED_BODY,    /* what its computation needs of its parameters */
} fs_hlo_need;

typedef struct {
    double flops, product; /* product: those of matrix products, convolutions and attention */
    fs_unit_choice unit;   /* of most of the FLOPs */
    double most;           /* FLOPs of the instruction with most of them, which has the unit */
    bool at_most;
} fs_hlo_flops;

/* What one execution of a computation costs if all of its result is needed. */
typedef struct {
    fs_hlo_flops flops;
    double written;       /* bytes; of a result that is updated in place, those of the update */
    uint32_t *parameters; /* by place: the instruction, plus 1; 0: none */
    uint32_t parameter_count;
    bool known;
} fs_hlo_body;

/* Costs of computations, computed when first needed. All-zero but for the module: none yet. */
typedef struct {
    const fs_hlo_module *module;
    fs_hlo_body *bodies; /* by computation */
    double *shares;      /* by instruction of a known body: the share of its result that is needed */
    double *read;        /* by instruction: scratch of fs_hlo_bytes_of, 0 outside */
    uint32_t *owners;    /* by instruction: that whose result it renames, plus 1; 0: unknown */
    uint32_t *parameters;
} fs_hlo_costs;

typedef struct fs_hlo_opcode fs_hlo_opcode;
typedef fs_hlo_flops fs_hlo_flops_rule(fs_hlo_costs *costs, const fs_hlo_opcode *row, uint32_t instruction);

struct fs_hlo_opcode {
    const char *name;
    fs_hlo_run run;
    fs_hlo_flops_rule *flops;
    double each;
    fs_hlo_need need;
};

/* X(name): rules of FLOPs, functions fs_hlo_count_NAME. */
#define FS_HLO_FLOPS_RULES(X)                                                \
    X(each)   /* per element of the result */                                \
    X(inputs) /* per element of the first operand */                         \
    X(moves)  /* between memories or devices: none */                        \
    X(sums)   /* between devices: unknown, where the sums are made varies */ \
    X(unknown)                                                               \
    X(called) /* its computation's, once */                                  \
    X(mapped) /* its computation's, per element */                           \
    X(loop)                                                                  \
    X(branches)                                                              \
    X(dot)                                                                   \
    X(ragged_dot)                                                            \
    X(convolution)                                                           \
    X(reduce)                                                                \
    X(windows)                                                               \
    X(scatter)                                                               \
    X(select_scatter)                                                        \
    X(fourier)                                                               \
    X(cholesky)                                                              \
    X(triangular)                                                            \
    X(library)

#define FS_HLO_FLOPS_FUNCTION(name) fs_hlo_flops_rule fs_hlo_count_##name;
FS_HLO_FLOPS_RULES(FS_HLO_FLOPS_FUNCTION)
#undef FS_HLO_FLOPS_FUNCTION

/* opcodes.c */

/* Return the row of an opcode, of an `X-start` that of X; NULL: unknown. *starts (may be NULL): whether it is one. */
const fs_hlo_opcode *fs_hlo_opcode_of(const fs_hlo_module *module, uint32_t instruction, bool *starts);

/* Return the rows, for a test of their order. */
const fs_hlo_opcode *fs_hlo_opcode_rows(uint32_t *count);

bool fs_hlo_is(const fs_hlo_module *module, uint32_t instruction, const char *opcode);

/* Return an operand, FS_NONE if there is none. */
uint32_t fs_hlo_operand(const fs_hlo_module *module, uint32_t instruction, uint32_t place);

/* Follow the first operands, at most 64, through instructions of these opcodes, which end with NULL. Return the first
 * instruction of another opcode, or the last that was reached; FS_NONE for FS_NONE. */
uint32_t fs_hlo_past(const fs_hlo_module *module, uint32_t instruction, const char *const *opcodes);

/* Return the shape of what an instruction computes: of an asynchronous start the result's, which is a part. FS_NONE:
 * unknown. */
uint32_t fs_hlo_result(const fs_hlo_module *module, uint32_t instruction);

/* Return the shape of an operand, or FS_NONE. */
uint32_t fs_hlo_operand_shape(const fs_hlo_module *module, uint32_t instruction, uint32_t place);

/* Return the elements of a shape, NaN for FS_NONE; the size of a dimension, NaN if there is none; the rank, 0 for
 * tuples and FS_NONE. */
double fs_hlo_count(const fs_hlo_module *module, uint32_t shape);
double fs_hlo_size(const fs_hlo_module *module, uint32_t shape, int64_t dimension);
uint32_t fs_hlo_rank(const fs_hlo_module *module, uint32_t shape);

/* Return the element type as torch's, of a tuple that of its first part. */
fs_torch_dtype fs_hlo_dtype(const fs_hlo_module *module, uint32_t shape);

/* flops.c */

/* Return a number of FLOPs, bytes or calls, NaN if it is negative or more than any program's: FLOPs times calls are at
 * most FS_MOST_WORK. */
double fs_hlo_bounded(double number);

fs_hlo_flops fs_hlo_flops_none(void);
fs_hlo_flops fs_hlo_flops_unknown(void);

/* Arithmetic on a dtype: integers and bools count 0. */
fs_hlo_flops fs_hlo_flops_plain(double flops, fs_torch_dtype dtype);

/* Return the precision that was asked of a product's factors: 0 the default, 1 high, 2 highest. */
int fs_hlo_precision(const fs_hlo_module *module, uint32_t instruction);

/* Multiply-adds of the first two operands; a text that may name their precision, or NULL. */
fs_hlo_flops fs_hlo_product(const fs_hlo_module *module, uint32_t instruction, double multiply_adds,
                            const char *precision);

/* Return the number of products that each element of a product is a sum of. */
double fs_hlo_contracted(const fs_hlo_module *module, uint32_t instruction);

void fs_hlo_flops_add(fs_hlo_flops *sum, fs_hlo_flops part, double times);

/* Return the FLOPs of one execution of an instruction. */
fs_hlo_flops fs_hlo_flops_of(fs_hlo_costs *costs, uint32_t instruction);

/* Return the share of the first operand of a convolution that its windows meet: strides may skip some. 1 if another
 * shape than the first operand's is the convolution's input. */
double fs_hlo_convolution_met(const fs_hlo_module *module, uint32_t instruction);

/* Find the input, filter and output of a library's convolution among the shapes of its operands and its result; false
 * if the call is none. */
bool fs_hlo_library_convolution(const fs_hlo_module *module, uint32_t instruction, uint32_t shapes[3]);

/* How a custom call appears, and whether the last part of its result is a workspace. */
fs_hlo_run fs_hlo_library_run(const fs_hlo_module *module, uint32_t instruction);
bool fs_hlo_library_has_workspace(const fs_hlo_module *module, uint32_t instruction);

/* Read the numbers after a key of a backend_config: 3, "3", [1, 2] or ["1", "2"], at most `capacity`. Returns their
 * count, -1 if the key is missing. */
int fs_hlo_config_numbers(const char *config, const char *key, double *numbers, int capacity);
double fs_hlo_config_number(const char *config, const char *key, double missing);

/* Return whether the text after a key is this one. */
bool fs_hlo_config_is(const char *config, const char *key, const char *text);

/* Return whether the text after a key contains this one. */
bool fs_hlo_config_has(const char *config, const char *key, const char *text);

/* cost.c */

void fs_hlo_costs_clear(fs_hlo_costs *costs);

/* Return the cost of a computation. */
const fs_hlo_body *fs_hlo_body_of(fs_hlo_costs *costs, uint32_t computation);

/* Return the computation that an instruction calls at a place, or FS_NONE. */
uint32_t fs_hlo_called(const fs_hlo_module *module, uint32_t instruction, uint32_t place);

#endif
