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
#include "base/search.h"
#include "base/sort.h"
#include "store/event.h"

enum { ROUNDS = 20, LEDGER_ROUNDS = 16 };

/* Shares of the L2, from the writes that an H200 had still to make when kernels of known traffic ended: a written line
 * leaves after reads and writes of `passing` of its capacity, and at most `dirtiest` of it is dirty. Kernels that leave
 * the memory idle in between leave up to a sixth of the L2 less. */
static const double passing = 0.8, dirtiest = 0.43;

/* Of the L2, by how much the bytes written of a run of kernels were wrong at most, on an H200; of a row's traffic, the
 * greatest doubt with which they are told; of a row's time, the least that must be known. */
static const double doubtful = 0.2, most_doubt = 0.16, least_known = 0.002;

/* What one track is divided with. */
typedef struct {
    const fs_sample *samples;
    uint32_t count;
    fs_counted_work *works;
    uint32_t work_count;
    uint32_t *first;  /* by work: the first sample that ends after it starts */
    double *rates;    /* by work, per ns */
    double *weights;  /* by sample: sum of overlap times rate */
    int64_t *covered; /* by work, ns */
    bool leads;       /* the first track of its device */
} division;

FS_ORDER_BY(compare_starts, fs_counted_work, start, event)

static int64_t work_length(const fs_counted_work *work)
{
    return fs_sub_saturated(work->end, work->start);
}

static int64_t overlap(const fs_counted_work *work, const fs_sample *sample)
{
    int64_t from = work->start > sample->start ? work->start : sample->start;
    int64_t to = work->end < sample->end ? work->end : sample->end;
    return to > from ? fs_sub_saturated(to, from) : 0;
}

static int64_t sample_length(const fs_sample *sample)
{
    return fs_sub_saturated(sample->end, sample->start);
}

static bool reaches(const division *by, uint32_t sample, const fs_counted_work *work)
{
    return sample < by->count && by->samples[sample].start < work->end;
}

static int64_t shortest_sample(const division *by)
{
    int64_t shortest = INT64_MAX;
    for (uint32_t i = 0; i < by->count; i++) {
        int64_t length = sample_length(&by->samples[i]);
        if (length > 0 && length < shortest) shortest = length;
    }
    return shortest;
}

/* Find each work's first sample and how well the samples cover and resolve it. */
static fs_status place_works(const division *by, fs_error *err)
{
    uint32_t from = 0;
    uint64_t steps = 0; /* each work may reach all samples */
    double shortest = (double)shortest_sample(by);
    for (uint32_t k = 0; k < by->work_count; k++) {
        fs_counted_work *work = &by->works[k];
        while (from < by->count && by->samples[from].end <= work->start) from++;
        by->first[k] = from;
        by->rates[k] = 1;
        by->covered[k] = 0;
        double own = (double)work_length(work), length = 0;
        uint32_t touched = 0;
        for (uint32_t i = from; reaches(by, i, work); i++, touched++) {
            FS_POLL(steps++, err);
            fs_add_to(&by->covered[k], overlap(work, &by->samples[i]));
            length += (double)sample_length(&by->samples[i]);
        }
        if (!by->leads) continue;
        work->covered = by->covered[k];
        bool its_own = own >= 0.9 * length; /* the samples lie in it: counted for this work alone */
        work->within = touched > 0 && (double)work->covered >= 0.9 * own;
        work->sample_ns = touched > 0 ? length / touched : 0;
        work->resolved = work->within && (its_own || own >= FS_COUNTED_SAMPLES * work->sample_ns);
        work->fine = work->within && work->sample_ns <= 2 * shortest;
    }
    return FS_OK;
}

/* The sample's value as an amount. */
static double amount_of(const fs_sample *sample, fs_metric_kind kind)
{
    double value = sample->value > 0 ? sample->value : 0;
    return kind == FS_METRIC_AMOUNT_KIND ? value : value * (double)sample_length(sample);
}

