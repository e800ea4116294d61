/* What programs have told NVTX of their domains, strings, categories and payloads. It is kept for the whole process, as
 * programs keep the handles: known to every later recording. Private to sources/nvtx, and guarded by its lock.
 *
 * Handles are numbers from 1, so that a handle that was never given is found out. */
#ifndef FS_SOURCES_NVTX_HANDLES_H
#define FS_SOURCES_NVTX_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "sources/nvtx/abi.h"

/* The longest texts that are kept, in bytes; longer ones are cut. */
enum { FS_NVTX_TEXT_BYTES = 1024, FS_NVTX_DOMAIN_BYTES = 256 };

/* The most handles of each kind; more are refused. */
enum { FS_NVTX_MOST_DOMAINS = 1 << 12, FS_NVTX_MOST_STRINGS = 1 << 20, FS_NVTX_MOST_SCHEMAS = 1 << 12 };

/* What a message became in a recording: its name and its note without a payload, which the next range may have too. */
typedef struct {
    uint64_t recording; /* 0: none yet */
    uint32_t domain, category, colour;
    bool coloured;
    uint32_t name, note;  /* ids of the store */
    uint32_t latest_note; /* with the plain payload of the latest range that had one; FS_NONE: none had */
    uint8_t latest_type;
    uint64_t latest;
} fs_nvtx_label;

typedef struct {
    uint32_t text;
    fs_nvtx_label label;
} fs_nvtx_string;

/* A field of a payload. */
typedef struct {
    uint32_t name;   /* a text */
    uint32_t offset; /* bytes */
    uint16_t type;   /* of the entry */
    uint8_t size;    /* bytes */
    bool is_message;
} fs_nvtx_field;

typedef struct {
    uint64_t id;
    uint32_t first, count; /* of the fields */
} fs_nvtx_schema;

/* Return handles, NULL if no more can be kept. Equal domains, and equal strings, are one. */
fs_nvtx_handle fs_nvtx_add_domain(const char *name);
fs_nvtx_handle fs_nvtx_add_string(const char *text);

/* Return the number of a domain, 0 for no domain and for a handle that is none; its name, "" for 0. */
uint32_t fs_nvtx_domain_of(fs_nvtx_handle handle);
const char *fs_nvtx_domain_name(uint32_t domain);

/* Return a registered string, NULL for a handle that is none, which is valid until the next string is added. */
fs_nvtx_string *fs_nvtx_string_of(fs_nvtx_handle handle);
const char *fs_nvtx_text(uint32_t text);

void fs_nvtx_name_category(uint32_t domain, uint32_t category, const char *name);
const char *fs_nvtx_category_name(uint32_t domain, uint32_t category); /* "" if it has none */

/* Keep a schema and return its id, 0 if it is of a kind that is not read or no more can be kept. A later schema of the
 * same id replaces it. */
uint64_t fs_nvtx_add_schema(uint32_t domain, const fs_nvtx_schema_attributes *attributes);
const fs_nvtx_schema *fs_nvtx_schema_of(uint32_t domain, uint64_t id);
const fs_nvtx_field *fs_nvtx_fields_of(const fs_nvtx_schema *schema);

/* Write a wide string as UTF-8, cut to FS_NVTX_TEXT_BYTES; `to` has room for one more byte. */
void fs_nvtx_narrow(const wchar_t *wide, char *to);

#endif
