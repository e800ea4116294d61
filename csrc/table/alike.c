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

fs_status fs_alike_build(fs_alike *alike, const fs_store *store, const fs_counted_work *works, uint32_t count,
                         fs_error *err)
{
    alike->groups = fs_malloc(count * sizeof *alike->groups);
    keyed *keys = fs_malloc(count * sizeof *keys);
    uint64_t *before = fs_calloc((size_t)fs_store_lane_count(store) + 1, sizeof *before);
    fs_status status = FS_OK;
    if (alike->groups == NULL || keys == NULL || before == NULL) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to compare %u device events", count);
    } else {
        memset(alike->groups, 0xff, count * sizeof *alike->groups); /* FS_NONE */
        uint32_t unresolved = key_works(store, works, count, before, keys);
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

static bool has_group(const fs_division *by, uint32_t work)
{
    return by->alike->groups[work] != FS_NONE;
}

/* The rate within the samples that a work has to itself, of which by->weights has the overlaps of all; NaN: none. */
static double own_rate(const fs_division *by, uint32_t work)
{
    double amount = 0, ns = 0;
    for (uint32_t i = by->first[work]; fs_division_reaches(by, i, &by->works[work]); i++) {
        double own = fs_division_reach(&by->works[work], &by->samples[i]);
        if (own <= 0 || own < (double)fs_division_sample_ns(&by->samples[i]) || by->weights[i] > own) continue;
        amount += fs_division_amount(by, i);
        ns += own;
    }
    return ns > 0 ? amount / ns : (double)NAN;
}

/* Sum the overlaps of each sample, and find the rates of works without a group. */
static fs_status find_own_rates(const fs_division *by, fs_error *err)
{
    uint64_t steps = 0;
    memset(by->weights, 0, by->count * sizeof *by->weights);
    for (uint32_t k = 0; k < by->work_count; k++)
        for (uint32_t i = by->first[k]; fs_division_reaches(by, i, &by->works[k]); i++) {
            FS_POLL(steps++, err);
            by->weights[i] += fs_division_reach(&by->works[k], &by->samples[i]);
        }
    for (uint32_t k = 0; k < by->work_count; k++) {
        FS_POLL(k, err);
        bool is_itself = by->works[k].resolved == UINT32_MAX && !has_group(by, k);
        by->rates[k] = is_itself ? own_rate(by, k) : (double)NAN;
    }
    return FS_OK;
}

/* Count the terms of each sample, and leave out the samples of work whose rate is unknown. */
static fs_status choose_samples(const fs_division *by, terms *of, fs_error *err)
{
    fs_alike *alike = by->alike;
    uint64_t steps = 0;
    memset(alike->used, true, by->count * sizeof *alike->used);
    for (uint32_t k = 0; k < by->work_count; k++) {
        bool known = !isnan(by->rates[k]);
        for (uint32_t i = by->first[k]; fs_division_reaches(by, i, &by->works[k]); i++) {
            FS_POLL(steps++, err);
            if (fs_division_reach(&by->works[k], &by->samples[i]) <= 0) continue;
            if (has_group(by, k)) of->begins[i + 1]++;
            else if (!known) alike->used[i] = false;
        }
    }
    for (uint32_t i = 0; i < by->count; i++) {
        if (of->begins[i + 1] == 0) alike->used[i] = false;
        of->begins[i + 1] += of->begins[i];
    }
    return FS_OK;
}

/* Fill in the terms, which moves each begin to the next one. */
static fs_status list_terms(const fs_division *by, terms *of, fs_error *err)
{
    uint64_t steps = 0;
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (!has_group(by, k)) continue;
        for (uint32_t i = by->first[k]; fs_division_reaches(by, i, &by->works[k]); i++) {
            FS_POLL(steps++, err);
            double overlap = fs_division_reach(&by->works[k], &by->samples[i]);
            if (overlap > 0) of->items[of->begins[i]++] = (term){by->alike->groups[k], overlap};
        }
    }
    return FS_OK;
}