static fs_status divide(const division *by, fs_metric metric, fs_error *err)
{
    fs_metric_kind kind = fs_metrics[metric].kind;
    uint64_t steps = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memset(by->weights, 0, by->count * sizeof *by->weights);
        for (uint32_t k = 0; k < by->work_count; k++) {
            for (uint32_t i = by->first[k]; reaches(by, i, &by->works[k]); i++) {
                FS_POLL(steps++, err);
                by->weights[i] += by->rates[k] * (double)overlap(&by->works[k], &by->samples[i]);
            }
        }
        for (uint32_t k = 0; k < by->work_count; k++) {
            fs_counted_work *work = &by->works[k];
            double amount = 0;
            for (uint32_t i = by->first[k]; reaches(by, i, work); i++) {
                double part = by->rates[k] * (double)overlap(work, &by->samples[i]);
                if (part > 0) amount += amount_of(&by->samples[i], kind) * part / by->weights[i];
            }
            work->amounts[metric] = amount;
            by->rates[k] = by->covered[k] > 0 ? amount / (double)by->covered[k] : 0;
        }
    }
    for (uint32_t k = 0; k < by->work_count && !by->leads; k++) {
        double covered = (double)by->works[k].covered, here = (double)by->covered[k];
        by->works[k].amounts[metric] *= here > 0 && here >= 0.9 * covered ? covered / here : (double)NAN;
    }
    return FS_OK;
}

static fs_status divide_track(const fs_counter_track *track, fs_counted_work *works, uint32_t count, bool leads,
                              fs_error *err)
{
    division by = {
        .samples = track->samples, .count = track->count, .works = works, .work_count = count, .leads = leads};
    fs_status status;
    FS_TRY_GOTO(status, FS_NEW(&by.first, count, err), done);
    FS_TRY_GOTO(status, FS_NEW(&by.rates, count, err), done);
    FS_TRY_GOTO(status, FS_NEW(&by.weights, (size_t)track->count + 1, err), done);
    FS_TRY_GOTO(status, FS_NEW(&by.covered, count, err), done);
    FS_TRY_GOTO(status, place_works(&by, err), done);
    status = divide(&by, (fs_metric)track->metric, err);
done:
    fs_free(by.first);
    fs_free(by.rates);
    fs_free(by.weights);
    fs_free(by.covered);
    return status;
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
    if (block == NULL) return fs_no_memory(err);
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
    bool leads = true;
    FS_TRY(fs_sort(works, count, sizeof *works, compare_starts, err));
    for (int metric = 0; metric < FS_METRIC_COUNT; metric++) {
        const fs_counter_track *track = fs_store_track_of(store, device, (fs_metric)metric);
        if (track == NULL) continue;
        FS_TRY(divide_track(track, works, count, leads, err));
        leads = false;
    }
    for (uint32_t k = 0; k < count; k++) works[k].amounts[FS_COUNTED_WRITES] = works[k].amounts[FS_METRIC_DRAM_WRITTEN];
    bool both = !isnan(works[0].amounts[FS_METRIC_DRAM_READ]) && !isnan(works[0].amounts[FS_METRIC_DRAM_WRITTEN]);
    if (both && facts.l2_bytes > 0) FS_TRY(settle_writes(works, count, (double)facts.l2_bytes, err));
    return FS_OK;
}

