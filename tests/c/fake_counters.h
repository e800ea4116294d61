/* CUPTI's counters of the fake GPU, behaving as an H200 did: PM sampling at equal times, whose first sample reaches
 * back to when sampling was enabled; decoding that loses what does not fit the image, and that fails for good once the
 * hardware buffer was full. What is counted is what a test plays with fake_traffic().
 *
 * The order of calls is that of NVIDIA's headers, strictly: a call before the one that it needs fails with the code
 * that the header names, and what would corrupt memory aborts: an object that was closed or that cuptiFinalize()
 * destroyed, a second close, any call in a forked child. After cuptiFinalize() nothing works until CUPTI is back. What
 * brings it back is not documented: fake_wake_by() chooses. */
#include "sources/counters/abi.h"

enum { FAKE_INVALID_CONTEXT = 3, FAKE_API_OF_12_8 = 26 };
enum { FAKE_CHIP_METRICS = 32, FAKE_TRAFFIC = 4096, FAKE_SAMPLING = 4 };

typedef struct {
    char metric[96];
    uint64_t start, end;
    double amount;
    int device;
} fake_traffic_entry;

typedef struct {
    bool for_samples;
    long life; /* of CUPTI in the process, that it was made in */
    size_t count;
    const char *metrics[FAKE_CHIP_METRICS];
} fake_host;

typedef struct {
    size_t count, host_metrics; /* of samples; names that the size was asked for */
    uint32_t most;
} fake_image;

typedef struct {
    uint64_t start, end;
    int device;
} fake_sample_at;

static struct {
    pthread_mutex_t lock;
    const char *chip;
    char lacking[8][96];
    fake_traffic_entry traffic[FAKE_TRAFFIC];
    int traffic_count, lacking_count;
    long sessions, enabled_sessions, windows, running_ranges, initialized, hosts, passes, range_passes, pushed;
    struct fake_session {
        bool open, running, full, configured;
        int device;
        long life;
        uint64_t enabled, began, interval, until;
        size_t records;
        uint32_t first;
    } session[FAKE_SAMPLING];
    long fitting;         /* metrics in a pass of PM sampling */
    size_t record_bytes;  /* of a sample in the hardware buffer */
    bool initialized_now; /* since CUPTI was attached */
    pid_t process;        /* that called first */
} counters = {.lock = PTHREAD_MUTEX_INITIALIZER,
              .chip = "GH100",
              .passes = 1,
              .fitting = FAKE_CHIP_METRICS,
              .record_bytes = 4 << 10};

/* The Range Profiler: one session, ranges of several passes. */
static struct {
    bool open, started, pushed, configured, decoded, hides_sass;
    long passes, done, count, life;
    size_t most;
    void *context;
    fake_sample_at ranges[64];
    uint8_t *image;
    size_t image_size;
} fake_range;

/* cuptiFinalize() destroys all objects. */
static void fake_counters_finalized(void)
{
    for (int i = 0; i < FAKE_SAMPLING; i++)
        if (counters.session[i].open) abort(); /* it would be used, or closed, later */
    if (fake_range.open) abort();
    counters.initialized_now = false;
}

/* The end of the process: CUPTI may not be counting, as its threads would use what is taken down. */
__attribute__((destructor)) static void fake_end(void)
{
    if (counters.process == getpid() && counters.enabled_sessions > 0) _exit(99);
}

/* Some call of counters: none may be made in a forked child. */
static void fake_enter(void)
{
    if (counters.process == 0) counters.process = getpid();
    if (counters.process != getpid()) abort();
    if (fake.cold) fake.intruded++;
}

/* Whether a call that needs the profiler may go on. */
static int fake_ready(void)
{
    return counters.initialized_now && fake_is_attached() ? 0 : FS_COUNTERS_ASLEEP;
}

static bool fake_is_busy(int device)
{
    return counters.session[device].open || (fake_range.open && fake_range.context == &fake.active[device]);
}

/* Let the device count an amount of a metric (CUPTI's name), evenly from start to end. */
void fake_traffic(int device, const char *metric, uint64_t start, uint64_t end, double amount)
{
    pthread_mutex_lock(&counters.lock);
    if (counters.traffic_count == FAKE_TRAFFIC) abort();
    fake_traffic_entry *entry = &counters.traffic[counters.traffic_count++];
    *entry = (fake_traffic_entry){.start = start, .end = end, .amount = amount, .device = device};
    strncpy(entry->metric, metric, sizeof entry->metric - 1);
    pthread_mutex_unlock(&counters.lock);
}

void fake_set_chip(const char *chip)
{
    counters.chip = chip;
}

