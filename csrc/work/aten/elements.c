/* The rows of elements.def, pointwise.def and views.def as one array that ends with an empty name. A letter and a
 * number spell a place in the option: A(n) arguments, D(n) the place of a dtype, L(n) the tensor that the result is
 * like, P(n) another place. */
#include "work/aten/elements.h"

#include <math.h>
#include <stddef.h>

#define A(n) (FS_ARGUMENTS * (n))
#define D(n) (FS_DTYPE_AT * (n))
#define L(n) (FS_LIKE * ((n) + 1))
#define P(n) (FS_PLACE * (n))

const fs_aten_rule fs_aten_element_rules[] = {
#define FS_ATEN_AS(CATEGORY, name, family, flops, option) \
    {#name, fs_count_##family, flops, option, NULL, FS_CATEGORY_##CATEGORY},
#define FS_ATEN(name, family, flops, option) FS_ATEN_AS(OF_FAMILY, name, family, flops, option)
#include "work/aten/elements.def"
#include "work/aten/pointwise.def"
#undef FS_ATEN
#undef FS_ATEN_AS
#define FS_ATEN_VIEW_AS(CATEGORY, name) {#name, fs_count_view, 0, 0, NULL, FS_CATEGORY_##CATEGORY},
#define FS_ATEN_VIEW(name) FS_ATEN_VIEW_AS(OF_FAMILY, name)
#include "work/aten/views.def"
#undef FS_ATEN_VIEW
#undef FS_ATEN_VIEW_AS
    {.name = NULL},
};
