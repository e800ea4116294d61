/* The rule of an op decides first, then the first pattern of category.def, then "other". A kernel has no rule: one of
 * communication is that whatever the patterns say, and where no pattern fits, its class may say that it multiplies. */
#include "work/category.h"

#include <stddef.h>
#include <string.h>

#include "work/aten/aten.h"
#include "work/kernel_class.h"
#include "work/names.h"

const fs_category_row fs_categories[FS_CATEGORY_COUNT] = {
#define FS_CATEGORY_ROW(NAME, name, COLOUR, dark, prose) [FS_CATEGORY_##NAME] = {name, prose, FS_COLOUR_##COLOUR, dark},
    FS_CATEGORY_LIST(FS_CATEGORY_ROW)
#undef FS_CATEGORY_ROW
};

enum { OF_HOST = 1, OF_DEVICE = 2, OF_BOTH = OF_HOST | OF_DEVICE };

static const fs_pattern patterns[] = {
#define FS_CATEGORY_PATTERN(CATEGORY, WHERE, pattern) {pattern, FS_CATEGORY_##CATEGORY, OF_##WHERE},
#include "work/category.def"
#undef FS_CATEGORY_PATTERN
};
FS_PATTERN_INDEX(pattern_index, patterns)

static fs_category category_of_pattern(const char *name, unsigned where)
{
    return (fs_category)fs_pattern_value(&pattern_index, name, where, FS_CATEGORY_OTHER);
}

fs_category fs_category_named(const char *name)
{
    for (int i = FS_CATEGORY_COUNT; --i > FS_CATEGORY_OF_FAMILY;)
        if (strcmp(fs_categories[i].name, name) == 0) return (fs_category)i;
    return FS_CATEGORY_OF_FAMILY;
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
