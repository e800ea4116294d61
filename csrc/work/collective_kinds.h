/* Kinds of collectives, listed in collectives.def. */
#ifndef FS_WORK_COLLECTIVE_KINDS_H
#define FS_WORK_COLLECTIVE_KINDS_H

typedef enum {
#define FS_COLLECTIVE_KIND(NAME, name, factor, prose) FS_COLLECTIVE_##NAME,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
    FS_COLLECTIVE_KIND_COUNT
} fs_collective_kind;

extern const char *const fs_collective_kind_names[FS_COLLECTIVE_KIND_COUNT];

/* Return the kind of a collective or kernel from its name. */
fs_collective_kind fs_collective_kind_of(const char *name);

/* Return bus bandwidth / algorithm bandwidth for a number of ranks (0: unknown); NaN if undefined. */
double fs_collective_bus_factor(fs_collective_kind kind, int ranks);

#endif
