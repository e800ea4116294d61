/* An index found once stays valid: rows are only appended, and a key's id in `keys` is the row's index. Works of one
 * kind come in bursts, so a small cache of recent keys answers most look-ups without hashing the whole key. The room
 * for a row is made before its key is added: a failure leaves as many rows as keys. */
#include "accounting/sums.h"

#include <string.h>

#include "base/memory.h"
#include "base/saturate.h"

enum { FIRST_CAPACITY = 64 };

/* Number by number: a vector cannot be loaded where its numbers have just been stored one by one. */
static bool is_same(const uint32_t *a, const uint32_t *b)
{
    for (int i = 0; i < FS_SUMS_KEY; i++)
        if (a[i] != b[i]) return false;
    return true;
}

/* Find the index of a key. Where it is new, make room for its row, which the caller fills in. `rows` is the address of
 * the list. */
static fs_status find(fs_sums_keys *keys, const uint32_t key[FS_SUMS_KEY], void *rows, uint32_t *count,
                      uint32_t *capacity, size_t row_size, uint32_t *index, bool *added, fs_error *err)
{
    size_t size = FS_SUMS_KEY * sizeof *key;
    fs_sums_recent *recent = keys->next[keys->last % FS_SUMS_RECENT], *other = recent + 1;
    *added = false;
    if (recent->index != 0 && is_same(recent->key, key)) {
        keys->last = *index = recent->index - 1;
        return FS_OK;
    }
    if (other->index != 0 && is_same(other->key, key)) {
        keys->last = *index = other->index - 1;
        return FS_OK;
    }
    if (*count == *capacity) FS_TRY(fs_list_grow(rows, *count, capacity, row_size, FIRST_CAPACITY, err));
    FS_TRY(fs_intern_bytes(&keys->all, key, size, index, err));
    *added = *index == *count;
    *count += *added;
    *other = *recent;
    memcpy(recent->key, key, size);
    recent->index = *index + 1;
    keys->last = *index;
    return FS_OK;
}

#define FIND(sums, row, key, index, added, err)                                                    \
    find(&(sums)->row##_keys, key, &(sums)->row##s, &(sums)->row##_count, &(sums)->row##_capacity, \
         sizeof *(sums)->row##s, index, added, err)

fs_status fs_sums_cell(fs_sums *sums, fs_cell_key key, uint32_t *index, fs_error *err)
{
    const uint32_t words[FS_SUMS_KEY] = {key.device, key.step, key.row, key.kernel, key.known};
    bool added;
    FS_TRY(FIND(sums, cell, words, index, &added, err));
    if (added) sums->cells[*index] = (fs_cell){.device = (int32_t)key.device, .step = key.step, .event = -1};
    return FS_OK;
}

uint32_t fs_sums_find_cell(const fs_sums *sums, fs_cell_key key)
{
    const uint32_t words[FS_SUMS_KEY] = {key.device, key.step, key.row, key.kernel, key.known};
    return fs_intern_find(&sums->cell_keys.all, words, sizeof words);
}

fs_status fs_sums_gap(fs_sums *sums, int device, uint32_t step, fs_idle_cause cause, uint32_t row, uint32_t group,
                      uint32_t wait, uint32_t event, int64_t time, fs_error *err)
{
    const uint32_t key[FS_SUMS_KEY] = {(uint32_t)device, step, cause, row, group};
    uint32_t index;
    bool added;
    if (time <= 0) return FS_OK;
    FS_TRY(FIND(sums, gap, key, &index, &added, err));
    fs_gap *gap = &sums->gaps[index];
    if (added)
        *gap = (fs_gap){.device = device,
                        .step = step,
                        .cause = cause,
                        .row = row == FS_NONE ? -1 : (int64_t)row,
                        .wait = wait == FS_NONE ? -1 : (int64_t)wait,
                        .event = event == FS_NONE ? -1 : (int64_t)event};
    gap->count++;
    fs_add_to(&gap->time, time);
    return FS_OK;
}

fs_status fs_sums_pair(fs_sums *sums, uint32_t before, uint32_t after, uint32_t event, fs_error *err)
{
    const uint32_t key[FS_SUMS_KEY] = {before, after};
    uint32_t index;
    bool added;
    FS_TRY(FIND(sums, pair, key, &index, &added, err));
    if (added) sums->pairs[index] = (fs_pair){.before = before, .after = after, .event = event};
    sums->pairs[index].count++;
    return FS_OK;
}

fs_status fs_sums_launched(fs_sums *sums, uint32_t row, uint32_t kernel, int64_t count, int64_t time, fs_error *err)
{
    const uint32_t key[FS_SUMS_KEY] = {row, kernel};
    uint32_t index;
    bool added;
    FS_TRY(find(&sums->launched_keys, key, &sums->launched, &sums->launched_count, &sums->launched_capacity,
                sizeof *sums->launched, &index, &added, err));
    if (added) sums->launched[index] = (fs_launched){.row = row, .kernel = kernel};
    sums->launched[index].count += count;
    fs_add_to(&sums->launched[index].busy, time);
    return FS_OK;
}

static fs_status append(void *rows, uint32_t *count, uint32_t *capacity, const void *more, uint32_t more_count,
                        size_t size, fs_error *err)
{
    char *items;
    size_t last = (size_t)*count + more_count - 1;
    if (more_count == 0) return FS_OK;
    if (last >= *capacity) FS_TRY(fs_list_grow(rows, last, capacity, size, FIRST_CAPACITY, err));
    memcpy(&items, rows, sizeof items);
    memcpy(items + *count * size, more, more_count * size);
    *count += more_count;
    return FS_OK;
}

fs_status fs_sums_append(fs_sums *to, const fs_sums *from, fs_error *err)
{
    FS_TRY(
        append(&to->cells, &to->cell_count, &to->cell_capacity, from->cells, from->cell_count, sizeof *to->cells, err));
    return append(&to->gaps, &to->gap_count, &to->gap_capacity, from->gaps, from->gap_count, sizeof *to->gaps, err);
}

void fs_sums_take(fs_sums *sums, fs_accounting *accounting)
{
    accounting->cells = sums->cells;
    accounting->gaps = sums->gaps;
    accounting->pairs = sums->pairs;
    accounting->cell_count = sums->cell_count;
    accounting->gap_count = sums->gap_count;
    accounting->pair_count = sums->pair_count;
    accounting->launched = sums->launched;
    accounting->launched_count = sums->launched_count;
    sums->cells = NULL;
    sums->gaps = NULL;
    sums->pairs = NULL;
    sums->launched = NULL;
}

void fs_sums_clear(fs_sums *sums)
{
    fs_intern_clear(&sums->cell_keys.all);
    fs_intern_clear(&sums->gap_keys.all);
    fs_intern_clear(&sums->pair_keys.all);
    fs_intern_clear(&sums->launched_keys.all);
    fs_free(sums->cells);
    fs_free(sums->gaps);
    fs_free(sums->pairs);
    fs_free(sums->launched);
}
