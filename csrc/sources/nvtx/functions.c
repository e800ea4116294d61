/* NVTX has a function for each way to say a thing: with or without a domain, in char or in wchar_t, with attributes,
 * with a text alone or with payloads. Each does what it says by one of those in ranges.h. */
#include "sources/nvtx/functions.h"

#include "base/unused.h"
#include "sources/nvtx/handles.h"
#include "sources/nvtx/ranges.h"

/* Ranges and marks ------------------------------------------------------------------------------------------------- */

static fs_nvtx_attributes message_of(int32_t type, const void *text)
{
    return (fs_nvtx_attributes){.size = sizeof(fs_nvtx_attributes), .message_type = type, .message = text};
}

static void mark_described(const fs_nvtx_attributes *FS_UNUSED(attributes))
{
    fs_nvtx_mark();
}

static void mark_named(const void *FS_UNUSED(text))
{
    fs_nvtx_mark();
}

static void mark_in_domain(fs_nvtx_handle FS_UNUSED(domain), const fs_nvtx_attributes *FS_UNUSED(attributes))
{
    fs_nvtx_mark();
}

static uint64_t start_described(const fs_nvtx_attributes *attributes)
{
    return fs_nvtx_start(NULL, attributes);
}

static uint64_t start_named(const char *text)
{
    fs_nvtx_attributes attributes = message_of(FS_NVTX_ASCII, text);
    return fs_nvtx_start(NULL, &attributes);
}

static uint64_t start_wide(const wchar_t *text)
{
    fs_nvtx_attributes attributes = message_of(FS_NVTX_WIDE, text);
    return fs_nvtx_start(NULL, &attributes);
}

static void end_in_domain(fs_nvtx_handle FS_UNUSED(domain), uint64_t id)
{
    fs_nvtx_stop(id);
}

static int push_described(const fs_nvtx_attributes *attributes)
{
    return fs_nvtx_push(NULL, attributes);
}

static int push_wide(const wchar_t *text)
{
    fs_nvtx_attributes attributes = message_of(FS_NVTX_WIDE, text);
    return fs_nvtx_push(NULL, &attributes);
}

static int pop_any(void)
{
    return fs_nvtx_pop(NULL, NULL, 0);
}

static int pop_in_domain(fs_nvtx_handle domain)
{
    return fs_nvtx_pop(domain, NULL, 0);
}

/* Names ------------------------------------------------------------------------------------------------------------ */

static void name_in_domain(fs_nvtx_handle domain, uint32_t category, const char *name)
{
    fs_nvtx_hold();
    fs_nvtx_name_category(fs_nvtx_domain_of(domain), category, name);
    fs_nvtx_release();
}

static void name_wide_in_domain(fs_nvtx_handle domain, uint32_t category, const wchar_t *name)
{
    char narrow[FS_NVTX_TEXT_BYTES + 1];
    fs_nvtx_narrow(name, narrow);
    name_in_domain(domain, category, narrow);
}

static void name_category(uint32_t category, const char *name)
{
    name_in_domain(NULL, category, name);
}

static void name_category_wide(uint32_t category, const wchar_t *name)
{
    name_wide_in_domain(NULL, category, name);
}

static fs_nvtx_handle register_string(fs_nvtx_handle FS_UNUSED(domain), const char *text)
{
    fs_nvtx_hold();
    fs_nvtx_handle handle = fs_nvtx_add_string(text);
    fs_nvtx_release();
    return handle;
}

static fs_nvtx_handle register_wide(fs_nvtx_handle domain, const wchar_t *text)
{
    char narrow[FS_NVTX_TEXT_BYTES + 1];
    fs_nvtx_narrow(text, narrow);
    return register_string(domain, narrow);
}

static fs_nvtx_handle create_domain(const char *name)
{
    fs_nvtx_hold();
    fs_nvtx_handle handle = fs_nvtx_add_domain(name);
    fs_nvtx_release();
    return handle;
}

