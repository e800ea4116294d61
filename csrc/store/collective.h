/* The collective of a communication kernel as PyTorch reports it: bytes appended to the kernel's launch in one
 * signature (signature.h), or to the call of the op that launched it (torch_signature.h). fs_launch_decode and
 * fs_torch_decode ignore them.
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

/* X(name, maximum length in bytes: longer texts are truncated, description) */
#define FS_COLLECTIVE_TEXT_LIST(X)                                                   \
    X(name, 63, "the collective, as in Kineto's \"Collective name\": \"allreduce\"") \
    X(dtype, 31, "of the elements, as c10::toString prints it: \"BFloat16\"")        \
    X(group, 127, "name of the process group")                                       \
    X(ranks, 511, "of the process group: \"[0, 1]\"")

/* Texts, "" if missing. Decoded texts end in a zero byte. */
typedef struct {
    const char *text; /* NULL means "" too */
    size_t size;
} fs_collective_text;

typedef struct {
    int64_t in_elements, out_elements; /* sent and received by this rank; FS_MISSING: not reported */
    int64_t sequence;                  /* number of the call in its group ("Seq"); FS_MISSING: not reported */
    int32_t group_size;                /* ranks; 0: not reported */
    int32_t element_size;              /* bytes, set by decoding from dtype; 0: unknown */
#define FS_COLLECTIVE_FIELD(name, longest, prose) fs_collective_text name;
    FS_COLLECTIVE_TEXT_LIST(FS_COLLECTIVE_FIELD)
#undef FS_COLLECTIVE_FIELD
} fs_collective;

/* All fields missing. */
extern const fs_collective fs_collective_missing;

enum {
#define FS_COLLECTIVE_ROOM(name, longest, prose) +longest + 1
    FS_COLLECTIVE_MAX_BYTES = 32 FS_COLLECTIVE_TEXT_LIST(FS_COLLECTIVE_ROOM)
#undef FS_COLLECTIVE_ROOM
};

/* Set the dtype by the name that torch.dtype prints, and its size. An unknown name changes nothing. */
void fs_collective_set_dtype(fs_collective *collective, const char *torch_name);

/* Append the collective to a launch: `bytes` points to the launch (8-aligned, with room for FS_LAUNCH_BYTES +
 * FS_COLLECTIVE_MAX_BYTES). Return the size of both. */
size_t fs_collective_encode(const fs_collective *collective, void *bytes);

/* Encode only the part after the launch (FS_COLLECTIVE_MAX_BYTES). Return its size. */
size_t fs_collective_write(const fs_collective *collective, void *bytes);

/* Decode either form from a signature's bytes in the store. Texts point into the bytes. Without a collective, return
 * false with all fields missing. */
bool fs_collective_decode(fs_span bytes, fs_collective *collective);

/* The same from the bytes that fs_collective_write made. */
bool fs_collective_read(const void *bytes, size_t size, fs_collective *collective);

#endif
