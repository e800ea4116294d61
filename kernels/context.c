/* Each device is unused, used, or forked away, in one array that every call reads without a lock: the slow path runs
 * once a device and thread. The handler for forks is installed with the first use, so a process that forks before it
 * may use CUDA in its children. An error of CUDA is taken off its sticky state here, and says what to do about it. */
#include "kernels/context.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

int fs_cuda_used[FS_CUDA_MAX_DEVICES];

/* The remedy for each CUDA error code. Codes after which CUDA is unusable in the process all use "restart". */
static const char restart[] =
    "; the error is final for this process: restart it, and run the failing program under "
    "compute-sanitizer to find the fault (an earlier kernel, of any library, may be at fault)";
static const struct {
    cudaError_t code;
    const char *advice;
} advices[] = {
    {cudaErrorIllegalAddress, restart},
    {cudaErrorMisalignedAddress, restart},
    {cudaErrorInvalidAddressSpace, restart},
    {cudaErrorInvalidPc, restart},
    {cudaErrorIllegalInstruction, restart},
    {cudaErrorHardwareStackError, restart},
    {cudaErrorLaunchFailure, restart},
    {cudaErrorAssert, restart},
    {cudaErrorLaunchTimeout, "; the error is final for this process: restart it, and run shorter kernels on a GPU "
                             "that drives a display"},
    {cudaErrorECCUncorrectable, "; the GPU's memory is faulty: restart the process, and check nvidia-smi -q -d ECC"},
    {cudaErrorMemoryAllocation, "; release tensors, empty the caches of the libraries in this process, or use smaller "
                                "ones"},
    {cudaErrorInitializationError, "; a child forked from a process that used CUDA cannot use it: start it with "
                                   "multiprocessing's \"spawn\" method"},
    {cudaErrorNoKernelImageForDevice, "; this build has no code for the GPU: reinstall flopscope from source with "
                                      "an nvcc that supports it"},
    {cudaErrorUnsupportedPtxVersion, "; the driver is older than the nvcc of this build: update the driver"},
    {cudaErrorInsufficientDriver, "; the driver is older than this build's CUDA runtime: update the driver"},
    {cudaErrorNoDevice, "; the driver sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {cudaErrorInvalidDevice, "; flopscope.devices() lists the available devices"},
    {cudaErrorDevicesUnavailable, "; another process uses the GPU exclusively: check nvidia-smi"},
};

fs_status fs_cuda_fail(cudaError_t code, fs_device device, const char *doing, fs_error *err)
{
    const char *advice = "";
    char where[16];

    cudaGetLastError();
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].code == code) advice = advices[i].advice;
    return fs_fail(err, code == cudaErrorMemoryAllocation ? FS_OUT_OF_MEMORY : FS_RUNTIME_ERROR,
                   "CUDA failed while %s on %s: %s (%s, %d)%s", doing, fs_device_text(device, where),
                   cudaGetErrorString(code), cudaGetErrorName(code), (int)code, advice);
}

/* A CUDA context does not survive a fork: report this in the child rather than hang or crash. */
static void mark_forked(void)
{
    for (int i = 0; i < FS_CUDA_MAX_DEVICES; i++) __atomic_store_n(&fs_cuda_used[i], FS_CUDA_FORKED, __ATOMIC_RELAXED);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, mark_forked);
}

static int used(int index)
{
    return __atomic_load_n(&fs_cuda_used[index], __ATOMIC_RELAXED);
}

static fs_status forked(fs_error *err)
{
    return fs_fail(err, FS_RUNTIME_ERROR,
                   "CUDA cannot be used in this process: it was forked from one that had used CUDA; start it with "
                   "multiprocessing's \"spawn\" method, or use CUDA in the child only");
}

static fs_status no_such_device(int index, int count, fs_error *err)
{
    return fs_fail(err, FS_VALUE_ERROR, "unknown device cuda:%d: this process sees %d CUDA device%s, numbered from 0",
                   index, count, count == 1 ? "" : "s");
}

static void mark_used(int index)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks); /* on first use: a fork before it leaves CUDA usable in the child */
    __atomic_store_n(&fs_cuda_used[index], FS_CUDA_USED, __ATOMIC_RELAXED);
}

