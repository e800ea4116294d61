/* Generated from parts.def. Each text is a pair in parentheses, of which a row of each kind takes its own. */
#include "accounting/accounting.h"

#define BOTH(text) (text, text)
#define PAIR(device, bare) (device, bare)
#define FIRST(device, bare) device
#define SECOND(device, bare) bare

const fs_part_row fs_parts[FS_PART_COUNT] = {
#define FS_PART(name, COLOUR, hatch, label, gloss, noun, meaning, change) \
    {#name,                                                               \
     hatch,                                                               \
     FS_COLOUR_##COLOUR,                                                  \
     {FIRST label, FIRST gloss, FIRST noun, FIRST meaning, FIRST change}, \
     {SECOND label, SECOND gloss, SECOND noun, SECOND meaning, SECOND change}},
#include "accounting/parts.def"
#undef FS_PART
};
