/* The rows come from datasheet.def by macros; rates are converted there once, to FLOP/s and bytes per second. A name
 * may belong to several rows (memory sizes, forms): a device matches only if exactly one row fits its SMs and its
 * memory, as a wrong row is worse than none. */
#include "device/datasheet.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define NAMES(...) {__VA_ARGS__}
#define SOURCE(document, place) document ": " place
/* In the order of units.def. */
#define TERA(fp64, fp64_tensor, fp32, tf32, fp16, fp16_tensor, bf16_tensor, fp8, int8) \
    {T(fp64), T(fp64_tensor), T(fp32), T(tf32), T(fp16), T(fp16_tensor), T(bf16_tensor), T(fp8), T(int8)}
#define T(tera) ((tera) * 1e12)

/* clang-format off */
static const fs_datasheet datasheets[] = {
#define FS_DEVICE(alias, cc_major, cc_minor, class, sms, gib, mhz, tensor_mhz, l2_kib, gb_s, bus, pin_gbit_s, tera,   \
                  text)                                                                                               \
    {.names = alias, .major = cc_major, .minor = cc_minor, .sm_count = sms, .memory_gib = gib, .clock_mhz = mhz,      \
     .tensor_clock_mhz = tensor_mhz, .l2_bytes = (l2_kib)*1024.0, .bandwidth = (gb_s)*1e9, .memory_bus_bits = bus,    \
     .memory_pin_rate = (pin_gbit_s)*1e9, .flops = tera,                                                              \
     .source = text},
#include "device/datasheet.def"
#undef FS_DEVICE
};
/* clang-format on */

enum { DATASHEET_COUNT = sizeof datasheets / sizeof *datasheets };

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next character of a name in lower case. White space counts as one blank, and is skipped at the ends. */
static char next_letter(const char **at)
{
    const char *text = *at;
    char letter = *text;
    if (is_space(letter)) {
        while (is_space(*text)) text++;
        *at = text;
        return *text == 0 ? 0 : ' ';
    }
    if (letter != 0) *at = text + 1;
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

static bool names_equal(const char *a, const char *b)
{
    while (is_space(*a)) a++;
    for (;;) {
        char letter = next_letter(&a);
        if (letter != next_letter(&b)) return false;
        if (letter == 0) return true;
    }
}

bool fs_datasheet_has_name(const fs_datasheet *row, const char *name)
{
    for (const char *const *alias = row->names; *alias != NULL; alias++) {
        if (names_equal(name, *alias)) return true;
    }
    return false;
}

/* Drivers reserve some memory: error correction takes a sixteenth of GDDR6. */
static bool is_size(double memory_bytes, int gib)
{
    double share = memory_bytes / (gib * 0x1p30);
    return share > 0.85 && share < 1.02;
}

static bool may_be(const fs_datasheet *row, int sm_count, double memory_bytes)
{
    if (sm_count > 0 && sm_count != row->sm_count) return false;
    return row->memory_gib == 0 || !(memory_bytes > 0) || is_size(memory_bytes, row->memory_gib);
}

const fs_datasheet *fs_datasheet_find(const char *name, int sm_count, double memory_bytes)
{
    const fs_datasheet *match = NULL;
    for (int i = 0; i < DATASHEET_COUNT; i++) {
        if (!fs_datasheet_has_name(&datasheets[i], name) || !may_be(&datasheets[i], sm_count, memory_bytes)) continue;
        if (match != NULL) return NULL;
        match = &datasheets[i];
    }
    return match;
}

int fs_datasheet_count(void)
{
    return DATASHEET_COUNT;
}

const fs_datasheet *fs_datasheet_at(int index)
{
    return index >= 0 && index < DATASHEET_COUNT ? &datasheets[index] : NULL;
}
