/* Every sample's amount is divided among the works that overlap it, in each round entirely, so no round makes or
 * loses counts; a sample in which nothing ran is nobody's. Works are in order of start and samples disjoint, so each
 * work meets a run of samples and a round takes linear time. Then written lines go to the work that wrote them, by a
 * ledger of traffic since. A value is shown only for rows of which enough time was sampled finely enough; otherwise
 * it is NaN. */
#include "table/counted.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/sort.h"
#include "store/event.h"
#include "table/alike.h"

enum { ROUNDS = 20, LEDGER_ROUNDS = 16 };

/* Shares of the L2, from the writes that an H200 had still to make when kernels of known traffic ended: a written line
 * leaves after reads and writes of `passing` of its capacity, and at most `dirtiest` of it is dirty. Kernels that leave
 * the memory idle in between leave up to a sixth of the L2 less. */
static const double passing = 0.8, dirtiest = 0.43;

/* Of the L2, by how much the bytes written of a run of kernels were wrong at most, on an H200; of a row's traffic, the
 * greatest doubt with which they are told; of a row's time, the least that must be known. */
static const double doubtful = 0.2, most_doubt = 0.16, least_known = 0.002;

static int compare_starts(const void *left, const void *right)
{
    const fs_counted_work *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

static fs_status divide(fs_division *by, fs_alike *alike, fs_error *err)
{
    uint64_t steps = 0;
    FS_TRY(fs_alike_solve(alike, by, err));
    for (int round = 0; round < ROUNDS; round++) {
        memset(by->weights, 0, by->count * sizeof *by->weights);
        for (uint32_t k = 0; k < by->work_count; k++) {
            FS_TRY(fs_division_poll(by, k, &steps, err));
            fs_division_add(by, k, by->rates[k], by->weights);
        }
        for (uint32_t i = 0; i < by->count; i++)
            by->weights[i] = by->weights[i] > 0 ? by->amounts[i] / by->weights[i] : 0;
        for (uint32_t k = 0; k < by->work_count; k++) {
            FS_TRY(fs_division_poll(by, k, &steps, err));
            double amount = by->rates[k] * fs_division_sum(by, k, by->weights);
            by->works[k].amounts[by->metric] = amount;
            by->rates[k] = by->reach[k] > 0 ? amount / by->reach[k] : 0;
        }
        fs_alike_hold(alike, by);
    }
    return FS_OK;
}

/* Let works have their amounts as covered by the first track, unless this one covers them only in part, and those of
 * groups that were told be resolved. */
static void conclude(const fs_division *by, const fs_alike *alike)
{
    for (uint32_t k = 0; k < by->work_count; k++) {
        fs_counted_work *work = &by->works[k];
        double covered = (double)work->covered, here = (double)by->covered[k];
        if (here != covered)
            work->amounts[by->metric] *= here > 0 && here >= 0.9 * covered ? covered / here : (double)NAN;
        if (fs_alike_is_told(alike, k)) work->resolved |= UINT32_C(1) << by->metric;
    }
}

/* Divide the tracks of a device among its works. The first one decides how well they are covered, and what is alike. */
static fs_status divide_tracks(const fs_store *store, int device, fs_division *by, fs_alike *alike, fs_error *err)
{
    for (int metric = 0; metric < FS_METRIC_COUNT; metric++) {
        const fs_counter_track *track = fs_store_track_of(store, device, (fs_metric)metric);
        bool is_first = alike->groups == NULL, moved;
        if (track == NULL) continue;
        FS_TRY(fs_division_place(by, track, &moved, err));
        if (is_first) FS_TRY(fs_division_judge(by, err));
        if (is_first) FS_TRY(fs_alike_build(alike, store, by, err));
        if (moved) FS_TRY(fs_alike_place(alike, by, err));
        FS_TRY(divide(by, alike, err));
        conclude(by, alike);
    }
    return FS_OK;
}

/* What settle_writes() works with: sums over the works before each, and the writes counted while each ran. */
typedef struct {
    double *traffic, *written, *counted;
} ledger;

static void sum_up(const ledger *of, const fs_counted_work *works, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        double written = works[k].amounts[FS_METRIC_DRAM_WRITTEN];
        of->written[k + 1] = of->written[k] + written;
        of->traffic[k + 1] = of->traffic[k] + written + works[k].amounts[FS_METRIC_DRAM_READ];
    }
}

/* One round: the dirty lines after a piece of work are the writes within the last bytes of traffic. Half a
 * step, because the writes are a part of that traffic. */
