/* Compute units: the hardware whose rate in FLOP/s is a peak. */
#ifndef FS_DEVICE_UNITS_H
#define FS_DEVICE_UNITS_H

typedef enum {
#define FS_UNIT(NAME, name, prose) FS_UNIT_##NAME,
#include "device/units.def"
#undef FS_UNIT
    FS_UNIT_COUNT,
    FS_UNIT_NONE = FS_UNIT_COUNT /* work without a peak: integers, data movement */
} fs_unit;

typedef struct {
    const char *name;  /* "fp16_tensor" */
    const char *prose; /* one-line description: type, unit and accumulator */
} fs_unit_row;

extern const fs_unit_row fs_units[FS_UNIT_COUNT];

/* The unit with that exact name, or FS_UNIT_NONE. */
fs_unit fs_unit_find(const char *name);

#endif
