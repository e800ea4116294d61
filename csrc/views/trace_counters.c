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

/* The counters of a device. */
enum { FLOPS, BYTES, COUNTERS };

/* A piece of a device's work. rates: per ns; 0: unknown, or nothing. */
typedef struct {
    int64_t start, end;
    double rates[COUNTERS];
} piece;

/* FLOPs or bytes per ns that only a wrong signature gives. */
static const double impossible = 1e15;

static const struct {
    const char *name, *unit;
    double scale; /* from the rates to the unit */
} counters[COUNTERS] = {
    [FLOPS] = {"flopscope TFLOP/s (known work)", "TFLOP/s", 1e-3},
    [BYTES] = {"flopscope GB/s (known work)", "GB/s", 1},
};

typedef struct {
    fs_trace *trace;
    int which;
    fs_json before, between; /* text before the time, and between the time and the value */
    double last;             /* value; -1: none yet */
    const piece *pieces;     /* of the device */
    uint32_t piece_count;
} counter;

static void put_value(counter *of, int64_t time, double value)
{
    static const double scales[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
    int decimals = fs_trace_rate_decimals(value);
    double shown = value > 0 ? round(value * scales[decimals]) / scales[decimals] : 0;
    if (shown == of->last) return;
    of->last = shown;
    fs_json *out = &of->trace->out;
    fs_json_put(out, of->before.bytes, of->before.size);
    fs_json_time(out, fs_trace_time(of->trace, time));
    fs_json_put(out, of->between.bytes, of->between.size);
    fs_json_decimal(out, shown, decimals);
    FS_JSON_LITERAL(out, "}},\n");
}

static fs_status begin_counter(counter *of, int device, fs_error *err)
{
    FS_TRY(fs_json_init(&of->before, NULL, NULL, err));
    FS_TRY(fs_json_init(&of->between, NULL, NULL, err));
    FS_JSON_LITERAL(&of->before, "{\"ph\": \"C\", \"cat\": \"flopscope\", \"name\": \"");
    fs_json_put(&of->before, counters[of->which].name, strlen(counters[of->which].name));
    FS_JSON_LITERAL(&of->before, "\", \"pid\": ");
    fs_json_integer(&of->before, device);
    FS_JSON_LITERAL(&of->before, ", \"tid\": 0, \"ts\": ");
    FS_JSON_LITERAL(&of->between, ", \"args\": {\"");
    fs_json_put(&of->between, counters[of->which].unit, strlen(counters[of->which].unit));
    FS_JSON_LITERAL(&of->between, "\": ");
    return of->before.status != FS_OK ? of->before.status : of->between.status;
}

/* Few pieces: values that change with each ------------------------------------------------------------------------- */

FS_ORDER_BY(compare_edges, edge, time)

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

/* List the `2 * count` edges in order at `room + 2 * count`. */
static fs_status list_edges(const counter *of, edge *room, size_t count, fs_error *err)
{
    edge *begins = room, *ends = room + count;
    for (uint32_t i = 0; i < of->piece_count; i++) {
        const piece *one = &of->pieces[i];
        double rate = one->rates[of->which];
        if (!(rate > 0)) continue;
        *begins++ = (edge){one->start, rate};
        *ends++ = (edge){one->end, -rate};
    }
    begins = room;
    ends = room + count;
    if (!in_order(begins, count)) FS_TRY(fs_sort(begins, count, sizeof *begins, compare_edges, err));
    if (!in_order(ends, count)) FS_TRY(fs_sort(ends, count, sizeof *ends, compare_edges, err));
    merge(begins, ends, count, room + 2 * count);
    return FS_OK;
}

static fs_status put_exactly(counter *of, size_t count, fs_error *err)
{
    edge *room = fs_malloc(4 * count * sizeof *room), *all = room + 2 * count;
    if (room == NULL) return fs_no_memory(err);
    fs_status status = list_edges(of, room, count, err);
    double sum = 0;
    size_t open = 0;
    for (size_t i = 0; status == FS_OK && i < 2 * count;) {
        int64_t time = all[i].time;
        for (; i < 2 * count && all[i].time == time; i++) {
            sum += all[i].rate;
            if (all[i].rate > 0) open++;
            else open--;
        }
        if (open == 0) sum = 0; /* without the rounding */
        put_value(of, time, sum * counters[of->which].scale);
    }
    fs_free(room);
    return status;
}

/* Many pieces: means over equal parts of the time ------------------------------------------------------------------ */

enum { PARTS = FS_COUNTER_VALUES - 2 };

static fs_status put_means(counter *of, int64_t begin, int64_t end, fs_error *err)
{
    double *parts = fs_calloc(PARTS, sizeof *parts);
    if (parts == NULL) return fs_no_memory(err);
    int64_t width = (end - begin - 1) / PARTS + 1, part = 0, next = begin + width;
    for (uint32_t i = 0; i < of->piece_count; i++) {
        const piece *one = &of->pieces[i];
        double rate = one->rates[of->which];
        if (!(rate > 0)) continue;
        for (int64_t from = one->start; from < one->end;) {
            if (from < next - width || from >= next) {
                part = (from - begin) / width;
                next = begin + (part + 1) * width;
            }
            int64_t to = one->end < next ? one->end : next;
            parts[part] += rate * (double)(to - from);
            from = to;
        }
    }
    for (int i = 0; i < PARTS && begin + i * width < end; i++) {
        int64_t from = begin + i * width, to = end - from < width ? end : from + width;
        put_value(of, from, parts[i] / (double)(to - from) * counters[of->which].scale);
    }
    put_value(of, end, 0);
    fs_free(parts);
    return FS_OK;
}

static fs_status put_values(counter *of, fs_error *err)
{
    int64_t begin = INT64_MAX, end = INT64_MIN;
    size_t count = 0;
    for (uint32_t i = 0; i < of->piece_count; i++) {
        if (!(of->pieces[i].rates[of->which] > 0)) continue;
        if (of->pieces[i].start < begin) begin = of->pieces[i].start;
        if (of->pieces[i].end > end) end = of->pieces[i].end;
        count++;
    }
    if (count == 0) return FS_OK;
    if (of->trace->first < begin) put_value(of, of->trace->first, 0);
    return 2 * count < FS_COUNTER_VALUES ? put_exactly(of, count, err) : put_means(of, begin, end, err);
}

static fs_status put_counter(fs_trace *trace, int device, int which, const piece *pieces, uint32_t count, fs_error *err)
{
    counter of = {.trace = trace, .which = which, .last = -1, .pieces = pieces, .piece_count = count};
    fs_status status = begin_counter(&of, device, err);
    if (status == FS_OK) status = put_values(&of, err);
    fs_json_clear(&of.before);
    fs_json_clear(&of.between);
    return status;
}

/* The pieces ------------------------------------------------------------------------------------------------------- */

static double checked(double rate)
{
    return rate > 0 && rate < impossible ? rate : 0;
}

/* Return the device of a piece of work whose rates are known and positive, or -1. */
static int take_piece(const fs_trace *trace, const fs_table_work *work, piece *to)
{
    uint32_t place = work->owner != FS_NONE ? trace->rated_of[work->owner] : FS_NONE, at;
    if (place == FS_NONE || !(work->end > work->start)) return -1;
    const fs_table_rated *rated = &trace->table->rated[place];
    if (!(rated->owned_ns > 0)) return -1;
    *to = (piece){work->start,
                  work->end,
                  {checked(rated->flops / rated->owned_ns),
                   checked((rated->bytes_read + rated->bytes_written) / rated->owned_ns)}};
    if (!(to->rates[FLOPS] > 0 || to->rates[BYTES] > 0)) return -1;
    const fs_chunk *chunk = fs_event_chunk(trace->store, work->event, &at);
    return fs_event_device(chunk, at);
}

/* List the pieces of each device, in the order of the store. ends: by device, where its pieces end. */
static fs_status list_pieces(const fs_trace *trace, piece *pieces, uint32_t *ends, fs_error *err)
{
    const fs_table *table = trace->table;
    uint32_t begins[FS_DEVICE_LIMIT], count = 0;
    piece one;
    memset(ends, 0, FS_DEVICE_LIMIT * sizeof *ends);
    for (uint32_t i = 0; i < table->work_count; i++) {
        FS_POLL(i, err);
        int device = take_piece(trace, &table->works[i], &one);
        if (device >= 0) ends[device]++;
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        begins[device] = count;
        count += ends[device];
        ends[device] = count;
    }
    for (uint32_t i = 0; i < table->work_count; i++) {
        FS_POLL(i, err);
        int device = take_piece(trace, &table->works[i], &one);
        if (device >= 0) pieces[begins[device]++] = one;
    }
    return FS_OK;
}

static fs_status put_devices(fs_trace *trace, const piece *pieces, const uint32_t *ends, fs_error *err)
{
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        uint32_t begin = device > 0 ? ends[device - 1] : 0, count = ends[device] - begin;
        if (!trace->on_device[device] || count == 0) continue;
        for (int which = 0; which < COUNTERS; which++)
            FS_TRY(put_counter(trace, device, which, pieces + begin, count, err));
    }
    return FS_OK;
}

fs_status fs_trace_counters(fs_trace *trace, fs_error *err)
{
    const fs_table *table = trace->table;
    uint32_t ends[FS_DEVICE_LIMIT];
    if (table == NULL || !table->has_device || table->rated_count == 0) return FS_OK;
    piece *pieces = fs_malloc((table->work_count + (size_t)1) * sizeof *pieces);
    if (pieces == NULL) return fs_no_memory(err);
    fs_status status = list_pieces(trace, pieces, ends, err);
    if (status == FS_OK) status = put_devices(trace, pieces, ends, err);
    fs_free(pieces);
    return status;
}