/* Join the terms of one group; returns how many are left. `sums` is zeroed, and is so afterwards. */
static size_t join_terms(term *items, size_t count, double *sums)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (sums[items[i].group] == 0) items[left++].group = items[i].group;
        sums[items[i].group] += items[i].overlap;
    }
    for (size_t i = 0; i < left; i++) {
        items[i].overlap = sums[items[i].group];
        sums[items[i].group] = 0;
    }
    return left;
}

static fs_status sum_equations(const fs_division *by, const terms *of, fs_error *err)
{
    fs_alike *alike = by->alike;
    size_t groups = alike->count, begin = 0;
    memset(alike->factor, 0, groups * groups * sizeof *alike->factor);
    memset(alike->rates, 0, groups * sizeof *alike->rates);
    alike->equations = 0;
    for (uint32_t i = 0; i < by->count; begin = of->begins[i++]) {
        FS_POLL(i, err);
        if (!alike->used[i]) continue;
        term *items = of->items + begin;
        size_t count = join_terms(items, of->begins[i] - begin, alike->rates);
        alike->used[i] = count <= MOST_TERMS;
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

static fs_status make_equations(const fs_division *by, fs_error *err)
{
    fs_alike *alike = by->alike;
    fs_free(alike->used);
    alike->used = fs_malloc(((size_t)by->count + 1) * sizeof *alike->used);
    terms of = {.begins = fs_calloc((size_t)by->count + 1, sizeof *of.begins)};
    fs_status status = FS_OK;
    if (alike->used == NULL || of.begins == NULL) status = FS_OUT_OF_MEMORY;
    if (status == FS_OK) status = choose_samples(by, &of, err);
    if (status == FS_OK) of.items = fs_malloc((of.begins[by->count] + 1) * sizeof *of.items);
    if (status == FS_OK && of.items == NULL) status = FS_OUT_OF_MEMORY;
    if (status == FS_OK) status = list_terms(by, &of, err);
    if (status == FS_OK) status = sum_equations(by, &of, err);
    if (status == FS_OK) status = factor_equations(alike, err);
    alike->samples = status == FS_OK ? by->samples : NULL;
    alike->sample_count = by->count;
    fs_free(of.begins);
    fs_free(of.items);
    if (status != FS_OUT_OF_MEMORY) return status;
    return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the equations of %u samples", by->count);
}

/* Whether the equations are those of other samples than the track's. */
static bool are_of_others(const fs_division *by)
{
    const fs_alike *alike = by->alike;
    if (alike->samples == NULL || alike->sample_count != by->count) return true;
    for (uint32_t i = 0; i < by->count; i++)
        if (alike->samples[i].start != by->samples[i].start || alike->samples[i].end != by->samples[i].end) return true;
    return false;
}

/* Solution -------------------------------------------------------------------------------------------------------- */

/* Leave in by->weights what remains of each sample's amount without the works whose rates are known. */
static void subtract_known(const fs_division *by)
{
    for (uint32_t i = 0; i < by->count; i++) by->weights[i] = fs_division_amount(by, i);
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (isnan(by->rates[k])) continue;
        for (uint32_t i = by->first[k]; fs_division_reaches(by, i, &by->works[k]); i++)
            by->weights[i] -= by->rates[k] * fs_division_reach(&by->works[k], &by->samples[i]);
    }
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

/* Subtract the works of groups as well, and return the variance of what is left of the samples that are used. */
static double noise_of(const fs_division *by)
{
    const fs_alike *alike = by->alike;
    double squares = 0, amounts = 0;
    for (uint32_t i = 0; i < by->count; i++)
        if (alike->used[i]) amounts += by->weights[i];
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (!has_group(by, k)) continue;
        double rate = alike->rates[alike->groups[k]];
        for (uint32_t i = by->first[k]; fs_division_reaches(by, i, &by->works[k]); i++)
            by->weights[i] -= rate * fs_division_reach(&by->works[k], &by->samples[i]);
    }
    for (uint32_t i = 0; i < by->count; i++)
        if (alike->used[i]) squares += by->weights[i] * by->weights[i];
    double mean = least_noise * amounts / alike->equations;
    return fmax(squares / (alike->equations - alike->count), mean * mean);
}

/* Find the time and the doubt of each group, and which are told. */
static void judge(const fs_division *by, double mean_rate)
{
    fs_alike *alike = by->alike;
    bool is_share = fs_metrics[by->metric].kind != FS_METRIC_AMOUNT_KIND;
    double noise = sqrt(noise_of(by));
    memset(alike->ns, 0, 2 * alike->count * sizeof *alike->ns); /* and the doubts */
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (!has_group(by, k) || by->reach[k] <= 0) continue;
        alike->ns[alike->groups[k]] += by->reach[k];
        alike->doubts[alike->groups[k]] += FS_END_DOUBT_NS * mean_rate;
    }
    for (uint32_t g = 0; g < alike->count; g++) {
        double ns = alike->ns[g], error = 2 * noise * sqrt(alike->inverse[g]) / alike->scale[g] * ns;
        double allowed = most_doubt * alike->rates[g] * ns;
        if (is_share) allowed = fmax(allowed, most_points * ns);
        alike->told[g] = ns > 0 && error + alike->doubts[g] <= allowed;
    }
}

