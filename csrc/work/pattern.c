#include "work/pattern.h"

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

static unsigned hash_of_pair(const char *text)
{
    return ((unsigned char)text[0] * 37u + (unsigned char)text[1]) & ((1u << FS_PAIR_BITS) - 1);
}

fs_name_pairs fs_pattern_pairs(const char *name)
{
    fs_name_pairs pairs = {{0}};
    for (; name[0] != '\0' && name[1] != '\0'; name++) {
        unsigned hash = hash_of_pair(name);
        pairs.bits[hash / 64] |= UINT64_C(1) << (hash % 64);
    }
    return pairs;
}

static bool may_fit(const fs_name_pairs *pairs, const char *pattern)
{
    for (pattern += *pattern == '^'; pattern[0] != '\0' && pattern[1] != '\0'; pattern++) {
        unsigned hash = hash_of_pair(pattern);
        if (pattern[0] == '*' || pattern[1] == '*') continue;
        if ((pairs->bits[hash / 64] >> (hash % 64) & 1) == 0) return false;
    }
    return true;
}

bool fs_pattern_fits(const char *pattern, const char *name, const fs_name_pairs *pairs)
{
    return may_fit(pairs, pattern) && fits(name, pattern);
}
