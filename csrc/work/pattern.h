/* Lists of patterns of names, of which the first that fits decides. The parts of a pattern, separated by '*', must
 * occur in the name in that order; after '^' the first part must begin the name. That part has two characters at least.
 */
#ifndef FS_WORK_PATTERN_H
#define FS_WORK_PATTERN_H

#include <stdint.h>

enum { FS_PAIR_BITS = 10, FS_PAIRS = 1 << FS_PAIR_BITS, FS_PATTERNS = 255 };

typedef struct {
    const char *pattern;
    uint8_t value;
    uint8_t where; /* the kinds of names in which it is looked for, as bits */
} fs_pattern;

/* An index of a list by the hash of the first two characters of each pattern: a name has few of those pairs. */
typedef struct {
    const fs_pattern *patterns;
    int count;
    uint8_t first[FS_PAIRS];   /* 1 + the first pattern that begins with a pair; 0: none */
    uint8_t next[FS_PATTERNS]; /* likewise the one after each */
} fs_pattern_index;

/* Define the index of an array of fs_pattern, which is made when the library is loaded. */
#define FS_PATTERN_INDEX(index, list)                                                               \
    _Static_assert(sizeof list / sizeof *list <= FS_PATTERNS, "too many patterns for their index"); \
    static fs_pattern_index index = {.patterns = list, .count = sizeof list / sizeof *list};        \
    __attribute__((constructor)) static void make_##index(void)                                     \
    {                                                                                               \
        fs_pattern_index_make(&index);                                                              \
    }

void fs_pattern_index_make(fs_pattern_index *index);

/* Return the value of the first pattern that fits the name, or `otherwise`. */
int fs_pattern_value(const fs_pattern_index *index, const char *name, unsigned where, int otherwise);

#endif