/* Let a sample take this many bytes of the hardware buffer. */
void fake_set_record_bytes(size_t bytes)
{
    counters.record_bytes = bytes;
}

/* Let this GPU lack a metric. */
void fake_lack(const char *metric)
{
    strncpy(counters.lacking[counters.lacking_count++], metric, 95);
}

/* Let no more than this many metrics fit the pass of PM sampling. */
void fake_fit(long metrics)
{
    counters.fitting = metrics;
}

/* Let a configuration of the Range Profiler need this many passes. */
void fake_set_passes(long passes)
{
    counters.passes = passes;
}

long fake_counters(const char *name)
{
    if (strcmp(name, "sessions") == 0) return counters.sessions;
    if (strcmp(name, "open") == 0) return counters.enabled_sessions;
    if (strcmp(name, "windows") == 0) return counters.windows;
    if (strcmp(name, "hosts") == 0) return counters.hosts;
    if (strcmp(name, "initialized") == 0) return counters.initialized;
    if (strcmp(name, "range_passes") == 0) return counters.range_passes;
    return -1;
}

/* What a metric counted on a device between two times. */
static double fake_counted(int device, const char *metric, uint64_t start, uint64_t end)
{
    double sum = 0;
    for (int i = 0; i < counters.traffic_count; i++) {
        const fake_traffic_entry *entry = &counters.traffic[i];
        uint64_t from = entry->start > start ? entry->start : start, to = entry->end < end ? entry->end : end;
        if (entry->device != device || to <= from || strcmp(entry->metric, metric) != 0) continue;
        sum += entry->amount * (double)(to - from) / (double)(entry->end - entry->start);
    }
    return sum;
}

#define FAKE_CALL(call, symbol, arguments) int symbol(fs_counters_##call *arguments)
#define FAKE_ANSWER(symbol, call)                                                                     \
    do {                                                                                              \
        if (arguments->header.size != offsetof(fs_counters_##call, past)) return FS_COUNTERS_INVALID; \
        fake_enter();                                                                                 \
        int answer_ = fake_answer(#symbol);                                                           \
        if (answer_ != 0) return answer_;                                                             \
    } while (0)

/* The calls on the device also need the profiler, and some of them that a condition holds. */
#define FAKE_NEED(condition, code)      \
    do {                                \
        int ready_ = fake_ready();      \
        if (ready_ != 0) return ready_; \
        if (!(condition)) return code;  \
    } while (0)
#define FAKE_ALIVE(object)                                                \
    do {                                                                  \
        if (!(object)->open || (object)->life != fake.finalized) abort(); \
    } while (0)

FAKE_CALL(initialize, cuptiProfilerInitialize, arguments)
{
    FAKE_ANSWER(cuptiProfilerInitialize, initialize);
    if (!fake_is_attached()) return FS_COUNTERS_ASLEEP; /* as on an H200 */
    counters.initialized++;
    counters.initialized_now = true;
    return 0;
}

FAKE_CALL(chip_name, cuptiDeviceGetChipName, arguments)
{
    FAKE_ANSWER(cuptiDeviceGetChipName, chip_name);
    FAKE_NEED(arguments->device < FAKE_DEVICES, 2); /* INVALID_DEVICE */
    arguments->chip = counters.chip;
    return 0;
}

FAKE_CALL(host_open, cuptiProfilerHostInitialize, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostInitialize, host_open);
    fake_host *host = calloc(1, sizeof *host);
    host->for_samples = arguments->type == FS_COUNTERS_SAMPLES;
    host->life = fake.finalized;
    arguments->host = host;
    counters.hosts++;
    return 0;
}

FAKE_CALL(host_close, cuptiProfilerHostDeinitialize, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostDeinitialize, host_close);
    if (((fake_host *)arguments->host)->life != fake.finalized) abort();
    free(arguments->host);
    counters.hosts--;
    return 0;
}

FAKE_CALL(host_chips, cuptiProfilerHostGetSupportedChips, arguments)
{
    static const char *const chips[] = {"GA100", "GH100"};
    FAKE_ANSWER(cuptiProfilerHostGetSupportedChips, host_chips);
    arguments->count = 2;
    arguments->chips = chips;
    return 0;
}

FAKE_CALL(host_add, cuptiProfilerHostConfigAddMetrics, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostConfigAddMetrics, host_add);
    fake_host *host = arguments->host;
    for (size_t i = 0; i < arguments->count; i++) {
        for (int k = 0; k < counters.lacking_count; k++)
            if (strcmp(counters.lacking[k], arguments->metrics[i]) == 0) return FS_COUNTERS_UNKNOWN;
        host->metrics[host->count++] = arguments->metrics[i];
    }
    return 0;
}

