/* The part of NVTX 3 by which a tool is injected, declared here so that its headers are not needed. Names, numbers and
 * layouts are those of NVIDIA's nvtxTypes.h, nvToolsExt.h, nvtxExtTypes.h and nvToolsExtPayload.h, versions 3.0 to 3.3;
 * newer structs only grow at their end. If the headers are available, inject.c checks that they agree.
 *
 * Every library that uses NVTX contains an implementation of its own. At its first call it loads the library that
 * NVTX_INJECTION64_PATH names and passes it a way to its table of functions, all of which do nothing until then:
 *
 *   library's first call ─► InitializeInjectionNvtx2(export) ─► export(CALLBACKS)->module_table(module)[id] = ours
 *   its first payload    ─► InitializeInjectionNvtxExtension(module) ─► module->segments[0].slots[id] = ours */
#ifndef FS_SOURCES_NVTX_ABI_H
#define FS_SOURCES_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum { FS_NVTX_CALLBACKS = 1, FS_NVTX_CORE = 1, FS_NVTX_CORE2 = 5, FS_NVTX_PAYLOAD_MODULE = 2 };

typedef void (*fs_nvtx_function)(void);

typedef struct {
    size_t struct_size;
    int (*module_table)(int module, fs_nvtx_function ***table, unsigned *size);
} fs_nvtx_callbacks;

typedef const void *(*fs_nvtx_export)(uint32_t table);

/* Handles are made up by the tool and passed back by the program: here, numbers from 1. */
typedef const void *fs_nvtx_handle;

/* Types of messages, colours and payloads. */
enum { FS_NVTX_ASCII = 1, FS_NVTX_WIDE = 2, FS_NVTX_REGISTERED = 3 };
enum { FS_NVTX_ARGB = 1 };
enum {
    FS_NVTX_UINT64 = 1,
    FS_NVTX_INT64 = 2,
    FS_NVTX_DOUBLE = 3,
    FS_NVTX_UINT32 = 4,
    FS_NVTX_INT32 = 5,
    FS_NVTX_FLOAT = 6,
};
/* The payload is a pointer to an array of fs_nvtx_data, whose length is payload_count. */
#define FS_NVTX_STRUCTURED ((int32_t)0xDFBD0009)

typedef struct {
    uint16_t version, size; /* of the struct */
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type;
    int32_t payload_count;
    union {
        uint64_t uint64;
        int64_t int64;
        double real64;
        uint32_t uint32;
        int32_t int32;
        float real32;
    } payload;
    int32_t message_type;
    const void *message; /* char *, wchar_t * or a handle */
} fs_nvtx_attributes;

/* Returned by push and pop in place of a depth. */
enum { FS_NVTX_NO_DEPTH = -2 };

typedef struct {
    uint64_t schema;
    size_t size;
    const void *bytes;
} fs_nvtx_data;

/* Types of a schema's entries. */
enum {
    FS_NVTX_ENTRY_FLOAT = 19,
    FS_NVTX_ENTRY_DOUBLE = 20,
    FS_NVTX_ENTRY_FLOAT32 = 43,
    FS_NVTX_ENTRY_FLOAT64 = 44,
    FS_NVTX_ENTRY_STRING_HANDLE = 80,
};

/* Flags of an entry: those that make it more than a value, and "this is the event's message". */
enum { FS_NVTX_ENTRY_INDIRECT = 0xff, FS_NVTX_ENTRY_MESSAGE = 1 << 10 };

typedef struct {
    uint64_t flags, type;
    const char *name, *description;
    uint64_t detail, offset;
    const void *semantics, *reserved;
} fs_nvtx_entry;

enum { FS_NVTX_SCHEMA_STATIC = 1, FS_NVTX_SCHEMA_HAS_ENTRIES = 1 << 4, FS_NVTX_SCHEMA_HAS_ID = 1 << 8 };

/* Ids that the tool gives begin here; smaller ones are the program's. */
#define FS_NVTX_DYNAMIC_ID ((uint64_t)1 << 32)

typedef struct {
    uint64_t fields; /* which of these are set */
    const char *name;
    uint64_t type, flags;
    const fs_nvtx_entry *entries;
    size_t count, static_size, alignment;
    uint64_t id;
    void *extension;
} fs_nvtx_schema_attributes;

typedef struct {
    size_t id, count;
    intptr_t *slots;
} fs_nvtx_segment;

typedef struct {
    uint16_t version, struct_size, module, compatibility;
    size_t segment_count;
    fs_nvtx_segment *segments;
    void *export_function;
    const void *info;
} fs_nvtx_extension;

#endif
