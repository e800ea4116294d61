/* CUDA's callback comes from any thread and sets one bit. The reader polls, as a program may take seconds to make its
 * first context, and also asks the driver, which knows contexts that were made before the subscription. */
#include "sources/cupti/contexts.h"

#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/library.h"

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
