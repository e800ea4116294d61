/* Collectives and streams of stores built by hand. Expected numbers are derived here. Times are small numbers of ns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/collective.h"
#include "store/signature.h"
#include "store/torch_signature.h"
#include "summaries/collectives.h"
#include "summaries/streams.h"
#include "tests/c/check.h"

static bool near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9 * fabs(expected);
}

static fs_collective_text text(const char *from)
{
    return (fs_collective_text){from, strlen(from)};
}

static bool is(fs_collective_text text, const char *expected)
{
    return text.size == strlen(expected) && strcmp(text.text, expected) == 0;
}

/* Signatures ----------------------------------------------------------------------------------------------------- */

static uint64_t room[(FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES) / 8 + 1];

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

static void test_a_collective_is_decoded_after_a_launch(void)
{
    fs_launch launch = {.grid = {24, 1, 1}, .block = {544, 1, 1}, .graph_node = 3}, back;
    fs_collective recorded = some(), decoded;
    fs_launch_encode(&launch, room);
    size_t size = fs_collective_encode(&recorded, room);
    CHECK(size > FS_LAUNCH_BYTES && size <= sizeof room);
    CHECK(fs_launch_decode(room, &back) && memcmp(&back, &launch, sizeof launch) == 0);
    CHECK(fs_collective_decode((fs_span){.bytes = room, .size = (uint32_t)size}, &decoded));
    CHECK(decoded.in_elements == 1 << 20 && decoded.out_elements == (int64_t)1 << 40);
    CHECK(decoded.sequence == 7 && decoded.group_size == 4096 && decoded.element_size == 2);
    CHECK(is(decoded.name, "_allgather_base") && is(decoded.dtype, "BFloat16"));
    CHECK(is(decoded.group, "0") && is(decoded.ranks, "[0, 1]"));
}

static void test_unrecorded_fields_are_missing(void)
{
    fs_launch launch = {.grid = {1, 1, 1}};
    fs_collective recorded = fs_collective_missing, decoded = some();
    fs_launch_encode(&launch, room);
    CHECK(!fs_collective_decode((fs_span){.bytes = room, .size = FS_LAUNCH_BYTES}, &decoded));
    CHECK(decoded.in_elements == FS_MISSING && decoded.group_size == 0 && decoded.name.size == 0);
    size_t size = fs_collective_encode(&recorded, room);
    CHECK(fs_collective_decode((fs_span){.bytes = room, .size = (uint32_t)size}, &decoded));
    CHECK(decoded.in_elements == FS_MISSING && decoded.out_elements == FS_MISSING && decoded.sequence == FS_MISSING);
    CHECK(decoded.element_size == 0 && is(decoded.name, "") && is(decoded.dtype, "") && is(decoded.ranks, ""));

    fs_given_work work = {1, 2}; /* another kind of signature, of any length */
    memset(room, 0, sizeof room);
    fs_given_work_encode(&work, room);
    CHECK(!fs_collective_decode((fs_span){.bytes = room, .size = sizeof room}, &decoded));
}

static void test_long_texts_are_cut(void)
{
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text);
    fs_launch launch = {.grid = {1, 1, 1}};
    fs_collective recorded = some(), decoded;
    recorded.name = recorded.dtype = recorded.group = recorded.ranks =
        (fs_collective_text){long_text, sizeof long_text};
    fs_launch_encode(&launch, room);
    size_t size = fs_collective_encode(&recorded, room);
    CHECK(size == FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES);
    CHECK(fs_collective_decode((fs_span){.bytes = room, .size = (uint32_t)size}, &decoded));
    CHECK(decoded.name.size == 63 && decoded.dtype.size == 31 && decoded.group.size == 127 &&
          decoded.ranks.size == 511);
    CHECK(decoded.element_size == 0);
}

/* Return the signature of a call of record_param_comms with a tensor of 3 x 5 and a text, followed by the collective
 * unless it is NULL. */
