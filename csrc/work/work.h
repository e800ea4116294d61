/* FLOPs and bytes of an event, computed from its name and signature (conventions: docs/counting.md). */
#ifndef FS_WORK_WORK_H
#define FS_WORK_WORK_H

#include "device/peaks.h"
#include "store/signature.h"
#include "store/torch_signature.h"

/* What the work of a call still needs, beyond its own name and arguments. One at a time: each is found in a place of
 * its own, and the work is then computed again. If it is not found, the work stays as it is.
 *
 *   a call ── fs_work_of_torch ──► NOTHING, or one of
 *
 *     OP ──────────── the enclosing op (outer) ─────────────────────────────┐
 *     CALLER ──────── the enclosing op (outer) ─┬─ its sizes suffice ───────┤ table/survey.c,
 *                                               └─ CALLER again: the range  │ as each event is counted
 *                                                  that begins inside ──────┤
 *     FORWARD ─────── the op of the forward pass (outer) ───────────────────┤
 *        └─ not linked: the ops whose result fits ── table/scan.c ──────────┤
 *     ANNOTATION ──── the range around it with lengths (annotation) ────────┤ table/survey.c
 *     GRADIENT ────── the gradient's arguments (output) ────────────────────┴─► NOTHING (table/scan.c)
 *
 *     ELEMENTS ────── what its kernels launch ──► added to its row kernel by kernel (table/devices.c): stays
 *     KERNELS ─────── what its kernels tell ────► replaces it, if they do (table/devices.c): stays */
typedef enum {
    FS_NEEDS_NOTHING,
    FS_NEEDS_OP,         /* unknown without fs_torch_call.outer: the op that encloses this one */
    FS_NEEDS_CALLER,     /* the same, or an annotation of a collective that begins inside the op */
    FS_NEEDS_FORWARD,    /* unknown without the op of the forward pass as fs_torch_call.outer */
    FS_NEEDS_ANNOTATION, /* more exact with fs_torch_call.annotation */
    FS_NEEDS_GRADIENT,   /* unknown without fs_torch_call.output, which a gradient has */
    /* The numbers are per element, and bytes are in elements. Used for lists of tensors, whose dtype a trace omits, and
     * for indexing, whose element count it omits. If `item` or list_elements is NaN, the launched kernels determine the
     * bytes of an element and an upper bound of the number of elements. */
    FS_NEEDS_ELEMENTS,
    FS_NEEDS_KERNELS, /* what its kernels tell (kernel_work.h) replaces it */
} fs_work_needs;

/* Work of an event. NaN: unknown; 0: none. */
typedef struct {
    double flops;
    double bytes_read, bytes_written; /* compulsory traffic of device memory */
    double bytes_moved;               /* sum of both; may be known alone if declared by the program */
    fs_unit_choice unit;              /* that executes the FLOPs: fs_peaks_flops(peaks, unit, NULL) is its rate */
    double list_elements, item;       /* if it needs ELEMENTS: how many, and the bytes of one */
    double most_read;                 /* upper limit of bytes_read, in bytes, for repeated reads; NaN: none */
    fs_work_needs needs;
    bool at_most;         /* the arguments give only a bound, or an estimate */
    bool flops_estimated; /* of the FLOPs alone */
    bool apart;           /* excludes the work of ops nested in this one */
    bool stated;          /* declared by the program; without a unit, any unit may execute the FLOPs */
    bool between;         /* it waits for other devices: the device's own roofline says nothing about its time */
} fs_work;

/* More FLOPs or bytes of a call are an error, so that sums of as many calls as a store holds are finite. */
#define FS_MOST_WORK 1e280

/* Unknown work. */
extern const fs_work fs_work_unknown;

/* Compute the work of one call. Names include the namespace ("flopscope::add"). */
fs_work fs_work_of(const char *name, const fs_signature *signature);

/* Compute the work of a recorded torch call from its name, like "aten::mm" or "triton_poi_fused_add_0". Without a rule,
 * the numbers recorded in the trace are used. */
fs_work fs_work_of_torch(const char *name, const fs_torch_call *call);

/* Return whether there is a built-in rule for ops, or generated kernels, of that name. */
bool fs_work_has_rule(const char *name);

/* Return the argument list that the rule of a library's op expects, if the call has another one (of another version of
 * the library), and NULL otherwise. */
const char *fs_work_expected(const char *name, const fs_torch_call *call);

/* Return whether the name of an annotation tells the lengths of sequences: "execute_8_context_0(sq0sk0…)…". */
bool fs_work_is_annotation(const char *name);

/* Return whether all tensors of the op have one dtype, so that it can be inferred from its kernels. */
bool fs_work_has_one_dtype(const char *name);

/* Return whether the call computes a gradient and determines the shape of the forward op's result. */
bool fs_work_is_gradient(const char *name, const fs_torch_call *call);

/* Return the tensor of a gradient's call that has the shape of the result of `call`; NULL if the gradient has other
 * shapes or belongs to another op. */
const fs_torch_tensor *fs_work_result_told(const char *gradient_name, const fs_torch_call *gradient, const char *name,
                                           const fs_torch_call *call);

/* Return the work that a program declared for a range, or that of a launch. */
fs_work fs_work_stated(const fs_given_work *declared);

#endif
