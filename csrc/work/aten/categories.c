/* The categories of the families of rules. */
#include <math.h>
#include <stddef.h>

#include "work/aten/elements.h"
#include "work/aten/products.h"
#include "work/libraries/libraries.h"

static const struct {
    fs_aten_count count;
    fs_category category;
} families[] = {
#define FS_FAMILY_CATEGORY(family, CATEGORY) {fs_count_##family, FS_CATEGORY_##CATEGORY},
    FS_ATEN_FAMILIES(FS_FAMILY_CATEGORY) FS_PRODUCT_FAMILIES(FS_FAMILY_CATEGORY) FS_LIBRARY_FAMILIES(FS_FAMILY_CATEGORY)
#undef FS_FAMILY_CATEGORY
};

/* A formula may count any op: what else its row says tells those that multiply, exchange or only move. */
static fs_category category_of_formula(const fs_aten_rule *rule)
{
    if ((rule->option & FS_EXCHANGE) != 0) return FS_CATEGORY_COMMUNICATION;
    if ((rule->option & FS_ON_PRODUCTS) != 0) return FS_CATEGORY_PRODUCT;
    return rule->flops == 0 ? FS_CATEGORY_COPIES : FS_CATEGORY_POINTWISE;
}

fs_category fs_aten_category(const fs_aten_rule *rule)
{
    if (rule->category != FS_CATEGORY_OF_FAMILY) return rule->category;
    if (rule->count == fs_count_formula) return category_of_formula(rule);
    if (rule->count == fs_count_each && rule->option == FS_NO_ELEMENTS) return FS_CATEGORY_COPIES;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (rule->count == families[i].count) return families[i].category;
    return FS_CATEGORY_OTHER;
}
