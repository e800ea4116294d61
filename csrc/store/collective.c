/* Numbers first, then texts with a zero byte each, in the order of FS_COLLECTIVE_TEXT_LIST; what is cut off is read as
 * empty. The texts of a decoded collective point into the bytes. An element size of 0 means that the dtype is unknown,
 * and then no size in bytes is made of the elements. */
#include "store/collective.h"

#include <string.h>

#include "store/signature.h"
#include "store/store.h"
#include "store/torch_signature.h"

const fs_collective fs_collective_missing = {
    .in_elements = FS_MISSING, .out_elements = FS_MISSING, .sequence = FS_MISSING};

static int32_t size_of(const char *dtype)
{
    if (strcmp(dtype, "bytes") == 0) return 1; /* of elements whose dtype is unknown, but not their bytes */
    for (int i = 0; i < FS_TORCH_DTYPE_COUNT; i++) {
        if (strcmp(fs_torch_dtypes[i].c10, dtype) == 0) return fs_torch_dtypes[i].size;
    }
    return 0;
}

void fs_collective_set_dtype(fs_collective *collective, const char *torch_name)
{
    if (*torch_name == 0) {
        collective->dtype = (fs_collective_text){"bytes", strlen("bytes")};
        collective->element_size = 1;
    }
    const fs_torch_dtype_row *row = &fs_torch_dtypes[fs_torch_dtype_named(torch_name, strlen(torch_name))];
    if (row->size == 0) return;
    collective->dtype = (fs_collective_text){row->c10, strlen(row->c10)};
    collective->element_size = row->size;
}

/* The numbers as stored in the bytes, before the texts. */
typedef struct {
    int64_t in_elements, out_elements, sequence, group_size;
} numbers;

_Static_assert(sizeof(numbers) == 32, "FS_COLLECTIVE_MAX_BYTES assumes it");

static char *write_text(char *to, const fs_collective_text *from, size_t longest)
{
    size_t size = from->text == NULL ? 0 : from->size < longest ? from->size : longest;
    if (size > 0) memcpy(to, from->text, size);
    to[size] = '\0';
    return to + size + 1;
}

size_t fs_collective_write(const fs_collective *collective, void *bytes)
{
    numbers stored = {collective->in_elements, collective->out_elements, collective->sequence, collective->group_size};
    char *at = bytes;
    memcpy(at, &stored, sizeof stored);
    at += sizeof stored;
#define WRITE_TEXT(name, longest, prose) at = write_text(at, &collective->name, longest);
    FS_COLLECTIVE_TEXT_LIST(WRITE_TEXT)
#undef WRITE_TEXT
    return (size_t)(at - (char *)bytes);
}

size_t fs_collective_encode(const fs_collective *collective, void *bytes)
{
    return FS_LAUNCH_BYTES + fs_collective_write(collective, (char *)bytes + FS_LAUNCH_BYTES);
}

static const char *read_text(const char *from, const char *end, fs_collective_text *to)
{
    *to = (fs_collective_text){from, strnlen(from, (size_t)(end - from))};
    return from + to->size < end ? from + to->size + 1 : end;
}

/* The offset of the collective in a signature's bytes; their size if there is none. */
static size_t begin_of(fs_span bytes)
{
    fs_torch_call call;
    if (bytes.size < sizeof(int64_t)) return bytes.size;
    if (fs_signature_kind_of(bytes.bytes) == FS_SIGNATURE_LAUNCH) return FS_LAUNCH_BYTES;
    if (!fs_torch_decode(bytes.bytes, bytes.size, &call) || !call.whole) return bytes.size;
    return (size_t)((const char *)call.end - (const char *)bytes.bytes);
}

bool fs_collective_read(const void *bytes, size_t size, fs_collective *collective)
{
    numbers stored;
    *collective = fs_collective_missing;
    if (size < sizeof stored) return false;
    const char *at = bytes, *end = at + size;
    memcpy(&stored, at, sizeof stored);
    at += sizeof stored;
    collective->in_elements = stored.in_elements;
    collective->out_elements = stored.out_elements;
    collective->sequence = stored.sequence;
    collective->group_size = (int32_t)stored.group_size;
#define READ_TEXT(name, longest, prose) at = read_text(at, end, &collective->name);
    FS_COLLECTIVE_TEXT_LIST(READ_TEXT)
#undef READ_TEXT
    collective->element_size = size_of(collective->dtype.text);
    return true;
}

bool fs_collective_decode(fs_span bytes, fs_collective *collective)
{
    size_t begin = begin_of(bytes);
    if (begin > bytes.size) begin = bytes.size;
    return fs_collective_read((const char *)bytes.bytes + begin, bytes.size - begin, collective);
}