fs_status fs_cuda_enter_slow(fs_device device, int *previous, fs_error *err)
{
    int count, current;

    *previous = -1;
    if (used(0) == FS_CUDA_FORKED) return forked(err);
    if ((unsigned)device.index >= FS_CUDA_MAX_DEVICES || used(device.index) == FS_CUDA_UNUSED) {
        FS_TRY(fs_cuda_device_count(&count, err));
        if (device.index < 0 || device.index >= count) return no_such_device(device.index, count, err);
    }
    FS_CUDA_TRY(cudaGetDevice(&current), device, "asking for the current device", err);
    /* Set it even if it is already current: in a new thread this creates the context. */
    FS_CUDA_TRY(cudaSetDevice(device.index), device, "making the device current", err);
    mark_used(device.index);
    if (current != device.index) *previous = current;
    return FS_OK;
}

fs_status fs_cuda_device_count(int *count, fs_error *err)
{
    fs_device device = {FS_CUDA, 0};
    int driver = 0;

    *count = 0;
    if (used(0) == FS_CUDA_FORKED) return forked(err);
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaErrorInsufficientDriver) {
        cudaGetLastError();
        cudaDriverGetVersion(&driver);
        if (driver == 0)
            return fs_fail(err, FS_RUNTIME_ERROR,
                           "there is no CUDA device: no NVIDIA driver is loaded; install it (nvidia-smi must work), or "
                           "start the container with its GPUs (docker run --gpus all)");
        return fs_fail(
            err, FS_RUNTIME_ERROR,
            "the NVIDIA driver supports CUDA up to %d.%d, but this flopscope was built for %d.%d: update the "
            "driver, or rebuild with an older nvcc",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (code != cudaSuccess) return fs_cuda_fail(code, device, "counting the devices", err);
    if (*count == 0) return fs_cuda_fail(cudaErrorNoDevice, device, "counting the devices", err);
    if (*count > FS_CUDA_MAX_DEVICES) *count = FS_CUDA_MAX_DEVICES;
    mark_used(0);
    return FS_OK;
}

static int attribute(enum cudaDeviceAttr name, int index)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, name, index) == cudaSuccess) return value;
    cudaGetLastError();
    return 0;
}

fs_status fs_cuda_device_properties(int index, fs_cuda_properties *properties, fs_error *err)
{
    fs_device device = {FS_CUDA, index};
    struct cudaDeviceProp prop;
    int count;

    memset(properties, 0, sizeof *properties);
    FS_TRY(fs_cuda_device_count(&count, err));
    if (index < 0 || index >= count) return no_such_device(index, count, err);
    FS_CUDA_TRY(cudaGetDeviceProperties(&prop, index), device, "asking for the device's properties", err);

    const unsigned char *id = (const unsigned char *)prop.uuid.bytes;
    snprintf(properties->name, sizeof properties->name, "%s", prop.name);
    snprintf(properties->uuid, sizeof properties->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3],
             id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15]);
    properties->major = prop.major;
    properties->minor = prop.minor;
    properties->sm_count = prop.multiProcessorCount;
    properties->warp_size = prop.warpSize;
    properties->max_threads_per_sm = prop.maxThreadsPerMultiProcessor;
    properties->max_blocks_per_sm = prop.maxBlocksPerMultiProcessor;
    properties->registers_per_sm = prop.regsPerMultiprocessor;
    properties->shared_memory_per_sm = (int64_t)prop.sharedMemPerMultiprocessor;
    properties->shared_memory_per_block_optin = (int64_t)prop.sharedMemPerBlockOptin;
    properties->reserved_shared_memory_per_block = (int64_t)prop.reservedSharedMemPerBlock;
    properties->l2_bytes = prop.l2CacheSize;
    properties->memory_bytes = (int64_t)prop.totalGlobalMem;
    properties->clock_khz = attribute(cudaDevAttrClockRate, index);
    properties->memory_clock_khz = attribute(cudaDevAttrMemoryClockRate, index);
    properties->memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, index);
    FS_CUDA_TRY(cudaDriverGetVersion(&properties->driver_version), device, "asking for the driver's version", err);
    FS_CUDA_TRY(cudaRuntimeGetVersion(&properties->runtime_version), device, "asking for the runtime's version", err);
    return FS_OK;
}
