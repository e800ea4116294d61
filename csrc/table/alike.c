/* The equations are those of least squares, scaled to a diagonal of 1 and with a ridge that decides nothing but what
 * the samples leave open, whose errors it makes huge. They depend on times alone, so the metrics of a device share them
 * as long as they have the same samples. A sample of more than MOST_TERMS groups is left out, so that they take linear
 * time. */
#include "table/alike.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"
#include "store/event.h"

enum { MOST_TERMS = 64, LEAST_EQUATIONS = 3 /* for each unknown */ };

static const double ridge = 1e-9, most_doubt = 0.1, most_points = 2, least_noise = 0.01, least_rate = 1e-3;

/* Groups ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t key;
    uint32_t work;
} keyed;

static int compare_keys(const void *left, const void *right)
{
    const keyed *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->work > b->work) - (a->work < b->work);
}

/* Key each work by what it is and by what ran before it on its stream. `before`: by lane, zeroed. */
static uint32_t key_works(const fs_store *store, const fs_counted_work *works, uint32_t count, uint64_t *before,
                          keyed *keys)
{
    const uint64_t *random = fs_hash_keys();
    uint32_t keyed_works = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t event = works[k].event, lane = FS_EVENT_AT(store, event, lane);
        uint64_t own = fs_hash_numbers(random, FS_EVENT_AT(store, event, name), FS_EVENT_AT(store, event, signature));
        uint64_t key = own;
        if (lane != FS_NONE) {
            key = fs_hash_numbers(random, own, before[lane]);
            before[lane] = own;
        }
        if (works[k].within && works[k].resolved == 0) keys[keyed_works++] = (keyed){key, k};
    }
    return keyed_works;
}

/* Number the keys that enough works have; those of the most works if there are too many. */
static fs_status number_groups(fs_alike *alike, keyed *keys, uint32_t count, fs_error *err)
{
    FS_TRY(fs_sort(keys, count, sizeof *keys, compare_keys, "works", err));
    for (uint32_t least = FS_LEAST_ALIKE; alike->count == 0 || alike->count > FS_MOST_GROUPS; least *= 2) {
        alike->count = 0;
        if (least > count) return FS_OK;
        for (uint32_t from = 0, to; from < count; from = to) {
            for (to = from; to < count && keys[to].key == keys[from].key;) to++;
            uint32_t group = to - from >= least ? alike->count++ : FS_NONE;
            for (uint32_t i = from; i < to; i++) alike->groups[keys[i].work] = group;
        }
    }
    return FS_OK;
}

static fs_status make_room(fs_alike *alike, fs_error *err)
{
    size_t groups = alike->count;
    alike->told = fs_calloc(groups, sizeof *alike->told);
    alike->rates = fs_calloc(3 * groups, sizeof *alike->rates);
    alike->factor = fs_malloc(groups * groups * sizeof *alike->factor);
    alike->scale = fs_malloc(groups * sizeof *alike->scale);
    alike->inverse = fs_malloc(groups * sizeof *alike->inverse);
    bool made = alike->told != NULL && alike->rates != NULL && alike->factor != NULL && alike->scale != NULL &&
                alike->inverse != NULL;
    alike->ns = alike->rates + groups;
    alike->doubts = alike->ns + groups;
    return made ? FS_OK : fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the rates of %u kernels", alike->count);
}

fs_status fs_alike_build(fs_alike *alike, const fs_store *store, const fs_division *by, fs_error *err)
{
    uint32_t count = by->work_count;
    alike->groups = fs_malloc(count * sizeof *alike->groups);
    keyed *keys = fs_malloc(count * sizeof *keys);
    uint64_t *before = fs_calloc((size_t)fs_store_lane_count(store) + 1, sizeof *before);
    fs_status status = FS_OK;
    if (alike->groups == NULL || keys == NULL || before == NULL) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to compare %u device events", count);
    } else {
        memset(alike->groups, 0xff, count * sizeof *alike->groups); /* FS_NONE */
        uint32_t unresolved = key_works(store, by->works, count, before, keys);
        status = number_groups(alike, keys, unresolved, err);
    }
    fs_free(keys);
    fs_free(before);
    return status == FS_OK && alike->count > 0 ? make_room(alike, err) : status;
}

