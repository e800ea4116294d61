/* One rate for kernels that are alike, from all samples of their device. Private to csrc/table.
 *
 *   sample s:   amount = sum over groups g of  overlap(s, g) × rate(g)  +  what is known of other works
 *
 * A kernel shorter than a sample shares each of its samples with others, and no rule divides them. Kernels that repeat
 * meet the borders of samples elsewhere each time, so that the samples together tell their rates: least squares, one
 * unknown for each group of alike works. Alike are works of one name and launch, after works that are alike on the same
 * stream, as what ran before decides what the L2 holds.
 *
 * How well a rate is known follows from the same equations: three standard errors, by the residuals of the samples,
 * and for each of its works FS_END_DOUBT_NS of the mean rate around, as kernels start and end less sharply than their
 * times. Kernels that always follow each other in steps of the sampling interval have no rates of their own; their
 * errors are then huge. A group is told if its doubt is at most a tenth of its amount, or two points of a share.
 *
 * Samples of work that has no group, and is not resolved by itself, are left out of the equations. */
#ifndef FS_TABLE_ALIKE_H
#define FS_TABLE_ALIKE_H

#include "store/store.h"
#include "table/division.h"

enum { FS_LEAST_ALIKE = 4, FS_MOST_GROUPS = 512, FS_END_DOUBT_NS = 500 };

typedef struct {
    uint32_t *groups; /* by work; FS_NONE: none */
    uint32_t count;   /* of groups */

    bool *used;         /* by sample of the equations */
    double *factor;     /* lower triangle of the Cholesky factor, of equations scaled to a diagonal of 1 */
    double *scale;      /* by group: root of the diagonal */
    double *inverse;    /* by group: diagonal of the inverse, scaled */
    uint32_t equations; /* samples that are used */

    double *rates, *ns, *doubts; /* by group: of the metric that was solved last; one block */
    bool *told;                  /* likewise */
} fs_alike;

/* Find the groups of the works of a division that is judged. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_alike_build(fs_alike *alike, const fs_store *store, const fs_division *by, fs_error *err);
void fs_alike_clear(fs_alike *alike);

/* Make the equations of the samples that the works were placed in. Errors as above. */
fs_status fs_alike_place(fs_alike *alike, fs_division *by, fs_error *err);

/* Find the rates of groups, and let their works begin with them; others, with the mean. FS_INTERRUPTED. */
fs_status fs_alike_solve(fs_alike *alike, fs_division *by, fs_error *err);

/* Let the works of groups that are told have the rates of these, and the amounts. */
void fs_alike_hold(const fs_alike *alike, fs_division *by);

static inline bool fs_alike_is_told(const fs_alike *alike, uint32_t work)
{
    return alike->groups[work] != FS_NONE && alike->told[alike->groups[work]];
}

#endif
