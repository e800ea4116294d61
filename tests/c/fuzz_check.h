/* What every fuzz target needs. */
#ifndef FS_TESTS_FUZZ_CHECK_H
#define FS_TESTS_FUZZ_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Say what went wrong, and end in a way that a fuzzer keeps the input of. */
#define FUZZ_CHECK(condition, ...)                                          \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fprintf(stderr, "\n");                                          \
            abort();                                                        \
        }                                                                   \
    } while (0)

#endif
