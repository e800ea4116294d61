/* All texts are interned in one table, and keys of categories and schemas in two more, so that what a program says
 * again takes no memory. A failed allocation loses the text alone: the program gets no handle and goes on. */
#include "sources/nvtx/handles.h"

#include <string.h>

#include "base/intern.h"
#include "base/memory.h"
#include "store/note.h"

static struct {
    fs_intern texts, domains, strings; /* domains and strings: handles are ids + 1 */
    fs_nvtx_string *string_list;       /* by id in strings */
    uint32_t string_capacity;
    fs_intern category_keys; /* {domain, category} */
    uint32_t *categories;    /* texts, by id in category_keys */
    uint32_t category_capacity;
    fs_intern schema_keys; /* {domain, id} */
    fs_nvtx_schema *schemas;
    uint32_t schema_capacity;
    fs_nvtx_field *fields;
    uint32_t field_count, field_capacity;
    uint64_t dynamic_ids;
} known;

static fs_nvtx_handle handle_of(uint32_t id)
{
    return (fs_nvtx_handle)((uintptr_t)id + 1); /* NOLINT(performance-no-int-to-ptr): a number, never followed */
}

/* Return the id of a handle, UINT32_MAX if the table has no such. */
static uint32_t id_of(const fs_intern *table, fs_nvtx_handle handle)
{
    uintptr_t number = (uintptr_t)handle;
    return number >= 1 && number <= table->count ? (uint32_t)(number - 1) : UINT32_MAX;
}

/* Texts ------------------------------------------------------------------------------------------------------------ */

static fs_status keep_text(const char *text, uint32_t *id)
{
    if (text == NULL) text = "";
    return fs_intern_bytes(&known.texts, text, fs_note_cut(text, FS_NVTX_TEXT_BYTES), id, NULL);
}

const char *fs_nvtx_text(uint32_t text)
{
    return fs_intern_get(&known.texts, text).bytes;
}

