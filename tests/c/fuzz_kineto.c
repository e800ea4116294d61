/* The trace reader on arbitrary bytes, for libFuzzer:
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -Icsrc tests/c/fuzz_kineto.c csrc/base/[!_]*.c \
 *     csrc/store/[!_]*.c csrc/sources/json_*.c csrc/sources/kineto*.c -lm -lpthread -o fuzz
 *   ./fuzz tests/data/corpus
 *
 * Every text is read whole by several threads and in parts; both give the same events or the same refusal.
 * test_kineto.c runs it over the corpus, and over the corpus changed at random, without libFuzzer.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sources/kineto.h"
#include "store/event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *data;
    size_t size;
} fuzz_text;

static int64_t fuzz_read(void *context, int64_t offset, char *to, size_t size, fs_error *err)
{
    const fuzz_text *text = context;
    (void)err;
    if ((uint64_t)offset >= text->size) return 0;
    if (size > text->size - (size_t)offset) size = text->size - (size_t)offset;
    memcpy(to, text->data + offset, size);
    return (int64_t)size;
}

static fs_status fuzz_feed(fs_kineto *kineto, const uint8_t *data, size_t size, fs_error *err)
{
    size_t part = 1;
    for (size_t at = 0; at < size; at += part, part = part * 3 % 61 + 1) {
        if (part > size - at) part = size - at;
        FS_TRY(fs_kineto_feed(kineto, (const char *)data + at, part, err));
    }
    return FS_OK;
}

/* Every parent and launcher comes first: what makes tables of the store relies on it. Work runs for ops and
 * annotations. */
static void fuzz_check(const fs_store *store)
{
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint32_t parent = FS_EVENT_AT(store, i, parent), launcher = FS_EVENT_AT(store, i, launcher);
        if (parent != FS_NONE && parent >= i) abort();
        if (launcher == FS_NONE) continue;
        if (launcher >= i) abort();
        uint8_t kind = FS_EVENT_AT(store, launcher, kind);
        if (kind != FS_EVENT_OP && !fs_event_is_annotation(kind)) abort();
    }
}

static fs_status fuzz_one(const fuzz_text *text, int parts, uint32_t *events, fs_error *err)
{
    fs_kineto *kineto = NULL;
    fs_store *store = NULL;
    fs_kineto_report report;
    fs_status status = fs_kineto_create(&kineto, err);
    if (status == FS_OK) status = fs_store_create(&store, err);
    if (status == FS_OK) {
        status = parts ? fuzz_feed(kineto, text->data, text->size, err)
                       : fs_kineto_scan(kineto, fuzz_read, (void *)(uintptr_t)text, (int64_t)text->size, err);
    }
    if (status == FS_OK) status = fs_kineto_finish(kineto, store, &report, err);
    if (status == FS_OK) {
        fuzz_check(store);
        *events = fs_store_count(store);
    }
    fs_store_destroy(store);
    fs_kineto_destroy(kineto);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text text = {data, size};
    fs_error whole_error = {.message = ""}, parts_error = {.message = ""};
    uint32_t whole = 0, parts = 0;
    fs_status first = fuzz_one(&text, 0, &whole, &whole_error), second = fuzz_one(&text, 1, &parts, &parts_error);
    if (first == FS_OUT_OF_MEMORY || second == FS_OUT_OF_MEMORY) return 0;
    if (first != second || whole != parts) abort();
    if (first != FS_OK && strcmp(whole_error.message, parts_error.message) != 0) abort();
    return 0;
}
