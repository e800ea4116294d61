/* Counters of a trace: what each device achieved over time. */
#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"
#include "views/trace.h"

/* A time at which a piece of work begins or ends. rate: per ns, negative at the end. */
typedef struct {
    int64_t time;
    double rate;
} edge;

/* The edges of one counter, in order of time. */
typedef struct {
    edge *edges;
    size_t count;
} edges;

/* FLOPs or bytes per ns that only a wrong signature gives. */
static const double impossible = 1e15;

typedef struct {
    fs_trace *trace;
    int device;
    const char *name, *unit;
    double scale; /* from the rates to the unit */
    double last;  /* value; -1: none yet */
} counter;

static void put_value(counter *of, int64_t time, double value)
{
    int decimals = fs_trace_rate_decimals(value);
    double scale = pow(10, decimals), shown = value > 0 ? round(value * scale) / scale : 0;
    if (shown == of->last) return;
    of->last = shown;
    fs_json *out = &of->trace->out;
    FS_JSON_LITERAL(out, "{\"ph\": \"C\", \"cat\": \"flopscope\", \"name\": \"");
    fs_json_put(out, of->name, strlen(of->name));
    FS_JSON_LITERAL(out, "\", \"pid\": ");
    fs_json_integer(out, of->device);
    FS_JSON_LITERAL(out, ", \"tid\": 0, \"ts\": ");
    fs_json_time(out, fs_trace_time(of->trace, time));
    FS_JSON_LITERAL(out, ", \"args\": {\"");
    fs_json_put(out, of->unit, strlen(of->unit));
    FS_JSON_LITERAL(out, "\": ");
    fs_json_decimal(out, shown, decimals);
    FS_JSON_LITERAL(out, "}},\n");
}

/* Values that change with every piece of work. */
static void put_exactly(counter *of, const edges *all)
{
    double sum = 0;
    size_t open = 0;
    for (size_t i = 0; i < all->count;) {
        int64_t time = all->edges[i].time;
        for (; i < all->count && all->edges[i].time == time; i++) {
            sum += all->edges[i].rate;
            if (all->edges[i].rate > 0) open++;
            else open--;
        }
        if (open == 0) sum = 0; /* without the rounding */
        put_value(of, time, sum * of->scale);
    }
}

/* Means over FS_COUNTER_VALUES - 2 equal parts of the time. */
static fs_status put_means(counter *of, const edges *all, fs_error *err)
{
    enum { PARTS = FS_COUNTER_VALUES - 2 };
    double *parts = fs_calloc(PARTS, sizeof *parts), sum = 0;
    if (parts == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a counter of a trace");
    int64_t begin = all->edges[0].time, end = all->edges[all->count - 1].time;
    int64_t width = (end - begin - 1) / PARTS + 1;
    size_t open = 0;
    for (size_t i = 0; i + 1 < all->count; i++) {
        sum += all->edges[i].rate;
        if (all->edges[i].rate > 0) open++;
        else open--;
        if (open == 0) sum = 0;
        int64_t from = all->edges[i].time, to = all->edges[i + 1].time;
        while (from < to && sum > 0) {
            int64_t part = (from - begin) / width, next = begin + (part + 1) * width;
            if (next > to) next = to;
            parts[part] += sum * (double)(next - from);
            from = next;
        }
    }
    for (int i = 0; i < PARTS && begin + i * width < end; i++) {
        int64_t from = begin + i * width, to = end - from < width ? end : from + width;
        put_value(of, from, parts[i] / (double)(to - from) * of->scale);
    }
    put_value(of, end, 0);
    fs_free(parts);
    return FS_OK;
}

static int compare_edges(const void *left, const void *right)
{
    const edge *a = left, *b = right;
    return (a->time > b->time) - (a->time < b->time);
}

static bool in_order(const edge *list, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (list[i].time < list[i - 1].time) return false;
    return true;
}

/* Merge the begins and the ends, each in order, into `to`. */
static void merge(const edge *begins, const edge *ends, size_t count, edge *to)
{
    size_t b = 0, e = 0;
    while (e < count) *to++ = b < count && begins[b].time <= ends[e].time ? begins[b++] : ends[e++];
}

/* Return the rate at which the device did the piece's FLOPs or bytes; NaN: unknown. */
static double rate_of(const fs_trace *trace, const fs_table_work *work, bool of_bytes)
{
    uint32_t place = work->owner != FS_NONE ? trace->rated_of[work->owner] : FS_NONE;
    if (place == FS_NONE || !(work->end > work->start)) return NAN;
    const fs_table_rated *rated = &trace->table->rated[place];
    double amount = of_bytes ? rated->bytes_read + rated->bytes_written : rated->flops;
    return rated->owned_ns > 0 ? amount / rated->owned_ns : (double)NAN;
}

/* List the edges of a device's work. `room` holds four edges for each piece of work. */
static fs_status list_edges(const fs_trace *trace, int device, bool of_bytes, edge *room, edges *all, fs_error *err)
{
    const fs_table *table = trace->table;
    size_t count = 0;
    edge *begins = room, *ends = room + table->work_count;
    for (uint32_t i = 0; i < table->work_count; i++) {
        const fs_table_work *work = &table->works[i];
        uint32_t at;
        FS_POLL(i, err);
        const fs_chunk *chunk = fs_event_chunk(trace->store, work->event, &at);
        if (fs_event_device(chunk, at) != device) continue;
        double rate = rate_of(trace, work, of_bytes);
        if (!(rate > 0 && rate < impossible)) continue;
        begins[count] = (edge){work->start, rate};
        ends[count++] = (edge){work->end, -rate};
    }
    if (!in_order(begins, count)) FS_TRY(fs_sort(begins, count, sizeof *begins, compare_edges, "pieces of work", err));
    if (!in_order(ends, count)) FS_TRY(fs_sort(ends, count, sizeof *ends, compare_edges, "pieces of work", err));
    *all = (edges){room + 2 * (size_t)table->work_count, 2 * count};
    merge(begins, ends, count, all->edges);
    return FS_OK;
}

static fs_status put_counter(counter *of, bool of_bytes, edge *room, fs_error *err)
{
    edges all;
    FS_TRY(list_edges(of->trace, of->device, of_bytes, room, &all, err));
    if (all.count == 0) return FS_OK;
    if (of->trace->first < all.edges[0].time) put_value(of, of->trace->first, 0);
    if (all.count < FS_COUNTER_VALUES) put_exactly(of, &all);
    else return put_means(of, &all, err);
    return FS_OK;
}

fs_status fs_trace_counters(fs_trace *trace, fs_error *err)
{
    const fs_table *table = trace->table;
    if (table == NULL || !table->has_device || table->rated_count == 0) return FS_OK;
    edge *room = fs_malloc(4 * (table->work_count + (size_t)1) * sizeof *room);
    if (room == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the counters of %u events", trace->count);
    fs_status status = FS_OK;
    for (int device = 0; status == FS_OK && device < FS_DEVICE_LIMIT; device++) {
        if (!trace->on_device[device]) continue;
        counter flops = {trace, device, "flopscope TFLOP/s (known work)", "TFLOP/s", 1e-3, -1};
        counter bytes = {trace, device, "flopscope GB/s (known work)", "GB/s", 1, -1};
        status = put_counter(&flops, false, room, err);
        if (status == FS_OK) status = put_counter(&bytes, true, room, err);
    }
    fs_free(room);
    return status;
}