static fs_span call_of(fs_torch_builder *builder, const fs_collective *recorded)
{
    static const int64_t shape[] = {3, 5};
    const fs_torch_tensor tensor = {.dtype = FS_TORCH_BFLOAT16, .ndim = 2, .shape = shape};
    char bytes[FS_COLLECTIVE_MAX_BYTES];
    CHECK(fs_torch_begin(builder, NULL) == FS_OK);
    CHECK(fs_torch_add_tensor(builder, &tensor, NULL) == FS_OK);
    CHECK(fs_torch_add_text(builder, FS_TORCH_SCALAR, "7", 1, NULL) == FS_OK);
    if (recorded != NULL) CHECK(fs_torch_add_rest(builder, bytes, fs_collective_write(recorded, bytes), NULL) == FS_OK);
    return (fs_span){.bytes = builder->words, .size = (uint32_t)fs_torch_size(builder)};
}

static void test_a_collective_is_decoded_after_a_call(void)
{
    fs_torch_builder builder = {0};
    fs_torch_call call;
    fs_collective recorded = some(), decoded = recorded;
    fs_span bytes = call_of(&builder, NULL);
    uint32_t alone = bytes.size;
    CHECK(!fs_collective_decode(bytes, &decoded) && decoded.name.size == 0);
    bytes = call_of(&builder, &recorded);
    CHECK(bytes.size > alone && fs_torch_decode(bytes.bytes, bytes.size, &call));
    CHECK(call.whole && call.count == 2 && call.arguments[0].tensor.ndim == 2);
    CHECK((const char *)call.end - (const char *)bytes.bytes == alone);
    CHECK(fs_collective_decode(bytes, &decoded) && is(decoded.name, "_allgather_base") && is(decoded.ranks, "[0, 1]"));
    CHECK(decoded.sequence == 7 && decoded.group_size == 4096 && decoded.element_size == 2);
    fs_torch_builder_clear(&builder);
}

/* Kinds ---------------------------------------------------------------------------------------------------------- */

static void test_kinds_follow_from_names(void)
{
    static const struct {
        const char *name;
        fs_collective_kind kind;
    } names[] = {
        {"allreduce", FS_COLLECTIVE_ALLREDUCE},
        {"allreduce_coalesced", FS_COLLECTIVE_ALLREDUCE},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", FS_COLLECTIVE_ALLREDUCE},
        {"void vllm::cross_device_reduce_1stage<float, 2>()", FS_COLLECTIVE_ALLREDUCE},
        {"_reduce_scatter_base", FS_COLLECTIVE_REDUCESCATTER},
        {"ncclKernel_ReduceScatter_Sum_bf16", FS_COLLECTIVE_REDUCESCATTER},
        {"_allgather_base", FS_COLLECTIVE_ALLGATHER},
        {"all_gather_into_tensor_coalesced", FS_COLLECTIVE_ALLGATHER},
        {"ncclDevKernel_AllGather_RING_LL", FS_COLLECTIVE_ALLGATHER},
        {"all_to_all", FS_COLLECTIVE_ALLTOALL},
        {"all_to_allv", FS_COLLECTIVE_ALLTOALL},
        {"_broadcast_oop", FS_COLLECTIVE_BROADCAST},
        {"ncclDevKernel_Broadcast_RING_LL", FS_COLLECTIVE_BROADCAST},
        {"_reduce_oop", FS_COLLECTIVE_REDUCE},
        {"gather", FS_COLLECTIVE_GATHER},
        {"scatter", FS_COLLECTIVE_SCATTER},
        {"barrier", FS_COLLECTIVE_BARRIER},
        {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", FS_COLLECTIVE_SENDRECV},
        {"send", FS_COLLECTIVE_SEND},
        {"recv", FS_COLLECTIVE_RECV},
        {"ncclDevKernel_Generic_4", FS_COLLECTIVE_OTHER},
        {"", FS_COLLECTIVE_OTHER},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fs_collective_kind kind = fs_collective_kind_of(names[i].name);
        CHECK(kind == names[i].kind, "%s is %s", names[i].name, fs_collective_kind_names[kind]);
    }
}

static void test_bus_factors_are_those_of_nccl_tests(void)
{
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_ALLREDUCE, 8), 1.75));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_ALLREDUCE, 2), 1));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_ALLGATHER, 8), 0.875));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_REDUCESCATTER, 4), 0.75));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_ALLTOALL, 4), 0.75));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_GATHER, 4), 0.75));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_BROADCAST, 0), 1));
    CHECK(near(fs_collective_bus_factor(FS_COLLECTIVE_REDUCE, 8), 1));
    CHECK(fs_collective_bus_factor(FS_COLLECTIVE_ALLREDUCE, 1) == 0);
    CHECK(isnan(fs_collective_bus_factor(FS_COLLECTIVE_ALLREDUCE, 0)));
    CHECK(isnan(fs_collective_bus_factor(FS_COLLECTIVE_OTHER, 8)));
}

