/* The table of functions is complete or absent: fs_counters is set after every symbol was found, and never changes
 * again. CUPTI's profiler sleeps after another client has detached CUPTI; what wakes it differs by version, so efforts
 * are tried from the least to the most intrusive, and each is undone before the next. A hold is all or nothing: after a
 * failure CUPTI has no subscription of ours. */
#include "sources/counters/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/unused.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/library.h"

const fs_counters_functions *fs_counters;

static fs_counters_functions functions;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static uint32_t loaded_in;          /* the generation of the process that loaded CUPTI */
static _Thread_local int last_code; /* that CUPTI answered to a call that failed */

static const struct {
    size_t offset;
    const char *name;
} symbols[] = {
#define SYMBOL(call, symbol, theirs, members) {offsetof(fs_counters_functions, call), #symbol},
    FS_COUNTERS_CALLS(SYMBOL, FS_COUNTERS_NO_MEMBER)
#undef SYMBOL
        {offsetof(fs_counters_functions, result_text), "cuptiGetResultString"},
    {offsetof(fs_counters_functions, timestamp), "cuptiGetTimestamp"},
    {offsetof(fs_counters_functions, pc_source), "cuptiGetSassToSourceCorrelation"},
    {offsetof(fs_counters_functions, pc_crc), "cuptiGetCubinCrc"},
};

static const struct {
    int code;
    const char *text;
} refusals[] = {
#define FS_REFUSAL(code, text) {code, text},
#include "sources/counters/refusals.def"
#undef FS_REFUSAL
};

/* The driver's setting, as its own file has it: "RmProfilingAdminOnly: 1". */
static void read_setting(char *line, size_t size)
{
    FILE *file = fopen("/proc/driver/nvidia/params", "r");
    bool found = false;
    while (file != NULL && !found && fgets(line, (int)size, file) != NULL)
        found = strncmp(line, "RmProfilingAdminOnly", 20) == 0;
    if (file != NULL) fclose(file);
    if (!found) line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

static fs_status fail_for_permission(const char *doing, fs_error *err)
{
    char line[128];
    read_setting(line, sizeof line);
    return fs_fail(
        err, FS_RUNTIME_ERROR,
        "%s: this user may not read the counters of the GPU; the driver leaves them to the administrator "
        "(%s%sin /proc/driver/nvidia/params). Run as root or with CAP_SYS_ADMIN, or ask the administrator to "
        "set NVreg_RestrictProfilingToAdminUsers=0 (in a file of /etc/modprobe.d: \"options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0\") and to reload the driver",
        doing, line[0] ? line : "RmProfilingAdminOnly", line[0] ? " " : " ");
}

fs_status fs_counters_fail(int code, const char *doing, fs_error *err)
{
    const char *text = NULL, *why = NULL;
    last_code = code;
    if (code == FS_COUNTERS_NO_PERMISSION) return fail_for_permission(doing, err);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].code == code) why = refusals[i].text;
    if (fs_counters->result_text(code, &text) != FS_COUNTERS_SUCCESS || text == NULL) text = "unknown error";
    if (why != NULL) return fs_fail(err, FS_RUNTIME_ERROR, "%s: %s (%s)", doing, why, text);
    return fs_fail(err, FS_RUNTIME_ERROR, "%s: CUPTI failed with %s (%d)", doing, text, code);
}

fs_status fs_counters_check(int code, const char *doing, fs_error *err)
{
    return code == FS_COUNTERS_SUCCESS ? FS_OK : fs_counters_fail(code, doing, err);
}

/* Coming back ----------------------------------------------------------------------------------------------------- */

static void ignore(void *FS_UNUSED(context), int FS_UNUSED(domain), uint32_t FS_UNUSED(function),
                   const void *FS_UNUSED(data))
{
}

/* What brings CUPTI back, the least first. */
typedef enum { AS_IT_IS, BY_SUBSCRIPTION, BY_OVERHEAD, BY_KERNELS, EFFORTS } effort;

static int initialize(void)
{
    FS_COUNTERS_ARGUMENTS(initialize, arguments);
    return fs_counters->initialize(&arguments);
}

/* Enable a kind of activity for as long as the initialization takes. Only of a CUPTI that has no other client, whose
 * kinds these might be. */
static int initialize_with(int kind)
{
    if (fs_cupti->enable(kind) != FS_CUPTI_SUCCESS) return FS_COUNTERS_ASLEEP;
    int code = initialize();
    fs_cupti->disable(kind);
    return code;
}

static int wake(fs_counters_hold *hold, effort by)
{
    if (by == AS_IT_IS) return initialize();
    if (fs_cupti->subscribe(&hold->subscriber, ignore, NULL) != FS_CUPTI_SUCCESS) {
        hold->subscriber = NULL;
        return FS_COUNTERS_ASLEEP;
    }
    if (by == BY_SUBSCRIPTION) return initialize();
    return initialize_with(by == BY_OVERHEAD ? FS_CUPTI_OVERHEAD : FS_CUPTI_KERNEL);
}

fs_status fs_counters_open(fs_counters_hold *hold, fs_counters_opener open, void *what, fs_error *err)
{
    fs_status status = FS_OK;
    *hold = (fs_counters_hold){0};
    if (fs_fork_generation() != loaded_in)
        return fs_fail(err, FS_RUNTIME_ERROR,
                       "counters are unavailable in a process forked after CUPTI was loaded: start it anew (spawn)");
    for (effort by = AS_IT_IS; by < (fs_cupti != NULL ? EFFORTS : BY_SUBSCRIPTION); by++) {
        fs_cupti_hold(true);
        hold->held = true;
        last_code = wake(hold, by);
        status = last_code == FS_COUNTERS_SUCCESS ? open(what, err)
                                                  : fs_counters_fail(last_code, "CUPTI's profiler cannot be used", err);
        if (status == FS_OK) return FS_OK;
        fs_counters_release(hold);
        if (last_code != FS_COUNTERS_ASLEEP) return status;
    }
    return status;
}

void fs_counters_release(fs_counters_hold *hold)
{
    if (hold->subscriber != NULL) fs_cupti->unsubscribe(hold->subscriber);
    if (hold->held) fs_cupti_hold(false);
    *hold = (fs_counters_hold){0};
}

/* Loading --------------------------------------------------------------------------------------------------------- */

static const char needed[] = "counters need CUPTI of CUDA 12.6 or later: pip install -U nvidia-cuda-cupti";

static fs_status load(const char *path, fs_error *err)
{
    const char *const names[] = {path, "libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    bool named = path != NULL && path[0] != '\0';
    void *library = NULL;
    for (size_t at = named ? 0 : 1; library == NULL && at < (named ? 1 : sizeof names / sizeof *names); at++)
        library = dlopen(path = names[at], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI could not be loaded (%s): %s", dlerror(), needed);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL)
            return fs_fail(err, FS_RUNTIME_ERROR, "%s has no function %s: %s", path, symbols[i].name, needed);
        memcpy((char *)&functions + symbols[i].offset, &address, sizeof address);
    }
    loaded_in = fs_fork_generation();
    fs_counters = &functions;
    /* Without a driver this fails, and the interfaces that need no GPU work all the same. */
    initialize();
    return FS_OK;
}

fs_status fs_counters_load(const char *path, fs_error *err)
{
    pthread_mutex_lock(&loading);
    fs_status status = fs_counters == NULL ? load(path, err) : FS_OK;
    pthread_mutex_unlock(&loading);
    return status;
}
