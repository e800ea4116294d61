/* Times appending to the store. Prints one line of key=value pairs per sample. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
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

int main(void)
{
    for (int repeat = 0; repeat < REPEATS; repeat++) time_append();
    return 0;
}
