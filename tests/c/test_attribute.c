/* Parents and launchers, compared with a brute force over random programs: threads with nested ops, ranges, steps and
 * frames, API calls inside them, and device work recorded in any order. */
#include "sources/attribute.h"
#include "tests/c/events.h"

enum { THREADS = 3, DEVICES = 2, STREAMS = 3, MOST = 4096, NOBODY = -1 };

/* An event of the program. Its number is stored in the event's `bytes`, since events move within the store. */
typedef struct {
    fs_event_kind kind;
    int64_t start, end, recorded; /* recorded: when the store receives it */
    int thread;                   /* NOBODY: unknown */
    int device, stream;
    int parent, launcher; /* the expected numbers of events */
    uint32_t correlation;
    uint32_t index; /* in the store, of events that do not move */
} happening;

static happening all[MOST];
static int adopted; /* work of a library's thread attributed to a range, in all programs */
static int count;

static bool encloses_on_host(const happening *event)
{
    return event->kind == FS_EVENT_OP || event->kind == FS_EVENT_RANGE || event->kind == FS_EVENT_STEP ||
           event->kind == FS_EVENT_FRAME;
}

static bool is_call(const happening *event)
{
    return event->kind == FS_EVENT_RUNTIME || event->kind == FS_EVENT_OVERHEAD;
}

static bool is_work(const happening *event)
{
    return event->kind == FS_EVENT_KERNEL || event->kind == FS_EVENT_MEMCPY || event->kind == FS_EVENT_MEMSET;
}

/* A random program ------------------------------------------------------------------------------------------------ */

static int add(fs_event_kind kind, int thread, int64_t start)
{
    all[count] = (happening){.kind = kind,
                             .start = start,
                             .thread = thread,
                             .device = -1,
                             .parent = NOBODY,
                             .launcher = NOBODY,
                             .correlation = FS_NONE};
    return count++;
}

static const fs_event_kind host_kinds[] = {FS_EVENT_OP, FS_EVENT_RANGE, FS_EVENT_STEP, FS_EVENT_FRAME};
static bool all_annotate; /* otherwise only the first thread has ranges and steps */

/* The last thread belongs to a library: it has no ops or ranges. */
static fs_event_kind host_kind(int thread)
{
    fs_event_kind kind = host_kinds[random_below(4)];
    bool annotation = kind == FS_EVENT_RANGE || kind == FS_EVENT_STEP;
    if (thread == THREADS - 1) return FS_EVENT_FRAME;
    return annotation && thread > 0 && !all_annotate ? FS_EVENT_OP : kind;
}

static const fs_event_kind work_kinds[] = {FS_EVENT_KERNEL, FS_EVENT_MEMCPY, FS_EVENT_MEMSET};

/* Generate one thread's events. `open` holds those that have begun, the innermost last. */
static void run_thread(int thread, int events, uint32_t *correlation, int64_t grain)
{
    int open[64], depth = 0;
    int64_t now = thread; /* the threads' times differ modulo THREADS */
    for (int made = 0; made < events || depth > 0;) {
        now += THREADS * (1 + random_below(20));
        int64_t time = now / grain;
        bool in_call = depth > 0 && is_call(&all[open[depth - 1]]);
        int64_t roll = random_below(10);
        if (made < events && depth < 60 && roll < 5 && (!in_call || random_below(4) == 0)) {
            fs_event_kind kind = roll < 3 ? host_kind(thread) : random_below(5) ? FS_EVENT_RUNTIME : FS_EVENT_OVERHEAD;
            int made_now = add(kind, thread, time);
            /* The store sets the parent of an op or range when it begins: the innermost open one. */
            for (int i = depth; i-- > 0 && encloses_on_host(&all[made_now]) && all[made_now].parent == NOBODY;)
                if (encloses_on_host(&all[open[i]])) all[made_now].parent = open[i];
            if (kind == FS_EVENT_RUNTIME && random_below(8)) all[made_now].correlation = ++*correlation;
            open[depth++] = made_now;
            made++;
        } else if (depth > 0) {
            /* Mostly last in, first out; a range may end at any time. */
            int at = depth - 1;
            if (random_below(6) == 0) at = (int)random_below(depth);
            if (is_call(&all[open[at]])) at = depth - 1;
            all[open[at]].end = time;
            memmove(&open[at], &open[at + 1], (size_t)(--depth - at) * sizeof *open);
        }
    }
}

static void launch_work(int call)
{
    int works = random_below(5) ? (int)random_below(3) : 12; /* a graph launches many */
    for (int i = 0; i < works && count < MOST; i++) {
        int made = add(work_kinds[random_below(3)], NOBODY, all[call].start + 1 + random_below(400));
        all[made].end = all[made].start + random_below(50);
        all[made].device = (int)random_below(DEVICES);
        all[made].stream = (int)random_below(STREAMS);
        all[made].correlation = all[call].correlation;
    }
}