static void settle(const ledger *of, fs_counted_work *works, uint32_t count, double l2_bytes)
{
    double found = 0;
    for (uint32_t k = 0, oldest = 0; k < count; k++) {
        double left = of->traffic[k + 1] - passing * l2_bytes; /* lines of earlier traffic are no longer in the L2 */
        while (oldest < k && of->traffic[oldest + 1] <= left) oldest++;
        double span = of->traffic[oldest + 1] - of->traffic[oldest];
        double part = span > 0 && left > of->traffic[oldest] ? (left - of->traffic[oldest]) / span : 0;
        double gone = of->written[oldest] + part * (of->written[oldest + 1] - of->written[oldest]);
        double dirty = fmin(of->written[k + 1] - gone, dirtiest * l2_bytes);
        double *own = &works[k].amounts[FS_METRIC_DRAM_WRITTEN];
        double settled = (*own + of->counted[k] + dirty - found) / 2;
        *own = settled > 0 ? settled : 0;
        found = dirty;
    }
}

/* Give written lines to the work that wrote them. */
static fs_status settle_writes(fs_counted_work *works, uint32_t count, double l2_bytes, fs_error *err)
{
    size_t places = (size_t)count + 1;
    double *block = fs_calloc(3 * places, sizeof *block);
    if (block == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the writes of %u kernels", count);
    const ledger of = {block, block + places, block + 2 * places};
    for (uint32_t k = 0; k < count; k++) of.counted[k] = works[k].amounts[FS_METRIC_DRAM_WRITTEN];
    for (int round = 0; round < LEDGER_ROUNDS; round++) {
        sum_up(&of, works, count);
        settle(&of, works, count, l2_bytes);
    }
    for (uint32_t k = 0; k < count; k++) works[k].doubt = doubtful * l2_bytes;
    fs_free(block);
    return FS_OK;
}

/* Count the works of one device, which begin at `works`. */
static fs_status count_device(const fs_store *store, int device, fs_counted_work *works, uint32_t count, fs_error *err)
{
    fs_device_facts facts = fs_store_device(store, device);
    fs_alike alike = {.groups = NULL};
    fs_division by = {.works = NULL};
    FS_TRY(fs_sort(works, count, sizeof *works, compare_starts, "device events", err));
    fs_status status = fs_division_create(&by, works, count, err);
    if (status == FS_OK) status = divide_tracks(store, device, &by, &alike, err);
    fs_division_clear(&by);
    fs_alike_clear(&alike);
    FS_TRY(status);
    for (uint32_t k = 0; k < count; k++) works[k].amounts[FS_COUNTED_WRITES] = works[k].amounts[FS_METRIC_DRAM_WRITTEN];
    bool both = !isnan(works[0].amounts[FS_METRIC_DRAM_READ]) && !isnan(works[0].amounts[FS_METRIC_DRAM_WRITTEN]);
    if (both && facts.l2_bytes > 0) FS_TRY(settle_writes(works, count, (double)facts.l2_bytes, err));
    return FS_OK;
}

/* Copy the works of a device to the end of `works`; returns their number. */
static uint32_t list_works(const fs_store *store, int device, fs_counted_work *works)
{
    uint32_t count = 0, at;
    const fs_chunk *chunk = NULL;
    fs_counted_work unknown = {.event = 0};
    for (int amount = 0; amount < FS_COUNTED_AMOUNTS; amount++) unknown.amounts[amount] = NAN;
    for (uint32_t index = 0; index < fs_store_count(store); index++) {
        chunk = fs_event_next_chunk(store, index, chunk, &at);
        if (!fs_event_is_placed_work(chunk, at) || fs_event_device(chunk, at) != device) continue;
        fs_counted_work *work = &works[count++];
        *work = unknown;
        work->event = index;
        work->start = chunk->start[at];
        work->end = fs_event_end(chunk, at);
    }
    return count;
}

static uint32_t count_works(const fs_store *store)
{
    uint32_t count = 0, at;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < fs_store_count(store); index++) {
        chunk = fs_event_next_chunk(store, index, chunk, &at);
        count += fs_event_is_placed_work(chunk, at);
    }
    return count;
}

static bool has_track(const fs_store *store, int device)
{
    for (uint32_t i = 0; i < fs_store_track_count(store); i++)
        if (fs_store_track(store, i)->device == device && fs_store_track(store, i)->metric >= 0) return true;
    return false;
}

fs_status fs_counted_build(fs_counted *counted, const fs_store *store, fs_error *err)
{
    *counted = (fs_counted){0};
    uint32_t works = fs_store_track_count(store) > 0 ? count_works(store) : 0;
    if (works == 0) return FS_OK;
    counted->places = fs_calloc(fs_store_count(store), sizeof *counted->places);
    counted->works = fs_malloc(works * sizeof *counted->works);
    if (counted->places == NULL || counted->works == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to count %u device events", works);
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (!has_track(store, device)) continue;
        fs_counted_work *first = &counted->works[counted->count];
        uint32_t count = list_works(store, device, first);
        if (count == 0) continue;
        FS_TRY(count_device(store, device, first, count, err));
        for (uint32_t i = 0; i < count; i++) first[i].device = counted->devices;
        counted->count += count;
        counted->numbers[counted->devices++] = (int16_t)device;
    }
    for (uint32_t i = 0; i < counted->count; i++) {
        counted->places[counted->works[i].event] = i + 1;
        counted->works[i].place = i + 1;
    }
    return FS_OK;
}