/* Copy the works of a device to the end of `works`; returns their number. */
static uint32_t list_works(const fs_store *store, int device, fs_counted_work *works)
{
    uint32_t count = 0;
    fs_counted_work unknown = {.event = 0};
    for (int amount = 0; amount < FS_COUNTED_AMOUNTS; amount++) unknown.amounts[amount] = NAN;
    FS_EACH_EVENT(store, index, chunk, at) {
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
    uint32_t count = 0;
    FS_EACH_EVENT(store, index, chunk, at) {
        count += fs_event_is_placed_work(chunk, at);
    }
    return count;
}

static bool has_track(const fs_store *store, int device)
{
    return FS_ANY(i, fs_store_track_count(store),
                  fs_store_track(store, i)->device == device && fs_store_track(store, i)->metric >= 0);
}

fs_status fs_counted_build(fs_counted *counted, const fs_store *store, fs_error *err)
{
    *counted = (fs_counted){0};
    uint32_t works = fs_store_track_count(store) > 0 ? count_works(store) : 0;
    if (works == 0) return FS_OK;
    FS_TRY(FS_NEW_ZEROED(&counted->places, fs_store_count(store), err));
    FS_TRY(FS_NEW(&counted->works, works, err));
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

/* A share that a part lacks adds nothing; an amount that it lacks is then unknown of all. */
static void add_part(fs_counted_part *to, const fs_counted_part *part)
{
    for (int amount = 0; amount < FS_COUNTED_AMOUNTS; amount++)
        if (!is_share(amount) || part->covered[amount] > 0) to->amounts[amount] += part->amounts[amount];
    for (int metric = 0; metric < FS_METRIC_COUNT; metric++) to->covered[metric] += part->covered[metric];
    fs_add_to(&to->ns, part->ns);
}

static void end_run(fs_counted_sum *sum)
{
    bool whole = sum->resolved.ns >= sum->run.ns / 2 || sum->samples >= FS_COUNTED_RUN;
    add_part(&sum->known, whole ? &sum->run : &sum->resolved);
    sum->run = sum->resolved = (fs_counted_part){.ns = 0};
    sum->samples = 0;
}

void fs_counted_add(fs_counted_sum *sum, const fs_counted_work *work)
{
    fs_counted_part part = {.ns = work_length(work)};
    fs_add_to(&sum->ns, part.ns);
    if (work->place == 0) return;
    memcpy(part.amounts, work->amounts, sizeof part.amounts);
    for (int metric = 0; metric < FS_METRIC_COUNT; metric++)
        if (!isnan(work->amounts[metric])) part.covered[metric] = (double)work->covered;
    bool follows = sum->last != 0 && work->place == sum->last + 1;
    bool goes_on = follows && work->within && (double)fs_sub_saturated(work->start, sum->end) <= work->sample_ns;
    if (!follows) sum->doubt += work->doubt;
    if (!goes_on) end_run(sum);
    sum->last = work->place;
    if (!follows || work->end > sum->end) sum->end = work->end;
    if (!work->within) return;
    add_part(&sum->run, &part);
    sum->samples += (double)part.ns / work->sample_ns;
    if (work->resolved) add_part(&sum->resolved, &part);
    if (work->fine) fs_add_to(&sum->fine, part.ns);
}

fs_counted_sum fs_counted_total(fs_counted_sum *sums, uint32_t devices)
{
    fs_counted_sum total = {.ns = 0};
    for (uint32_t device = 0; device < devices; device++) {
        fs_counted_sum *sum = &sums[device];
        end_run(sum);
        add_part(&total.known, &sum->known);
        total.doubt += sum->doubt;
        fs_add_to(&total.ns, sum->ns);
        fs_add_to(&total.fine, sum->fine);
        total.apart = total.apart || sum->apart;
    }
    return total;
}

/* All work over the work that is known, or NaN if too little is. */
static double whole_of(const fs_counted_sum *sum)
{
    double ns = (double)sum->known.ns;
    bool known = ns > 0 && ns >= (double)sum->fine / 2 && ns >= least_known * (double)sum->ns;
    return known ? (double)sum->ns / ns : (double)NAN;
}

double fs_counted_traffic(const fs_counted_sum *sum)
{
    const double *amounts = sum->known.amounts;
    return (amounts[FS_METRIC_DRAM_READ] + amounts[FS_COUNTED_WRITES]) * whole_of(sum);
}

double fs_counted_value(const fs_counted_sum *sum, fs_metric metric)
{
    const fs_counted_part *part = &sum->known;
    double whole = whole_of(sum), amount = part->amounts[metric];
    if (isnan(whole)) return NAN;
    if (is_share((int)metric))
        return part->covered[metric] >= least_known * (double)sum->ns ? amount / part->covered[metric] : (double)NAN;
    double traffic = part->amounts[FS_METRIC_DRAM_READ] + part->amounts[FS_METRIC_DRAM_WRITTEN];
    if (metric == FS_METRIC_DRAM_WRITTEN && sum->doubt > most_doubt * traffic * whole) return NAN;
    return amount * whole;
}
