/* The fake CUDA driver, with two devices; part of fake_cupti.c. */
#ifndef FS_TESTS_FAKE_DRIVER_H
#define FS_TESTS_FAKE_DRIVER_H

/* The context that is current on the thread; contexts are pointers to fake.active. */
static _Thread_local void *fake_current, *fake_pushed[8];
static _Thread_local int fake_depth;

/* The device of a context that exists; -1. */
static int fake_device_of(const void *context)
{
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (context == &fake.active[i]) return fake.active[i] ? i : -1;
    return -1;
}

int cuInit(unsigned flags)
{
    (void)flags;
    if (fake.cold) fake.intruded++;
    fake.initialized++;
    return fake_answer("cuInit");
}

/* Of the API functions, only this one calls the subscriber by itself. */
int cuDriverGetVersion(int *version)
{
    fake_tell_call("cuDriverGetVersion", "cuDriverGetVersion", 0);
    *version = 13000;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = FAKE_DEVICES;
    return fake.cold ? 3 /* CUDA_ERROR_NOT_INITIALIZED */ : fake_answer("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int index)
{
    if (index < 0 || index >= FAKE_DEVICES) return 101; /* CUDA_ERROR_INVALID_DEVICE */
    *device = index;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    const char *const names[] = {"Fake H200", "Fake L4"};
    strncpy(name, names[device], (size_t)size);
    return fake_answer("cuDeviceGetName");
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)(device == 0 ? 141 : 24) << 30;
    return 0;
}

/* By CUdevice_attribute: 16 is the number of multiprocessors, 75 and 76 are the compute capability. The driver is too
 * old for 106. */
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    static const int values[][3] = {{1, 1024, 1024},      {8, 49152, 49152},  {10, 32, 32},        {12, 65536, 65536},
                                    {16, 132, 58},        {39, 2048, 1536},   {75, 9, 8},          {76, 0, 9},
                                    {81, 233472, 102400}, {82, 65536, 65536}, {97, 232448, 101376}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i][0] != attribute) continue;
        *value = values[i][1 + device];
        return 0;
    }
    return 1;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = fake.active[device];
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    fake.retained++;
    if (fake.cold || !fake.active[device]) fake.intruded++;
    *context = &fake.active[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    fake.retained--;
    return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
    int code = fake_answer("cuCtxPushCurrent_v2");
    fake.pushed++;
    if (code != 0) return code;
    if (fake_depth == 8) abort();
    fake_pushed[fake_depth++] = fake_current;
    fake_current = context;
    return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
    fake.pushed--;
    if (fake_depth == 0) abort();
    *context = fake_current;
    fake_current = fake_pushed[--fake_depth];
    return 0;
}

/* An API call itself, recorded by CUPTI as any other. */
int cuCtxSynchronize(void)
{
    uint64_t now = fake_now();
    uint32_t correlation = 4000000000u + (uint32_t)++fake.waited;
    fake_call("cuCtxSynchronize", now, now + 1, (uint32_t)syscall(SYS_gettid), correlation);
    fake_synchronization(4, now, now + 1, correlation);
    return fake_answer("cuCtxSynchronize");
}

#endif
