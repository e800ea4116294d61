/* An instruction has its operation in the low 9 bits, whatever the form of its operands, and the width of an access in
 * bits 73 to 75. Both are as nvdisasm shows them for compute capability 7.5 to 12.0 (UTCMMA: UTCHMMA and its like); the
 * operations that are not in the table are arithmetic, moves and branches, which waits seldom need by name. */
#include "sources/counters/sass.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    HEADER = 64,
    SECTION = 64,     /* bytes of an entry of the table of sections */
    INSTRUCTION = 16, /* bytes */
    CUDA = 190,       /* e_machine */
    NEW_ABI = 8,      /* version from which the architecture is in the second byte of e_flags */
    LEAST_ARCHITECTURE = 70,
    OPERATIONS = 512,
};

typedef enum {
    NAMED, /* and not counted */
    LOADS,
    STORES = LOADS + 6,
    LOCAL = STORES + 6,
    TENSOR,
    ASYNC = TENSOR + 7,
    ATOMIC,
    BARRIER
} kind;

const char *const fs_sass_kinds[FS_SASS_KINDS] = {
    [LOADS] = "1-byte loads",
    [LOADS + 1] = "2-byte loads",
    [LOADS + 2] = "4-byte loads",
    [LOADS + 3] = "8-byte loads",
    [LOADS + 4] = "16-byte loads",
    [LOADS + 5] = "32-byte loads",
    [STORES] = "1-byte stores",
    [STORES + 1] = "2-byte stores",
    [STORES + 2] = "4-byte stores",
    [STORES + 3] = "8-byte stores",
    [STORES + 4] = "16-byte stores",
    [STORES + 5] = "32-byte stores",
    [LOCAL] = "accesses of local memory",
    [TENSOR] = "fp16 tensor instructions",
    [TENSOR + 1] = "bf16 tensor instructions",
    [TENSOR + 2] = "tf32 tensor instructions",
    [TENSOR + 3] = "tensor instructions",
    [TENSOR + 4] = "fp64 tensor instructions",
    [TENSOR + 5] = "integer tensor instructions",
    [TENSOR + 6] = "fp8 tensor instructions",
    [ASYNC] = "asynchronous copies",
    [ATOMIC] = "atomics",
    [BARRIER] = "barriers",
};

/* type: where in the upper half of an instruction the dtype of a product is, of fp16, bf16 and tf32. */
static const struct {
    const char *name;
    uint8_t kind, type;
    bool has_width;
} operations[OPERATIONS] = {
    [0x037] = {"IMMA", TENSOR + 5},
    [0x03b] = {"LDSM", NAMED},
    [0x03c] = {"HMMA", TENSOR, .type = 18},
    [0x03f] = {"DMMA", TENSOR + 4},
    [0x07a] = {"QMMA", TENSOR + 6},
    [0x108] = {"MUFU", NAMED},
    [0x11a] = {"DEPBAR", NAMED},
    [0x11d] = {"BAR", BARRIER},
    [0x166] = {"TLD", NAMED},
    [0x17e] = {"LDG.256", LOADS + 5}, /* from Blackwell on */
    [0x17f] = {"STG.256", STORES + 5},
    [0x180] = {"LD", LOADS, .has_width = true},
    [0x181] = {"LDG", LOADS, .has_width = true},
    [0x182] = {"LDC", NAMED},
    [0x183] = {"LDL", LOCAL, .has_width = true},
    [0x184] = {"LDS", NAMED, .has_width = true},
    [0x185] = {"ST", STORES, .has_width = true},
    [0x186] = {"STG", STORES, .has_width = true},
    [0x187] = {"STL", LOCAL, .has_width = true},
    [0x188] = {"STS", NAMED, .has_width = true},
    [0x18c] = {"ATOMS", NAMED},
    [0x18e] = {"RED", ATOMIC},
    [0x192] = {"MEMBAR", NAMED},
    [0x1a6] = {"RED", ATOMIC},
    [0x1a8] = {"ATOMG", ATOMIC},
    [0x1a9] = {"ATOMG", ATOMIC},
    [0x1ae] = {"LDGSTS", ASYNC},
    [0x1b2] = {"SYNCS", NAMED},
    [0x1b4] = {"UTMALDG", ASYNC},
    [0x1b5] = {"UTMASTG", ASYNC},
    [0x1ba] = {"UBLKCP", ASYNC},
    [0x1c5] = {"WARPGROUP", NAMED},
    [0x1ea] = {"UTCMMA", TENSOR + 3}, /* a descriptor has the dtype */
    [0x1ee] = {"LDTM", NAMED},
    [0x1f0] = {"HGMMA", TENSOR, .type = 12},
    [0x1f3] = {"QGMMA", TENSOR + 6},
};

