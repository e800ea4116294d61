/* Only devices with an active primary context are touched: asking others would create contexts, which takes memory and
 * time that the program did not ask for. A fact that the driver does not know stays missing. */
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/library.h"
#include "store/device_facts.h"
#include "store/event.h"

enum { L2_CACHE_SIZE = 38 };

/* X(fact, number of the CUdevice_attribute) */
#define ATTRIBUTES(X)                    \
    X(compute_major, 75)                 \
    X(compute_minor, 76)                 \
    X(max_threads_per_block, 1)          \
    X(max_threads_per_sm, 39)            \
    X(registers_per_block, 12)           \
    X(warp_size, 10)                     \
    X(shared_memory_per_block, 8)        \
    X(sm_count, 16)                      \
    X(registers_per_sm, 82)              \
    X(shared_memory_per_block_optin, 97) \
    X(shared_memory_per_sm, 81)          \
    X(max_blocks_per_sm, 106)            \
    X(l2_bytes, L2_CACHE_SIZE)

static fs_status describe_device(fs_store *store, int index, fs_error *err)
{
    fs_device_facts facts = fs_device_facts_missing;
    size_t memory = 0;
    int device, value;
    if (fs_driver->device(&device, index) != 0) return FS_OK;
    if (fs_driver->device_name(facts.name, sizeof facts.name, device) != 0) facts.name[0] = '\0';
    if (fs_driver->device_memory(&memory, device) == 0) facts.total_memory = (int64_t)memory;
#define TAKE_ATTRIBUTE(fact, attribute) \
    if (fs_driver->device_attribute(&value, attribute, device) == 0) facts.fact = value;
    ATTRIBUTES(TAKE_ATTRIBUTE)
#undef TAKE_ATTRIBUTE
    return fs_store_set_device(store, index, &facts, err);
}

fs_status fs_cupti_describe_devices(fs_store *store, fs_error *err)
{
    bool visited[FS_DEVICE_LIMIT] = {false};
    for (uint32_t i = 0; i < fs_store_lane_count(store); i++) {
        fs_lane lane = fs_store_lane(store, i);
        if (!lane.on_device || lane.device >= FS_DEVICE_LIMIT || visited[lane.device]) continue;
        visited[lane.device] = true;
        FS_TRY(describe_device(store, lane.device, err));
    }
    return FS_OK;
}

int64_t fs_driver_l2_bytes(int device)
{
    int handle, value;
    if (fs_driver == NULL || fs_driver->device(&handle, device) != 0) return -1;
    return fs_driver->device_attribute(&value, L2_CACHE_SIZE, handle) == 0 ? value : -1;
}

int fs_devices_wait(void)
{
    int count = 0, first = 0;
    if (fs_driver->device_count(&count) != 0) return 0; /* CUDA was never used */
    for (int i = 0; i < count && i < FS_DEVICE_LIMIT; i++) {
        int device, active = 0;
        unsigned flags;
        void *context = NULL;
        if (fs_driver->device(&device, i) != 0 || fs_driver->primary_state(device, &flags, &active) != 0 || !active)
            continue;
        if (fs_driver->primary_retain(&context, device) != 0) continue;
        if (fs_driver->context_push(context) == 0) {
            int code = fs_driver->context_wait();
            if (first == 0) first = code;
            fs_driver->context_pop(&context);
        }
        fs_driver->primary_release(device);
    }
    return first;
}

fs_status fs_context_retain(fs_context *context, int device, fs_error *err)
{
    unsigned flags;
    int active = 0;
    *context = (fs_context){0};
    if (fs_driver == NULL || fs_driver->device(&context->device, device) != 0 ||
        fs_driver->primary_state(context->device, &flags, &active) != 0 || !active)
        return fs_fail(err, FS_RUNTIME_ERROR, "CUDA device %d is not in use: nothing of it can be counted", device);
    if (fs_driver->primary_retain(&context->context, context->device) != 0)
        return fs_fail(err, FS_RUNTIME_ERROR, "the context of CUDA device %d is unavailable", device);
    return FS_OK;
}

void fs_context_release(fs_context *context)
{
    if (context->context != NULL) fs_driver->primary_release(context->device);
    *context = (fs_context){0};
}

bool fs_context_enter(const fs_context *context)
{
    return context->context != NULL && fs_driver->context_push(context->context) == 0;
}

void fs_context_leave(bool entered)
{
    void *context;
    if (entered) fs_driver->context_pop(&context);
}

uint64_t fs_driver_active_devices(void)
{
    uint64_t devices = 0;
    int count = 0, device, active;
    unsigned flags;
    if (fs_driver == NULL || fs_driver->device_count(&count) != 0) return 0;
    for (int i = 0; i < count && i < 64; i++)
        if (fs_driver->device(&device, i) == 0 && fs_driver->primary_state(device, &flags, &active) == 0 && active)
            devices |= UINT64_C(1) << i;
    return devices;
}

fs_status fs_devices_failed(int failed, fs_error *err)
{
    return fs_fail(err, FS_RUNTIME_ERROR,
                   "CUDA failed with error %d while the profile waited for the devices: an earlier kernel or copy, "
                   "of any library, may be at fault",
                   failed);
}

fs_status fs_driver_wait(fs_error *err)
{
    int failed = fs_driver != NULL ? fs_devices_wait() : 0;
    return failed == 0 ? FS_OK : fs_devices_failed(failed, err);
}

/* CUDA's callback comes from any thread and sets one bit. The reader polls, as a program may take seconds to make its
 * first context, and also asks the driver, which knows contexts that were made before the subscription. */

enum { POLL_NS = 2000000 };

static _Atomic uint64_t created;

void fs_contexts_forget(void)
{
    atomic_store(&created, 0);
}

void fs_contexts_called(const void *data)
{
    const fs_cupti_resource *resource = data;
    uint32_t device = 64;
    if (fs_cupti->device_id == NULL || resource == NULL) return;
    if (fs_cupti->device_id(resource->context, &device) != FS_CUPTI_SUCCESS || device >= 64) return;
    atomic_fetch_or(&created, UINT64_C(1) << device);
}

uint64_t fs_contexts_devices(int64_t wait_ns)
{
    int64_t until = fs_clock_now() + wait_ns;
    for (;;) {
        uint64_t devices = atomic_load(&created) | fs_driver_active_devices();
        if (devices != 0 || fs_clock_now() >= until) return devices;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}
