/* What vendors say their devices can do: one row per device, each with its source. */
#ifndef FS_DEVICE_DATASHEET_H
#define FS_DEVICE_DATASHEET_H

#include <stdbool.h>

#include "device/rates.h"
#include "device/units.h"

enum { FS_DATASHEET_NAMES = 5 };

/* NaN (0 for memory_bus_bits) marks what does not exist on the device or what its vendor does not say. */
typedef struct {
    const char *names[FS_DATASHEET_NAMES + 1]; /* as drivers report them, the newest first; NULL ends them */
    int major, minor;                          /* compute capability */
    fs_tensor_class tensor_class;
    int sm_count;
    int memory_gib;                /* where other cards have the name too; 0 elsewhere */
    double clock_mhz;              /* boost clock */
    double tensor_clock_mhz;       /* clock of the tensor rates; clock_mhz where the vendor has one clock */
    double l2_bytes;               /* as the driver reports it */
    double bandwidth;              /* of device memory, bytes/s (1 GB/s is 1e9) */
    int memory_bus_bits;
    double memory_pin_rate;        /* bits/s on each pin of the bus: bandwidth = bits × rate / 8 */
    double flops[FS_UNIT_COUNT];   /* dense FLOP/s (int8: operations/s), as the vendor rounds them */
    const char *source;            /* document and place in it */
} fs_datasheet;

/* The row of the device that reports this name, that many SMs and that many bytes of memory; 0: not known. NULL where
 * no row has the name, where the device differs from the rows that have it (a part of an MI300X is none), and where it
 * may be any of several. Only the whole name counts; letter case and white space at the ends or repeated do not. A name
 * that is not listed is unknown: nothing is guessed from part of it. */
const fs_datasheet *fs_datasheet_find(const char *name, int sm_count, double memory_bytes);

/* Whether the row has this name, letter case and white space as above. */
bool fs_datasheet_has_name(const fs_datasheet *row, const char *name);

int fs_datasheet_count(void);
const fs_datasheet *fs_datasheet_at(int index); /* NULL outside 0 .. count - 1 */

#endif