/* Write a character, U+FFFD for a number that is none. Return the number of bytes. */
static size_t put_character(uint32_t code, char bytes[4])
{
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t firsts[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(firsts[size] | code);
    return size;
}

void fs_nvtx_narrow(const wchar_t *wide, char *to)
{
    char bytes[4];
    size_t at = 0;
    for (; wide != NULL && *wide != 0; wide++) {
        size_t size = put_character((uint32_t)*wide, bytes);
        if (at + size > FS_NVTX_TEXT_BYTES) break;
        memcpy(to + at, bytes, size);
        at += size;
    }
    to[at] = 0;
}

/* Domains and strings ---------------------------------------------------------------------------------------------- */

fs_nvtx_handle fs_nvtx_add_domain(const char *name)
{
    uint32_t id;
    if (name == NULL || known.domains.count >= FS_NVTX_MOST_DOMAINS) return NULL;
    if (fs_intern_bytes(&known.domains, name, fs_note_cut(name, FS_NVTX_DOMAIN_BYTES), &id, NULL) != FS_OK) return NULL;
    return handle_of(id);
}

uint32_t fs_nvtx_domain_of(fs_nvtx_handle handle)
{
    uint32_t id = id_of(&known.domains, handle);
    return id == UINT32_MAX ? 0 : id + 1;
}

const char *fs_nvtx_domain_name(uint32_t domain)
{
    return domain == 0 ? "" : fs_intern_get(&known.domains, domain - 1).bytes;
}

fs_nvtx_handle fs_nvtx_add_string(const char *text)
{
    uint32_t id, kept;
    if (keep_text(text, &kept) != FS_OK || known.strings.count >= FS_NVTX_MOST_STRINGS) return NULL;
    if (FS_LIST_ROOM(&known.string_list, known.strings.count, &known.string_capacity, 256, NULL) != FS_OK) return NULL;
    uint32_t before = known.strings.count;
    if (fs_intern_bytes(&known.strings, &kept, sizeof kept, &id, NULL) != FS_OK) return NULL;
    if (id == before) known.string_list[id] = (fs_nvtx_string){.text = kept};
    return handle_of(id);
}

fs_nvtx_string *fs_nvtx_string_of(fs_nvtx_handle handle)
{
    uint32_t id = id_of(&known.strings, handle);
    return id == UINT32_MAX ? NULL : &known.string_list[id];
}

/* Categories ------------------------------------------------------------------------------------------------------- */

void fs_nvtx_name_category(uint32_t domain, uint32_t category, const char *name)
{
    const uint32_t key[2] = {domain, category};
    uint32_t id, text;
    if (known.category_keys.count >= FS_NVTX_MOST_STRINGS || keep_text(name, &text) != FS_OK) return;
    if (FS_LIST_ROOM(&known.categories, known.category_keys.count, &known.category_capacity, 64, NULL) == FS_OK &&
        fs_intern_bytes(&known.category_keys, key, sizeof key, &id, NULL) == FS_OK)
        known.categories[id] = text;
}

const char *fs_nvtx_category_name(uint32_t domain, uint32_t category)
{
    const uint32_t key[2] = {domain, category};
    uint32_t id = category != 0 ? fs_intern_find(&known.category_keys, key, sizeof key) : UINT32_MAX;
    return id == UINT32_MAX ? "" : fs_nvtx_text(known.categories[id]);
}

/* Schemas ---------------------------------------------------------------------------------------------------------- */

/* The sizes of entries that are numbers or handles, by their types (NVTX_PAYLOAD_ENTRY_TYPE_…); 0: not read. */
static const uint8_t sizes[] = {
    [1] = 1,  [2] = 1,  [3] = 2,  [4] = 2,  [5] = 4,  [6] = 4,  [7] = 8,  [8] = 8,  [9] = 8,  [10] = 8, [11] = 1,
    [12] = 1, [13] = 2, [14] = 2, [15] = 4, [16] = 4, [17] = 8, [18] = 8, [19] = 4, [20] = 8, [22] = 8, [23] = 8,
    [32] = 1, [43] = 4, [44] = 8, [68] = 4, [69] = 4, [70] = 8, [71] = 4, [72] = 8, [73] = 4, [74] = 8, [80] = 8,
};

enum { MOST_ENTRIES = 256, MOST_OFFSET = 1 << 16, MOST_FIELDS = 1 << 18 };

/* Keep the fields that lie at known places. Entries without an offset follow one another with their natural alignment,
 * up to the first whose size is unknown. */
static fs_status keep_fields(const fs_nvtx_schema_attributes *attributes, fs_nvtx_schema *schema)
{
    uint64_t at = 0;
    bool placed = true;
    schema->first = known.field_count;
    for (size_t i = 0; i < attributes->count; i++) {
        const fs_nvtx_entry *entry = &attributes->entries[i];
        uint8_t size = entry->type < sizeof sizes ? sizes[entry->type] : 0;
        if (entry->offset != 0) at = entry->offset;
        else if (size > 0) at = (at + size - 1) / size * size;
        placed = placed || entry->offset != 0;
        if (size == 0 || (entry->flags & FS_NVTX_ENTRY_INDIRECT) != 0) {
            placed = false;
            continue;
        }
        if (!placed || at > MOST_OFFSET) continue;
        fs_nvtx_field field = {.offset = (uint32_t)at,
                               .type = (uint16_t)entry->type,
                               .size = size,
                               .is_message = (entry->flags & FS_NVTX_ENTRY_MESSAGE) != 0};
        FS_TRY(keep_text(entry->name, &field.name));
        FS_TRY(FS_LIST_ADD(&known.fields, &known.field_count, &known.field_capacity, 64, NULL, field));
        at += size;
    }
    schema->count = known.field_count - schema->first;
    return FS_OK;
}

uint64_t fs_nvtx_add_schema(uint32_t domain, const fs_nvtx_schema_attributes *attributes)
{
    static const uint64_t needed = FS_NVTX_SCHEMA_HAS_ENTRIES;
    if (attributes == NULL || (attributes->fields & needed) != needed || attributes->type != FS_NVTX_SCHEMA_STATIC ||
        attributes->entries == NULL || attributes->count > MOST_ENTRIES ||
        known.schema_keys.count >= FS_NVTX_MOST_SCHEMAS || known.field_count >= MOST_FIELDS)
        return 0;
    bool given = (attributes->fields & FS_NVTX_SCHEMA_HAS_ID) != 0;
    fs_nvtx_schema schema = {.id = given ? attributes->id : FS_NVTX_DYNAMIC_ID + known.dynamic_ids};
    const uint64_t key[2] = {domain, schema.id};
    uint32_t id, before = known.field_count;
    if (keep_fields(attributes, &schema) != FS_OK ||
        FS_LIST_ROOM(&known.schemas, known.schema_keys.count, &known.schema_capacity, 16, NULL) != FS_OK ||
        fs_intern_bytes(&known.schema_keys, key, sizeof key, &id, NULL) != FS_OK) {
        known.field_count = before;
        return 0;
    }
    known.dynamic_ids += !given;
    known.schemas[id] = schema;
    return schema.id;
}

const fs_nvtx_schema *fs_nvtx_schema_of(uint32_t domain, uint64_t id)
{
    const uint64_t key[2] = {domain, id};
    uint32_t found = fs_intern_find(&known.schema_keys, key, sizeof key);
    return found == UINT32_MAX ? NULL : &known.schemas[found];
}

const fs_nvtx_field *fs_nvtx_fields_of(const fs_nvtx_schema *schema)
{
    return known.fields + schema->first;
}