static uint64_t number(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* Return a part of the file; NULL if it is not all there. */
static const uint8_t *part(const fs_sass *file, uint64_t at, uint64_t size)
{
    return at <= file->size && size <= file->size - at ? file->bytes + at : NULL;
}

/* Return whether a name of the table of names, which may be cut off, is ".text." and the function's. */
static bool is_code_of(const fs_sass *names, uint64_t at, const char *function)
{
    static const char prefix[] = ".text.";
    const size_t before = sizeof prefix - 1, length = strlen(function) + 1;
    const uint8_t *name = part(names, at, before + length);
    return name != NULL && memcmp(name, prefix, before) == 0 && memcmp(name + before, function, length) == 0;
}

static fs_sass section(const fs_sass *file, const uint8_t *entry)
{
    uint64_t at = number(entry + 24, 8), size = number(entry + 32, 8);
    const uint8_t *bytes = part(file, at, size);
    return (fs_sass){bytes, bytes != NULL ? (size_t)size : 0};
}

fs_sass fs_sass_find(const void *cubin, size_t size, const char *function)
{
    const fs_sass file = {cubin, size}, none = {NULL, 0};
    const uint8_t *header = part(&file, 0, HEADER);
    if (header == NULL || memcmp(header, "\177ELF\2\1", 6) != 0 || number(header + 18, 2) != CUDA) return none;
    if (header[header[8] >= NEW_ABI ? 49 : 48] < LEAST_ARCHITECTURE) return none;
    uint64_t count = number(header + 60, 2), name_table = number(header + 62, 2);
    const uint8_t *table = part(&file, number(header + 40, 8), count * SECTION);
    if (table == NULL || number(header + 58, 2) != SECTION || name_table >= count) return none;
    const fs_sass names = section(&file, table + name_table * SECTION);
    for (uint64_t i = 0; i < count && names.bytes != NULL; i++)
        if (is_code_of(&names, number(table + i * SECTION, 4), function)) return section(&file, table + i * SECTION);
    return none;
}

/* Return the binary logarithm of the bytes that an instruction accesses at once, by the code of their type. */
static int width_of(const uint8_t *instruction)
{
    static const uint8_t widths[] = {0, 0, 1, 1, 2, 3, 4, 4};
    return widths[instruction[9] >> 1 & 7];
}

void fs_sass_name(const fs_sass *code, uint64_t offset, char name[FS_SASS_NAME])
{
    const uint8_t *at = code->bytes != NULL ? part(code, offset, INSTRUCTION) : NULL;
    size_t operation = at != NULL ? number(at, 2) & (OPERATIONS - 1) : 0;
    const char *found = operations[operation].name != NULL ? operations[operation].name : "";
    if (*found != '\0' && operations[operation].has_width)
        snprintf(name, FS_SASS_NAME, "%s.%d", found, 8 << width_of(at));
    else snprintf(name, FS_SASS_NAME, "%s", found);
}

void fs_sass_count(const fs_sass *code, uint32_t counts[FS_SASS_KINDS])
{
    memset(counts, 0, FS_SASS_KINDS * sizeof *counts);
    for (size_t at = 0; at + INSTRUCTION <= code->size; at += INSTRUCTION) {
        const uint8_t *instruction = code->bytes + at;
        size_t operation = number(instruction, 2) & (OPERATIONS - 1);
        int of = operations[operation].kind;
        if (of == LOADS || of == STORES) of += width_of(instruction);
        if (operations[operation].type != 0) of += (int)(number(instruction + 8, 8) >> operations[operation].type & 3);
        if (of != NAMED) counts[of]++;
    }
}
