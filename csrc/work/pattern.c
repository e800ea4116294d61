/* A pattern can fit only if the name has the pattern's first two letters next to each other somewhere. The name's pairs
 * are collected once, as bits, and only patterns that begin with one of them are looked at; the first of the list that
 * fits decides, in whatever order they come up. */
#include "work/pattern.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Find the first occurrence of a piece of `size` bytes in the text, or NULL. */
static const char *find_piece(const char *text, const char *piece, size_t size)
{
    for (; (text = strchr(text, *piece)) != NULL; text++) {
        if (strncmp(text, piece, size) == 0) return text;
    }
    return NULL;
}

static bool fits(const char *name, const char *pattern)
{
    if (*pattern == '^') {
        size_t size = strcspn(++pattern, "*");
        if (strncmp(name, pattern, size) != 0) return false;
        name += size;
        pattern += size;
    }
    while (*pattern != '\0') {
        pattern += *pattern == '*';
        size_t size = strcspn(pattern, "*");
        const char *found = find_piece(name, pattern, size);
        if (found == NULL) return false;
        name = found + size;
        pattern += size;
    }
    return true;
}

/* The pairs of adjacent characters of a name, as bits of their hashes. A name lacks a pair of most patterns, which need
 * not be tried then. */
typedef struct {
    uint64_t bits[FS_PAIRS / 64];
} name_pairs;

static unsigned hash_of_pair(const char *text)
{
    return ((unsigned char)text[0] * 37u + (unsigned char)text[1]) & (FS_PAIRS - 1);
}

static name_pairs pairs_of(const char *name)
{
    name_pairs pairs = {{0}};
    for (; name[0] != '\0' && name[1] != '\0'; name++) {
        unsigned hash = hash_of_pair(name);
        pairs.bits[hash / 64] |= UINT64_C(1) << (hash % 64);
    }
    return pairs;
}

static bool may_fit(const name_pairs *pairs, const char *pattern)
{
    for (pattern += *pattern == '^'; pattern[0] != '\0' && pattern[1] != '\0'; pattern++) {
        unsigned hash = hash_of_pair(pattern);
        if (pattern[0] == '*' || pattern[1] == '*') continue;
        if ((pairs->bits[hash / 64] >> (hash % 64) & 1) == 0) return false;
    }
    return true;
}

void fs_pattern_index_make(fs_pattern_index *index)
{
    for (int i = index->count - 1; i >= 0; i--) {
        const char *pattern = index->patterns[i].pattern;
        uint8_t *first = &index->first[hash_of_pair(pattern + (*pattern == '^'))];
        index->next[i] = *first;
        *first = (uint8_t)(i + 1);
    }
}

int fs_pattern_value(const fs_pattern_index *index, const char *name, unsigned where, int otherwise)
{
    name_pairs pairs = pairs_of(name);
    int found = index->count;
    for (unsigned word = 0; word < FS_PAIRS / 64; word++) {
        for (uint64_t left = pairs.bits[word]; left != 0; left &= left - 1) {
            int i = index->first[64 * word + (unsigned)__builtin_ctzll(left)] - 1;
            for (; i >= 0 && i < found; i = index->next[i] - 1) {
                const fs_pattern *one = &index->patterns[i];
                if ((one->where & where) != 0 && may_fit(&pairs, one->pattern) && fits(name, one->pattern)) found = i;
            }
        }
    }
    return found < index->count ? index->patterns[found].value : otherwise;
}
