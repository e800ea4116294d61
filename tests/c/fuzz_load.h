/* Shared by the fuzz targets over traces: reading a text in several ways, and the invariants of every store. */
#ifndef FS_TESTS_FUZZ_LOAD_H
#define FS_TESTS_FUZZ_LOAD_H

#include "base/parallel.h"
#include "sources/kineto/kineto.h"
#include "store/event.h"
#include "tests/c/fuzz.h"

static fs_error fuzz_error; /* of the last call that failed */
static bool fuzz_ran_out;   /* of memory */

/* Return whether a call succeeded; nothing but a lack of memory may prevent that. */
static inline bool done(fs_status status)
{
    FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", fuzz_error.message);
    fuzz_ran_out |= status != FS_OK;
    return status == FS_OK;
}

/* Let several threads read small texts too. */
enum { FUZZ_PIECE_BYTES = FS_BLOCK(256, 32), FUZZ_THREADS = 3 };

static inline void fuzz_set_up(void)
{
    static bool is_set_up;
    if (is_set_up) return;
    is_set_up = true;
    fs_kineto_set_piece_bytes(FUZZ_PIECE_BYTES);
    FS_IGNORE(fs_parallel_set_threads(FUZZ_THREADS, NULL));
}

typedef struct {
    const uint8_t *data;
    size_t size;
} fuzz_text;

/* FUZZ_PARTS: a few bytes at a time. FUZZ_LARGE_PARTS: enough for several threads at a time, which read ahead. */
typedef enum { FUZZ_WHOLE, FUZZ_PARTS, FUZZ_LARGE_PARTS, FUZZ_WAY_COUNT } fuzz_way;

static inline int64_t fuzz_read(void *context, int64_t offset, char *to, size_t size, fs_error *err)
{
    (void)err;
    const fuzz_text *text = context;
    if ((uint64_t)offset >= text->size) return 0;
    if (size > text->size - (size_t)offset) size = text->size - (size_t)offset;
    memcpy(to, text->data + offset, size);
    return (int64_t)size;
}

static inline fs_status fuzz_feed(fs_kineto *kineto, const fuzz_text *text, fuzz_way way, fs_error *err)
{
    size_t part = way == FUZZ_PARTS ? 1 : 5 * FUZZ_PIECE_BYTES;
    for (size_t at = 0; at < text->size; at += part) {
        if (at > 0 && way == FUZZ_PARTS) part = part * 3 % 61 + 1;
        if (part > text->size - at) part = text->size - at;
        const char *from = (const char *)text->data + at;
        fs_kineto_part parts[] = {{from, part / 3}, {from + part / 3, part - part / 3}};
        FS_TRY(way == FUZZ_PARTS ? fs_kineto_feed(kineto, from, part, err)
                                 : fs_kineto_feed_ahead(kineto, parts, 2, err));
    }
    return FS_OK;
}

/* Check that every parent and launcher precedes its event, as building tables requires, and that launchers are ops or
 * annotations. */
static inline void fuzz_check_order(const fs_store *store)
{
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint32_t parent = FS_EVENT_AT(store, i, parent), launcher = FS_EVENT_AT(store, i, launcher);
        FUZZ_CHECK(parent == FS_NONE || parent < i, "event %u, parent %u", i, parent);
        if (launcher == FS_NONE) continue;
        FUZZ_CHECK(launcher < i, "event %u, launcher %u", i, launcher);
        uint8_t kind = FS_EVENT_AT(store, launcher, kind);
        FUZZ_CHECK(kind == FS_EVENT_OP || fs_event_is_annotation(kind), "event %u, launcher of kind %d", i, kind);
    }
}

static inline uint64_t fuzz_mix(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

/* Return a hash of all events that does not depend on the ids of names and signatures. */
static inline uint64_t fuzz_digest(const fs_store *store)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        fs_event event;
        fs_store_get(store, i, &event);
        if (event.name != FS_NONE) {
            const char *text = fs_store_name_text(store, event.name);
            hash = fuzz_mix(hash, text, strlen(text) + 1);
        }
        if (event.signature != FS_NONE) {
            fs_span signature = fs_store_signature_bytes(store, event.signature);
            hash = fuzz_mix(hash, signature.bytes, signature.size);
        }
        if (event.lane != FS_NONE) {
            fs_lane lane = fs_store_lane(store, event.lane);
            int64_t place[] = {lane.on_device, lane.device, (int64_t)lane.id};
            hash = fuzz_mix(hash, place, sizeof place);
        }
        int64_t rest[] = {event.start,       event.duration, event.bytes, event.parent, event.launcher,
                          event.correlation, event.device,   event.kind,  event.timing};
        hash = fuzz_mix(hash, rest, sizeof rest);
    }
    return hash;
}

/* Read the text. The caller destroys *store, which is NULL on failure. */
static inline fs_status fuzz_load(const fuzz_text *text, fuzz_way way, fs_store **store, fs_kineto_report *report,
                                  fs_error *err)
{
    fs_kineto *kineto = NULL;
    *store = NULL;
    fs_status status = fs_kineto_create(&kineto, err);
    if (status == FS_OK) status = fs_store_create(store, err);
    if (status == FS_OK) {
        status = way == FUZZ_WHOLE
                     ? fs_kineto_scan(kineto, fuzz_read, (void *)(uintptr_t)text, (int64_t)text->size, err)
                     : fuzz_feed(kineto, text, way, err);
    }
    if (status == FS_OK) status = fs_kineto_finish(kineto, *store, report, err);
    fs_kineto_destroy(kineto);
    if (status == FS_OK) {
        fuzz_check_order(*store);
    } else {
        fs_store_destroy(*store);
        *store = NULL;
    }
    return status;
}

/* One of the things that are computed of a store. */
typedef void fuzz_stage(const fs_store *store);

/* Compute it with the first allocation failing, then with the second one, and so on, until none does. */
static inline void fuzz_fail_each(const fs_store *store, fuzz_stage *stage)
{
    int64_t live = fs_memory_live();
    fuzz_ran_out = true;
    for (int64_t n = 1; fuzz_ran_out; n++) {
        fuzz_ran_out = false;
        fuzz_error.message[0] = 0;
        fs_memory_fail_at(n);
        stage(store);
        fs_memory_fail_at(0);
        FUZZ_CHECK(fs_memory_live() == live, "allocation %lld leaks", (long long)n);
        FUZZ_CHECK(fuzz_ran_out == (fuzz_error.message[0] != 0), "allocation %lld: %s", (long long)n,
                   fuzz_error.message);
    }
}

/* Compute each of the target's stages, ended by NULL, of what a text contains. */
static inline void fuzz_fail_stages(const void *bytes, size_t size, fuzz_stage *const *stages)
{
    fuzz_text text = {bytes, size};
    fs_store *store;
    fs_kineto_report report;
    fuzz_set_up();
    if (fuzz_load(&text, FUZZ_WHOLE, &store, &report, &fuzz_error) != FS_OK) return;
    FS_IGNORE(fs_parallel_set_threads(1, NULL)); /* the n-th allocation is the same one each time */
    for (; *stages != NULL; stages++) fuzz_fail_each(store, *stages);
    FS_IGNORE(fs_parallel_set_threads(FUZZ_THREADS, NULL));
    fs_store_destroy(store);
}

#endif
