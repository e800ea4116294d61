/* Hashes for tables whose keys come from files. They are keyed with random numbers of the process, so that no file can
 * be crafted whose keys collide. For tables in memory only: another process computes other hashes.
 */
#ifndef FS_BASE_HASH_H
#define FS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { FS_HASH_KEYS = 3 };

/* The random numbers of the process, all odd, drawn by the first call. Thread-safe. */
const uint64_t *fs_hash_keys(void);

/* The two halves of the 128-bit product, combined: every bit of both factors contributes (the construction of
 * wyhash). */
static inline uint64_t fs_hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Hash two numbers. `keys` is the result of fs_hash_keys. */
static inline uint64_t fs_hash_numbers(const uint64_t *keys, uint64_t a, uint64_t b)
{
    return fs_hash_fold(a ^ keys[0], b ^ keys[1]);
}

uint64_t fs_hash_bytes(const uint64_t *keys, const void *bytes, size_t size);

#endif
