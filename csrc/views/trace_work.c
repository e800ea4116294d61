/* The work of single events in a trace. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "views/trace.h"

fs_status fs_trace_work(fs_trace *trace, fs_error *err)
{
    if (trace->options->table == NULL || trace->count == 0) return FS_OK;
    fs_table_options options = *trace->options->table;
    options.works = options.ratings = options.brief = true;
    FS_TRY(fs_table_build(trace->store, &options, &trace->table, err));
    FS_TRY(FS_NEW(&trace->rated_of, trace->count, err));
    memset(trace->rated_of, 0xff, trace->count * sizeof *trace->rated_of);
    for (uint32_t i = 0; i < trace->table->rated_count; i++) trace->rated_of[trace->table->rated[i].event] = i;
    return FS_OK;
}

int fs_trace_rate_decimals(double rate)
{
    static const double bounds[] = {100, 10, 1, 0.1, 0.01, 0.001, 0.0001}; /* below each, one more decimal */
    int decimals = 1;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) decimals += rate < bounds[i];
    return decimals;
}

#define KNOWN(members, name, value, put) \
    do {                                 \
        if (!isnan(value)) {             \
            FS_JSON_KEY(members, name);  \
            put((members)->json, value); \
        }                                \
    } while (0)

static const struct {
    const char *text;
    size_t size;
} bound_texts[FS_BOUND_COUNT] = {
#define FS_BOUND(NAME, name, ...) {"\"" #name "\"", sizeof "\"" #name "\"" - 1},
#include "roofline/bounds.def"
#undef FS_BOUND
};

static void put_rate(fs_json *json, double rate)
{
    fs_json_decimal(json, rate, fs_trace_rate_decimals(rate));
}

static void put_rates(fs_json_members *members, double tflops, double gbytes, double percent, fs_bound bound)
{
    KNOWN(members, "TFLOP/s", tflops, put_rate);
    KNOWN(members, "GB/s", gbytes, put_rate);
    KNOWN(members, "% roofline", percent, put_rate);
    if (bound == FS_BOUND_UNKNOWN) return;
    FS_JSON_KEY(members, "bound");
    fs_json_put(members->json, bound_texts[bound].text, bound_texts[bound].size);
}

/* Return the device work's entry in table->works, or NULL. Events come in order, and so do the entries. */
static const fs_table_work *work_of(fs_trace *trace, uint32_t index)
{
    const fs_table *table = trace->table;
    while (trace->next_work < table->work_count && table->works[trace->next_work].event < index) trace->next_work++;
    bool found = trace->next_work < table->work_count && table->works[trace->next_work].event == index;
    return found ? &table->works[trace->next_work] : NULL;
}

static void put_share(fs_trace *trace, fs_json_members *members, uint32_t index)
{
    const fs_table_work *work = work_of(trace, index);
    uint32_t place = work != NULL && work->owner != FS_NONE ? trace->rated_of[work->owner] : FS_NONE;
    if (place == FS_NONE) return;
    const fs_table_rated *rated = &trace->table->rated[place];
    double time = (double)(work->end - work->start);
    if (!(rated->owned_ns > 0) || !(time > 0)) return;
    double share = time / rated->owned_ns, flops = rated->flops * share;
    double read = rated->bytes_read * share, written = rated->bytes_written * share;
    KNOWN(members, "FLOPs", flops, fs_json_number);
    KNOWN(members, "bytes read", read, fs_json_number);
    KNOWN(members, "bytes written", written, fs_json_number);
    if (isnan(rated->rating.tflops_per_s) && isnan(rated->rating.gbytes_per_s)) return; /* no rates: see rate_of() */
    put_rates(members, flops / time / 1e3, (read + written) / time, 100 * work->least_ns / time, rated->rating.bound);
}

void fs_trace_work_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index)
{
    if (fs_event_kind_on_device[event->kind]) {
        put_share(trace, members, index);
        return;
    }
    if (trace->rated_of[index] == FS_NONE) return;
    const fs_table_rated *rated = &trace->table->rated[trace->rated_of[index]];
    const fs_rating *rating = &rated->rating;
    KNOWN(members, "FLOPs", rated->flops, fs_json_number);
    put_rates(members, rating->tflops_per_s, rating->gbytes_per_s, rating->pct_roofline, rating->bound);
}