/* Building a store ----------------------------------------------------------------------------------------------- */

static fs_store *store;

static void work(fs_event_kind kind, const char *name, const fs_collective *recorded, int device, uint64_t stream,
                 int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    fs_launch launch = {.grid = {1, 1, 1}, .block = {64, 1, 1}};
    fs_launch_encode(&launch, room);
    size_t size = recorded != NULL ? fs_collective_encode(recorded, room) : FS_LAUNCH_BYTES;
    event.kind = (uint8_t)kind;
    event.device = (int8_t)device;
    event.start = start;
    event.duration = end - start;
    if (stream > 0) CHECK(fs_store_device_lane(store, device, stream, &event.lane, NULL) == FS_OK);
    CHECK(fs_store_signature(store, room, size, &event.signature, NULL) == FS_OK);
    CHECK(fs_store_name(store, name, &event.name, NULL) == FS_OK);
    CHECK(fs_store_append(store, &event, NULL, NULL) == FS_OK);
}

static void compute(int device, uint64_t stream, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, "gemm", NULL, device, stream, start, end);
}

static void nccl(const fs_collective *recorded, int device, uint64_t stream, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, "ncclDevKernel_AllReduce_Sum", recorded, device, stream, start, end);
}

static fs_collective_row *collect(uint32_t expected)
{
    fs_collective_row *rows = NULL;
    uint32_t count = 0;
    CHECK(fs_collectives_of(store, &rows, &count, NULL) == FS_OK);
    CHECK(count == expected, "%u", count);
    return rows;
}

/* Collectives ---------------------------------------------------------------------------------------------------- */

static void test_sizes_rates_and_exposed_time(void)
{
    fs_collective gather = some(); /* bfloat16, 8 ranks */
    gather.in_elements = 1000, gather.out_elements = 8000, gather.group_size = 8;
    compute(0, 7, 100, 150);
    compute(0, 8, 140, 180);                                         /* hides time that the first does not */
    compute(1, 7, 0, 1000);                                          /* on another device: hides nothing */
    work(FS_EVENT_MEMCPY, "copy", NULL, 0, 9, 0, 1000);              /* a copy is no computation */
    work(FS_EVENT_INTERVAL, "flopscope::add", NULL, 0, 7, 250, 260); /* a kernel timed by CUDA events */
    nccl(NULL, 0, 17, 50, 60);                                       /* known by its name only */
    nccl(&gather, 0, 17, 120, 320);
    fs_collective_row *rows = collect(2);
    CHECK(rows[0].kind == FS_COLLECTIVE_ALLREDUCE && rows[0].start == 50 && rows[0].duration == 10);
    CHECK(rows[0].exposed == 10 && isnan(rows[0].message_bytes) && isnan(rows[0].algorithm_gbytes_per_s));
    CHECK(isnan(rows[0].bus_gbytes_per_s) && rows[0].recorded.group.size == 0);

    CHECK(rows[1].kind == FS_COLLECTIVE_ALLGATHER &&
          rows[1].device == 0); /* by the recorded call, not by the kernel's name */
    CHECK(rows[1].duration == 200 && rows[1].exposed == 200 - 60 - 10);
    CHECK(rows[1].message_bytes == 16000);
    CHECK(near(rows[1].algorithm_gbytes_per_s, 80) && near(rows[1].bus_gbytes_per_s, 70)); /* B/ns; 7/8 of it */
    CHECK(is(rows[1].recorded.name, "_allgather_base") && fs_store_lane(store, rows[1].lane).id == 17);
    fs_free(rows);
}

static void test_a_recorded_collective_makes_any_kernel_communication(void)
{
    fs_collective recorded = some();
    recorded.name = text("coalesced"); /* names no kind: the kernel's name decides */
    work(FS_EVENT_KERNEL, "mscclKernel_Broadcast", &recorded, 0, 7, 0, 10);
    work(FS_EVENT_KERNEL, "my_kernel", &recorded, 0, 8, 0, 10);
    fs_collective_row *rows = collect(2);
    CHECK(rows[0].kind == FS_COLLECTIVE_BROADCAST && rows[1].kind == FS_COLLECTIVE_OTHER);
    CHECK(rows[0].exposed == 10 && rows[1].exposed == 10); /* neither computes */
    fs_free(rows);
}

