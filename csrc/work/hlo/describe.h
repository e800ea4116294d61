/* What a table needs to know of an instruction: its name, its call, and what encloses it. Private to csrc/work/hlo. */
#ifndef FS_WORK_HLO_DESCRIBE_H
#define FS_WORK_HLO_DESCRIBE_H

#include "base/intern.h"
#include "store/store.h"
#include "store/torch_signature.h"
#include "work/hlo/cost.h"
#include "work/hlo/remarks.h"

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
