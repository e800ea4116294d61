/* A cubin of two kernels: the functions "_Z1fv" and "plain" have the same code. */
#ifndef FS_TESTS_FAKE_CUBIN_H
#define FS_TESTS_FAKE_CUBIN_H

#include <stdint.h>
#include <string.h>

enum {
    FAKE_CUBIN_NAMES = 64,
    FAKE_CUBIN_CODE = 104,
    FAKE_CUBIN_TABLE = 232,
    FAKE_CUBIN_BYTES = FAKE_CUBIN_TABLE + 256
};

/* As ptxas 13.1 wrote them for compute capability 9.0; the last one is HGMMA in bf16. */
static const uint64_t fake_code[8][2] = {
    {0x000000040c047981, 0x000fea000c1e1d00}, {0x0000000502007986, 0x001fe2000c101904},
    {0x00000a0001087983, 0x000ea80000100800}, {0x000000061c048981, 0x000ea2000c1e1900},
    {0x0000001808047981, 0x000ea4000c1e1900}, {0x0000000000007918, 0x000fc00000000000},
    {0x0000000000007b1d, 0x000fec0000010000}, {0x00200000041879f0, 0x000fe200087018ff}};

static const uint8_t *fake_cubin(void)
{
    static const char names[FAKE_CUBIN_NAMES - 24] = "\0.text._Z1fv\0.text.plain";
    static uint8_t file[FAKE_CUBIN_BYTES];
    const uint64_t table = FAKE_CUBIN_TABLE, spans[2][2] = {{64, sizeof names}, {FAKE_CUBIN_CODE, sizeof fake_code}};
    memcpy(file, "\177ELF\2\1\1A\10", 9);
    memcpy(file + 18, (const uint16_t[]){190}, 2);
    memcpy(file + 40, &table, 8);
    memcpy(file + 48, (const uint32_t[]){0x06005a04}, 4);
    memcpy(file + 58, (const uint16_t[]){64, 4, 1}, 6);
    memcpy(file + 64, names, sizeof names);
    memcpy(file + FAKE_CUBIN_CODE, fake_code, sizeof fake_code);
    for (uint32_t i = 1; i < 4; i++) {
        memcpy(file + table + 64 * i, (const uint32_t[]){(i > 1) + 12 * (i > 2)}, 4);
        memcpy(file + table + 64 * i + 24, spans[i > 1], 16);
    }
    return file;
}

#endif
