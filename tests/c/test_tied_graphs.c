/* Works of graphs without the ids of their nodes, whose launches are known to be of one executable graph or another. */
#include "sources/graphs/replays.h"
#include "store/event.h"
#include "store/signature.h"
#include "tests/c/check.h"

enum { KERNEL = FS_EVENT_KERNEL, COPY = FS_EVENT_MEMCPY, FILL = FS_EVENT_MEMSET };

static fs_store *from, *ops, *into;
static fs_captures captures;
static fs_replay_report report;
static uint32_t correlation, ops_index;

static fs_status put(fs_store *store, uint8_t kind, const char *name, int64_t start, uint32_t stream, uint32_t *index)
{
    fs_event event = fs_event_missing;
    bool works = fs_event_kind_on_device[kind];
    event.kind = kind;
    event.start = start;
    event.duration = 4;
    FS_TRY(fs_store_name(store, name, &event.name, NULL));
    if (works) {
        event.device = 0;
        FS_TRY(fs_store_device_lane(store, 0, stream, &event.lane, NULL));
    } else {
        FS_TRY(fs_store_thread_lane_of(store, 1, &event.lane, NULL));
    }
    if (works || kind == FS_EVENT_RUNTIME) event.correlation = correlation;
    if (kind == FS_EVENT_KERNEL) {
        uint64_t bytes[FS_LAUNCH_BYTES / 8];
        fs_launch launch = {.grid = {1, 1, 1}, .block = {32, 1, 1}};
        fs_launch_encode(&launch, bytes);
        FS_TRY(fs_store_signature(store, bytes, sizeof bytes, &event.signature, NULL));
    }
    return fs_store_append(store, &event, index, NULL);
}

/* Add a graph whose nodes were launched by these ops, a letter each ('?': unknown); equal neighbours are one op. */
static fs_status add_graph(uint32_t id, const uint8_t *kinds, const char *names)
{
    FS_TRY(fs_captures_begin(&captures, ops_index, INT64_MIN, FS_NONE, NULL));
    captures.graphs[captures.graph_count - 1].id = id;
    for (int i = 0; names[i] != 0; i++) {
        uint32_t owner = FS_NONE;
        uint32_t symbol = kinds[i] == KERNEL ? FS_SYMBOL_KERNEL : kinds[i] == COPY ? FS_SYMBOL_COPY : FS_SYMBOL_FILL;
        if (i > 0 && names[i] == names[i - 1]) owner = captures.nodes[captures.node_count - 1].owner;
        else if (names[i] != '?') FS_TRY(put(ops, FS_EVENT_OP, (const char[]){names[i], 0}, i, 0, &owner));
        FS_TRY(fs_captures_append(&captures, symbol, FS_NONE, owner, NULL));
        captures.nodes[captures.node_count - 1].unknown = names[i] == '?';
    }
    return FS_OK;
}

/* Launch a graph, known by its id or not (0), whose works have these kinds and streams, by the start. */
static fs_status add_launch(uint32_t id, const uint8_t *kinds, const uint32_t *streams, uint32_t count)
{
    uint32_t call, index;
    int64_t start = 100 * (int64_t)correlation;
    FS_TRY(put(from, FS_EVENT_RUNTIME, "cudaGraphLaunch", start, 0, &call));
    if (id != 0) FS_TRY(fs_captures_add_tied(&captures, call, id, NULL));
    for (uint32_t i = 0; i < count; i++) FS_TRY(put(from, kinds[i], "work", start + 10 * i, streams[i], &index));
    correlation++;
    return FS_OK;
}

static fs_status begin(void)
{
    from = ops = into = NULL;
    captures = (fs_captures){0};
    correlation = 1;
    FS_TRY(fs_store_create(&from, NULL));
    FS_TRY(fs_store_create(&ops, NULL));
    FS_TRY(fs_store_create(&into, NULL));
    return fs_captures_add_store(&captures, ops, &ops_index, NULL);
}

static fs_status join(fs_error *err)
{
    fs_captures_sort_tied(&captures);
    return fs_replays_join(from, &captures, into, &report, err);
}

static void end(void)
{
    fs_captures_clear(&captures);
    fs_store_destroy(from);
    fs_store_destroy(ops);
    fs_store_destroy(into);
}

static const uint8_t mixed[] = {KERNEL, COPY, KERNEL, FILL};
static const uint32_t one_stream[] = {7, 7, 7, 7}, two_streams[] = {7, 8, 9, 8};

static fs_status add_all(void)
{
    static const uint8_t other[] = {KERNEL, KERNEL, COPY, FILL}, kernels[] = {KERNEL, KERNEL};
    FS_TRY(add_graph(3, mixed, "abcd"));
    FS_TRY(add_graph(4, mixed, "ef?h"));
    FS_TRY(add_graph(6, kernels, "ii"));
    FS_TRY(add_launch(3, mixed, one_stream, 4));
    FS_TRY(add_launch(4, mixed, one_stream, 4));
    FS_TRY(add_launch(5, mixed, one_stream, 4));  /* not captured */
    FS_TRY(add_launch(0, mixed, one_stream, 4));  /* unknown: graphs 3 and 4 differ */
    FS_TRY(add_launch(3, mixed, two_streams, 4)); /* kernels on two streams, the rest on one */
    FS_TRY(add_launch(3, other, one_stream, 4));  /* a kernel comes before the copy: still as many of each kind */
    FS_TRY(add_launch(3, mixed, one_stream, 3));  /* the fill was not recorded */
    return add_launch(6, kernels, two_streams, 2);
}

static fs_status try_all(fs_error *err)
{
    fs_status status = begin();
    if (status == FS_OK) status = add_all();
    if (status == FS_OK) status = join(err);
    else status = fs_fail(err, status, "no memory");
    end();
    return status;
}

TEST(every_allocation_may_fail)
{
    CHECK(fail_each_allocation(try_all) > 20);
}
