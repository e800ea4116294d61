/* CUPTI's counters of the fake GPU, behaving as an H200 did: PM sampling at equal times, whose first sample reaches
 * back to when sampling was enabled; decoding that loses what does not fit the image, and that fails for good once the
 * hardware buffer was full. What is counted is what a test plays with fake_traffic().
 *
 * The order of calls is that of NVIDIA's headers, strictly: a call before the one that it needs fails with the code
 * that the header names, and what would corrupt memory aborts: an object that was closed or that cuptiFinalize()
 * destroyed, a second close, any call in a forked child. After cuptiFinalize() nothing works until CUPTI is back. What
 * brings it back is not documented: the setting "wakes_by" chooses. */
#include "sources/counters/abi.h"
#include "tests/c/fake_cubin.h"

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
    struct fake_session {
        bool open, running, full, configured;
        int device;
        long life;
        uint64_t enabled, began, interval, until;
        size_t records;
        uint32_t first;
    } session[FAKE_SAMPLING];
    bool initialized_now; /* since CUPTI was attached */
    pid_t process;        /* that called first */
} counters = {.lock = PTHREAD_MUTEX_INITIALIZER, .chip = "GH100"};

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
    if (counters.process == getpid() && fake.open > 0) _exit(99);
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

/* Let this GPU lack a metric. */
void fake_lack(const char *metric)
{
    strncpy(counters.lacking[counters.lacking_count++], metric, 95);
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

/* Each call needs the size of its arguments, of which CUPTI before 12.8 knows one less of one call; it answers as
 * fake_fail() says, and else as ANSWER(call) does, below. */
static bool fake_is_sized(const char *symbol, size_t size, size_t expected)
{
    if (fake.version < FAKE_API_OF_12_8 && strcmp(symbol, "cuptiPmSamplingSetConfig") == 0)
        expected = offsetof(fs_counters_pm_config, append_mode);
    return size == expected;
}

#define ANSWER(call) static int fake_##call(fs_counters_##call *arguments __attribute__((unused)))
#define FAKE_CALL(call, symbol, theirs, members)                                                   \
    ANSWER(call);                                                                                  \
    int symbol(fs_counters_##call *arguments)                                                      \
    {                                                                                              \
        size_t expected = offsetof(fs_counters_##call, past);                                      \
        if (!fake_is_sized(#symbol, arguments->header.size, expected)) return FS_COUNTERS_INVALID; \
        fake_enter();                                                                              \
        int code = fake_answer(#symbol);                                                           \
        return code != 0 ? code : fake_##call(arguments);                                          \
    }
FS_COUNTERS_CALLS(FAKE_CALL, FS_COUNTERS_NO_MEMBER)
#undef FAKE_CALL

/* The calls on the device also need the profiler, and some of them that a condition holds. */
#define FAKE_NEED(condition, code)      \
    do {                                \
        int ready_ = fake_ready();      \
        if (ready_ != 0) return ready_; \
        if (!(condition)) return code;  \
    } while (0)

/* What was closed or destroyed aborts. */
static struct fake_session *fake_session_of(void *sampling)
{
    struct fake_session *session = sampling;
    if (!session->open || session->life != fake.finalized) abort();
    return session;
}

static void fake_range_is_alive(void)
{
    if (!fake_range.open || fake_range.life != fake.finalized) abort();
}

ANSWER(initialize)
{
    if (!fake_is_attached()) return FS_COUNTERS_ASLEEP; /* as on an H200 */
    fake.profilers++;
    counters.initialized_now = true;
    return 0;
}

ANSWER(chip_name)
{
    FAKE_NEED(arguments->device < FAKE_DEVICES, 2); /* INVALID_DEVICE */
    arguments->chip = counters.chip;
    return 0;
}

ANSWER(host_open)
{
    fake_host *host = calloc(1, sizeof *host);
    host->for_samples = arguments->type == FS_COUNTERS_SAMPLES;
    host->life = fake.finalized;
    arguments->host = host;
    fake.hosts++;
    return 0;
}

ANSWER(host_close)
{
    if (((fake_host *)arguments->host)->life != fake.finalized) abort();
    free(arguments->host);
    fake.hosts--;
    return 0;
}

ANSWER(host_chips)
{
    static const char *const chips[] = {"GA100", "GH100"};
    arguments->count = 2;
    arguments->chips = chips;
    return 0;
}

ANSWER(host_add)
{
    fake_host *host = arguments->host;
    for (size_t i = 0; i < arguments->count; i++) {
        for (int k = 0; k < counters.lacking_count; k++)
            if (strcmp(counters.lacking[k], arguments->metrics[i]) == 0) return FS_COUNTERS_UNKNOWN;
        host->metrics[host->count++] = arguments->metrics[i];
    }
    return 0;
}

ANSWER(host_config_size)
{
    arguments->size = 100;
    return 0;
}

ANSWER(host_config)
{
    memset(arguments->image, 7, arguments->size);
    const fake_host *host = arguments->host;
    long sampled = (long)host->count > fake.fitting ? 2 : 1;
    arguments->image[0] = (uint8_t)(host->for_samples ? sampled : fake.passes);
    return 0;
}

ANSWER(host_passes)
{
    arguments->passes = arguments->image[0];
    return 0;
}

ANSWER(host_evaluate)
{
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

ANSWER(pm_availability)
{
    FAKE_NEED(!fake_is_busy((int)arguments->device), FS_COUNTERS_UNKNOWN);
    if (arguments->image == NULL) arguments->size = 16;
    return 0;
}

ANSWER(range_availability)
{
    int device = fake_device_of(arguments->context);
    FAKE_NEED(device >= 0, FAKE_INVALID_CONTEXT);
    if (fake_is_busy(device)) return FS_COUNTERS_UNKNOWN;
    if (arguments->image == NULL) arguments->size = 16;
    return 0;
}

ANSWER(pm_enable)
{
    struct fake_session *session = &counters.session[arguments->device];
    FAKE_NEED(!session->open, FS_COUNTERS_BAD_OPERATION);
    if (fake_is_busy((int)arguments->device)) return FS_COUNTERS_BUSY;
    *session = (struct fake_session){
        .open = true, .device = (int)arguments->device, .enabled = fake_now(), .life = fake.finalized};
    arguments->sampling = session;
    fake.sessions++;
    fake.open++;
    return 0;
}

ANSWER(pm_disable)
{
    struct fake_session *session = fake_session_of(arguments->sampling); /* not twice */
    session->open = false;
    fake.open--;
    return 0;
}

ANSWER(pm_config)
{
    struct fake_session *session = fake_session_of(arguments->sampling);
    FAKE_NEED(!session->running, FS_COUNTERS_BAD_OPERATION);
    session->configured = true;
    bool by_cycles = arguments->trigger == FS_COUNTERS_BY_CYCLES;
    session->interval = by_cycles ? arguments->interval * 1000 / 1200 : arguments->interval;
    session->records = arguments->hardware_bytes / (size_t)fake.record_bytes;
    return by_cycles == (strcmp(counters.chip, "GA100") == 0) ? 0 : FS_COUNTERS_UNSUPPORTED;
}

ANSWER(pm_data_size)
{
    fake_session_of(arguments->sampling);
    arguments->size = sizeof(fake_image) + arguments->most * sizeof(fake_sample_at);
    if (fake.room < (long)arguments->most) fake.room = (long)arguments->most;
    return 0;
}

ANSWER(pm_data_init)
{
    fake_session_of(arguments->sampling);
    fake_image *image = (void *)arguments->image;
    memset(image, 0, arguments->size);
    image->most = (uint32_t)((arguments->size - sizeof *image) / sizeof(fake_sample_at));
    return 0;
}

ANSWER(pm_start)
{
    struct fake_session *session = fake_session_of(arguments->sampling);
    FAKE_NEED(session->configured && !session->running, FS_COUNTERS_BAD_OPERATION);
    if (session->full) return FS_COUNTERS_UNKNOWN; /* as on an H200 */
    session->running = true;
    session->began = fake_now();
    session->first = 1;
    session->until = 0;
    fake.windows++;
    return 0;
}

ANSWER(pm_stop)
{
    struct fake_session *session = fake_session_of(arguments->sampling);
    FAKE_NEED(session->running, FS_COUNTERS_BAD_OPERATION);
    session->running = false;
    session->until = fake_now();
    return 0;
}

/* Samples are counted `FAKE_DELAY` after the times that they bear. */
enum { FAKE_DELAY = 700 };

ANSWER(pm_decode)
{
    struct fake_session *session = fake_session_of(arguments->sampling);
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

ANSWER(pm_data_info)
{
    const fake_image *image = (const void *)arguments->image;
    arguments->total = image->most;
    arguments->populated = arguments->completed = image->count;
    return 0;
}

ANSWER(pm_sample)
{
    const fake_image *image = (const void *)arguments->image;
    const fake_sample_at *samples = (const void *)(image + 1);
    arguments->start = samples[arguments->index].start - FAKE_DELAY;
    arguments->end = samples[arguments->index].end - FAKE_DELAY;
    return 0;
}

/* The Range Profiler ---------------------------------------------------------------------------------------------- */

ANSWER(range_enable)
{
    int device = fake_device_of(arguments->context);
    FAKE_NEED(device >= 0, FAKE_INVALID_CONTEXT);
    if (fake_range.open || fake_is_busy(device)) return FS_COUNTERS_BUSY;
    memset(&fake_range, 0, sizeof fake_range);
    fake_range.open = true;
    fake_range.life = fake.finalized;
    fake_range.context = arguments->context;
    arguments->profiler = &fake_range;
    fake.open++;
    return 0;
}

ANSWER(range_disable)
{
    fake_range_is_alive();                                                         /* not twice */
    if (fake_range.image != NULL) fake_range.image[fake_range.image_size - 1] = 0; /* it must be there still */
    fake_range.open = false;
    fake.open--;
    return 0;
}

/* What the calls between enabling and disabling need: the context, and that it is current. */
static int fake_in_context(void)
{
    fake_range_is_alive();
    if (fake_ready() != 0) return fake_ready();
    return fake_device_of(fake_range.context) >= 0 && fake_current == fake_range.context ? 0 : FAKE_INVALID_CONTEXT;
}

#define FAKE_IN_RANGE(condition)                              \
    do {                                                      \
        if (fake_in_context() != 0) return fake_in_context(); \
        if (!(condition)) return FS_COUNTERS_BAD_OPERATION;   \
    } while (0)

ANSWER(range_data_size)
{
    FAKE_IN_RANGE(true);
    if (arguments->nodes < arguments->ranges) return FS_COUNTERS_INVALID;
    arguments->size = sizeof(fake_image) + arguments->ranges * sizeof(fake_sample_at);
    return 0;
}

ANSWER(range_data_init)
{
    FAKE_IN_RANGE(true);
    memset(arguments->image, 0, arguments->size);
    return 0;
}

ANSWER(range_config)
{
    FAKE_IN_RANGE(!fake_range.started);
    if (arguments->range != FS_COUNTERS_USER_RANGE || arguments->replay != FS_COUNTERS_USER_REPLAY) abort();
    if (arguments->levels != 1 || arguments->least_level != 1 || arguments->level != 1) return FS_COUNTERS_INVALID;
    fake_range.passes = arguments->config[0];
    fake_range.image = arguments->image;
    fake_range.image_size = arguments->size;
    fake_range.most = arguments->ranges;
    fake_range.configured = true;
    return 0;
}

ANSWER(range_start)
{
    FAKE_IN_RANGE(fake_range.configured && !fake_range.started);
    fake_range.started = true;
    fake_range.count = 0;
    return 0;
}

ANSWER(range_push)
{
    FAKE_IN_RANGE(fake_range.started && !fake_range.pushed);
    fake_range.pushed = true;
    fake_range.hides_sass |= fake_client.kinds[FS_CUPTI_KERNEL]; /* as on an H200 */
    fake_range.ranges[fake_range.count].device = fake_device_of(fake_range.context);
    fake_range.ranges[fake_range.count].start = fake_now();
    return 0;
}

ANSWER(range_pop)
{
    FAKE_IN_RANGE(fake_range.pushed);
    fake_range.pushed = false;
    fake_range.ranges[fake_range.count++].end = fake_now();
    return 0;
}

ANSWER(range_stop)
{
    FAKE_IN_RANGE(fake_range.started && !fake_range.pushed);
    fake_range.started = false;
    fake_range.done++;
    fake.range_passes++;
    arguments->complete = fake_range.done >= fake_range.passes;
    return 0;
}

ANSWER(range_decode)
{
    FAKE_IN_RANGE(!fake_range.started && fake_range.done > 0);
    fake_image *image = (void *)fake_range.image;
    fake_sample_at *samples = (void *)(image + 1);
    size_t count = (size_t)fake_range.count, kept = count < fake_range.most ? count : fake_range.most;
    image->count = kept;
    for (size_t i = 0; i < kept; i++) samples[i] = fake_range.ranges[i];
    arguments->dropped = count - kept;
    return 0;
}

ANSWER(range_data_info)
{
    arguments->count = ((const fake_image *)(const void *)arguments->image)->count;
    return 0;
}

/* PC sampling: what the program does while sampling is two kernels at five instructions. The first one's code has a
 * line of each two instructions, the second one's has none. */
static struct {
    bool enabled, started;
    fs_pc_data *data;
    int left; /* instructions that are still to be taken */
} fake_pc;

static const char *const fake_waits[] = {"smsp__pcsamp_warps_issue_stalled_barrier",
                                         "smsp__pcsamp_warps_issue_stalled_barrier_not_issued",
                                         "smsp__pcsamp_warps_issue_stalled_selected"};
enum { FAKE_PC_REASONS = 3, FAKE_PC_INSTRUCTIONS = 5 };

/* It needs no profiler on an H200. */
#define FAKE_PC(condition)                                  \
    do {                                                    \
        if (!fake_is_attached()) return FS_COUNTERS_ASLEEP; \
        if (!(condition)) return FS_COUNTERS_BAD_OPERATION; \
    } while (0)

ANSWER(pc_enable)
{
    FAKE_PC(!fake_pc.enabled && !fake_range.open);
    fake_pc.enabled = true;
    fake.open++;
    return 0;
}

ANSWER(pc_disable)
{
    if (!fake_pc.enabled) abort();
    fake_pc.enabled = fake_pc.started = false;
    fake.open--;
    return 0;
}

ANSWER(pc_reason_count)
{
    FAKE_PC(fake_pc.enabled);
    *arguments->count = FAKE_PC_REASONS;
    return 0;
}

ANSWER(pc_reasons)
{
    for (uint32_t i = 0; i < arguments->count; i++) {
        arguments->indices[i] = i + 7;
        strcpy(arguments->names[i], fake_waits[i]);
    }
    return 0;
}

ANSWER(pc_configure)
{
    FAKE_PC(fake_pc.enabled && !fake_pc.started);
    for (size_t i = 0; i < arguments->count; i++)
        if (arguments->settings[i].type == FS_PC_BUFFER) fake_pc.data = arguments->settings[i].value.buffer;
    return fake_pc.data == NULL || fake_pc.data->size != sizeof *fake_pc.data ? FS_COUNTERS_INVALID : 0;
}

ANSWER(pc_start)
{
    FAKE_PC(fake_pc.data != NULL && !fake_pc.started);
    fake_pc.started = true;
    fake_pc.left = fake_client.kinds[FS_CUPTI_KERNEL] ? 0 : FAKE_PC_INSTRUCTIONS; /* as on an H200 */
    return 0;
}

/* Hand over three instructions at most. */
ANSWER(pc_take)
{
    static char names[2][8] = {"_Z1fv", "plain"};
    for (fake_pc.data->count = 0; fake_pc.data->count < 3 && fake_pc.left > 0; fake_pc.left--) {
        fs_pc_record *record = &fake_pc.data->records[fake_pc.data->count++];
        if (record->size != sizeof *record || record->count < FAKE_PC_REASONS) return FS_COUNTERS_INVALID;
        bool first = fake_pc.left > 1;
        record->function = names[first ? 0 : 1];
        record->crc = FAKE_CUBIN_BYTES + (fake.twins && fake_pc.left == 2);
        record->offset = 16 * (uint64_t)fake_pc.left;
        for (uint32_t i = 0; i < FAKE_PC_REASONS; i++) record->counts[i] = (fs_pc_count){i + 7, 10 * (i + 1)};
    }
    fake_pc.data->remaining = (size_t)fake_pc.left;
    fake_pc.data->dropped = 1;
    return 0;
}

ANSWER(pc_stop)
{
    FAKE_PC(fake_pc.started);
    fs_cupti_module code = {3, FAKE_CUBIN_BYTES, fake_cubin()};
    for (int launch = 0; launch < 2; launch++)
        fake_tell(FS_CUPTI_RESOURCE_DOMAIN, FS_CUPTI_MODULE_PROFILED, &(fs_cupti_resource){.descriptor = &code});
    return fake_pc_take(&(fs_counters_pc_take){0});
}

int cuptiGetCubinCrc(fs_pc_crc *arguments)
{
    arguments->crc = arguments->cubin_size;
    return 0;
}

int cuptiGetSassToSourceCorrelation(fs_pc_source *arguments)
{
    if (memcmp(arguments->cubin, fake_cubin(), FAKE_CUBIN_BYTES) != 0) abort();
    if (strcmp(arguments->function, "plain") == 0) return FS_COUNTERS_INVALID;
    arguments->file = strdup("kernel.py");
    arguments->directory = strdup("/nowhere");
    arguments->line = (uint32_t)arguments->offset / 32;
    return 0;
}
