/* What the counters counted for each piece of device work. Private to csrc/table.
 *
 *   samples   |  a  |  b  |  c  |  d  |  e  |     amounts, over times that the samples share
 *   work         [== x ==][=== y ===]
 *
 * A sample is divided among the work that ran in it as if each piece of work counted at a constant rate: by overlap in
 * the first round, and by overlap times the rate that the round before found in every later one (the expectation-
 * maximization of a sum of Poisson rates). A sample that one piece of work has to itself is therefore its own whole,
 * idle time takes nothing, and a sample across the border of two is divided by their rates; so are samples of work that
 * overlaps. Work that is shorter than FS_COUNTED_SAMPLES samples, or not within samples for a tenth of its time, is not
 * resolved: its amount is only a guess. Samples that lie in the work, for nine tenths of their time, resolve it too:
 * profilers that count kernel by kernel give one for each.
 *
 * Guesses are wrong by what neighbours got instead. So where kernels of one row follow each other, with no other work
 * and at most a sample of idle time in between, their sum is known better than its parts: such a run counts whole if
 * half of it is resolved, or if it has FS_COUNTED_RUN samples, as at most those at its two ends are shared with others.
 * Of other runs, rows take the work that is resolved.
 *
 * Writes reach device memory late: what a kernel writes stays in the L2 until other lines displace it, about an L2's
 * capacity of reads and writes later. So the bytes written of a piece of work are those counted while it ran, plus the
 * dirty lines it leaves behind, less those that it found; both follow from the traffic around them, and are uncertain
 * by a part of the L2. Between two kernels of one row the uncertainties cancel, so a row has that of each run of its
 * kernels that no other work interrupts. Rows whose runs move too little for it have no bytes written. */
#ifndef FS_TABLE_COUNTED_H
#define FS_TABLE_COUNTED_H

#include "store/event.h"
#include "store/samples.h"

enum { FS_COUNTED_SAMPLES = 2, FS_COUNTED_RUN = 20 };

/* Amounts by metric, and the bytes that were written to the memory while the work ran, whoever wrote them. */
enum { FS_COUNTED_WRITES = FS_METRIC_COUNT, FS_COUNTED_AMOUNTS };

/* Of one piece of work; amounts are NaN where its device has no track of the metric, or the samples of this one do not
 * cover the work: those of live sampling lack some metrics. Shares are in percent × ns. What else is known of the work
 * is known by the first track of its device. */
typedef struct {
    double amounts[FS_COUNTED_AMOUNTS];
    double doubt;                /* bytes by which those written are uncertain; 0: nothing is known of the L2 */
    int64_t start, end, covered; /* ns; covered: time within samples */
    double sample_ns;            /* mean length of the samples that it reaches */
    uint32_t event, place;       /* place: 1 + index in works; 0: not counted */
    uint32_t device;             /* its place among the devices that are counted */
    bool within, resolved;       /* within: in samples, nine tenths of its time at least */
    bool fine; /* it ran while the interval was the shortest, so its length decides if it is resolved */
} fs_counted_work;

/* Amounts of work, its time, and of each share the time within samples that have it. */
typedef struct {
    double amounts[FS_COUNTED_AMOUNTS], covered[FS_METRIC_COUNT];
    int64_t ns;
} fs_counted_part;

/* Sum of the work of a row on one of the devices that are counted. */
typedef struct {
    fs_counted_part known;         /* of runs that count whole, and of resolved work of others */
    fs_counted_part run, resolved; /* of the run that goes on: all of it, and its resolved work */
    double samples;                /* that the run is long, without its gaps */
    double doubt;                  /* of the bytes written */
    int64_t end;                   /* the latest, of works that no other interrupts */
    uint32_t last;                 /* place of the work that was added last */
    int64_t ns, fine;              /* of all work, of fine work */
    bool apart;                    /* some of the work is not that of this device alone: a transfer, a collective */
} fs_counted_sum;

typedef struct {
    uint32_t *places; /* by event: index in works + 1; 0: none */
    fs_counted_work *works;
    uint32_t count, devices;
    int16_t numbers[FS_DEVICE_LIMIT]; /* by place among the counted devices */
} fs_counted;

/* Count the work of a store; nothing is allocated if it has no samples. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_counted_build(fs_counted *counted, const fs_store *store, fs_error *err);
void fs_counted_clear(fs_counted *counted);

static inline const fs_counted_work *fs_counted_of(const fs_counted *counted, uint32_t event)
{
    uint32_t place = counted->places != NULL ? counted->places[event] : 0;
    return place > 0 ? &counted->works[place - 1] : NULL;
}

/* Add work, in order of its start. What was not counted, which has no place, only adds its time. */
void fs_counted_add(fs_counted_sum *sum, const fs_counted_work *work);

/* The sum of a row over its devices. Ends their runs. */
fs_counted_sum fs_counted_total(fs_counted_sum *sums, uint32_t devices);

/* The amount, or the mean share in percent, of all work of a total, at the rate of the work that is known. NaN if less
 * than half of the fine work's time, or less than 0.2 % of all time, is known, or the share itself in less than 0.2 %;
 * bytes written also if their doubt exceeds 0.16 of all bytes read and written. */
double fs_counted_value(const fs_counted_sum *sum, fs_metric metric);

/* The bytes that were read and written while the work of a total ran, at the rate of the work that is known: the
 * traffic of the memory, of which the writes may be those of earlier work. NaN as above, but for the doubt. */
double fs_counted_traffic(const fs_counted_sum *sum);

#endif
