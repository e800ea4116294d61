/* What the machine code of a kernel has: an index of the instructions that make it slow or fast, of GPUs whose
 * instructions have 128 bits (compute capability 7.0 and later). */
#ifndef FS_SOURCES_COUNTERS_SASS_H
#define FS_SOURCES_COUNTERS_SASS_H

#include <stddef.h>
#include <stdint.h>

enum { FS_SASS_KINDS = 24, FS_SASS_NAME = 24 };

typedef struct {
    const uint8_t *bytes; /* NULL: unknown */
    size_t size;
} fs_sass;

/* Return the code of a function by its mangled name in a cubin, an ELF file, whatever is in that; unknown if it has
 * none that can be read. The bytes are the cubin's. */
fs_sass fs_sass_find(const void *cubin, size_t size, const char *function);

/* Write the name of the instruction at this offset, as "LDG.128"; "" if it is not one of the index. */
void fs_sass_name(const fs_sass *code, uint64_t offset, char name[FS_SASS_NAME]);

/* Count the instructions of each kind, of which fs_sass_kinds has the names. */
extern const char *const fs_sass_kinds[FS_SASS_KINDS];
void fs_sass_count(const fs_sass *code, uint32_t counts[FS_SASS_KINDS]);

#endif