/* The amount of all samples in which something ran, over the time of the works in them; by->weights has the overlaps. */
static double mean_rate_of(const fs_division *by)
{
    double amount = 0, ns = 0;
    for (uint32_t i = 0; i < by->count; i++) {
        if (by->weights[i] > 0) amount += fs_division_amount(by, i);
        ns += by->weights[i];
    }
    return amount > 0 ? amount / ns : 1;
}

static fs_status find_rates(fs_division *by, double mean_rate, fs_error *err)
{
    fs_alike *alike = by->alike;
    if (are_of_others(by)) FS_TRY(make_equations(by, err));
    for (uint32_t g = 0; g < alike->count; g++) alike->told[g] = false;
    alike->solved = alike->equations >= LEAST_EQUATIONS * alike->count;
    if (!alike->solved) return FS_OK;
    subtract_known(by);
    memset(alike->rates, 0, alike->count * sizeof *alike->rates);
    for (uint32_t k = 0; k < by->work_count; k++) {
        FS_POLL(k, err);
        if (!has_group(by, k)) continue;
        for (uint32_t i = by->first[k]; fs_division_reaches(by, i, &by->works[k]); i++)
            if (alike->used[i])
                alike->rates[alike->groups[k]] +=
                    by->weights[i] * fs_division_reach(&by->works[k], &by->samples[i]);
    }
    solve(alike);
    judge(by, mean_rate);
    return FS_OK;
}

fs_status fs_alike_solve(fs_division *by, fs_error *err)
{
    fs_alike *alike = by->alike;
    FS_TRY(find_own_rates(by, err));
    double mean_rate = mean_rate_of(by);
    if (alike->count > 0) FS_TRY(find_rates(by, mean_rate, err));
    for (uint32_t k = 0; k < by->work_count; k++) {
        bool is_solved = has_group(by, k) && alike->solved;
        by->rates[k] = is_solved ? fmax(alike->rates[alike->groups[k]], least_rate * mean_rate) : mean_rate;
    }
    return FS_OK;
}

void fs_alike_hold(fs_division *by)
{
    const fs_alike *alike = by->alike;
    for (uint32_t k = 0; k < by->work_count; k++) {
        if (!fs_alike_is_told(alike, k)) continue;
        by->rates[k] = fmax(alike->rates[alike->groups[k]], 0);
        by->works[k].amounts[by->metric] = by->rates[k] * by->reach[k];
    }
}
