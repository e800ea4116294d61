/* Every byte of the numbers is set: equal notes have equal bytes. The fields take the rest of the bytes. */
#include "store/note.h"

#include <string.h>

#include "store/signature.h"

/* The numbers as stored. */
typedef struct {
    uint32_t category, colour;
    uint64_t payload;
    uint8_t coloured, payload_type, unused[14];
} numbers;

enum { WORD = sizeof(uint64_t) };
_Static_assert(sizeof(numbers) == 32, "FS_NOTE_MAX_BYTES assumes it");

size_t fs_note_cut(const char *text, size_t most)
{
    size_t size = strnlen(text, most + 1);
    if (size <= most) return size;
    for (size = most; size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80;) size--;
    return size;
}

bool fs_note_add_field(char *fields, size_t *size, fs_text name, char kind, fs_text value)
{
    size_t needed = name.size + 1 + 1 + value.size + 1;
    if (name.size == 0 || needed > FS_NOTE_FIELDS_BYTES - *size) return false;
    char *at = fields + *size;
    memcpy(at, name.bytes, name.size);
    at[name.size] = 0;
    at[name.size + 1] = kind;
    memcpy(at + name.size + 2, value.bytes, value.size);
    at[needed - 1] = 0;
    *size += needed;
    return true;
}

size_t fs_note_encode(const fs_note *note, void *bytes)
{
    numbers stored = {.category = note->category,
                      .colour = note->coloured ? note->colour : 0,
                      .payload = note->payload_type != FS_NOTE_NOTHING ? note->payload.whole : 0,
                      .coloured = note->coloured,
                      .payload_type = note->payload_type};
    size_t size = fs_note_cut(note->category_name, FS_NOTE_CATEGORY_BYTES);
    char *at = (char *)bytes + WORD;
    fs_signature_begin(FS_SIGNATURE_NOTE, bytes);
    memcpy(at, &stored, sizeof stored);
    at += sizeof stored;
    memcpy(at, note->category_name, size);
    at[size] = 0;
    at += size + 1;
    if (note->fields_size > 0) memcpy(at, note->fields, note->fields_size);
    return (size_t)(at - (char *)bytes) + note->fields_size;
}

bool fs_note_decode(const void *bytes, size_t size, fs_note *note)
{
    numbers stored;
    if (size < WORD + sizeof stored + 1 || fs_signature_kind_of(bytes) != FS_SIGNATURE_NOTE) return false;
    memcpy(&stored, (const char *)bytes + WORD, sizeof stored);
    const char *category = (const char *)bytes + WORD + sizeof stored, *end = (const char *)bytes + size;
    const char *fields = category + strnlen(category, (size_t)(end - category)) + 1;
    *note = (fs_note){.category = stored.category,
                      .colour = stored.colour,
                      .coloured = stored.coloured,
                      .payload_type = stored.payload_type,
                      .payload.whole = stored.payload,
                      .category_name = category,
                      .fields = fields,
                      .fields_size = fields < end ? (size_t)(end - fields) : 0};
    return true;
}
