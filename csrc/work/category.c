#include "work/category.h"

#include <stddef.h>
#include <string.h>

#include "work/aten/aten.h"
#include "work/kernel_class.h"
#include "work/pattern.h"

const fs_category_row fs_categories[FS_CATEGORY_COUNT] = {
#define FS_CATEGORY_ROW(NAME, name, series, dark, prose) [FS_CATEGORY_##NAME] = {name, prose, series, dark},
    FS_CATEGORY_LIST(FS_CATEGORY_ROW)
#undef FS_CATEGORY_ROW
};

enum { OF_HOST = 1, OF_DEVICE = 2, OF_BOTH = OF_HOST | OF_DEVICE };

static const struct {
    fs_category category;
    int where;
    const char *pattern;
} patterns[] = {
#define FS_CATEGORY_PATTERN(CATEGORY, WHERE, pattern) {FS_CATEGORY_##CATEGORY, OF_##WHERE, pattern},
#include "work/category.def"
#undef FS_CATEGORY_PATTERN
};

static fs_category category_of_pattern(const char *name, int where)
{
    fs_name_pairs pairs = fs_pattern_pairs(name);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if ((patterns[i].where & where) != 0 && fs_pattern_fits(patterns[i].pattern, name, &pairs))
            return patterns[i].category;
    return FS_CATEGORY_OTHER;
}

fs_category fs_category_of(const char *name, bool on_device)
{
    if (!on_device) {
        fs_aten_rule rule = fs_aten_rule_of(name);
        return rule.count != NULL ? fs_aten_category(&rule) : category_of_pattern(name, OF_HOST);
    }
    fs_kernel_class class = fs_kernel_class_of(name);
    if (class == FS_KERNEL_COMMUNICATION) return FS_CATEGORY_COMMUNICATION;
    fs_category category = category_of_pattern(name, OF_DEVICE);
    bool multiplies = class == FS_KERNEL_TENSOR || class == FS_KERNEL_MATRIX;
    return category == FS_CATEGORY_OTHER && multiplies ? FS_CATEGORY_PRODUCT : category;
}
