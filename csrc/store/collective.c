#include "store/collective.h"

#include <string.h>

#include "store/signature.h"
#include "store/store.h"

const fs_collective fs_collective_missing = {
    .in_elements = FS_MISSING, .out_elements = FS_MISSING, .sequence = FS_MISSING};

static const struct {
    const char *name;
    int32_t size;
} dtypes[] = {
#define FS_COLLECTIVE_DTYPE(name, size) {name, size},
#include "store/collective_dtypes.def"
#undef FS_COLLECTIVE_DTYPE
};

static int32_t size_of(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, dtype) == 0) return dtypes[i].size;
    }
    return 0;
}

/* As they lie in the bytes, before the texts. */
typedef struct {
    int64_t in_elements, out_elements, sequence, group_size;
} numbers;

_Static_assert(sizeof(numbers) == 32, "FS_COLLECTIVE_MAX_BYTES counts on it");

static char *write_text(char *to, const fs_collective_text *from, size_t longest)
{
    size_t size = from->text == NULL ? 0 : from->size < longest ? from->size : longest;
    if (size > 0) memcpy(to, from->text, size);
    to[size] = '\0';
    return to + size + 1;
}

size_t fs_collective_encode(const fs_collective *collective, void *bytes)
{
    numbers told = {collective->in_elements, collective->out_elements, collective->sequence, collective->group_size};
    char *at = (char *)bytes + FS_LAUNCH_BYTES;
    memcpy(at, &told, sizeof told);
    at += sizeof told;
#define WRITE_TEXT(name, longest, prose) at = write_text(at, &collective->name, longest);
    FS_COLLECTIVE_TEXT_LIST(WRITE_TEXT)
#undef WRITE_TEXT
    return (size_t)(at - (char *)bytes);
}

static const char *read_text(const char *from, const char *end, fs_collective_text *to)
{
    *to = (fs_collective_text){from, strnlen(from, (size_t)(end - from))};
    return from + to->size < end ? from + to->size + 1 : end;
}

bool fs_collective_decode(fs_span bytes, fs_collective *collective)
{
    numbers told;
    *collective = fs_collective_missing;
    if (bytes.size < FS_LAUNCH_BYTES + sizeof told || fs_signature_kind_of(bytes.bytes) != FS_SIGNATURE_LAUNCH)
        return false;
    const char *at = (const char *)bytes.bytes + FS_LAUNCH_BYTES, *end = (const char *)bytes.bytes + bytes.size;
    memcpy(&told, at, sizeof told);
    at += sizeof told;
    collective->in_elements = told.in_elements;
    collective->out_elements = told.out_elements;
    collective->sequence = told.sequence;
    collective->group_size = (int32_t)told.group_size;
#define READ_TEXT(name, longest, prose) at = read_text(at, end, &collective->name);
    FS_COLLECTIVE_TEXT_LIST(READ_TEXT)
#undef READ_TEXT
    collective->element_size = size_of(collective->dtype.text);
    return true;
}
