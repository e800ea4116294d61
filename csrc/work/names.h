/* Properties of events inferred from their names, cached per name of a store. */
#ifndef FS_WORK_NAMES_H
#define FS_WORK_NAMES_H

#include <stdint.h>

#include "store/store.h"
#include "work/kernel_class.h"

/* What the host does in an event, where its name tells. */
typedef enum {
    FS_HOST_OTHER,
    FS_HOST_WAITS,          /* the API call may wait for a device: cudaStreamSynchronize, cudaMemcpyAsync, … */
    FS_HOST_LAUNCHES,       /* the API call launches kernels or fills: cudaLaunchKernel, cudaMemsetAsync, … */
    FS_HOST_ORDERS_STREAMS, /* the API call makes a stream wait for an event: cudaStreamWaitEvent */
    FS_HOST_LOADS_CODE,     /* the API call or overhead loads the code of kernels: cuModuleLoadData, … */
    FS_HOST_LOADS_DATA,     /* the op or range, of torch or its DataLoader, waits for the next batch of data */
    FS_HOST_COMMUNICATES,   /* the op or range is a collective, or a message, that the CPU sends and receives */
    FS_HOST_COMPILES,       /* the op or range is a part of a compilation by torch.compile or XLA */
} fs_host_kind;

typedef struct {
    const fs_store *store;
    uint8_t *kernel_classes; /* by name: class + 1; 0: not classified yet */
    uint8_t *host_kinds;     /* by name: likewise */
} fs_names;

/* FS_OUT_OF_MEMORY. fs_names_clear also accepts a zeroed struct. */
fs_status fs_names_create(fs_names *names, const fs_store *store, fs_error *err);
void fs_names_clear(fs_names *names);

/* Return the class of a kernel name; FS_KERNEL_OTHER for FS_NONE. */
fs_kernel_class fs_names_kernel_class(fs_names *names, uint32_t name);

/* Return whether a kernel's class is COMMUNICATION. */
bool fs_names_communicate(fs_names *names, uint32_t name);

/* Return what an event of that name does on the host; FS_HOST_OTHER for FS_NONE. */
fs_host_kind fs_names_host_kind(fs_names *names, uint32_t name);

/* Return whether an op of that name is an autograd node or its evaluation, whose work is that of the ops inside. */
bool fs_name_wraps_autograd(const char *text);

/* Return what an event of that name does on the host. */
fs_host_kind fs_name_host_kind(const char *text);

/* Return whether an API call of that name launches device work. */
bool fs_name_launches(const char *text);

/* Return whether only programs that use a GPU have an op or range of that name. */
bool fs_name_needs_gpu(const char *text);

/* Lists of patterns of names, of which the first that fits decides. The parts of a pattern, separated by '*', must
 * occur in the name in that order; after '^' the first part must begin the name. That part has two characters at least.
 */

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
