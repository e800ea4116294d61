/* Generated from units.def, in the order of the enum: fs_units[unit] is the row of a unit. */
#include "device/units.h"

#include <string.h>

const fs_unit_row fs_units[FS_UNIT_COUNT] = {
#define FS_UNIT(NAME, name, prose) {#name, prose},
#include "device/units.def"
#undef FS_UNIT
};

fs_unit fs_unit_find(const char *name)
{
    for (int i = 0; i < FS_UNIT_COUNT; i++) {
        if (strcmp(fs_units[i].name, name) == 0) return (fs_unit)i;
    }
    return FS_UNIT_NONE;
}
