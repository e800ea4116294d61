/* Ties the kernels that a device ran to the instructions of the schedules that launched them.
 *
 *   schedules   modules one after the other, each a list of slots: an instruction at a place from which it is called
 *   works       kernels, copies and fills of a device, in the order of their launches
 *   ties        for each work its slot, and how sure that is
 *
 * A kernel bears the name of its instruction, or of another one of its module that shares it. Kernels of libraries have
 * any names, and a call of a library may launch several, with fills and copies. Copies have sizes, and XLA may launch
 * two that follow each other in the other order. Bodies of loops repeat, branches may be
 * skipped, and executions of modules follow one another, each perhaps cut off at its start or end, or interrupted by
 * one of another module. The ties are a path through the schedules of least cost: of slots that are left out, of works
 * that are not tied, and of jumps. The search keeps the few best paths (a beam), and one only wherever the next slot
 * bears the name of the next kernel, so that its time grows with the number of works. */
#ifndef FS_WORK_HLO_ALIGN_H
#define FS_WORK_HLO_ALIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/intern.h"
#include "base/status.h"
#include "store/store.h"
#include "work/hlo/hlo.h"

typedef enum {
    FS_SLOT_KERNEL,   /* a kernel of its own name */
    FS_SLOT_LIBRARY,  /* kernels of any names, copies and fills */
    FS_SLOT_COPY,     /* a copy or a kernel that copies; perhaps nothing */
    FS_SLOT_MOVER,    /* a kernel of its own name, or the copy that it was compiled to */
    FS_SLOT_TRANSFER, /* copies between host and device, perhaps none */
    FS_SLOT_KINDS
} fs_slot_kind;

static inline bool fs_slot_has_kernel(int kind)
{
    return kind == FS_SLOT_KERNEL || kind == FS_SLOT_MOVER;
}

/* What a library is for, and what a kernel's name says. */
typedef enum { FS_FAMILY_ANY, FS_FAMILY_PRODUCT, FS_FAMILY_CONVOLUTION, FS_FAMILY_COMMUNICATION } fs_family;

typedef struct {
    uint32_t instruction;
    uint32_t module;
    uint32_t loop; /* the innermost around, in loops; FS_NONE: none */
    uint8_t kind, family;
    bool optional; /* in a branch */
    bool seen;     /* some work bears its name */
    int64_t bytes; /* that a copy moves, set after it was added; 0: unknown */
    /* By kind of a work whose name is no slot's: the first slot of the module, from this one on, in which it may run;
     * FS_NONE: none. */
    uint32_t next[FS_SLOT_KINDS];
} fs_slot;

typedef struct {
    uint32_t first, end; /* slots */
    uint32_t parent;
    uint32_t trips; /* how often its body runs; 0: unknown */
} fs_slot_loop;

/* Slots of a module that share a name. */
typedef struct {
    uint32_t module;
    bool alike;      /* their names differ in a number alone, as those of instructions whose kernels are equal may */
    uint32_t *slots; /* ascending */
    uint32_t count, capacity;
    uint32_t unseen; /* of which no work bears the name */
} fs_slot_class;

/* A class that has a name. */
typedef struct {
    uint32_t class;
    uint32_t next; /* the next pair of the name, + 1; 0: none */
} fs_named_class;

typedef struct {
    fs_slot *slots;
    fs_slot_loop *loops;
    fs_slot_class *classes;
    uint32_t *modules; /* by module: its first slot */
    fs_intern names;   /* of kernels, and of instructions that works are known to run */
    fs_intern named;   /* (name, class) of each pair */
    fs_named_class *pairs;
    uint32_t *first_pairs; /* by name: its first pair, + 1; 0: none */
    /* Filled in by fs_schedules_prepare: */
    uint64_t *costs;          /* by slot and after the last: of leaving out all before it */
    uint32_t *lists, *listed; /* by name and after the last: its first in `listed`, classes in the order of modules */
    fs_intern shares;         /* of the last module: key of a class ─► its number in the module */
    uint32_t first_class;     /* of the last module */
    uint32_t loop;            /* the innermost that is open */
    uint32_t branches;        /* that are open */
    bool numbered;            /* fs_schedules_given will be called */
    uint32_t slot_count, slot_capacity, loop_count, loop_capacity, class_count, class_capacity, module_count,
        module_capacity, pair_capacity, name_capacity;
} fs_schedules; /* zeroed: empty */

