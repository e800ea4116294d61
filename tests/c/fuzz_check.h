/* FUZZ_CHECK, used by every fuzz target. */
#ifndef FS_TESTS_FUZZ_CHECK_H
#define FS_TESTS_FUZZ_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Print a failed condition with a message, and abort, so that the fuzzer keeps the input. */
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
