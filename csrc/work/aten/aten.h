/* The rules for torch's ops, one row each. Private to csrc/work/aten.
 *
 *   products.def   multiply-adds: matrix products, convolutions, attention, recurrent cells          products.c, …
 *   elements.def   per-element work: pointwise, reductions, copies, indexing, …                      elements.c, …
 *
 * A rule computes the work of one call from its arguments, or fs_work_unknown if they are insufficient. An op that only
 * calls others (aten::linear) may have a rule too: work is attributed to the op that launched. */
#ifndef FS_WORK_ATEN_ATEN_H
#define FS_WORK_ATEN_ATEN_H

#include "store/torch_signature.h"
#include "work/category.h"
#include "work/work.h"

typedef struct fs_aten_rule fs_aten_rule;

typedef fs_work (*fs_aten_count)(const fs_aten_rule *rule, const fs_torch_call *call);

struct fs_aten_rule {
    const char *name; /* without its namespace; matched as described in aten.c */
    fs_aten_count count;
    double flops;          /* parameter of the family: FLOPs per element, … */
    int option;            /* further parameter: the place of an argument, a flag, … */
    const char *arguments; /* the argument list (libraries/schema.h), if the op is of another library; else NULL */
    fs_category category;  /* FS_CATEGORY_OF_FAMILY: that of its family (categories.c) */
};

/* The rows of both lists; each list ends with a NULL name. */
extern const fs_aten_rule fs_aten_product_rules[], fs_aten_element_rules[];

/* Return the rule of an op by its full name, of any call; count is NULL if there is none. A name without a namespace,
 * or in flopscope's, is one of aten. */
fs_aten_rule fs_aten_rule_of(const char *name);

/* Return the category of a rule (categories.c). */
fs_category fs_aten_category(const fs_aten_rule *rule);

#endif
