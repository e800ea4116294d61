/* A check that a C test makes: says where it failed, with a message where one is given, and goes on. */
#ifndef FS_TESTS_CHECK_H
#define FS_TESTS_CHECK_H

#include <stdio.h>

enum { CHECKS_TOLD = 40 };
static int failures;

#define CHECK(condition, ...)                                               \
    do {                                                                    \
        if (!(condition) && failures++ < CHECKS_TOLD) {                     \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, "" __VA_ARGS__);                                \
            fputc('\n', stderr);                                            \
        }                                                                   \
    } while (0)

/* A call of the core that must succeed. */
#define CHECK_OK(call) CHECK((call) == FS_OK)

#endif