static void make_program(int events, int64_t grain)
{
    uint32_t correlation = (uint32_t)random_below(1000);
    count = 0;
    all_annotate = random_below(2);
    for (int thread = 0; thread < THREADS; thread++) run_thread(thread, events, &correlation, grain);
    int hosts = count;
    for (int i = 0; i < hosts && count < MOST - 40; i++) {
        if (all[i].kind != FS_EVENT_RUNTIME || all[i].correlation == FS_NONE) continue;
        if (random_below(4)) launch_work(i);
        if (random_below(5) == 0 && all[i].end > all[i].start + 2) { /* a wait lies within its call */
            int made = add(FS_EVENT_SYNC, NOBODY, all[i].start + 1);
            all[made].end = all[i].end - 1;
            all[made].correlation = all[i].correlation;
        }
    }
    for (int i = 0; i < 5; i++) { /* without a call */
        int made = add(i < 3 ? FS_EVENT_KERNEL : i < 4 ? FS_EVENT_OVERHEAD : FS_EVENT_SYNC, NOBODY, random_below(5000));
        all[made].end = all[made].start + 5;
        if (i < 3) all[made].device = 0;
        if (i == 1) all[made].correlation = 4000000000u;
    }
    /* Ops and ranges are recorded when they begin, CUPTI's records arrive at their end or later. */
    for (int i = 0; i < count; i++)
        all[i].recorded =
            encloses_on_host(&all[i]) ? all[i].start : all[i].end + 1 + (random_below(3) ? 0 : random_below(2000));
}

/* The oracle ------------------------------------------------------------------------------------------------------ */

/* Return the innermost event of the thread around the call: of those enclosing it, the one that began last. */
static int find_parent(const happening *call)
{
    int best = NOBODY;
    for (int i = 0; i < count; i++) {
        const happening *other = &all[i];
        if (other == call || other->thread != call->thread || (!encloses_on_host(other) && !is_call(other))) continue;
        if (other->start > call->start || other->end < call->end) continue;
        if (best == NOBODY || other->start > all[best].start) best = i;
    }
    return best;
}

static int find_call(uint32_t correlation)
{
    for (int i = 0; i < count && correlation != FS_NONE; i++)
        if (all[i].kind == FS_EVENT_RUNTIME && all[i].correlation == correlation) return i;
    return NOBODY;
}

/* Return the range that a call on a thread without ops and ranges belongs to: if exactly one other thread has ranges or
 * steps open, the one of these that began last. */
static int find_adopter(const happening *call)
{
    int best = NOBODY;
    for (int i = 0; i < count; i++)
        if (all[i].thread == call->thread && encloses_on_host(&all[i]) && all[i].kind != FS_EVENT_FRAME) return NOBODY;
    for (int i = 0; i < count; i++) {
        const happening *other = &all[i];
        if ((other->kind != FS_EVENT_RANGE && other->kind != FS_EVENT_STEP) || other->device >= 0) continue;
        if (other->start > call->start || other->end <= call->start) continue;
        if (best != NOBODY && other->thread != all[best].thread) return NOBODY;
        if (best == NOBODY || other->start > all[best].start) best = i;
    }
    return best;
}

static void find_answers(void)
{
    for (int i = 0; i < count; i++)
        if (is_call(&all[i]) && all[i].thread != NOBODY) all[i].parent = find_parent(&all[i]);
    for (int i = 0; i < count; i++) {
        int call = is_work(&all[i]) || all[i].kind == FS_EVENT_SYNC ? find_call(all[i].correlation) : NOBODY;
        if (call == NOBODY) continue;
        if (all[i].kind == FS_EVENT_SYNC) {
            all[i].parent = call;
            all[i].thread = all[call].thread;
            continue;
        }
        int owner = all[call].parent;
        while (owner != NOBODY && (!encloses_on_host(&all[owner]) || all[owner].kind == FS_EVENT_FRAME))
            owner = all[owner].parent;
        adopted += owner == NOBODY && find_adopter(&all[call]) != NOBODY;
        all[i].launcher = owner != NOBODY ? owner : find_adopter(&all[call]);
    }
}

/* The store ------------------------------------------------------------------------------------------------------- */

static int by_recorded(const void *left, const void *right)
{
    const happening *a = &all[*(const int *)left], *b = &all[*(const int *)right];
    if (a->recorded != b->recorded) return a->recorded < b->recorded ? -1 : 1;
    return *(const int *)left - *(const int *)right;
}