static fs_nvtx_handle create_domain_wide(const wchar_t *name)
{
    char narrow[FS_NVTX_TEXT_BYTES + 1];
    fs_nvtx_narrow(name, narrow);
    return create_domain(narrow);
}

/* Structured payloads ---------------------------------------------------------------------------------------------- */

static uint64_t register_schema(fs_nvtx_handle domain, const fs_nvtx_schema_attributes *attributes)
{
    fs_nvtx_hold();
    uint64_t id = fs_nvtx_add_schema(fs_nvtx_domain_of(domain), attributes);
    fs_nvtx_release();
    return id;
}

static fs_nvtx_attributes payload_of(const fs_nvtx_data *data, size_t count)
{
    enum { MOST_COUNT = 1 << 16 };
    return (fs_nvtx_attributes){.size = sizeof(fs_nvtx_attributes),
                                .payload_type = FS_NVTX_STRUCTURED,
                                .payload_count = count < MOST_COUNT ? (int32_t)count : MOST_COUNT,
                                .payload.uint64 = count > 0 ? (uint64_t)(uintptr_t)data : 0};
}

static void mark_payload(fs_nvtx_handle FS_UNUSED(domain), const fs_nvtx_data *FS_UNUSED(data), size_t FS_UNUSED(count))
{
    fs_nvtx_mark();
}

static int push_payload(fs_nvtx_handle domain, const fs_nvtx_data *data, size_t count)
{
    fs_nvtx_attributes attributes = payload_of(data, count);
    return fs_nvtx_push(domain, &attributes);
}

static uint64_t start_payload(fs_nvtx_handle domain, const fs_nvtx_data *data, size_t count)
{
    fs_nvtx_attributes attributes = payload_of(data, count);
    return fs_nvtx_start(domain, &attributes);
}

static void end_payload(fs_nvtx_handle FS_UNUSED(domain), uint64_t id, const fs_nvtx_data *FS_UNUSED(data),
                        size_t FS_UNUSED(count))
{
    fs_nvtx_stop(id);
}

/* Tables ----------------------------------------------------------------------------------------------------------- */

/* X(function, its number in NVTX's table of that module) */
#define CORE(X)             \
    X(mark_described, 1)    \
    X(mark_named, 2)        \
    X(mark_named, 3)        \
    X(start_described, 4)   \
    X(start_named, 5)       \
    X(start_wide, 6)        \
    X(fs_nvtx_stop, 7)      \
    X(push_described, 8)    \
    X(fs_nvtx_push_text, 9) \
    X(push_wide, 10)        \
    X(pop_any, 11)          \
    X(name_category, 12)    \
    X(name_category_wide, 13)

#define CORE2(X)              \
    X(mark_in_domain, 1)      \
    X(fs_nvtx_start, 2)       \
    X(end_in_domain, 3)       \
    X(fs_nvtx_push, 4)        \
    X(pop_in_domain, 5)       \
    X(name_in_domain, 8)      \
    X(name_wide_in_domain, 9) \
    X(register_string, 10)    \
    X(register_wide, 11)      \
    X(create_domain, 12)      \
    X(create_domain_wide, 13)

#define PAYLOAD(X)        \
    X(register_schema, 0) \
    X(mark_payload, 2)    \
    X(push_payload, 3)    \
    X(fs_nvtx_pop, 4)     \
    X(start_payload, 5)   \
    X(end_payload, 6)

void fs_nvtx_fill_core(fs_nvtx_function **table, unsigned size)
{
#define FILL(function, number) \
    if ((number) < size && table[number] != NULL) *table[number] = (fs_nvtx_function)(function);
    CORE(FILL)
}

void fs_nvtx_fill_core2(fs_nvtx_function **table, unsigned size)
{
    CORE2(FILL)
#undef FILL
}

void fs_nvtx_fill_payload(const fs_nvtx_segment *segment)
{
#define FILL(function, number) \
    if ((number) < segment->count) segment->slots[number] = (intptr_t)(function);
    PAYLOAD(FILL)
#undef FILL
}
