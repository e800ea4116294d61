/* Patterns of names. The parts of a pattern, separated by '*', must occur in the name in that order; after '^' the
 * first part must begin the name. */
#ifndef FS_WORK_PATTERN_H
#define FS_WORK_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

/* The pairs of adjacent characters of a name, as bits of their hashes. A name lacks a pair of most patterns, which need
 * not be tried then. */
enum { FS_PAIR_BITS = 10 };
typedef struct {
    uint64_t bits[(1 << FS_PAIR_BITS) / 64];
} fs_name_pairs;

fs_name_pairs fs_pattern_pairs(const char *name);

/* pairs: those of the name. */
bool fs_pattern_fits(const char *pattern, const char *name, const fs_name_pairs *pairs);

#endif