/* Put the events of the program into an empty store, as they are recorded. */
static void record_program(void)
{
    static int order[MOST];
    end_store();
    make_store();
    for (int i = 0; i < count; i++) order[i] = i;
    qsort(order, (size_t)count, sizeof *order, by_recorded);
    for (int i = 0; i < count; i++) {
        happening *source = &all[order[i]];
        fs_event event = fs_event_missing;
        event.kind = (uint8_t)source->kind;
        event.start = source->start;
        event.duration = source->end - source->start;
        event.bytes = order[i];
        event.correlation = source->correlation;
        event.device = (int8_t)source->device;
        event.name = (uint32_t)order[i] % 50;
        bool known = encloses_on_host(source) || (is_call(source) && source->thread != NOBODY);
        if (encloses_on_host(source) && source->parent != NOBODY) event.parent = all[source->parent].index;
        if (source->device >= 0)
            CHECK(fs_store_device_lane(store, source->device, (uint64_t)source->stream, &event.lane, NULL) == FS_OK);
        else if (known)
            CHECK(fs_store_thread_lane_of(store, (uint64_t)source->thread + 100, &event.lane, NULL) == FS_OK);
        CHECK_OK(fs_store_append(store, &event, &source->index, NULL));
    }
}

/* Return the number of the event at an index, or NOBODY. */
static int number_at(uint32_t index)
{
    return index == FS_NONE ? NOBODY : (int)event_at(index).bytes;
}

/* Check what must hold even after a failure: every event is stored once, and every link leads to an earlier event of a
 * valid kind. */
static void check_links(void)
{
    static int occurrences[MOST];
    memset(occurrences, 0, sizeof occurrences);
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        fs_event event = event_at(i);
        if (i < (uint32_t)count) occurrences[event.bytes]++;
        CHECK(event.parent == FS_NONE || event.parent < i, "%u in %u", i, event.parent);
        CHECK(event.launcher == FS_NONE || event.launcher < i, "%u of %u", i, event.launcher);
        if (event.parent < i && event.kind != FS_EVENT_SYNC) CHECK(event_at(event.parent).lane == event.lane);
        if (event.launcher < i) {
            uint8_t kind = event_at(event.launcher).kind;
            CHECK(kind == FS_EVENT_OP || kind == FS_EVENT_RANGE || kind == FS_EVENT_STEP);
        }
    }
    for (int i = 0; i < count; i++) CHECK(occurrences[i] == 1, "event %d is stored %d times", i, occurrences[i]);
}

/* Record the program and link its events. */
static void attribute(void)
{
    fs_error err = {FS_OK, ""};
    record_program();
    CHECK(fs_attribute(store, &err) == FS_OK, "%s", err.message);
    check_links();
}

/* Check the copies of ranges on streams: each spans the first to the last work of the range on the stream. */
static void check_copies(void)
{
    int expected = 0, copies = 0;
    for (int range = 0; range < count; range++) {
        if (all[range].kind != FS_EVENT_RANGE && all[range].kind != FS_EVENT_STEP) continue;
        for (int lane = 0; lane < DEVICES * STREAMS; lane++) {
            int64_t start = INT64_MAX, end = INT64_MIN;
            for (int i = 0; i < count; i++) {
                if (!is_work(&all[i]) || all[i].device * STREAMS + all[i].stream != lane) continue;
                int at = all[i].launcher;
                while (at != NOBODY && at != range) at = all[at].parent;
                if (at != range) continue;
                if (all[i].start < start) start = all[i].start;
                if (all[i].end > end) end = all[i].end;
            }
            if (start == INT64_MAX) continue;
            expected++;
            for (uint32_t i = (uint32_t)count; i < fs_store_count(store); i++) {
                fs_event event = event_at(i);
                fs_lane on = fs_store_lane(store, event.lane);
                if (number_at(event.launcher) != range || !on.on_device) continue;
                if (on.device * STREAMS + (int)on.id != lane) continue;
                copies++;
                CHECK(event.start == start && event.duration == end - start && event.kind == all[range].kind);
                CHECK(event.device == on.device && event.timing == FS_TIMING_CUPTI && event.parent == FS_NONE);
                CHECK(event.name == (uint32_t)range % 50);
            }
        }
    }
    CHECK(copies == expected && fs_store_count(store) == (uint32_t)(count + expected), "%d of %d", copies, expected);
}

