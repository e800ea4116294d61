/* What in a program makes an instruction needless or slow, as far as its module shows. */
#ifndef FS_WORK_HLO_REMARKS_H
#define FS_WORK_HLO_REMARKS_H

#include "base/intern.h"
#include "store/store.h"
#include "store/torch_signature.h"
#include "work/hlo/cost.h"
#include "work/hlo/hlo.h"

/* What the instructions of a module have to do with one another. */
typedef struct {
    const fs_hlo_module *module;
    uint32_t *readers; /* by instruction: how many read its result, renamed or not */
    uint32_t *donated; /* parameters of the entry */
    bool *results;     /* by instruction: whether it is a result of the entry */
    bool *bodies;      /* by computation: whether it is the body of a loop */
    uint32_t donated_count;
} fs_hlo_remarks;

/* Fill it in. FS_OUT_OF_MEMORY. fs_hlo_remarks_clear also accepts a zeroed struct. */
fs_status fs_hlo_remarks_make(fs_hlo_remarks *of, const fs_hlo_module *module, fs_error *err);
void fs_hlo_remarks_clear(fs_hlo_remarks *of);

/* Write one of these, and return true; return false, and write nothing, if none is true. `room` is at least 16 bytes.
 *
 *   argument=NAME    it copies an argument of the entry, which is not donated; nothing else reads the argument, and a
 *                    result has its shape, so that donation would make the copy needless
 *   carry=SHAPE      in a loop's body, it copies an array of the carry
 *   callback=TARGET  it calls Python on the host
 *   precision=NAME   a product of float32 that was asked to be more precise than the default: "high", "highest"
 *   widened=TYPE     a product of float32 factors that are converted from this type of 16 bits: "bf16", "f16" */
bool fs_hlo_remark(const fs_hlo_remarks *of, uint32_t instruction, char *text, size_t room);

/* What a table needs to know of an instruction: its name, its call, and what encloses it. Private to csrc/work/hlo. */

/* A scope or a source line, in the one around it. */
typedef struct {
    uint32_t parent; /* FS_NONE: none */
    uint32_t name;   /* of the store */
} fs_hlo_place;

/* An instruction in a store. */
typedef struct {
    uint32_t name, signature; /* of the store; name FS_NONE: not described yet */
    uint32_t place;           /* the innermost, or FS_NONE */
} fs_hlo_described;

typedef struct {
    fs_store *store;
    fs_intern places; /* fs_hlo_place, by id */
    fs_torch_builder builder;
} fs_hlo_describer; /* zeroed except for the store: empty */

void fs_hlo_describer_clear(fs_hlo_describer *of);

/* Describe an instruction of a module with its work. number: of its module among those of its name, with which the name
 * begins: "jit_step/fusion.1", from the second on "jit_step(2)/fusion.1"; 0: without. FS_OUT_OF_MEMORY. */
fs_status fs_hlo_describe(fs_hlo_describer *of, const fs_hlo_remarks *module, uint32_t instruction,
                          const fs_hlo_work *work, uint32_t number, fs_hlo_described *described, fs_error *err);

#endif
