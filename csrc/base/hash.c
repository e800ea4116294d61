/* A chain of 128-bit products of two 64-bit words, folded by fs_hash_fold: 16 bytes a product. The keys are drawn once,
 * before the first table, and are odd, so never 0. The size is part of the first value, so a string and the same string
 * with zero bytes after it differ. */
#include "base/hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static uint64_t keys[FS_HASH_KEYS];
static pthread_once_t drawn = PTHREAD_ONCE_INIT;

static void draw(void)
{
    if (getrandom(keys, sizeof keys, GRND_NONBLOCK) != (ssize_t)sizeof keys) {
        /* Random bytes are unavailable early at boot or in a sandbox. Use the clock and an address instead. */
        uint64_t seed = (uint64_t)fs_clock_now() ^ (uint64_t)(uintptr_t)&keys << 20;
        for (int i = 0; i < FS_HASH_KEYS; i++)
            keys[i] = seed = fs_hash_fold(seed ^ 0x9e3779b97f4a7c15u, 0xff51afd7ed558ccdu);
    }
    for (int i = 0; i < FS_HASH_KEYS; i++) keys[i] |= 1;
}

const uint64_t *fs_hash_keys(void)
{
    pthread_once(&drawn, draw);
    return keys;
}

static inline uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Read the last 1 … 16 bytes as two words, which overlap if there are fewer than 16. */
static inline void last_words(const unsigned char *at, size_t size, uint64_t *a, uint64_t *b)
{
    *a = *b = 0;
    if (size >= 8) {
        *a = word_at(at);
        *b = word_at(at + size - 8);
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, at, 4);
        memcpy(&last, at + size - 4, 4);
        *a = first;
        *b = last;
    } else if (size > 0) {
        *a = (uint64_t)at[0] << 16 | (uint64_t)at[size / 2] << 8 | at[size - 1];
    }
}

uint64_t fs_hash_bytes(const uint64_t *key, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t hash = key[0] ^ size, a, b;
    size_t left = size;
    for (; left > 16; at += 16, left -= 16) hash = fs_hash_fold(word_at(at) ^ key[1], word_at(at + 8) ^ hash);
    last_words(at, left, &a, &b);
    hash = fs_hash_fold(a ^ key[1], b ^ hash);
    return fs_hash_fold(hash ^ key[2], key[0]);
}