FAKE_CALL(host_config_size, cuptiProfilerHostGetConfigImageSize, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostGetConfigImageSize, host_config_size);
    arguments->size = 100;
    return 0;
}

FAKE_CALL(host_config, cuptiProfilerHostGetConfigImage, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostGetConfigImage, host_config);
    memset(arguments->image, 7, arguments->size);
    const fake_host *host = arguments->host;
    long sampled = (long)host->count > counters.fitting ? 2 : 1;
    arguments->image[0] = (uint8_t)(host->for_samples ? sampled : counters.passes);
    return 0;
}

FAKE_CALL(host_passes, cuptiProfilerHostGetNumOfPasses, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostGetNumOfPasses, host_passes);
    arguments->passes = arguments->image[0];
    return 0;
}

FAKE_CALL(host_evaluate, cuptiProfilerHostEvaluateToGpuValues, arguments)
{
    FAKE_ANSWER(cuptiProfilerHostEvaluateToGpuValues, host_evaluate);
    const fake_host *host = arguments->host;
    const fake_image *image = (const void *)arguments->image;
    const fake_sample_at *samples = (const void *)(image + 1);
    if (host->life != fake.finalized) abort();
    if (arguments->index >= image->count) return FS_COUNTERS_INVALID;
    if (arguments->count != host->count) return FS_COUNTERS_INVALID;
    fake_sample_at at = samples[arguments->index];
    pthread_mutex_lock(&counters.lock);
    for (size_t i = 0; i < arguments->count; i++) {
        double amount = fake_counted(at.device, arguments->metrics[i], at.start, at.end);
        if (fake_range.hides_sass && strstr(arguments->metrics[i], "__sass_") != NULL) amount = 0;
        bool is_share = strstr(arguments->metrics[i], ".pct_") != NULL;
        arguments->values[i] = is_share && host->for_samples ? amount / (double)(at.end - at.start) : amount;
    }
    pthread_mutex_unlock(&counters.lock);
    return 0;
}

FAKE_CALL(pm_availability, cuptiPmSamplingGetCounterAvailability, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingGetCounterAvailability, pm_availability);
    FAKE_NEED(!fake_is_busy((int)arguments->device), FS_COUNTERS_UNKNOWN);
    if (arguments->image == NULL) arguments->size = 16;
    return 0;
}

FAKE_CALL(range_availability, cuptiProfilerGetCounterAvailability, arguments)
{
    FAKE_ANSWER(cuptiProfilerGetCounterAvailability, range_availability);
    int device = fake_device_of(arguments->context);
    FAKE_NEED(device >= 0, FAKE_INVALID_CONTEXT);
    if (fake_is_busy(device)) return FS_COUNTERS_UNKNOWN;
    if (arguments->image == NULL) arguments->size = 16;
    return 0;
}

FAKE_CALL(pm_enable, cuptiPmSamplingEnable, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingEnable, pm_enable);
    struct fake_session *session = &counters.session[arguments->device];
    FAKE_NEED(!session->open, FS_COUNTERS_BAD_OPERATION);
    if (fake_is_busy((int)arguments->device)) return FS_COUNTERS_BUSY;
    *session = (struct fake_session){
        .open = true, .device = (int)arguments->device, .enabled = fake_now(), .life = fake.finalized};
    arguments->sampling = session;
    counters.sessions++;
    counters.enabled_sessions++;
    return 0;
}

FAKE_CALL(pm_disable, cuptiPmSamplingDisable, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingDisable, pm_disable);
    struct fake_session *session = arguments->sampling;
    FAKE_ALIVE(session); /* not twice */
    session->open = false;
    counters.enabled_sessions--;
    return 0;
}

FAKE_CALL(pm_config, cuptiPmSamplingSetConfig, arguments)
{
    size_t size = fake.version < FAKE_API_OF_12_8 ? offsetof(fs_counters_pm_config, append_mode)
                                                  : offsetof(fs_counters_pm_config, past);
    fake_enter();
    if (fake_answer("cuptiPmSamplingSetConfig") != 0) return fake_answer("cuptiPmSamplingSetConfig");
    if (arguments->header.size != size) return FS_COUNTERS_INVALID;
    struct fake_session *session = arguments->sampling;
    FAKE_ALIVE(session);
    FAKE_NEED(!session->running, FS_COUNTERS_BAD_OPERATION);
    session->configured = true;
    bool by_cycles = arguments->trigger == FS_COUNTERS_BY_CYCLES;
    session->interval = by_cycles ? arguments->interval * 1000 / 1200 : arguments->interval;
    session->records = arguments->hardware_bytes / counters.record_bytes;
    return by_cycles == (strcmp(counters.chip, "GA100") == 0) ? 0 : FS_COUNTERS_UNSUPPORTED;
}

