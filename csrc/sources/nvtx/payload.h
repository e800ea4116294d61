/* Structured payloads as the fields of a note. Private to sources/nvtx, and guarded by its lock. */
#ifndef FS_SOURCES_NVTX_PAYLOAD_H
#define FS_SOURCES_NVTX_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "sources/nvtx/abi.h"
#include "store/note.h"

typedef struct {
    char fields[FS_NOTE_FIELDS_BYTES];
    size_t size;
    const char *message; /* of the event, if a field is that; NULL: none */
} fs_nvtx_payload;

/* Read the fields whose schema is known and whose bytes are there. Those for which there is no room are left out. */
void fs_nvtx_read_payload(uint32_t domain, const fs_nvtx_data *data, size_t count, fs_nvtx_payload *payload);

#endif
