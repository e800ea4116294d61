/* The trace reader: the corpus, unchanged and mutated at random, and failing allocations. The events it reads are
 * tested from Python, against torch's own rows. */
#include <dirent.h>
#include <stdio.h>

#include "base/memory.h"
#include "tests/c/check.h"
#include "tests/c/fuzz_kineto.c"

enum { MOST_FILES = 64, MOST_BYTES = 1 << 16, CHANGES = 100 };

static struct {
    char name[64];
    uint8_t bytes[MOST_BYTES];
    size_t size;
} corpus[MOST_FILES];
static int corpus_count;

static void read_corpus(void)
{
    char folder[512], path[1024];
    snprintf(folder, sizeof folder, "%s", __FILE__);
    *strrchr(folder, '/') = 0; /* tests/c */
    *strrchr(folder, '/') = 0;
    strcat(folder, "/data/corpus");
    DIR *entries = opendir(folder);
    CHECK(entries != NULL);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.' || corpus_count == MOST_FILES) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        CHECK(file != NULL);
        snprintf(corpus[corpus_count].name, sizeof corpus->name, "%.60s", entry->d_name);
        corpus[corpus_count].size = fread(corpus[corpus_count].bytes, 1, MOST_BYTES, file);
        corpus_count++;
        fclose(file);
    }
    if (entries != NULL) closedir(entries);
    CHECK(corpus_count > 10);
}

/* Return the number of events read from a text whose bytes from BEGUN to `until` are fed at once, the others a few at a
 * time. */
enum { BEGUN = 40, A_FEW = 100 };

static uint32_t events_fed(const char *text, size_t until)
{
    fs_kineto *kineto = NULL;
    fs_store *store = NULL;
    fs_kineto_report report;
    size_t size = strlen(text);
    CHECK(fs_kineto_create(&kineto, NULL) == FS_OK && fs_store_create(&store, NULL) == FS_OK);
    CHECK(fs_kineto_feed(kineto, text, BEGUN, NULL) == FS_OK);
    CHECK(fs_kineto_feed(kineto, text + BEGUN, until - BEGUN, NULL) == FS_OK);
    for (size_t at = until; at < size; at += A_FEW) {
        CHECK(fs_kineto_feed(kineto, text + at, size - at < A_FEW ? size - at : A_FEW, NULL) == FS_OK);
    }
    CHECK(fs_kineto_finish(kineto, store, &report, NULL) == FS_OK && !report.truncated);
    uint32_t count = fs_store_count(store);
    fs_store_destroy(store);
    fs_kineto_destroy(kineto);
    return count;
}

static void test_an_event_larger_than_a_piece_is_read(void)
{
    static const char event[] = "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"pid\": 1, \"tid\": 1, \"dur\": 1, ";
    enum { EVENTS = 5, LARGE = 1, LARGE_BYTES = 2000 };
    char text[EVENTS * sizeof event + LARGE_BYTES + 200] = "[";
    for (int i = 0; i < EVENTS; i++) {
        size_t at = strlen(text);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s\"ts\": %d, \"name\": \"", i > 0 ? ", " : "", event,
                               10 * i);
        memset(text + at, 'n', i == LARGE ? LARGE_BYTES : 1);
        strcat(text, "\"}");
    }
    strcat(text, "]");
    fs_kineto_set_piece_bytes(128);
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    for (size_t until = BEGUN; until <= strlen(text); until += 7) {
        uint32_t count = events_fed(text, until);
        CHECK(count == EVENTS, "%u events with %zu bytes at once", count, until);
    }
    fs_kineto_set_piece_bytes(0);
}

static uint64_t state = 88172645463325252u;

static size_t random_below(size_t limit) /* xorshift64 */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state % limit);
}

static void test_files_named_no_fail_and_all_others_load(void)
{
    for (int i = 0; i < corpus_count; i++) {
        fuzz_text text = {corpus[i].bytes, corpus[i].size};
        fuzz_outcome outcome = fuzz_one(&text, FUZZ_WHOLE);
        bool refused = outcome.status != FS_OK;
        CHECK(refused == (strncmp(corpus[i].name, "no_", 3) == 0), "%s: %s", corpus[i].name, outcome.err.message);
        LLVMFuzzerTestOneInput(corpus[i].bytes, corpus[i].size);
    }
}

/* Change a few bytes, truncate the text, or insert a part of another file. */
static size_t change(const uint8_t *from, size_t size, uint8_t *to)
{
    static const char telling[] = "{}[]\",:\\ \n-.e019NtX\xff";
    memcpy(to, from, size);
    for (size_t times = 1 + random_below(4); times > 0 && size > 0; times--) {
        size_t at = random_below(size), other = random_below((size_t)corpus_count);
        size_t part = random_below(60) + 1;
        switch (random_below(4)) {
        case 0:
            to[at] = (uint8_t)telling[random_below(sizeof telling - 1)];
            break;
        case 1:
            size = at;
            break;
        case 2:
            if (part > corpus[other].size) part = corpus[other].size;
            if (part > size - at) part = size - at;
            memcpy(to + at, corpus[other].bytes, part);
            break;
        default:
            if (part > size - at) part = size - at;
            memmove(to + at, to + at + part, size - at - part);
            size -= part;
        }
    }
    return size;
}

static void test_mutated_texts_give_the_same_result_in_whole_and_in_parts(void)
{
    static uint8_t changed[MOST_BYTES];
    for (int i = 0; i < corpus_count; i++) {
        for (int n = 0; n < CHANGES; n++) {
            /* In a block of exactly its size, so that the sanitizer detects reading past its end. */
            size_t size = change(corpus[i].bytes, corpus[i].size, changed);
            uint8_t *exact = malloc(size ? size : 1);
            memcpy(exact, changed, size);
            LLVMFuzzerTestOneInput(exact, size);
            free(exact);
        }
    }
}

static void test_memory_that_runs_out_is_an_error_and_leaks_nothing(void)
{
    for (int i = 0; i < corpus_count; i++) {
        int64_t alive = fs_memory_live();
        fs_status status = FS_OUT_OF_MEMORY;
        fuzz_text text = {corpus[i].bytes, corpus[i].size};
        for (int64_t at = 1; status == FS_OUT_OF_MEMORY && at < 500; at++) {
            fs_memory_fail_at(at);
            status = fuzz_one(&text, (fuzz_way)(at % FUZZ_WAY_COUNT)).status;
            fs_memory_fail_at(0);
            CHECK(fs_memory_live() == alive);
        }
        CHECK(status != FS_OUT_OF_MEMORY);
    }
}

int main(void)
{
    test_an_event_larger_than_a_piece_is_read();
    read_corpus();
    test_files_named_no_fail_and_all_others_load();
    test_mutated_texts_give_the_same_result_in_whole_and_in_parts();
    test_memory_that_runs_out_is_an_error_and_leaks_nothing();
    return failures > 0;
}
