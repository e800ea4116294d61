/* Summaries below what Python's tests compare with timelines of moments (tests/table, tests/ranks): how collectives are
 * recorded, and failing allocations. */
#include "store/collective.h"
#include "store/torch_signature.h"
#include "summaries/collectives.h"
#include "summaries/efficiency.h"
#include "summaries/intervals.h"
#include "summaries/launches.h"
#include "summaries/steps.h"
#include "summaries/streams.h"
#include "tests/c/events.h"

/* Recorded collectives --------------------------------------------------------------------------------------------- */

static uint64_t room[(FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES) / 8 + 1];

static fs_collective_text text(const char *from)
{
    return (fs_collective_text){from, strlen(from)};
}

static bool is(fs_collective_text text, const char *expected)
{
    return text.size == strlen(expected) && strcmp(text.text, expected) == 0;
}

static fs_collective some(void)
{
    fs_collective recorded = {
        .in_elements = 1 << 20, .out_elements = (int64_t)1 << 40, .sequence = 7, .group_size = 4096};
    recorded.name = text("_allgather_base");
    recorded.dtype = text("BFloat16");
    recorded.group = text("0");
    recorded.ranks = text("[0, 1]");
    return recorded;
}

/* Return the signature of a launch and, unless it is NULL, a collective. */
static fs_span launched(const fs_collective *recorded)
{
    fs_launch launch = {.grid = {24, 1, 1}, .block = {544, 1, 1}, .graph_node = 3}, back;
    fs_launch_encode(&launch, room);
    size_t size = recorded != NULL ? fs_collective_encode(recorded, room) : FS_LAUNCH_BYTES;
    CHECK(size <= sizeof room && fs_launch_decode(room, &back) && memcmp(&back, &launch, sizeof launch) == 0);
    return (fs_span){.bytes = room, .size = (uint32_t)size};
}

TEST(unrecorded_fields_are_missing)
{
    fs_collective recorded = fs_collective_missing, decoded = some();
    CHECK(!fs_collective_decode(launched(NULL), &decoded));
    CHECK(decoded.in_elements == FS_MISSING && decoded.group_size == 0 && decoded.name.size == 0);
    CHECK(fs_collective_decode(launched(&recorded), &decoded));
    CHECK(decoded.in_elements == FS_MISSING && decoded.out_elements == FS_MISSING && decoded.sequence == FS_MISSING);
    CHECK(decoded.element_size == 0 && is(decoded.name, "") && is(decoded.dtype, "") && is(decoded.ranks, ""));
    fs_given_work work = {.flops = 1, .bytes = 2}; /* another kind of signature, of any length */
    memset(room, 0, sizeof room);
    fs_given_work_encode(&work, room);
    CHECK(!fs_collective_decode((fs_span){.bytes = room, .size = sizeof room}, &decoded));
}

/* Return the signature of a call of record_param_comms with a tensor of 3 x 5 and a text, followed by the collective
 * unless it is NULL. */
static fs_span called(fs_torch_builder *builder, const fs_collective *recorded)
{
    static const int64_t shape[] = {3, 5};
    const fs_torch_tensor tensor = {.dtype = FS_TORCH_BFLOAT16, .ndim = 2, .shape = shape};
    char bytes[FS_COLLECTIVE_MAX_BYTES];
    CHECK_OK(fs_torch_begin(builder, NULL));
    CHECK_OK(fs_torch_add_tensor(builder, &tensor, NULL));
    CHECK_OK(fs_torch_add_text(builder, FS_TORCH_SCALAR, "7", 1, NULL));
    if (recorded != NULL) CHECK_OK(fs_torch_add_rest(builder, bytes, fs_collective_write(recorded, bytes), NULL));
    return (fs_span){.bytes = builder->words, .size = (uint32_t)fs_torch_size(builder)};
}

