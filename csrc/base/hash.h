/* Hashes for tables whose keys a file may choose. They are keyed by numbers that the process draws at random, so that
 * nobody can write a file whose keys collide. For tables in memory only: another process hashes otherwise.
 */
#ifndef FS_BASE_HASH_H
#define FS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { FS_HASH_KEYS = 3 };

/* The process's random numbers, all odd; drawn by the first call. Thread-safe. */
const uint64_t *fs_hash_keys(void);

/* The product of 128 bits, its halves folded: every bit of both numbers counts (the construction of wyhash). */
static inline uint64_t fs_hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Of two numbers; `keys` is what fs_hash_keys returns. */
static inline uint64_t fs_hash_numbers(const uint64_t *keys, uint64_t a, uint64_t b)
{
    return fs_hash_fold(a ^ keys[0], b ^ keys[1]);
}

uint64_t fs_hash_bytes(const uint64_t *keys, const void *bytes, size_t size);

#endif