void fs_alike_clear(fs_alike *alike)
{
    fs_free(alike->groups);
    fs_free(alike->told);
    fs_free(alike->rates);
    fs_free(alike->used);
    fs_free(alike->factor);
    fs_free(alike->scale);
    fs_free(alike->inverse);
    *alike = (fs_alike){0};
}

/* Equations ------------------------------------------------------------------------------------------------------- */

/* The terms of the samples: of sample i, those from begins[i] to begins[i + 1]. */
typedef struct {
    uint32_t group;
    double overlap;
} term;

typedef struct {
    size_t *begins;
    term *items;
} terms;

static bool has_group(const fs_alike *alike, uint32_t work)
{
    return alike->groups[work] != FS_NONE;
}

/* Whether a work without a group has samples to itself, of which by->weights has the overlaps of all works, and its
 * rate within them. */
static bool has_own_rate(const fs_division *by, uint32_t work, double *rate)
{
    const fs_reach *span = &by->spans[work];
    double amount = 0, ns = 0;
    for (uint32_t i = 0; i < span->count && by->works[work].resolved == UINT32_MAX; i++) {
        uint32_t sample = span->first + i;
        double own = fs_division_overlap(by, span, i);
        if (own < by->lengths[sample] || by->weights[sample] > own) continue;
        amount += by->amounts[sample];
        ns += own;
    }
    *rate = ns > 0 ? amount / ns : 0;
    return ns > 0;
}

/* Leave the overlaps of all works in by->weights. */
static fs_status sum_overlaps(fs_division *by, fs_error *err)
{
    uint64_t steps = 0;
    memset(by->weights, 0, by->count * sizeof *by->weights);
    for (uint32_t k = 0; k < by->work_count; k++) {
        FS_TRY(fs_division_poll(by, k, &steps, err));
        fs_division_add(by, k, 1, by->weights);
    }
    return FS_OK;
}

/* Count the terms of each sample, and leave out the samples of work whose rate is unknown. */
static fs_status choose_samples(const fs_alike *alike, fs_division *by, terms *of, fs_error *err)
{
    uint64_t steps = 0;
    double rate;
    FS_TRY(sum_overlaps(by, err));
    memset(alike->used, true, by->count * sizeof *alike->used);
    for (uint32_t k = 0; k < by->work_count; k++) {
        const fs_reach *span = &by->spans[k];
        FS_TRY(fs_division_poll(by, k, &steps, err));
        if (!has_group(alike, k) && has_own_rate(by, k, &rate)) continue;
        for (uint32_t i = 0; i < span->count; i++) {
            if (has_group(alike, k)) of->begins[span->first + i + 1]++;
            else alike->used[span->first + i] = false;
        }
    }
    for (uint32_t i = 0; i < by->count; i++) {
        if (of->begins[i + 1] == 0) alike->used[i] = false;
        of->begins[i + 1] += of->begins[i];
    }
    return FS_OK;
}

/* Fill in the terms, which moves each begin to the next one. */
static fs_status list_terms(const fs_alike *alike, const fs_division *by, terms *of, fs_error *err)
{
    uint64_t steps = 0;
    for (uint32_t k = 0; k < by->work_count; k++) {
        const fs_reach *span = &by->spans[k];
        FS_TRY(fs_division_poll(by, k, &steps, err));
        for (uint32_t i = 0; i < span->count && has_group(alike, k); i++)
            of->items[of->begins[span->first + i]++] = (term){alike->groups[k], fs_division_overlap(by, span, i)};
    }
    return FS_OK;
}

/* Join the terms of one group; returns how many are left. `sums` is zeroed, and is so afterwards. */
static size_t join_terms(term *items, size_t count, double *sums)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].overlap <= 0) continue;
        if (sums[items[i].group] == 0) items[left++].group = items[i].group;
        sums[items[i].group] += items[i].overlap;
    }
    for (size_t i = 0; i < left; i++) {
        items[i].overlap = sums[items[i].group];
        sums[items[i].group] = 0;
    }
    return left;
}