FAKE_CALL(pm_data_size, cuptiPmSamplingGetCounterDataSize, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingGetCounterDataSize, pm_data_size);
    FAKE_ALIVE((const struct fake_session *)arguments->sampling);
    arguments->size = sizeof(fake_image) + arguments->most * sizeof(fake_sample_at);
    return 0;
}

FAKE_CALL(pm_data_init, cuptiPmSamplingCounterDataImageInitialize, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingCounterDataImageInitialize, pm_data_init);
    FAKE_ALIVE((const struct fake_session *)arguments->sampling);
    fake_image *image = (void *)arguments->image;
    memset(image, 0, arguments->size);
    image->most = (uint32_t)((arguments->size - sizeof *image) / sizeof(fake_sample_at));
    return 0;
}

FAKE_CALL(pm_start, cuptiPmSamplingStart, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingStart, pm_start);
    struct fake_session *session = arguments->sampling;
    FAKE_ALIVE(session);
    FAKE_NEED(session->configured && !session->running, FS_COUNTERS_BAD_OPERATION);
    if (session->full) return FS_COUNTERS_UNKNOWN; /* as on an H200 */
    session->running = true;
    session->began = fake_now();
    session->first = 1;
    session->until = 0;
    counters.windows++;
    return 0;
}

FAKE_CALL(pm_stop, cuptiPmSamplingStop, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingStop, pm_stop);
    struct fake_session *session = arguments->sampling;
    FAKE_ALIVE(session);
    FAKE_NEED(session->running, FS_COUNTERS_BAD_OPERATION);
    session->running = false;
    session->until = fake_now();
    return 0;
}

/* Samples are counted `FAKE_DELAY` after the times that they bear. */
enum { FAKE_DELAY = 700 };

FAKE_CALL(pm_decode, cuptiPmSamplingDecodeData, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingDecodeData, pm_decode);
    struct fake_session *session = arguments->sampling;
    FAKE_ALIVE(session);
    fake_image *image = (void *)arguments->image;
    fake_sample_at *samples = (void *)(image + 1);
    uint64_t until = session->running ? fake_now() : session->until;
    size_t pending = until > session->began ? (until - session->began) / session->interval : 0;
    arguments->overflow = 0;
    arguments->reason = 2;
    if (pending > session->records) session->full = true;
    if (session->full) return FS_COUNTERS_NO_MEMORY;
    for (size_t i = 0; i < pending; i++) {
        if (image->count == image->most) {
            arguments->reason = FS_COUNTERS_IMAGE_FULL;
            break;
        }
        uint64_t start = session->began + i * session->interval;
        uint64_t from = session->first ? session->enabled : start;
        samples[image->count++] = (fake_sample_at){from, start + session->interval, session->device};
        session->first = 0;
    }
    session->began += pending * session->interval;
    return 0;
}

FAKE_CALL(pm_data_info, cuptiPmSamplingGetCounterDataInfo, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingGetCounterDataInfo, pm_data_info);
    const fake_image *image = (const void *)arguments->image;
    arguments->total = image->most;
    arguments->populated = arguments->completed = image->count;
    return 0;
}

FAKE_CALL(pm_sample, cuptiPmSamplingCounterDataGetSampleInfo, arguments)
{
    FAKE_ANSWER(cuptiPmSamplingCounterDataGetSampleInfo, pm_sample);
    const fake_image *image = (const void *)arguments->image;
    const fake_sample_at *samples = (const void *)(image + 1);
    arguments->start = samples[arguments->index].start - FAKE_DELAY;
    arguments->end = samples[arguments->index].end - FAKE_DELAY;
    return 0;
}

/* The Range Profiler ---------------------------------------------------------------------------------------------- */

FAKE_CALL(range_enable, cuptiRangeProfilerEnable, arguments)
{
    FAKE_ANSWER(cuptiRangeProfilerEnable, range_enable);
    int device = fake_device_of(arguments->context);
    FAKE_NEED(device >= 0, FAKE_INVALID_CONTEXT);
    if (fake_range.open || fake_is_busy(device)) return FS_COUNTERS_BUSY;
    memset(&fake_range, 0, sizeof fake_range);
    fake_range.open = true;
    fake_range.life = fake.finalized;
    fake_range.context = arguments->context;
    arguments->profiler = &fake_range;
    counters.enabled_sessions++;
    return 0;
}

