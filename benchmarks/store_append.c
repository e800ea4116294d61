/* Times the store per event. Prints one line of key=value pairs per sample. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ops/dtype.h"
#include "ops/tensor.h"
#include "store/signature.h"
#include "store/store.h"

enum { EVENTS = 10000000, BATCH = 1000000, NAMES = 64, REPEATS = 3 };

static void require(fs_status status, const fs_error *err)
{
    if (status == FS_OK) return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static void print_sample(const char *what, int64_t ns)
{
    printf("case=%s ns=%.3f\n", what, (double)ns / BATCH);
}

/* Time filling a new array with the same events. Its pages are new, as those of a growing store. */
static void time_array(fs_event event)
{
    int64_t start = fs_clock_now();
    fs_event *array = malloc(BATCH * sizeof *array);
    if (array == NULL) exit(1);
    for (int64_t i = 0; i < BATCH; i++) {
        event.start = i;
        event.duration = i & 1023;
        event.name = (uint32_t)i % NAMES;
        array[i] = event;
        __asm__ volatile("" : : "r"(&array[i]) : "memory"); /* each is written */
    }
    free(array);
    print_sample("array", fs_clock_now() - start);
}

static void time_append(void)
{
    fs_store *store;
    fs_error err;
    require(fs_store_create(&store, &err), &err);
    uint32_t lane;
    require(fs_store_thread_lane(store, &lane, &err), &err);
    fs_event event = fs_event_missing;
    event.lane = lane;
    for (int64_t done = 0; done < EVENTS; done += BATCH) {
        int64_t start = fs_clock_now();
        for (int64_t i = 0; i < BATCH; i++) {
            event.start = done + i;
            event.duration = i & 1023;
            event.name = (uint32_t)i % NAMES;
            require(fs_store_append(store, &event, NULL, &err), &err);
        }
        print_sample("append", fs_clock_now() - start);
        time_array(event);
    }
    fs_event last;
    fs_store_get(store, EVENTS - 1, &last);
    if (fs_store_count(store) != EVENTS || last.start != EVENTS - 1) {
        fprintf(stderr, "the store holds %u events, the last of %lld\n", fs_store_count(store), (long long)last.start);
        exit(1);
    }
    printf("case=memory bytes=%lld events=%d\n", (long long)fs_store_nbytes(store), EVENTS);
    fs_store_destroy(store);
}

static void time_pairs(void)
{
    fs_store *store;
    fs_error err;
    require(fs_store_create(&store, &err), &err);
    for (int64_t done = 0; done < EVENTS; done += BATCH) {
        int64_t start = fs_clock_now();
        for (int64_t i = 0; i < BATCH; i++) {
            uint32_t index;
            require(fs_store_begin(store, FS_EVENT_OP, (uint32_t)i % NAMES, FS_NONE, done + i, &index, &err), &err);
            fs_store_end(store, index, done + i + 1);
        }
        print_sample("begin+end", fs_clock_now() - start);
    }
    fs_event last;
    fs_store_get(store, EVENTS - 1, &last);
    if (last.duration != 1 || fs_store_innermost(store) != FS_NONE) {
        fprintf(stderr, "the last event lasted %lld ns, not 1\n", (long long)last.duration);
        exit(1);
    }
    fs_store_destroy(store);
}

/* Time looking up names and signatures that are already in the store, the common case. */
static void time_interning(void)
{
    fs_store *store;
    fs_error err;
    require(fs_store_create(&store, &err), &err);
    static char names[NAMES][32];
    static uint64_t signatures[NAMES][FS_SIGNATURE_MAX_BYTES / 8];
    size_t sizes[NAMES];
    uint32_t id;
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "flopscope::operation_%d", i);
        int64_t shape[] = {i + 1, rand() % 4096 + 1};
        fs_signature signature = {.device_kind = FS_CUDA, .argument_count = 3};
        for (int a = 0; a < 3; a++) {
            signature.arguments[a] = (fs_argument){.role = a == 2 ? FS_ARGUMENT_OUT : FS_ARGUMENT_IN,
                                                   .dtype = FS_FLOAT32,
                                                   .ndim = 2,
                                                   .same_as = FS_SAME_AS_NONE,
                                                   .dense = 1,
                                                   .shape = shape};
        }
        sizes[i] = fs_signature_encode(&signature, signatures[i]);
        require(fs_store_name(store, names[i], &id, &err), &err);
        require(fs_store_signature(store, signatures[i], sizes[i], &id, &err), &err);
    }
    for (int64_t done = 0; done < EVENTS; done += BATCH) {
        int64_t start = fs_clock_now();
        for (int64_t i = 0; i < BATCH; i++) require(fs_store_name(store, names[i % NAMES], &id, &err), &err);
        print_sample("name", fs_clock_now() - start);
        start = fs_clock_now();
        for (int64_t i = 0; i < BATCH; i++) {
            require(fs_store_signature(store, signatures[i % NAMES], sizes[i % NAMES], &id, &err), &err);
        }
        print_sample("signature", fs_clock_now() - start);
    }
    if (fs_store_name_count(store) != NAMES || fs_store_signature_count(store) != NAMES) {
        fprintf(stderr, "%u names and %u signatures, not %d\n", fs_store_name_count(store),
                fs_store_signature_count(store), NAMES);
        exit(1);
    }
    fs_store_destroy(store);
}

int main(void)
{
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        time_append();
        time_pairs();
        time_interning();
    }
    return 0;
}