static fs_status sum_equations(fs_alike *alike, const fs_division *by, const terms *of, fs_error *err)
{
    size_t groups = alike->count, begin = 0;
    memset(alike->factor, 0, groups * groups * sizeof *alike->factor);
    memset(alike->rates, 0, groups * sizeof *alike->rates);
    alike->equations = 0;
    for (uint32_t i = 0; i < by->count; begin = of->begins[i++]) {
        FS_POLL(i, err);
        if (!alike->used[i]) continue;
        term *items = of->items + begin;
        size_t count = join_terms(items, of->begins[i] - begin, alike->rates);
        alike->used[i] = count > 0 && count <= MOST_TERMS;
        if (!alike->used[i]) continue;
        alike->equations++;
        for (size_t a = 0; a < count; a++)
            for (size_t b = 0; b < count; b++)
                if (items[a].group >= items[b].group)
                    alike->factor[items[a].group * groups + items[b].group] += items[a].overlap * items[b].overlap;
    }
    return FS_OK;
}

/* Factor the scaled equations, and find the diagonal of their inverse: the sums of squares of the factor's inverse. */
static fs_status factor_equations(fs_alike *alike, fs_error *err)
{
    size_t groups = alike->count;
    double *factor = alike->factor, *column = alike->rates;
    for (size_t g = 0; g < groups; g++) {
        double square = factor[g * groups + g];
        alike->scale[g] = square > 0 ? sqrt(square) : 1;
    }
    for (size_t r = 0; r < groups; r++) {
        FS_POLL(r << 6, err);
        for (size_t c = 0; c <= r; c++) {
            double sum = factor[r * groups + c] / (alike->scale[r] * alike->scale[c]);
            if (r == c) sum += ridge;
            for (size_t i = 0; i < c; i++) sum -= factor[r * groups + i] * factor[c * groups + i];
            factor[r * groups + c] = r > c ? sum / factor[c * groups + c] : sqrt(sum > ridge ? sum : ridge);
        }
    }
    for (size_t j = 0; j < groups; j++) {
        FS_POLL(j << 6, err);
        alike->inverse[j] = 0;
        for (size_t r = j; r < groups; r++) {
            double sum = r == j ? 1 : 0;
            for (size_t i = j; i < r; i++) sum -= factor[r * groups + i] * column[i];
            column[r] = sum / factor[r * groups + r];
            alike->inverse[j] += column[r] * column[r];
        }
    }
    return FS_OK;
}

