/* Generated from the list in the header, in the order of the enum. */
#include "base/colours.h"

const fs_colour_row fs_colours[FS_COLOUR_COUNT] = {
#define FS_COLOUR_ROW(NAME, light, dark) {light, dark},
    FS_COLOUR_LIST(FS_COLOUR_ROW)
#undef FS_COLOUR_ROW
};
