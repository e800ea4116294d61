/* The rows of an accounting under construction, found by their keys. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_SUMS_H
#define FS_ACCOUNTING_SUMS_H

#include "accounting/accounting.h"
#include "base/intern.h"

enum { FS_SUMS_KEY = 5, FS_SUMS_RECENT = 1 << 9 };

/* The index of a row. */
typedef struct {
    uint32_t key[FS_SUMS_KEY];
    uint32_t index; /* plus 1; 0: none */
} fs_sums_recent;

/* Programs repeat themselves: a row is most likely one of the two that were looked for after the row found last. */
typedef struct {
    fs_intern all; /* ids are indices */
    uint32_t last;
    fs_sums_recent next[FS_SUMS_RECENT][2]; /* by the last row, or by one that shares its place */
} fs_sums_keys;

/* A zeroed struct is empty. */
typedef struct {
    fs_sums_keys cell_keys, gap_keys, pair_keys, launched_keys;
    fs_cell *cells;
    fs_gap *gaps;
    fs_pair *pairs;
    fs_launched *launched;
    uint32_t cell_count, cell_capacity, gap_count, gap_capacity, pair_count, pair_capacity;
    uint32_t launched_count, launched_capacity;
} fs_sums;

/* What works of one cell have in common; `known`: whether their least time is. */
typedef struct {
    uint32_t device, step, row, kernel, known;
} fs_cell_key;

/* Find or add a cell, and return its index; the event of a new one is -1. FS_OUT_OF_MEMORY. */
fs_status fs_sums_cell(fs_sums *sums, fs_cell_key key, uint32_t *index, fs_error *err);

/* Return the index of a cell, or FS_NONE. */
uint32_t fs_sums_find_cell(const fs_sums *sums, fs_cell_key key);

/* Add idle time. `group` separates gaps of one cause and row further. `wait` and `event` are FS_NONE if missing. */
fs_status fs_sums_gap(fs_sums *sums, int device, uint32_t step, fs_idle_cause cause, uint32_t row, uint32_t group,
                      uint32_t wait, uint32_t event, int64_t time, fs_error *err);

fs_status fs_sums_pair(fs_sums *sums, uint32_t before, uint32_t after, uint32_t event, fs_error *err);

fs_status fs_sums_launched(fs_sums *sums, uint32_t row, uint32_t kernel, int64_t count, int64_t time, fs_error *err);

/* Append cells and gaps whose keys are of others, and which cannot be found there. FS_OUT_OF_MEMORY. */
fs_status fs_sums_append(fs_sums *to, const fs_sums *from, fs_error *err);

/* Move the rows to a result. */
void fs_sums_take(fs_sums *sums, fs_accounting *accounting);
void fs_sums_clear(fs_sums *sums);

#endif
