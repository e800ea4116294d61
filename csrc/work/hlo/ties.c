/* What follows the search: ties of works that ran out of order, and how sure the ties are. */
#include "base/memory.h"
#include "work/hlo/align.h"

enum { MOST_NEAR = 64 }; /* slots of a name before and after a place that are looked at */

/* Return a slot with the name of a work that no other work of an iteration has taken, the nearest to another slot. */
static uint32_t free_slot(const fs_schedules *all, uint32_t name, uint32_t near, const uint32_t *taken, uint32_t round)
{
    uint32_t best = FS_NONE, distance = UINT32_MAX;
    for (uint32_t i = fs_schedules_first_class(all, name, all->slots[near].module); i < all->lists[name + 1]; i++) {
        const fs_slot_class *class = &all->classes[all->listed[i]];
        if (class->module != all->slots[near].module) break;
        if (class->alike) continue;
        uint32_t middle = fs_slot_class_from(class, near), first = middle > MOST_NEAR ? middle - MOST_NEAR : 0;
        for (uint32_t k = first; k < class->count && k < middle + MOST_NEAR; k++) {
            uint32_t slot = class->slots[k], away = slot > near ? slot - near : near - slot;
            if (taken[slot] == round || away >= distance) continue;
            best = slot;
            distance = away;
        }
    }
    return best;
}

/* Kernels of other streams run out of the schedule's order: tie those to slots of their name that are free. */
fs_status fs_ties_add(const fs_schedules *all, const fs_aligned_work *works, uint32_t count, const bool *repeats,
                      fs_tie *ties, fs_error *err)
{
    uint32_t *taken = fs_calloc((size_t)all->slot_count + 1, sizeof *taken), round = 0;
    if (taken == NULL) return fs_no_memory(err);
    for (uint32_t first = 0, end; first < count; first = end) {
        uint32_t near = FS_NONE;
        bool untied = false;
        round++;
        for (end = first; end < count && (end == first || !repeats[end]); end++) {
            if (ties[end].slot != FS_NONE) taken[ties[end].slot] = round;
            else untied = untied || works[end].name != FS_NONE;
        }
        for (uint32_t i = first; untied && i < end; i++) {
            fs_tie *tie = &ties[i];
            if (tie->slot != FS_NONE) near = tie->slot;
            else if (near != FS_NONE && works[i].name != FS_NONE) {
                tie->slot = free_slot(all, works[i].name, near, taken, round);
                if (tie->slot == FS_NONE) continue;
                taken[tie->slot] = round;
                tie->begins = true;
            }
        }
    }
    fs_free(taken);
    return FS_OK;
}

/* Return whether only one slot may run the works of a name. */
static bool is_alone(const fs_schedules *all, uint32_t name)
{
    uint64_t found = 0;
    for (uint32_t i = all->lists[name]; i < all->lists[name + 1] && found < 2; i++) {
        const fs_slot_class *class = &all->classes[all->listed[i]];
        found += class->alike ? class->unseen : class->count;
    }
    return found == 1;
}

/* A work that is tied by order has a name, or names before and after it that leave nothing out. */
void fs_ties_prove(const fs_schedules *all, const fs_aligned_work *works, uint32_t count, const uint32_t *costs,
                   fs_tie *ties)
{
    uint32_t after = 0, last = FS_NONE;
    bool alone = false; /* the name of the last work */
    for (uint32_t i = count; i-- > 0;) {
        fs_tie *tie = &ties[i];
        uint32_t name = works[i].name;
        bool in_order = costs[i] <= FS_TIE_EXTRA;
        if (tie->slot == FS_NONE) continue;
        if (name != FS_NONE && name != last) alone = works[i].given || is_alone(all, name);
        last = name;
        if (name != FS_NONE && alone) tie->proof = FS_TIE_BY_NAME;
        else if (in_order && (name != FS_NONE || after <= FS_TIE_EXTRA)) tie->proof = FS_TIE_BY_ORDER;
        else tie->proof = FS_TIE_GUESSED;
        after = costs[i];
    }
}