static fs_status make_equations(fs_alike *alike, fs_division *by, terms *of, fs_error *err)
{
    of->begins = fs_calloc((size_t)by->count + 1, sizeof *of->begins);
    alike->used = fs_malloc(((size_t)by->count + 1) * sizeof *alike->used);
    if (alike->used == NULL || of->begins == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the equations of %u samples", by->count);
    FS_TRY(choose_samples(alike, by, of, err));
    of->items = fs_malloc((of->begins[by->count] + 1) * sizeof *of->items);
    if (of->items == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %zu terms of equations", of->begins[by->count]);
    FS_TRY(list_terms(alike, by, of, err));
    FS_TRY(sum_equations(alike, by, of, err));
    return factor_equations(alike, err);
}

fs_status fs_alike_place(fs_alike *alike, fs_division *by, fs_error *err)
{
    terms of = {.begins = NULL};
    if (alike->count == 0) return FS_OK;
    fs_free(alike->used);
    fs_status status = make_equations(alike, by, &of, err);
    fs_free(of.begins);
    fs_free(of.items);
    return status;
}

/* Solution -------------------------------------------------------------------------------------------------------- */

/* Leave in by->weights what remains of the samples that are used without works that have their own rates. */
static fs_status subtract_own(const fs_alike *alike, fs_division *by, fs_error *err)
{
    uint64_t steps = 0;
    for (uint32_t k = 0; k < by->work_count; k++) {
        FS_TRY(fs_division_poll(by, k, &steps, err));
        if (has_group(alike, k) || !has_own_rate(by, k, &by->rates[k])) by->rates[k] = 0;
    }
    for (uint32_t i = 0; i < by->count; i++) by->weights[i] = alike->used[i] ? by->amounts[i] : 0;
    for (uint32_t k = 0; k < by->work_count; k++)
        if (by->rates[k] > 0) fs_division_add(by, k, -by->rates[k], by->weights);
    for (uint32_t i = 0; i < by->count; i++)
        if (!alike->used[i]) by->weights[i] = 0;
    return FS_OK;
}

/* Solve the equations, whose right side alike->rates has. */
static void solve(fs_alike *alike)
{
    size_t groups = alike->count;
    const double *factor = alike->factor;
    double *rates = alike->rates;
    for (size_t r = 0; r < groups; r++) {
        double sum = rates[r] / alike->scale[r];
        for (size_t i = 0; i < r; i++) sum -= factor[r * groups + i] * rates[i];
        rates[r] = sum / factor[r * groups + r];
    }
    for (size_t r = groups; r-- > 0;) {
        double sum = rates[r];
        for (size_t i = r + 1; i < groups; i++) sum -= factor[i * groups + r] * rates[i];
        rates[r] = sum / factor[r * groups + r];
    }
    for (size_t r = 0; r < groups; r++) rates[r] /= alike->scale[r];
}

/* The standard deviation of what the rates leave of the samples, whose amounts by->weights has. */
static double noise_of(const fs_alike *alike, fs_division *by)
{
    double squares = 0, amounts = 0;
    for (uint32_t i = 0; i < by->count; i++) amounts += by->weights[i];
    for (uint32_t k = 0; k < by->work_count; k++)
        if (has_group(alike, k)) fs_division_add(by, k, -alike->rates[alike->groups[k]], by->weights);
    for (uint32_t i = 0; i < by->count; i++)
        if (alike->used[i]) squares += by->weights[i] * by->weights[i];
    double least = least_noise * amounts / alike->equations;
    return fmax(sqrt(squares / (alike->equations - alike->count)), least);
}

/* Find the time and the doubt of each group, and which are told. */
static void judge(fs_alike *alike, fs_division *by, double mean_rate)
{
    bool is_share = fs_metrics[by->metric].kind != FS_METRIC_AMOUNT_KIND;
    double noise = noise_of(alike, by);
    memset(alike->ns, 0, 2 * alike->count * sizeof *alike->ns); /* and the doubts */
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (!has_group(alike, k) || by->reach[k] <= 0) continue;
        alike->ns[alike->groups[k]] += by->reach[k];
        alike->doubts[alike->groups[k]] += FS_END_DOUBT_NS * mean_rate;
    }
    for (uint32_t g = 0; g < alike->count; g++) {
        double ns = alike->ns[g], error = 3 * noise * sqrt(alike->inverse[g]) / alike->scale[g] * ns;
        double allowed = most_doubt * alike->rates[g] * ns;
        if (is_share) allowed = fmax(allowed, most_points * ns);
        alike->told[g] = ns > 0 && error + alike->doubts[g] <= allowed;
    }
}

/* The amount of the samples in which something ran, over the time of the works in them; by->weights has the overlaps.
 */
static double mean_rate_of(const fs_division *by)
{
    double amount = 0, ns = 0;
    for (uint32_t i = 0; i < by->count; i++) {
        if (by->weights[i] > 0) amount += by->amounts[i];
        ns += by->weights[i];
    }
    return amount > 0 ? amount / ns : 1;
}

fs_status fs_alike_solve(fs_alike *alike, fs_division *by, fs_error *err)
{
    FS_TRY(sum_overlaps(by, err));
    double mean_rate = mean_rate_of(by);
    bool enough = alike->count > 0 && alike->equations >= LEAST_EQUATIONS * alike->count;
    for (uint32_t g = 0; g < alike->count; g++) {
        alike->rates[g] = enough ? 0 : mean_rate;
        alike->told[g] = false;
    }
    if (enough) {
        FS_TRY(subtract_own(alike, by, err));
        for (uint32_t k = 0; k < by->work_count; k++)
            if (has_group(alike, k)) alike->rates[alike->groups[k]] += fs_division_sum(by, k, by->weights);
        solve(alike);
        judge(alike, by, mean_rate);
    }
    for (uint32_t k = 0; k < by->work_count; k++)
        by->rates[k] = has_group(alike, k) ? fmax(alike->rates[alike->groups[k]], least_rate * mean_rate) : mean_rate;
    return FS_OK;
}

void fs_alike_hold(const fs_alike *alike, fs_division *by)
{
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (!fs_alike_is_told(alike, k)) continue;
        by->rates[k] = fmax(alike->rates[alike->groups[k]], 0);
        by->works[k].amounts[by->metric] = by->rates[k] * by->reach[k];
    }
}
