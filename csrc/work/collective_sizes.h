/* The sizes of collectives, from the arguments of the ops and annotations that call them (collective_callers.def). */
#ifndef FS_WORK_COLLECTIVE_SIZES_H
#define FS_WORK_COLLECTIVE_SIZES_H

#include "store/torch_signature.h"

/* Kinds of collectives, listed in collectives.def. */

typedef enum {
#define FS_COLLECTIVE_KIND(NAME, name, ends, sizes, factor, prose) FS_COLLECTIVE_##NAME,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
    FS_COLLECTIVE_KIND_COUNT
} fs_collective_kind;

extern const char *const fs_collective_kind_names[FS_COLLECTIVE_KIND_COUNT];

/* How calls of a kind end: "together", "rooted" or "one_sided". */
extern const char *const fs_collective_kind_ends[FS_COLLECTIVE_KIND_COUNT];

/* Return the kind of a collective or kernel from its name. */
fs_collective_kind fs_collective_kind_of(const char *name);

/* Return bus bandwidth / algorithm bandwidth for a number of ranks (0: unknown); NaN if undefined. */
double fs_collective_bus_factor(fs_collective_kind kind, int ranks);

/* The elements that a rank sends and receives; FS_MISSING: unknown. */
typedef struct {
    int64_t sent, received;
    const char *dtype; /* as torch.dtype prints it; NULL: unknown */
} fs_collective_sizes;

extern const fs_collective_sizes fs_collective_no_sizes;

/* Return whether an op or an annotation of that name calls collectives. */
bool fs_collective_is_caller(const char *name);

/* Fill in the sizes that are missing from the arguments of a caller. */
void fs_collective_read_caller(const char *name, const fs_torch_call *call, fs_collective_sizes *sizes);

/* Derive a missing size from the other one, as the kind has it, and the number of ranks (0: unknown) from both. Return
 * false if the size of the message stays unknown. */
bool fs_collective_complete(fs_collective_kind kind, fs_collective_sizes *sizes, int32_t *ranks);

#endif