static void test_occurrences_count_equal_collectives(void)
{
    fs_collective first = some(), other_size = some(), other_group = some(), other_ranks = some();
    other_size.out_elements *= 2;
    other_group.group = text("1");
    other_ranks.ranks = text("[0, 2]");
    nccl(&first, 0, 17, 900, 910); /* the last in time, though the first in the store */
    nccl(&first, 0, 17, 100, 110);
    nccl(&other_size, 0, 17, 200, 210);
    nccl(&other_group, 0, 17, 300, 310);
    nccl(&other_ranks, 0, 17, 400, 410);
    nccl(&first, 1, 17, 500, 510); /* on another device */
    nccl(&first, 0, 18, 600, 610); /* on another stream */
    nccl(NULL, 0, 17, 700, 710);
    nccl(NULL, 0, 17, 800, 810);
    static const uint32_t expected[] = {0, 0, 0, 0, 0, 1, 0, 1, 2};
    fs_collective_row *rows = collect(9);
    for (int i = 0; i < 9; i++) {
        CHECK(rows[i].start == 100 * (i + 1));
        CHECK(rows[i].occurrence == expected[i], "%d: %u", i, rows[i].occurrence);
    }
    fs_free(rows);
}

static void test_an_unknown_duration_is_missing(void)
{
    fs_collective recorded = some();
    nccl(&recorded, 0, 17, 100, 110);
    fs_event event;
    fs_store_get(store, 0, &event);
    event.duration = FS_MISSING;
    CHECK(fs_store_append(store, &event, NULL, NULL) == FS_OK);
    event.start = FS_MISSING; /* no start: no row */
    CHECK(fs_store_append(store, &event, NULL, NULL) == FS_OK);
    fs_collective_row *rows = collect(2);
    CHECK(rows[0].duration == 10 && isnan(rows[1].duration) && isnan(rows[1].exposed));
    CHECK(isnan(rows[1].algorithm_gbytes_per_s) && rows[1].message_bytes == (double)((int64_t)1 << 41));
    fs_free(rows);
}

/* Add a kernel launched by an op inside c10d::_allgather_base_, which an annotation describes too. */
static void launch_from(const char *kernel, const fs_collective *stated, int64_t start)
{
    fs_torch_builder builder = {0};
    fs_event event = fs_event_missing;
    uint32_t outer, inner;
    event.kind = FS_EVENT_OP;
    event.start = start;
    event.duration = 10;
    CHECK(fs_store_name(store, "c10d::_allgather_base_", &event.name, NULL) == FS_OK);
    CHECK(fs_store_append(store, &event, &outer, NULL) == FS_OK);
    fs_span bytes = call_of(&builder, stated);
    CHECK(fs_store_name(store, "record_param_comms", &event.name, NULL) == FS_OK);
    CHECK(fs_store_signature(store, bytes.bytes, bytes.size, &event.signature, NULL) == FS_OK);
    event.parent = outer;
    CHECK(fs_store_append(store, &event, &inner, NULL) == FS_OK);
    nccl(NULL, 0, 17, start + 5, start + 105);
    fs_store_get(store, inner + 1, &event);
    CHECK(fs_store_name(store, kernel, &event.name, NULL) == FS_OK);
    event.launcher = inner;
    fs_store_set(store, inner + 1, &event);
    event = fs_event_missing; /* ends on another thread, after the collective */
    event.kind = FS_EVENT_RANGE;
    event.start = start + 2;
    event.duration = 500;
    CHECK(fs_store_name(store, "nccl:_all_gather_base", &event.name, NULL) == FS_OK);
    CHECK(fs_store_append(store, &event, NULL, NULL) == FS_OK);
    fs_torch_builder_clear(&builder);
}