FAKE_CALL(range_disable, cuptiRangeProfilerDisable, arguments)
{
    FAKE_ANSWER(cuptiRangeProfilerDisable, range_disable);
    FAKE_ALIVE(&fake_range);                                                       /* not twice */
    if (fake_range.image != NULL) fake_range.image[fake_range.image_size - 1] = 0; /* it must be there still */
    fake_range.open = false;
    counters.enabled_sessions--;
    return 0;
}

/* What the calls between enabling and disabling need: the context, and that it is current. */
static int fake_in_context(void)
{
    FAKE_ALIVE(&fake_range);
    if (fake_ready() != 0) return fake_ready();
    return fake_device_of(fake_range.context) >= 0 && fake_current == fake_range.context ? 0 : FAKE_INVALID_CONTEXT;
}

#define FAKE_RANGE(symbol, call, condition)                   \
    do {                                                      \
        FAKE_ANSWER(symbol, call);                            \
        if (fake_in_context() != 0) return fake_in_context(); \
        if (!(condition)) return FS_COUNTERS_BAD_OPERATION;   \
    } while (0)

FAKE_CALL(range_data_size, cuptiRangeProfilerGetCounterDataSize, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerGetCounterDataSize, range_data_size, true);
    if (arguments->nodes < arguments->ranges) return FS_COUNTERS_INVALID;
    arguments->size = sizeof(fake_image) + arguments->ranges * sizeof(fake_sample_at);
    return 0;
}

FAKE_CALL(range_data_init, cuptiRangeProfilerCounterDataImageInitialize, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerCounterDataImageInitialize, range_data_init, true);
    memset(arguments->image, 0, arguments->size);
    return 0;
}

FAKE_CALL(range_config, cuptiRangeProfilerSetConfig, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerSetConfig, range_config, !fake_range.started);
    if (arguments->range != FS_COUNTERS_USER_RANGE || arguments->replay != FS_COUNTERS_USER_REPLAY) abort();
    if (arguments->levels != 1 || arguments->least_level != 1 || arguments->level != 1) return FS_COUNTERS_INVALID;
    fake_range.passes = arguments->config[0];
    fake_range.image = arguments->image;
    fake_range.image_size = arguments->size;
    fake_range.most = arguments->ranges;
    fake_range.configured = true;
    return 0;
}

FAKE_CALL(range_start, cuptiRangeProfilerStart, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerStart, range_start, fake_range.configured && !fake_range.started);
    fake_range.started = true;
    fake_range.count = 0;
    return 0;
}

FAKE_CALL(range_push, cuptiRangeProfilerPushRange, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerPushRange, range_push, fake_range.started && !fake_range.pushed);
    fake_range.pushed = true;
    fake_range.hides_sass |= fake.kinds[FS_CUPTI_KERNEL]; /* as on an H200 */
    fake_range.ranges[fake_range.count].device = fake_device_of(fake_range.context);
    fake_range.ranges[fake_range.count].start = fake_now();
    return 0;
}

FAKE_CALL(range_pop, cuptiRangeProfilerPopRange, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerPopRange, range_pop, fake_range.pushed);
    fake_range.pushed = false;
    fake_range.ranges[fake_range.count++].end = fake_now();
    return 0;
}

FAKE_CALL(range_stop, cuptiRangeProfilerStop, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerStop, range_stop, fake_range.started && !fake_range.pushed);
    fake_range.started = false;
    fake_range.done++;
    counters.range_passes++;
    arguments->complete = fake_range.done >= fake_range.passes;
    return 0;
}

FAKE_CALL(range_decode, cuptiRangeProfilerDecodeData, arguments)
{
    FAKE_RANGE(cuptiRangeProfilerDecodeData, range_decode, !fake_range.started && fake_range.done > 0);
    fake_image *image = (void *)fake_range.image;
    fake_sample_at *samples = (void *)(image + 1);
    size_t count = (size_t)fake_range.count, kept = count < fake_range.most ? count : fake_range.most;
    image->count = kept;
    for (size_t i = 0; i < kept; i++) samples[i] = fake_range.ranges[i];
    arguments->dropped = count - kept;
    return 0;
}

FAKE_CALL(range_data_info, cuptiRangeProfilerGetCounterDataInfo, arguments)
{
    FAKE_ANSWER(cuptiRangeProfilerGetCounterDataInfo, range_data_info);
    arguments->count = ((const fake_image *)(const void *)arguments->image)->count;
    return 0;
}