TEST(links_match_the_brute_force)
{
    int linked = 0, nested_calls = 0, waits = 0;
    for (int round = 0; round < 150 && failures == 0; round++) {
        make_program(round % 10 == 0 ? 150 : 5 + round % 40, 1);
        attribute();
        find_answers();
        for (uint32_t i = 0; i < (uint32_t)count; i++) {
            fs_event event = event_at(i);
            const happening *expected = &all[event.bytes];
            CHECK(number_at(event.parent) == expected->parent, "round %d: %d lies in %d, not %d", round,
                  (int)event.bytes, number_at(event.parent), expected->parent);
            CHECK(number_at(event.launcher) == expected->launcher, "round %d: %d is of %d, not %d", round,
                  (int)event.bytes, number_at(event.launcher), expected->launcher);
            CHECK(event.start == expected->start && event.duration == expected->end - expected->start);
            if (event.kind == FS_EVENT_SYNC && expected->thread != NOBODY) {
                CHECK(fs_store_lane(store, event.lane).id == (uint64_t)expected->thread + 100);
                waits++;
            }
            linked += expected->launcher != NOBODY;
            nested_calls += is_call(expected) && expected->parent != NOBODY && is_call(&all[expected->parent]);
        }
        check_copies();
    }
    CHECK(linked > 1000 && nested_calls > 100 && waits > 20, "%d, %d, %d", linked, nested_calls, waits);
    CHECK(adopted > 100, "%d", adopted);
}

/* Times so coarse that many are equal: either of two equal events may enclose the other, but links must be valid. */
TEST(equal_times_give_valid_links)
{
    for (int round = 0; round < 60 && failures == 0; round++) {
        make_program(40, 40);
        attribute();
        for (uint32_t i = 0; i < (uint32_t)count; i++) {
            fs_event event = event_at(i);
            if (event.parent == FS_NONE || !is_call(&all[event.bytes])) continue;
            fs_event outer = event_at(event.parent);
            CHECK(outer.start <= event.start && outer.start + outer.duration >= event.start + event.duration);
        }
    }
}

/* Add an event on thread 0; the store receives events in the order of the calls. */
static int at(fs_event_kind kind, int64_t start, int64_t end, uint32_t correlation)
{
    int made = add(kind, kind == FS_EVENT_KERNEL || kind == FS_EVENT_SYNC ? NOBODY : 0, start);
    all[made].end = end, all[made].correlation = correlation, all[made].recorded = made;
    if (kind == FS_EVENT_KERNEL) all[made].device = 0;
    return made;
}

/* Check each event's parent, by number, after attribution. */
static void check_parents(const int *expected)
{
    attribute();
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        int number = number_at(i), parent = number_at(event_at(i).parent);
        CHECK(parent == expected[number], "%d lies in %d", number, parent);
    }
}

TEST(times_that_touch)
{
    count = 0;
    int op = at(FS_EVENT_OP, 100, 200, FS_NONE);
    int inner = at(FS_EVENT_RUNTIME, 100, 150, 1), outer = at(FS_EVENT_RUNTIME, 100, 200, 2);
    int next = at(FS_EVENT_RUNTIME, 200, 250, 3); /* begins where the op ends */
    int instant = at(FS_EVENT_RUNTIME, 200, 200, 4);
    int within = at(FS_EVENT_RUNTIME, 120, 120, 5);
    int late = at(FS_EVENT_RUNTIME, 160, 200, 6); /* ends as the op does */
    at(FS_EVENT_RUNTIME, 170, 201, 7);            /* a ns after it */
    int expected[MOST];
    for (int i = 0; i < count; i++) expected[i] = NOBODY;
    expected[inner] = outer, expected[outer] = op, expected[within] = inner, expected[late] = outer,
    expected[instant] = next;
    check_parents(expected);
}

/* A host clock slightly ahead of CUPTI's: the op is recorded after the kernel inside it. */
TEST(clocks_that_disagree_give_valid_links)
{
    for (int first = 0; first < 2; first++) {
        count = 0;
        at(FS_EVENT_KERNEL, 120, 130, 7);
        if (first) at(FS_EVENT_OP, 100, 200, FS_NONE);
        at(FS_EVENT_SYNC, 110, 119, 7);
        at(FS_EVENT_RUNTIME, 110, 119, 7);
        if (!first) at(FS_EVENT_OP, 100, 200, FS_NONE);
        attribute();
        CHECK(event_at(0).launcher == FS_NONE);
    }
}

TEST(a_store_without_calls_has_no_links)
{
    CHECK_OK(fs_attribute(store, NULL));
    CHECK(fs_store_count(store) == 0);
    count = 0;
    at(FS_EVENT_OP, 1, 9, FS_NONE); /* captured without API calls */
    at(FS_EVENT_KERNEL, 2, 9, 5);
    attribute();
    CHECK(fs_store_count(store) == 2 && event_at(1).launcher == FS_NONE);
}

TEST(every_allocation_may_fail)
{
    fs_status status = FS_OUT_OF_MEMORY;
    int64_t n = 0;
    make_program(60, 1);
    find_answers();
    while (status != FS_OK && failures == 0) {
        fs_error err = {FS_OK, ""};
        record_program();
        fs_memory_fail_at(++n);
        status = fs_attribute(store, &err);
        fs_memory_fail_at(0);
        check_links();
        CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && strstr(err.message, "memory") != NULL));
    }
    check_copies();
    CHECK(n > 8, "%lld", (long long)n);
}
