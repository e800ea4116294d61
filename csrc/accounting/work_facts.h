/* What the accounting has to know of each piece of work before it adds any up. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_WORK_FACTS_H
#define FS_ACCOUNTING_WORK_FACTS_H

#include "accounting/host.h"
#include "accounting/sums.h"
#include "base/saturate.h"
#include "store/event.h"
#include "work/copying.h"

typedef struct {
    const fs_store *store;
    const fs_table *table;
    uint32_t *owners; /* by row of a kernel: the first work with an owner, or FS_NONE */
    /* By work. */
    int64_t *budgets; /* ns of its ideal time that are not yet spent; -1: unknown */
    uint8_t *classes; /* an fs_work_class */
    uint32_t *calls;  /* the API call that launched it, or FS_NONE */
    uint8_t *copying; /* an fs_copying: what its op copies besides the place of elements, as far as it was recorded */
    uint32_t counts[FS_DEVICE_LIMIT]; /* works by device */
} fs_work_facts;

/* Look at all works: note the kernels and their launches in `host`, and the kernels of each op in `sums`.
 * FS_OUT_OF_MEMORY. fs_work_facts_clear also accepts a zeroed struct. */
fs_status fs_work_facts_find(fs_work_facts *facts, const fs_store *store, const fs_table *table, fs_host *host,
                             const fs_api_calls *calls, fs_names *names, fs_sums *sums, fs_error *err);
void fs_work_facts_clear(fs_work_facts *facts);

/* Reduce the budgets of the works that a window cuts to the share of their time that lies in it. */
void fs_work_facts_cut(fs_work_facts *facts, const fs_step *window);

/* Works without an owner, such as those launched before the recording began, are accounted as other works of the same
 * kernel. */
static inline const fs_table_work *fs_work_facts_model(const fs_work_facts *facts, const fs_table_work *work)
{
    if (work->row != FS_NONE || work->own_row == FS_NONE || facts->owners[work->own_row] == FS_NONE) return work;
    return &facts->table->works[facts->owners[work->own_row]];
}

/* A hostile trace may have durations below 0. */
static inline int64_t fs_work_length(const fs_table_work *work)
{
    return work->end > work->start ? fs_sub_saturated(work->end, work->start) : 0;
}

/* Return the share of a work's time that lies in a step. */
static inline double fs_work_share(const fs_table_work *work, const fs_step *in)
{
    int64_t begin = work->start > in->begin ? work->start : in->begin, end = work->end < in->end ? work->end : in->end;
    int64_t length = fs_work_length(work);
    if (length == 0) return work->start >= in->begin && work->start < in->end;
    return end > begin ? (double)fs_sub_saturated(end, begin) / (double)length : 0;
}

/* A time that a double holds, as an integer. */
int64_t fs_whole_ns(double ns);

#endif
