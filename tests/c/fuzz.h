/* The harness of the fuzz targets. A target defines LLVMFuzzerTestOneInput() and names its corpora: CORPORA(folder, …).
 * tests/fuzz/run.sh builds it with libFuzzer (FUZZING); without, it is a test program that runs the files of these
 * folders, and any other TEST in it. */
#ifndef FS_TESTS_FUZZ_H
#define FS_TESTS_FUZZ_H

#include <dirent.h>

#include "tests/c/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *fuzz_input = "the input"; /* the file that is being run */

/* Print a failed condition with a message, and abort, so that the fuzzer keeps the input. */
#define FUZZ_CHECK(condition, ...)                                                          \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s: ", __FILE__, __LINE__, fuzz_input, #condition); \
            fprintf(stderr, __VA_ARGS__);                                                   \
            fprintf(stderr, "\n");                                                          \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

/* Run the target on a copy in a block of exactly its size, so that the sanitizer detects reading past its end. */
static inline void fuzz_exact(const void *bytes, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) return;
    if (size > 0) memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* Run a function on each file of a folder, whose path is relative to tests/. Return the number of files. */
static inline int each_file(const char *folder, void (*run)(const void *bytes, size_t size))
{
    enum { MOST_BYTES = 1 << 20 };
    char path[1024], *bytes = malloc(MOST_BYTES);
    snprintf(path, sizeof path, "%.*s/../%s", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__, folder);
    DIR *entries = opendir(path);
    size_t length = strlen(path);
    int count = 0;
    for (struct dirent *entry; entries != NULL && bytes != NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path + length, sizeof path - length, "/%s", entry->d_name);
        FILE *file = fopen(path, "rb");
        if (file == NULL) continue;
        size_t size = fread(bytes, 1, MOST_BYTES, file);
        fclose(file);
        fuzz_input = path;
        run(bytes, size);
        count++;
    }
    if (entries != NULL) closedir(entries);
    free(bytes);
    fuzz_input = "the input";
    return count;
}

#define CORPORA(...)                                                                   \
    TEST(its_corpora)                                                                  \
    {                                                                                  \
        static const char *const folders[] = {__VA_ARGS__};                            \
        for (size_t i = 0; i < COUNT_OF(folders); i++)                                 \
            CHECK(each_file(folders[i], fuzz_exact) > 0, "no file in %s", folders[i]); \
    }

#endif
