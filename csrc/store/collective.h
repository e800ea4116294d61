/* What a kernel of communication was called for, as PyTorch tells it: bytes that follow the kernel's launch in one
 * signature (signature.h), or the call of the op that launched it (torch_signature.h), so that fs_launch_decode and
 * fs_torch_decode read those as without it.
 *
 *   [ FS_LAUNCH_BYTES: the launch | numbers | texts, each ended by a zero byte ]
 *   [ the op's call               | numbers | texts, each ended by a zero byte ]
 */
#ifndef FS_STORE_COLLECTIVE_H
#define FS_STORE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/intern.h"

/* X(name, the longest that is kept in bytes: the rest is cut off, prose) */
#define FS_COLLECTIVE_TEXT_LIST(X)                                                        \
    X(name, 63, "what was called, as Kineto's \"Collective name\" has it: \"allreduce\"") \
    X(dtype, 31, "of the elements, as c10::toString names it: \"BFloat16\"")              \
    X(group, 127, "name of the process group")                                            \
    X(ranks, 511, "of the process group: \"[0, 1]\"")

/* A piece of text, "" where not told; what is decoded is ended by a zero byte. */
typedef struct {
    const char *text; /* NULL is "" too */
    size_t size;
} fs_collective_text;

typedef struct {
    int64_t in_elements, out_elements; /* that this rank gave and got; FS_MISSING: not told */
    int64_t sequence;                  /* number of the call in its group ("Seq"); FS_MISSING: not told */
    int32_t group_size;                /* ranks; 0: not told */
    int32_t element_size;              /* bytes, that decoding finds by dtype; 0: not known */
#define FS_COLLECTIVE_FIELD(name, longest, prose) fs_collective_text name;
    FS_COLLECTIVE_TEXT_LIST(FS_COLLECTIVE_FIELD)
#undef FS_COLLECTIVE_FIELD
} fs_collective;

/* Nothing told. */
extern const fs_collective fs_collective_missing;

enum {
#define FS_COLLECTIVE_ROOM(name, longest, prose) +longest + 1
    FS_COLLECTIVE_MAX_BYTES = 32 FS_COLLECTIVE_TEXT_LIST(FS_COLLECTIVE_ROOM)
#undef FS_COLLECTIVE_ROOM
};

/* Name the dtype that torch.dtype prints so, and its size; one that no row has changes nothing. */
void fs_collective_set_dtype(fs_collective *collective, const char *torch_name);

/* Write it after a launch's bytes: `bytes` points to those (8-aligned, of FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES);
 * returns the size of both. */
size_t fs_collective_encode(const fs_collective *collective, void *bytes);

/* The part after the launch alone (FS_COLLECTIVE_MAX_BYTES); returns its size. */
size_t fs_collective_write(const fs_collective *collective, void *bytes);

/* The reverse of both, of a signature's bytes as the store holds them: texts point into them. False, and nothing told,
 * where they hold none. */
bool fs_collective_decode(fs_span bytes, fs_collective *collective);

#endif