static void test_the_ops_around_a_launch_describe_the_collective(void)
{
    fs_collective stated = some();
    stated.group_size = 8, stated.in_elements = 100, stated.out_elements = 800;
    launch_from("ncclDevKernel_Generic_1(int)", &stated, 1000);
    launch_from("ncclDevKernel_Generic_1(int)", NULL, 2000); /* 15 elements are one part; the group size is unknown */
    launch_from("ncclDevKernel_Broadcast(int)", NULL, 3000); /* contradicts the name of the op */
    fs_collective_row *rows = collect(3);
    CHECK(rows[0].kind == FS_COLLECTIVE_ALLGATHER && is(rows[0].recorded.name, "_allgather_base"));
    CHECK(rows[0].message_bytes == 1600 && near(rows[0].bus_gbytes_per_s, 16 * 0.875) &&
          rows[0].recorded.sequence == 7);
    CHECK(rows[1].kind == FS_COLLECTIVE_ALLGATHER && is(rows[1].recorded.name, "nccl:_all_gather_base"));
    CHECK(isnan(rows[1].message_bytes) && is(rows[1].recorded.dtype, "BFloat16") &&
          rows[1].recorded.sequence == FS_MISSING);
    CHECK(rows[2].kind == FS_COLLECTIVE_BROADCAST && rows[2].recorded.name.size == 0);
    fs_free(rows);
}

/* Streams -------------------------------------------------------------------------------------------------------- */

static fs_stream_row *watch(uint32_t expected)
{
    fs_stream_row *rows = NULL;
    uint32_t count = 0;
    CHECK(fs_streams_of(store, &rows, &count, NULL) == FS_OK);
    CHECK(count == expected, "%u", count);
    return rows;
}

static void test_streams_side_by_side(void)
{
    /*          0    100   200   300   400
     * 7        ▓▓▓▓▓▓▓▓▓▓▓▓
     * 9               ▒▒▒▒▒▒▒▒▒
     * 17                 ░░░░░░░░░░░░        added in no order */
    nccl(NULL, 0, 17, 150, 400);
    compute(0, 7, 0, 120);
    compute(0, 7, 100, 200); /* overlaps work of its own stream: counted once, not as overlap with another stream */
    work(FS_EVENT_MEMCPY, "copy", NULL, 0, 9, 120, 300);
    compute(2, 7, 0, 400); /* another device */
    fs_stream_row *rows = watch(6);
    static const struct {
        int device;
        bool whole;
        uint64_t stream;
        double kernels, copies, busy, overlapped, communication, exposed;
    } expected[] = {
        {0, false, 7, 2, 0, 200, 80, 0, 0},       {0, false, 9, 0, 1, 180, 180, 0, 0},
        {0, false, 17, 1, 0, 250, 150, 250, 200}, {0, true, 0, 3, 1, 400, 180, 250, 200},
        {2, false, 7, 1, 0, 400, 0, 0, 0},        {2, true, 0, 1, 0, 400, 0, 0, 0},
    };
    for (int i = 0; i < 6; i++) {
        const fs_stream_row *row = &rows[i];
        CHECK(row->device == expected[i].device && row->whole == expected[i].whole);
        CHECK(row->whole || row->stream == expected[i].stream);
        CHECK(row->kernels == expected[i].kernels && row->copies == expected[i].copies, "row %d", i);
        CHECK(row->busy == expected[i].busy && row->overlapped == expected[i].overlapped, "row %d: %g %g", i, row->busy,
              row->overlapped);
        CHECK(row->communication == expected[i].communication, "row %d", i);
        CHECK(row->exposed_communication == expected[i].exposed, "row %d: %g", i, row->exposed_communication);
        CHECK(near(row->overlapped_pct, 100 * row->overlapped / row->busy));
        CHECK(row->communication > 0 ? near(row->exposed_pct, 80) : isnan(row->exposed_pct), "row %d", i);
    }
    fs_free(rows);
}

static void test_work_without_a_stream_counts_for_the_device(void)
{
    compute(0, 0, 0, 100); /* on an unknown stream */
    compute(0, 7, 50, 100);
    fs_stream_row *rows = watch(2);
    CHECK(!rows[0].whole && rows[0].busy == 50 && rows[1].whole && rows[1].busy == 100 && rows[1].kernels == 2);
    fs_free(rows);
}

