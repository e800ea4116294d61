/* Fuzz target of the trace reader on arbitrary bytes, built and run with libFuzzer by tests/fuzz/run.sh. Every text is
 * read as a whole, in parts, and by several threads. All must give the same events or the same error.
 *
 * test_kineto.c runs it without libFuzzer over the corpus and over random mutations of it. */
#include "tests/c/fuzz_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The result of reading a text. */
typedef struct {
    fs_status status;
    uint64_t digest; /* of the events; 0 on failure */
    fs_error err;
} fuzz_outcome;

static fuzz_outcome fuzz_one(const fuzz_text *text, fuzz_way way)
{
    fs_store *store;
    fs_kineto_report report;
    fuzz_outcome outcome = {.err = {.message = ""}};
    outcome.status = fuzz_load(text, way, &store, &report, &outcome.err);
    if (outcome.status == FS_OK) outcome.digest = fuzz_digest(store);
    fs_store_destroy(store);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text text = {data, size};
    fuzz_set_up();
    fuzz_outcome first = fuzz_one(&text, FUZZ_WHOLE);
    for (int way = FUZZ_WHOLE + 1; way < FUZZ_WAY_COUNT; way++) {
        fuzz_outcome other = fuzz_one(&text, (fuzz_way)way);
        if (first.status == FS_OUT_OF_MEMORY || other.status == FS_OUT_OF_MEMORY) return 0;
        FUZZ_CHECK(first.status == other.status, "way %d: \"%s\", \"%s\"", way, first.err.message, other.err.message);
        FUZZ_CHECK(first.digest == other.digest, "way %d", way);
        FUZZ_CHECK(strcmp(first.err.message, other.err.message) == 0, "way %d: \"%s\", \"%s\"", way, first.err.message,
                   other.err.message);
    }
    return 0;
}