TEST(a_collective_is_decoded_after_a_call)
{
    fs_torch_builder builder = {0};
    fs_torch_call found;
    fs_collective recorded = some(), decoded = recorded;
    fs_span bytes = called(&builder, NULL);
    uint32_t alone = bytes.size;
    CHECK(!fs_collective_decode(bytes, &decoded) && decoded.name.size == 0);
    bytes = called(&builder, &recorded);
    CHECK(bytes.size > alone && fs_torch_decode(bytes.bytes, bytes.size, &found));
    CHECK(found.whole && found.count == 2 && found.arguments[0].tensor.ndim == 2);
    CHECK((const char *)found.end - (const char *)bytes.bytes == alone);
    CHECK(fs_collective_decode(bytes, &decoded) && is(decoded.name, "_allgather_base") && is(decoded.ranks, "[0, 1]"));
    CHECK(decoded.sequence == 7 && decoded.group_size == 4096 && decoded.element_size == 2);
    fs_torch_builder_clear(&builder);
}

static void nccl(const char *name, const fs_collective *recorded, uint64_t stream, int64_t start)
{
    fs_event event = work_of(FS_EVENT_KERNEL, name, 0, stream, start, start + 10);
    fs_span bytes = launched(recorded);
    event.signature = signature_of(bytes.bytes, bytes.size);
    put(event);
}

/* Intervals and steps ---------------------------------------------------------------------------------------------- */

TEST(sorting_is_stable_over_the_whole_range_of_times)
{
    static const int64_t begins[] = {5, INT64_MAX - 1, -3, 5, FS_MISSING + 1, 0, 5};
    static const uint32_t expected[] = {4, 2, 5, 0, 3, 6, 1};
    fs_intervals list = {0};
    for (uint32_t i = 0; i < 7; i++) CHECK_OK(fs_intervals_add(&list, begins[i], begins[i], i, NULL));
    CHECK(fs_intervals_sort(&list, NULL) == FS_OK && list.count == 7);
    for (uint32_t i = 0; i < 7; i++) CHECK(list.items[i].tag == expected[i]);
    fs_intervals_clear(&list);
}

/* Two threads have their own steps at the same time: the chain of parents distinguishes them. */
TEST(work_belongs_to_the_step_around_its_launcher)
{
    fs_steps steps;
    uint32_t first = host(FS_EVENT_STEP, "a", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "b", FS_NONE, 50, 50);
    kernel("k", op("op", FS_NONE, first, 60, 10), 80, 140);
    CHECK(fs_steps_break_down(&steps, store, NULL) == FS_OK && steps.count == 2);
    CHECK(steps.steps[0].begin == 0 && steps.steps[0].end == 140);
    CHECK(steps.steps[1].begin == 140 && steps.steps[1].end == 140);
    fs_steps_clear(&steps);
}

/* Failures --------------------------------------------------------------------------------------------------------- */

static fs_status summarize(fs_error *err)
{
    fs_steps steps;
    fs_efficiency *devices = NULL;
    fs_launch_statistics *launches = NULL;
    fs_collective_row *collectives = NULL;
    fs_stream_row *streams = NULL;
    uint32_t count;
    FS_TRY(fs_steps_break_down(&steps, store, err));
    fs_steps_clear(&steps);
    fs_status status = fs_efficiency_of(store, NULL, &devices, &count, err);
    if (status == FS_OK) status = fs_launches_of(store, &launches, &count, err);
    if (status == FS_OK) status = fs_collectives_of(store, &collectives, &count, err);
    if (status == FS_OK) status = fs_streams_of(store, &streams, &count, err);
    fs_free(devices);
    fs_free(launches);
    fs_free(collectives);
    fs_free(streams);
    return status;
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    fs_device_facts facts = fs_device_facts_missing;
    facts.sm_count = 4;
    CHECK_OK(fs_store_set_device(store, 0, &facts, NULL));
    for (int i = 0; i < 60; i++) { /* newest first, so that lists grow and are sorted; messages of different sizes */
        fs_collective recorded = some();
        int64_t start = 1000 * (60 - i);
        uint32_t step = host(FS_EVENT_STEP, "step", FS_NONE, start, 900), outer = op("op", FS_NONE, step, start, 500);
        call("cudaLaunchKernel", (uint32_t)i, outer, start + 10, start + 20);
        work(FS_EVENT_KERNEL, "k", 0, 7, (uint32_t)i, FS_NONE, start + 30, start + 400);
        recorded.in_elements = recorded.out_elements = i;
        nccl("ncclDevKernel_AllReduce", i % 2 ? &recorded : NULL, 17, start + 350);
    }
    CHECK(fail_each_allocation(summarize) > 20);
}