void fs_counted_clear(fs_counted *counted)
{
    fs_free(counted->places);
    fs_free(counted->works);
    *counted = (fs_counted){0};
}

static bool is_share(int amount)
{
    return amount < FS_METRIC_COUNT && fs_metrics[amount].kind != FS_METRIC_AMOUNT_KIND;
}

static void add_amount(fs_counted_part *to, const fs_counted_part *part, int amount)
{
    to->amounts[amount] += part->amounts[amount];
    to->covered[amount] += part->covered[amount];
    to->ns[amount] += part->ns[amount];
}

static void end_run(fs_counted_sum *sum)
{
    for (int amount = 0; amount < FS_COUNTED_AMOUNTS; amount++) {
        bool whole = sum->resolved.ns[amount] >= sum->run.ns[amount] / 2 || sum->samples >= FS_COUNTED_RUN;
        add_amount(&sum->known, whole ? &sum->run : &sum->resolved, amount);
    }
    sum->run = sum->resolved = (fs_counted_part){.ns = {0}};
    sum->samples = 0;
}

/* Whether the amount of the work is its own, rather than a guess. */
static bool is_resolved(const fs_counted_work *work, int amount)
{
    int metric = amount == FS_COUNTED_WRITES ? FS_METRIC_DRAM_WRITTEN : amount;
    return (work->resolved >> metric & 1) != 0;
}

void fs_counted_add(fs_counted_sum *sum, const fs_counted_work *work)
{
    int64_t ns = fs_counted_work_ns(work);
    fs_add_to(&sum->ns, ns);
    if (work->place == 0) return;
    bool follows = sum->last != 0 && work->place == sum->last + 1;
    bool goes_on = follows && work->within && (double)fs_sub_saturated(work->start, sum->end) <= work->sample_ns;
    if (!follows) sum->doubt += work->doubt;
    if (!goes_on) end_run(sum);
    sum->last = work->place;
    if (!follows || work->end > sum->end) sum->end = work->end;
    if (!work->within) return;
    fs_counted_part part = {.ns = {0}};
    for (int amount = 0; amount < FS_COUNTED_AMOUNTS; amount++) {
        if (isnan(work->amounts[amount])) continue;
        part.amounts[amount] = work->amounts[amount];
        part.covered[amount] = (double)work->covered;
        part.ns[amount] = (double)ns;
        add_amount(&sum->run, &part, amount);
        if (is_resolved(work, amount)) add_amount(&sum->resolved, &part, amount);
    }
    sum->samples += (double)ns / work->sample_ns;
    if (work->fine) fs_add_to(&sum->fine, ns);
}

fs_counted_sum fs_counted_total(fs_counted_sum *sums, uint32_t devices)
{
    fs_counted_sum total = {.ns = 0};
    for (uint32_t device = 0; device < devices; device++) {
        fs_counted_sum *sum = &sums[device];
        end_run(sum);
        for (int amount = 0; amount < FS_COUNTED_AMOUNTS; amount++) add_amount(&total.known, &sum->known, amount);
        total.doubt += sum->doubt;
        fs_add_to(&total.ns, sum->ns);
        fs_add_to(&total.fine, sum->fine);
        total.apart = total.apart || sum->apart;
    }
    return total;
}

/* All work over the work whose amount is known, or NaN if too little is. */
static double whole_of(const fs_counted_sum *sum, int amount)
{
    double ns = sum->known.ns[amount];
    bool known = ns > 0 && ns >= (double)sum->fine / 2 && ns >= least_known * (double)sum->ns;
    return known ? (double)sum->ns / ns : (double)NAN;
}

double fs_counted_traffic(const fs_counted_sum *sum)
{
    const double *amounts = sum->known.amounts;
    return amounts[FS_METRIC_DRAM_READ] * whole_of(sum, FS_METRIC_DRAM_READ) +
           amounts[FS_COUNTED_WRITES] * whole_of(sum, FS_COUNTED_WRITES);
}

double fs_counted_value(const fs_counted_sum *sum, fs_metric metric)
{
    const fs_counted_part *part = &sum->known;
    double whole = whole_of(sum, (int)metric), amount = part->amounts[metric];
    if (isnan(whole)) return NAN;
    if (is_share((int)metric)) return amount / part->covered[metric];
    if (metric != FS_METRIC_DRAM_WRITTEN) return amount * whole;
    double traffic = amount * whole + part->amounts[FS_METRIC_DRAM_READ] * whole_of(sum, FS_METRIC_DRAM_READ);
    return sum->doubt > most_doubt * traffic ? (double)NAN : amount * whole;
}