void fs_schedules_clear(fs_schedules *all);

/* Begin a module, and add its slots in the order of its schedule. What is added between open and close is in the body
 * of a loop; while `branches` is not 0, in a branch. FS_OUT_OF_MEMORY. */
fs_status fs_schedules_begin(fs_schedules *all, fs_error *err);
fs_status fs_schedules_open_loop(fs_schedules *all, uint32_t trips, fs_error *err);
void fs_schedules_close_loop(fs_schedules *all);

/* instruction: any number; name: of the instruction; shared: deduplicated_name, or NULL. FS_OUT_OF_MEMORY. */
fs_status fs_schedules_add(fs_schedules *all, uint32_t instruction, fs_slot_kind kind, fs_family family,
                           const char *name, const char *shared, fs_error *err);

/* Work of a device, in the order of launches. */
typedef struct {
    uint32_t name;  /* that slots have; FS_NONE: no slot's */
    uint8_t kind;   /* fs_slot_kind: what an instruction must be that runs it, if its name is no slot's */
    uint8_t family; /* fs_family */
    bool given;     /* the name is that of the instruction which is known to have run it */
    int64_t bytes;  /* of a copy; 0: unknown */
} fs_aligned_work;

/* A fill may be the start of a call of a library, or all of an instruction. */
enum { FS_WORK_FILLS = FS_SLOT_KERNEL };

/* Describe a kernel of that name; describe work of which the instruction is known. */
fs_aligned_work fs_schedules_kernel(const fs_schedules *all, const char *name);
fs_aligned_work fs_schedules_given(const fs_schedules *all, uint32_t module, uint32_t instruction);

typedef enum { FS_TIE_NONE, FS_TIE_GUESSED, FS_TIE_BY_ORDER, FS_TIE_BY_NAME } fs_tie_proof;

typedef struct {
    uint32_t slot;      /* FS_NONE: not tied */
    uint8_t proof;      /* by a name that one instruction has; by the order of the names around; or neither */
    bool begins;        /* the first work of an execution of its instruction */
    bool begins_module; /* the first work of an execution of its module */
} fs_tie;

static inline uint32_t fs_schedules_end(const fs_schedules *all, uint32_t module)
{
    return module + 1 < all->module_count ? all->modules[module + 1] : all->slot_count;
}

/* First step of fs_schedules_align: fill in what depends on the names of the works. FS_OUT_OF_MEMORY. */
fs_status fs_schedules_prepare(fs_schedules *all, const fs_aligned_work *works, uint32_t count, fs_error *err);

/* Return the index of the first slot of a class that is not before `from`. */
uint32_t fs_slot_class_from(const fs_slot_class *class, uint32_t from);

/* Return the index in `listed` of the first class of a name in a module, or in a later one. */
uint32_t fs_schedules_first_class(const fs_schedules *all, uint32_t name, uint32_t module);

/* Fill in the tie of each work. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_schedules_align(fs_schedules *all, const fs_aligned_work *works, uint32_t count, fs_tie *ties,
                             fs_error *err);

/* Last steps of fs_schedules_align. Tie works of other streams, which run out of the schedule's order, to slots of
 * their name that are free; repeats, by work: whether an iteration begins. Then say how sure each tie is; costs, by
 * work: of its step. FS_OUT_OF_MEMORY. */
fs_status fs_ties_add(const fs_schedules *all, const fs_aligned_work *works, uint32_t count, const bool *repeats,
                      fs_tie *ties, fs_error *err);
void fs_ties_prove(const fs_schedules *all, const fs_aligned_work *works, uint32_t count, const uint32_t *costs,
                   fs_tie *ties);

/* The cost, in quarters, of a step that leaves no doubt. */
enum { FS_TIE_EXTRA = 1 };

/* The schedule of a module, to which works are tied. Private to csrc/work/hlo. */

/* Add a module. runs, by instruction: fs_hlo_run_of. FS_OUT_OF_MEMORY; FS_VALUE_ERROR if calls of calls make it longer
 * than any program's. */
fs_status fs_schedules_add_module(fs_schedules *all, const fs_hlo_module *module, const uint8_t *runs, fs_error *err);

#endif
