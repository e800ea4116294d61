/* The harness of the C tests. TEST(name) { … } is a test of the program that includes this file and has its main():
 * they run in the order of the text, each must free what it allocates, and CHECK counts and prints a failed condition
 * and continues. A fuzz target that is built with libFuzzer (FUZZING) has the main() of that. */
#ifndef FS_TESTS_CHECK_H
#define FS_TESTS_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

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

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Tests ------------------------------------------------------------------------------------------------------------ */

typedef struct test {
    void (*run)(void);
    const char *name;
    int line;
    struct test *next;
} test;

static test *first_test;
static void (*before_each)(void), (*after_each)(void); /* of the tests of this program, or NULL */
static bool keeps_memory;                              /* what is tested keeps some for the process */

/* Constructors run in any order. */
static inline void add_test(test *added)
{
    test **at = &first_test;
    while (*at != NULL && (*at)->line < added->line) at = &(*at)->next;
    added->next = *at;
    *at = added;
}

#define TEST(name)                                               \
    static void test_##name(void);                               \
    __attribute__((constructor)) static void add_##name(void)    \
    {                                                            \
        static test self = {test_##name, #name, __LINE__, NULL}; \
        add_test(&self);                                         \
    }                                                            \
    static void test_##name(void)

#ifndef FUZZING
int main(void)
{
    for (const test *one = first_test; one != NULL; one = one->next) {
        int64_t live = fs_memory_live();
        int before = failures;
        if (before_each != NULL) before_each();
        one->run();
        if (after_each != NULL) after_each();
        CHECK(keeps_memory || fs_memory_live() == live, "%lld blocks leaked", (long long)(fs_memory_live() - live));
        if (failures > before) fprintf(stderr, "%s: %d failures\n", one->name, failures - before);
    }
    return failures > 0;
}
#endif

/* Call with the first allocation failing, then with the second one, and so on, until a call succeeds: each failure is
 * reported as one and leaks nothing. Return the number of calls that failed. */
static inline int64_t fail_each_allocation(fs_status (*call)(fs_error *err))
{
    int64_t live = fs_memory_live();
    int before = failures;
    for (int64_t n = 1;; n++) {
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(n);
        fs_status status = call(&err);
        fs_memory_fail_at(0);
        CHECK(fs_memory_live() == live, "allocation %lld leaks", (long long)n);
        CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0),
              "allocation %lld: %d, %s", (long long)n, status, err.message);
        if (status == FS_OK || failures > before) return n - 1;
    }
}

/* Numbers ---------------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static inline uint64_t random_bits(void) /* xorshift64 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static inline int64_t random_below(int64_t limit)
{
    return (int64_t)((random_bits() >> 8) % (uint64_t)limit);
}

#endif
