/* Vendors' specifications of their devices: one row per device, each with its source. */
#ifndef FS_DEVICE_DATASHEET_H
#define FS_DEVICE_DATASHEET_H

#include <stdbool.h>

#include "device/units.h"

enum { FS_DATASHEET_NAMES = 5 };

/* NaN (0 for memory_bus_bits) marks a feature that does not exist or a value that the vendor does not publish. */
typedef struct {
    const char *names[FS_DATASHEET_NAMES + 1]; /* as drivers report them, the newest first; NULL-terminated */
    int major, minor;                          /* compute capability */
    int sm_count;
    int memory_gib;          /* if other cards share the name; 0 otherwise */
    double clock_mhz;        /* boost clock */
    double tensor_clock_mhz; /* clock of the tensor rates; clock_mhz if the vendor has only one clock */
    double l2_bytes;         /* as the driver reports it */
    double bandwidth;        /* of device memory, bytes/s (1 GB/s is 1e9) */
    int memory_bus_bits;
    double memory_pin_rate;      /* bits/s per pin of the bus: bandwidth = bits × rate / 8 */
    double flops[FS_UNIT_COUNT]; /* dense FLOP/s (int8: operations/s), as rounded by the vendor */
    const char *source;          /* document and section */
} fs_datasheet;

/* The row of the device that reports this name, number of SMs and bytes of memory; 0: unknown. NULL if no row has the
 * name, if the device differs from the rows that have it (such as a partition of an MI300X), or if several rows match.
 * Only full names match, ignoring letter case, repeated white space and white space at the ends. */
const fs_datasheet *fs_datasheet_find(const char *name, int sm_count, double memory_bytes);

/* Whether the row has this name, letter case and white space as above. */
bool fs_datasheet_has_name(const fs_datasheet *row, const char *name);

int fs_datasheet_count(void);
const fs_datasheet *fs_datasheet_at(int index); /* NULL outside 0 .. count - 1 */

#endif
