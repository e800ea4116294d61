#include "work/aten/elements.h"

#include <math.h>
#include <stddef.h>

#define A(n) (FS_ARGUMENTS * (n))
#define D(n) (FS_DTYPE_AT * (n))
#define L(n) (FS_LIKE * ((n) + 1))
#define P(n) (FS_PLACE * (n))

const fs_aten_rule fs_aten_element_rules[] = {
#define FS_ATEN(name, family, flops, option) {#name, fs_count_##family, flops, option, NULL},
#include "work/aten/elements.def"
#include "work/aten/pointwise.def"
#undef FS_ATEN
#define FS_ATEN_VIEW(name) {#name, fs_count_view, 0, 0, NULL},
#include "work/aten/views.def"
#undef FS_ATEN_VIEW
    {NULL, NULL, 0, 0, NULL},
};
