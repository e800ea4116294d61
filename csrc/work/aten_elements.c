#include "work/aten_elements.h"

fs_aten_rule fs_aten_foreach(const fs_aten_rule *rule)
{
    (void)rule;
    return (fs_aten_rule){0};
}

fs_aten_rule fs_aten_backward(const fs_aten_rule *rule)
{
    (void)rule;
    return (fs_aten_rule){0};
}

const fs_aten_rule fs_aten_element_rules[] = {{0}};
__attribute__((weak)) const fs_aten_rule fs_aten_product_rules[] = {{0}};
