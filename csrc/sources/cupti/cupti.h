/* The source of everything that CUDA does in the process: kernels, copies, fills, API calls, synchronisation and
 * overhead, of whatever library, by CUPTI's activity records. CUPTI is one per process, and so is this capture.
 *
 *   cupti_library   finds and loads libcupti (nothing is linked)
 *   cupti_buffers   the pool of buffers that CUPTI fills, bounded
 *   cupti_records   a full buffer to events of the store
 *   cupti           subscription, start, stop, and leaving the process as fast as it was
 *
 * Times are CUPTI's own, given in the store's clock: it asks our clock for host times and fits device times to it.
 */
#ifndef FS_SOURCES_CUPTI_CUPTI_H
#define FS_SOURCES_CUPTI_CUPTI_H

#include "store/store.h"

typedef struct {
    bool api_calls; /* capture API calls too; without them no device work is tied to an op */
    bool may_share; /* where a nameless client that does not capture now holds the subscription, capture without one */
    size_t buffer_bytes, most_bytes; /* of one buffer, of all; 0: 4 MiB, 256 MiB */
} fs_cupti_options;

/* Load the CUDA driver from `path` (NULL: libcuda.so.1), once per process. FS_RUNTIME_ERROR: there is none, or it is
 * too old. */
fs_status fs_driver_load(const char *path, fs_error *err);

/* Retain every active primary context once more, for good: the process is about to end. Else libcudart's exit handler
 * destroys them, and CUPTI then hands its buffers to clients whose libraries have ended already: a process that used
 * torch.profiler aborts ("double free or corruption") where the driver was loaded before torch. Not retained, a context
 * ends with the process all the same. Does nothing where CUDA was not used. */
void fs_driver_keep_contexts(void);

/* Load CUPTI from `path` (NULL or "": by the loader) and the CUDA driver from `driver`, once per process: later calls
 * do nothing. FS_RUNTIME_ERROR names what is missing or too old, and what to install. */
fs_status fs_cupti_load(const char *path, const char *driver, fs_error *err);

/* Whether there is a CUDA driver with a device. Without fs_driver_load the answer is false. */
bool fs_cupti_has_device(void);

/* Capture into `store` until fs_cupti_stop. FS_RUNTIME_ERROR: not loaded, capturing already, CUPTI's own refusal; or
 * another client has CUPTI: then `taken_by` (64 bytes; may be NULL) receives its name, else "". */
fs_status fs_cupti_start(fs_store *store, const fs_cupti_options *options, char *taken_by, fs_error *err);

/* Wait for the devices, take in all records so far and tell the store of its devices; the capture goes on.
 * FS_RUNTIME_ERROR says what of this failed. */
fs_status fs_cupti_collect(fs_error *err);

/* Capture into another store from now on; what began earlier is forgotten, and not counted as lost. */
void fs_cupti_restart(fs_store *store);

/* Wait for the devices, take in all records, detach CUPTI from the process and tell the store of its devices. The
 * capture has ended in any case; FS_RUNTIME_ERROR says what of this failed. In a child forked while capturing it ends
 * the capture without touching CUPTI. */
fs_status fs_cupti_stop(fs_error *err);

typedef struct {
    int64_t dropped;  /* records: no buffer was free, no memory for an event, or without a time */
    int64_t taken;    /* buffers with an unknown number of records that another client took */
    uint32_t version; /* of CUPTI's API */
    bool shared;      /* captured without a subscription */
} fs_cupti_report;

/* Of the capture that runs, or the last one. */
fs_cupti_report fs_cupti_last(void);

#endif