/* Compare with an array of single ns. */
static void test_random_streams_against_moments(void)
{
    enum { SPAN = 600, STREAMS = 4 };
    static int busy[STREAMS][SPAN], communicating[STREAMS][SPAN], computing[SPAN];
    srand(11);
    for (int i = 0; i < 200; i++) {
        int stream = rand() % STREAMS, begin = rand() % (SPAN - 30), end = begin + rand() % 30, kind = rand() % 3;
        if (kind == 0) nccl(NULL, 0, (uint64_t)stream + 1, begin, end);
        else if (kind == 1) compute(0, (uint64_t)stream + 1, begin, end);
        else work(FS_EVENT_MEMSET, "fill", NULL, 0, (uint64_t)stream + 1, begin, end);
        for (int t = begin; t < end; t++) {
            busy[stream][t] = 1;
            communicating[stream][t] |= kind == 0;
            computing[t] |= kind == 1;
        }
    }
    fs_stream_row *rows = watch(STREAMS + 1);
    for (int stream = 0; stream < STREAMS; stream++) {
        int worked = 0, beside = 0, communicated = 0, exposed = 0;
        for (int t = 0; t < SPAN; t++) {
            int at_once = busy[0][t] + busy[1][t] + busy[2][t] + busy[3][t];
            worked += busy[stream][t];
            beside += busy[stream][t] && at_once > 1;
            communicated += communicating[stream][t];
            exposed += communicating[stream][t] && !computing[t];
        }
        const fs_stream_row *row = &rows[stream];
        CHECK(row->stream == (uint64_t)stream + 1 && row->busy == worked && row->overlapped == beside);
        CHECK(row->communication == communicated && row->exposed_communication == exposed && communicated > 0);
    }
    fs_free(rows);
}

/* Failures ------------------------------------------------------------------------------------------------------- */

static fs_status collectives_once(fs_error *err)
{
    fs_collective_row *rows = NULL;
    uint32_t count;
    fs_status status = fs_collectives_of(store, &rows, &count, err);
    fs_free(rows);
    return status;
}

static fs_status streams_once(fs_error *err)
{
    fs_stream_row *rows = NULL;
    uint32_t count;
    fs_status status = fs_streams_of(store, &rows, &count, err);
    fs_free(rows);
    return status;
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    static fs_status (*const all[])(fs_error *) = {collectives_once, streams_once};
    for (int i = 0; i < 300; i++) { /* newest first, so that lists grow and are sorted; each of a different size */
        fs_collective recorded = some();
        recorded.in_elements = recorded.out_elements = i;
        nccl(&recorded, 0, 17, 1000 * (300 - i), 1000 * (300 - i) + 500);
        if (i % 50 == 0) launch_from("ncclDevKernel_Generic", NULL, 1000 * (300 - i));
        compute(0, 7, 1000 * (300 - i) + 400, 1000 * (300 - i) + 900);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t live = fs_memory_live(), n = 0;
        fs_status status = FS_OUT_OF_MEMORY;
        while (status != FS_OK && n < 1000) {
            fs_error err = {FS_OK, ""};
            fs_memory_fail_at(++n);
            status = all[i](&err);
            fs_memory_fail_at(0);
            CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0));
            CHECK(fs_memory_live() == live);
        }
        CHECK(status == FS_OK && n > 5, "%zu: %lld", i, (long long)n);
    }
}

static void test_empty_stores_have_no_rows(void)
{
    fs_free(collect(0));
    fs_free(watch(0));
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_a_collective_is_decoded_after_a_launch,
        test_unrecorded_fields_are_missing,
        test_a_collective_is_decoded_after_a_call,
        test_long_texts_are_cut,
        test_kinds_follow_from_names,
        test_bus_factors_are_those_of_nccl_tests,
        test_sizes_rates_and_exposed_time,
        test_a_recorded_collective_makes_any_kernel_communication,
        test_occurrences_count_equal_collectives,
        test_an_unknown_duration_is_missing,
        test_the_ops_around_a_launch_describe_the_collective,
        test_streams_side_by_side,
        test_work_without_a_stream_counts_for_the_device,
        test_random_streams_against_moments,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
        test_empty_stores_have_no_rows,
    };
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        CHECK(fs_store_create(&store, NULL) == FS_OK);
        tests[i]();
        fs_store_destroy(store);
        CHECK(fs_memory_live() == live);
    }
    return failures != 0;
}
