/* CHECK of the C tests: count and print a failed condition, with an optional message, and continue. */
#ifndef FS_TESTS_CHECK_H
#define FS_TESTS_CHECK_H

#include <stdio.h>

enum { MAX_PRINTED_FAILURES = 40 };
static int failures;

#define CHECK(condition, ...)                                               \
    do {                                                                    \
        if (!(condition) && failures++ < MAX_PRINTED_FAILURES) {            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, "" __VA_ARGS__);                                \
            fputc('\n', stderr);                                            \
        }                                                                   \
    } while (0)

/* Check that a call of the core succeeds. */
#define CHECK_OK(call) CHECK((call) == FS_OK)

#endif
