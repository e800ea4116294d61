/* The rules for torch's ops, one row each. Private to csrc/work/aten.
 *
 *   products.def   what multiplies: matrix products, convolutions, attention, recurrent cells   products.c, …
 *   elements.def   what goes over elements: pointwise, reductions, copies, indexing, …          elements.c, …
 *
 * A rule is asked with the arguments of one call and gives the work of that call, fs_work_unknown where the arguments
 * do not tell it. An op that only calls others (aten::linear) may have a rule too: work counts for the op that
 * launched.
 */
#ifndef FS_WORK_ATEN_ATEN_H
#define FS_WORK_ATEN_ATEN_H

#include "store/torch_signature.h"
#include "work/work.h"

typedef struct fs_aten_rule fs_aten_rule;

typedef fs_work (*fs_aten_count)(const fs_aten_rule *rule, const fs_torch_call *call);

struct fs_aten_rule {
    const char *name; /* without its namespace; matched as aten.c says */
    fs_aten_count count;
    double flops; /* a parameter of the family: FLOPs per element, … */
    int option;   /* another: an argument's place, a flag, … */
};

/* The rows of both lists; each list ends with a name of NULL. */
extern const fs_aten_rule fs_aten_product_rules[], fs_aten_element_rules[];

#endif
