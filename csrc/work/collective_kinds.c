/* Names are compared in lower case without underscores, so that "all_reduce", "AllReduce" and "allreduce" are one; the
 * first pattern of collectives.def that occurs decides, which is why longer names stand before their parts. */
#include "work/collective_kinds.h"

#include <math.h>
#include <string.h>

const char *const fs_collective_kind_names[FS_COLLECTIVE_KIND_COUNT] = {
#define FS_COLLECTIVE_KIND(NAME, name, factor, prose) #name,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
};

static const struct {
    fs_collective_kind kind;
    const char *pattern;
} patterns[] = {
#define FS_COLLECTIVE_KIND(NAME, name, factor, prose)
#define FS_COLLECTIVE_PATTERN(NAME, pattern) {FS_COLLECTIVE_##NAME, pattern},
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
};

fs_collective_kind fs_collective_kind_of(const char *name)
{
    char plain[256]; /* the kind is near the start of a name */
    size_t size = 0;
    for (; *name != '\0' && size + 1 < sizeof plain; name++) {
        if (*name != '_') plain[size++] = (char)(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
    }
    plain[size] = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (strstr(plain, patterns[i].pattern) != NULL) return patterns[i].kind;
    }
    return FS_COLLECTIVE_OTHER;
}

double fs_collective_bus_factor(fs_collective_kind kind, int ranks)
{
    double n = ranks > 0 ? (double)ranks : (double)NAN;
    const double factors[FS_COLLECTIVE_KIND_COUNT] = {
#define FS_COLLECTIVE_KIND(NAME, name, factor, prose) factor,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
    };
    return factors[kind];
}
