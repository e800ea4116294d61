/* Pushes and pops of NVTX in a library of its own, as in a program's library. Times are in ns of the processor for one
 * push and pop. */
#include <nvtx3/nvToolsExt.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* What any tool must do that takes times: read the clock at the push and at the pop. */
EXPORTED double clock_reads(int count)
{
    double begin = now();
    for (int i = 0; i < 2 * count; i++) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
    }
    return (now() - begin) / count;
}

EXPORTED double text(int count)
{
    double begin = now();
    for (int i = 0; i < count; i++) {
        nvtxRangePushA("a range of the program");
        nvtxRangePop();
    }
    return (now() - begin) / count;
}

static double described(int count, nvtxEventAttributes_t *attributes)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    attributes->version = NVTX_VERSION;
    attributes->size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes->messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes->message.registered = nvtxDomainRegisterStringA(domain, "a function of the library");
    double begin = now();
    for (int i = 0; i < count; i++) {
        attributes->payload.llValue = i;
        nvtxDomainRangePushEx(domain, attributes);
        nvtxDomainRangePop(domain);
    }
    return (now() - begin) / count;
}

EXPORTED double registered(int count)
{
    nvtxEventAttributes_t attributes = {0};
    attributes.category = 3;
    attributes.colorType = NVTX_COLOR_ARGB;
    attributes.color = 0xff00ff00;
    return described(count, &attributes);
}

EXPORTED double payload(int count)
{
    nvtxEventAttributes_t attributes = {0};
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    return described(count, &attributes);
}
