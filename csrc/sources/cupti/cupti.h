/* Capture of all CUDA activity in the process, from any library, through CUPTI's activity records: kernels, copies,
 * fills, API calls, synchronization and overhead. CUPTI allows one subscriber per process, so there is one capture.
 *
 *   library   finds and loads libcupti (nothing is linked)
 *   buffers   the bounded pool of buffers that CUPTI fills
 *   functions finds callback ids by the names of API functions
 *   records   converts the records of a buffer to events of the store
 *   cupti     subscription, start and stop; detaches so that no overhead remains
 *
 * Times are in the store's clock: CUPTI reads host times from it and converts device times to it. */
#ifndef FS_SOURCES_CUPTI_CUPTI_H
#define FS_SOURCES_CUPTI_CUPTI_H

#include <stdint.h>

#include "store/store.h"

typedef struct {
    bool api_calls; /* capture API calls too; without them device work cannot be attributed to ops */
    bool may_share; /* capture without a subscription if an unnamed client that is not capturing holds it */
    size_t buffer_bytes, most_bytes; /* size of one buffer, limit for all; 0: 4 MiB, 256 MiB */
} fs_cupti_options;

/* Load the CUDA driver from `path` (NULL: libcuda.so.1), once per process. FS_RUNTIME_ERROR if it is missing or too
 * old. */
fs_status fs_driver_load(const char *path, fs_error *err);

/* Permanently retain every active primary context once more, before the process ends. Otherwise libcudart's exit
 * handler destroys them, CUPTI returns buffers to clients whose libraries are already finalized, and a process that
 * used torch.profiler aborts ("double free or corruption") if the driver was loaded before torch. The contexts still
 * end with the process. Does nothing if CUDA was not used. */
void fs_driver_keep_contexts(void);

/* Bytes of a device's L2 cache; -1 if they are unknown. */
int64_t fs_driver_l2_bytes(int device);

/* Wait for the work on every device's primary context. FS_RUNTIME_ERROR: one failed. */
fs_status fs_driver_wait(fs_error *err);

/* The devices whose primary contexts are in use, as bits; 0 without a driver. */
uint64_t fs_driver_active_devices(void);

/* Load CUPTI from `path` (NULL or "": search with the loader) and the CUDA driver from `driver`, once per process:
 * later calls do nothing. FS_RUNTIME_ERROR names what is missing or too old, and what to install. */
fs_status fs_cupti_load(const char *path, const char *driver, fs_error *err);

/* Return whether there is a CUDA driver with a device; false before fs_driver_load. */
bool fs_cupti_has_device(void);

/* Capture into `store` until fs_cupti_stop. FS_RUNTIME_ERROR: not loaded, a capture is running, an error of CUPTI,
 * or another client holds the subscription; `taken_by` (64 bytes; may be NULL) receives the name of that client,
 * else "". */
fs_status fs_cupti_start(fs_store *store, const fs_cupti_options *options, char *taken_by, fs_error *err);

/* Wait for the devices, flush all records and add the device properties to the store; the capture continues.
 * FS_RUNTIME_ERROR describes what failed. */
fs_status fs_cupti_collect(fs_error *err);

/* Capture into another store from now on. Earlier activity is discarded and not counted as lost. */
void fs_cupti_restart(fs_store *store);

/* Wait for the devices, flush all records, detach CUPTI from the process, unless another thread calls CUDA all the
 * time, and add the device properties to the store. The capture ends even on error; FS_RUNTIME_ERROR describes what
 * failed. In a child forked during a capture, this ends the capture without calling CUPTI. */
fs_status fs_cupti_stop(fs_error *err);

/* Keep CUPTI in the process, or no longer; calls nest: a capture that ends in between leaves it attached. Waits for a
 * detachment in progress. */
void fs_cupti_hold(bool on);

/* Let `hold` keep the program's other threads from calling CUDA while CUPTI is detached, and `release` end that. */
void fs_cupti_hold_threads_by(int (*hold)(void), void (*release)(int held));

/* Begin or end callbacks about graphs (watch.h), in the subscription of the running capture or one of its own; evict:
 * in the place of a client without a name, which is idle: CUPTI is detached from the process and attached anew.
 * FS_RUNTIME_ERROR: not loaded, or another client holds the subscription. Private to watch.c. */
fs_status fs_cupti_watch(bool on, bool evict, fs_error *err);

/* Begin or end callbacks about launches of graphs, while graphs are watched. Private to watch.c. */
void fs_cupti_watch_launches(bool on);

/* Note the devices of the contexts that are created from now on while the capture runs (devices.c); without a
 * subscription only primary contexts are seen. */
void fs_cupti_watch_contexts(void);

/* Detach CUPTI and attach it anew, so that it knows the code of all kernels, until fs_cupti_detach; evict: as
 * fs_cupti_watch. While instructions are sampled, `told` is called with an fs_cupti_resource about the module of each
 * kernel that is launched, on any thread. FS_RUNTIME_ERROR: somebody else uses CUPTI, a capture too. */
fs_status fs_cupti_attach_anew(bool evict, void (*told)(const void *data), fs_error *err);
void fs_cupti_detach(void);

/* Return whether a capture is running. */
bool fs_cupti_is_capturing(void);

typedef struct {
    int64_t dropped;  /* number of records lost: no free buffer, no memory for an event, or no time */
    int64_t taken;    /* number of buffers, with an unknown number of records, that another client received */
    uint32_t version; /* of CUPTI's API */
    bool shared;      /* captured without a subscription */
} fs_cupti_report;

/* Return the report of the running capture, or of the last one. */
fs_cupti_report fs_cupti_last(void);

/* The devices that a program begins to use: CUDA tells of each context that is created, primary or not, while a capture
 * has a subscription. Nothing here initializes CUDA. */

/* Forget the devices. */
void fs_contexts_forget(void);

/* A context was created: a callback of CUPTI's resource domain; private to cupti.c. */
void fs_contexts_called(const void *data);

/* The devices on which contexts were created since fs_contexts_forget, or whose primary contexts are in use, as bits.
 * If none is, wait at most `wait_ns` for the first. */
uint64_t fs_contexts_devices(int64_t wait_ns);

/* The devices, by the driver: what it knows of those that worked, and the end of their work. Private to the capture. */

/* Store the facts of each device that has a lane; the driver must be loaded. What it does not tell stays missing.
 * FS_OUT_OF_MEMORY. */
fs_status fs_cupti_describe_devices(fs_store *store, fs_error *err);

/* Wait for the work on every device's primary context; other contexts cannot be listed. Returns the first error; a
 * context with an error has no more work to wait for. */
int fs_devices_wait(void);

/* The primary context of a device, retained; zeroed: none. CUPTI is given a context, and may expect it to be current as
 * well, which it is not on every thread. */
typedef struct {
    void *context;
    int device; /* handle of the driver */
} fs_context;

/* FS_RUNTIME_ERROR: the device is not in use. */
fs_status fs_context_retain(fs_context *context, int device, fs_error *err);
void fs_context_release(fs_context *context);

/* Make it current on the thread; return what fs_context_leave needs. */
bool fs_context_enter(const fs_context *context);
void fs_context_leave(bool entered);

/* FS_RUNTIME_ERROR, with the error that fs_devices_wait returned. */
fs_status fs_devices_failed(int failed, fs_error *err);

#endif
