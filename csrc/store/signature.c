/* A call is encoded into 8-byte words without padding, so that equal calls have equal bytes and interning finds them.
 * Decoding copies nothing but small fields: shapes and strides point into the bytes, which live as long as the store.
 * Only what this process has encoded is decoded, and so is not checked again. */
#include "store/signature.h"

#include <string.h>

enum { KIND_SHIFT = 56 };

size_t fs_signature_encode(const fs_signature *signature, void *bytes)
{
    int64_t *word = bytes;
    *word++ = (int64_t)((uint64_t)signature->flags | (uint64_t)signature->device_kind << 32 |
                        (uint64_t)signature->device_index << 40);
    for (int i = 0; i < signature->argument_count; i++) {
        const fs_argument *argument = &signature->arguments[i];
        size_t dims = argument->ndim;
        *word++ = (int64_t)((uint64_t)argument->role | (uint64_t)argument->dtype << 8 | (uint64_t)argument->ndim << 16 |
                            (uint64_t)argument->same_as << 24 | (uint64_t)argument->dense << 32);
        for (size_t d = 0; d < dims; d++) *word++ = argument->shape[d];
        if (argument->dense) continue;
        for (size_t d = 0; d < dims; d++) *word++ = argument->strides[d];
    }
    return (size_t)((char *)word - (char *)bytes);
}

void fs_signature_decode(const void *bytes, size_t size, fs_signature *signature)
{
    size_t words = size / sizeof(int64_t);
    const int64_t *word = bytes, *end = word + words;
    uint64_t head = (uint64_t)*word++;
    signature->flags = (uint32_t)head;
    signature->device_kind = (uint8_t)(head >> 32);
    signature->device_index = (uint8_t)(head >> 40);
    signature->argument_count = 0;
    if (fs_signature_kind_of(bytes) != FS_SIGNATURE_CALL) return;
    while (word < end) {
        uint64_t fields = (uint64_t)*word++;
        fs_argument *argument = &signature->arguments[signature->argument_count++];
        argument->role = (uint8_t)fields;
        argument->dtype = (uint8_t)(fields >> 8);
        argument->ndim = (uint8_t)(fields >> 16);
        argument->same_as = (uint8_t)(fields >> 24);
        argument->dense = (uint8_t)(fields >> 32);
        argument->shape = word;
        word += argument->ndim;
        argument->strides = argument->dense ? NULL : word;
        if (!argument->dense) word += argument->ndim;
    }
}

fs_signature_kind fs_signature_kind_of(const void *bytes)
{
    uint64_t head;
    memcpy(&head, bytes, sizeof head);
    return (fs_signature_kind)(head >> KIND_SHIFT);
}

void fs_signature_begin(fs_signature_kind kind, void *bytes)
{
    uint64_t head = (uint64_t)kind << KIND_SHIFT;
    memcpy(bytes, &head, sizeof head);
}

static void encode(fs_signature_kind kind, const void *from, size_t size, void *bytes)
{
    fs_signature_begin(kind, bytes);
    memcpy((char *)bytes + sizeof(uint64_t), from, size);
}

static bool decode(fs_signature_kind kind, const void *bytes, void *to, size_t size)
{
    if (fs_signature_kind_of(bytes) != kind) return false;
    memcpy(to, (const char *)bytes + sizeof(uint64_t), size);
    return true;
}

void fs_launch_encode(const fs_launch *launch, void *bytes)
{
    encode(FS_SIGNATURE_LAUNCH, launch, sizeof *launch, bytes);
}

bool fs_launch_decode(const void *bytes, fs_launch *launch)
{
    return decode(FS_SIGNATURE_LAUNCH, bytes, launch, sizeof *launch);
}

void fs_given_work_encode(const fs_given_work *work, void *bytes)
{
    encode(FS_SIGNATURE_WORK, work, sizeof *work, bytes);
}

bool fs_given_work_decode(const void *bytes, fs_given_work *work)
{
    return decode(FS_SIGNATURE_WORK, bytes, work, sizeof *work);
}

void fs_memory_state_encode(const fs_memory_state *state, void *bytes)
{
    encode(FS_SIGNATURE_MEMORY, state, sizeof *state, bytes);
}

bool fs_memory_state_decode(const void *bytes, fs_memory_state *state)
{
    return decode(FS_SIGNATURE_MEMORY, bytes, state, sizeof *state);
}

size_t fs_kernel_encode(const fs_launch *launch, const char *name, size_t size, void *bytes)
{
    char *text = (char *)bytes + FS_LAUNCH_BYTES;
    if (size > FS_KERNEL_NAME_BYTES) size = FS_KERNEL_NAME_BYTES;
    encode(FS_SIGNATURE_KERNEL, launch, sizeof *launch, bytes);
    memcpy(text, name, size);
    text[size] = 0;
    return FS_LAUNCH_BYTES + size + 1;
}

const char *fs_kernel_decode(const void *bytes, fs_launch *launch)
{
    if (!decode(FS_SIGNATURE_KERNEL, bytes, launch, sizeof *launch)) return NULL;
    return (const char *)bytes + FS_LAUNCH_BYTES;
}
