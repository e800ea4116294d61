/* NVTX finds this library by the environment, and these two functions by their names: the only symbols of the core
 * beside its module's. Both may be called for several libraries, on several threads, before Python is there. Where
 * NVTX's headers are available, the compiler compares the layouts. */
#define _GNU_SOURCE /* dladdr */
#include "sources/nvtx/nvtx.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "sources/nvtx/functions.h"
#include "sources/nvtx/ranges.h"

#if __has_include(<nvtx3/nvToolsExtPayload.h>)
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#define SAME(ours, our_field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&       \
                       sizeof((ours){0}.our_field) == sizeof((theirs){0}.their_field), \
                   #theirs "." #their_field)
SAME(fs_nvtx_attributes, size, nvtxEventAttributes_t, size);
SAME(fs_nvtx_attributes, category, nvtxEventAttributes_t, category);
SAME(fs_nvtx_attributes, colour_type, nvtxEventAttributes_t, colorType);
SAME(fs_nvtx_attributes, colour, nvtxEventAttributes_t, color);
SAME(fs_nvtx_attributes, payload_type, nvtxEventAttributes_t, payloadType);
SAME(fs_nvtx_attributes, payload_count, nvtxEventAttributes_t, reserved0);
SAME(fs_nvtx_attributes, payload, nvtxEventAttributes_t, payload);
SAME(fs_nvtx_attributes, message_type, nvtxEventAttributes_t, messageType);
SAME(fs_nvtx_attributes, message, nvtxEventAttributes_t, message);
SAME(fs_nvtx_data, schema, nvtxPayloadData_t, schemaId);
SAME(fs_nvtx_data, size, nvtxPayloadData_t, size);
SAME(fs_nvtx_data, bytes, nvtxPayloadData_t, payload);
SAME(fs_nvtx_entry, flags, nvtxPayloadSchemaEntry_t, flags);
SAME(fs_nvtx_entry, type, nvtxPayloadSchemaEntry_t, type);
SAME(fs_nvtx_entry, name, nvtxPayloadSchemaEntry_t, name);
SAME(fs_nvtx_entry, offset, nvtxPayloadSchemaEntry_t, offset);
SAME(fs_nvtx_schema_attributes, fields, nvtxPayloadSchemaAttr_t, fieldMask);
SAME(fs_nvtx_schema_attributes, type, nvtxPayloadSchemaAttr_t, type);
SAME(fs_nvtx_schema_attributes, entries, nvtxPayloadSchemaAttr_t, entries);
SAME(fs_nvtx_schema_attributes, count, nvtxPayloadSchemaAttr_t, numEntries);
SAME(fs_nvtx_schema_attributes, id, nvtxPayloadSchemaAttr_t, schemaId);
_Static_assert(sizeof(fs_nvtx_entry) == sizeof(nvtxPayloadSchemaEntry_t), "entries");
_Static_assert(FS_NVTX_STRUCTURED == NVTX_PAYLOAD_TYPE_EXT, "structured payloads");
#endif

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int InitializeInjectionNvtx2(fs_nvtx_export export_table);
EXPORTED int InitializeInjectionNvtxExtension(const fs_nvtx_extension *extension);

int InitializeInjectionNvtx2(fs_nvtx_export export_table)
{
    const fs_nvtx_callbacks *callbacks = export_table != NULL ? export_table(FS_NVTX_CALLBACKS) : NULL;
    fs_nvtx_function **table;
    unsigned size;
    if (callbacks == NULL || callbacks->struct_size < sizeof *callbacks || callbacks->module_table == NULL) return 0;
    fs_nvtx_watch_forks();
    if (callbacks->module_table(FS_NVTX_CORE, &table, &size) != 0) fs_nvtx_fill_core(table, size);
    if (callbacks->module_table(FS_NVTX_CORE2, &table, &size) != 0) fs_nvtx_fill_core2(table, size);
    return 1;
}

/* Extensions other than payloads succeed without a function of ours: they do nothing. */
int InitializeInjectionNvtxExtension(const fs_nvtx_extension *extension)
{
    if (extension == NULL || extension->struct_size < sizeof *extension) return 0;
    if (extension->module == FS_NVTX_PAYLOAD_MODULE && extension->segment_count > 0)
        fs_nvtx_fill_payload(&extension->segments[0]);
    return 1;
}

bool fs_nvtx_inject(void)
{
    static const char variable[] = "NVTX_INJECTION64_PATH";
    Dl_info here;
    const char *named = getenv(variable);
    if (dladdr((const void *)&InitializeInjectionNvtx2, &here) == 0 || here.dli_fname == NULL) return false;
    char *path = realpath(here.dli_fname, NULL);
    bool ours = path != NULL && (named != NULL ? strcmp(named, path) == 0 : setenv(variable, path, 1) == 0);
    free(path);
    return ours;
}
