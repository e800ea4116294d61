/* States: idle, watching, capturing, or both of the latter; one subscription serves both, and whoever ends last ends
 * it. CUPTI is detached from the process at the end, so that a program runs as before (a launch takes 1.3 times as long
 * with it), but not while somebody holds it (fs_cupti_hold), nor while other threads call CUDA: one that is within a
 * call then may crash. Nothing is started half: every step of fs_cupti_start that fails undoes those before it.
 * `capture.lock` guards the parser and its output; what may wait for a callback of CUPTI (subscribing, enabling,
 * flushing) is called without it, as callbacks take it. In a forked child every entry point refuses or does nothing. */
#include "sources/cupti/cupti.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/unused.h"
#include "sources/cupti/records.h"
#include "sources/cupti/watch.h"
#include "store/event.h"

enum { TAKEN_BY_BYTES = 64 };
static const int64_t QUIET_NS = 2000000, PATIENCE_NS = 30000000; /* without a call by others; to wait for that */

static struct {
    pthread_mutex_t lock; /* protects the parser and its output */
    fs_cupti_parser parser;
    fs_cupti_report report;
    fs_cupti_options options;
    void *subscriber; /* NULL while capturing without a subscription */
    void *watching;   /* the subscription that graphs are watched with; NULL: they are not */
    atomic_bool capturing;
    uint32_t generation; /* of the capturing process */
} capture = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_mutex_t lock; /* held while CUPTI is detached; taken after threads are held */
    int holds;            /* clients that need it attached */
    int (*hold_threads)(void);
    void (*release_threads)(int held);
    _Atomic int64_t called; /* when another thread called CUDA, of the calls that are told */
} attachment = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void (*tell_module)(const void *data); /* set before CUPTI calls it */

static _Thread_local bool detaching; /* this thread makes the call from whose exit CUPTI is detached */

/* Callbacks -------------------------------------------------------------------------------------------------------- */

static void request_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = fs_cupti_buffer_take(size);
    *most_records = 0; /* no limit */
}

/* Drop counts are read at the end, not here: reading them takes a lock of CUPTI's that it also holds while requesting
 * buffers. */
static void complete_buffer(void *FS_UNUSED(context), uint32_t FS_UNUSED(stream), uint8_t *buffer,
                            size_t FS_UNUSED(size), size_t valid)
{
    fs_cupti_buffer_use use = buffer == NULL ? FS_CUPTI_FOREIGN : fs_cupti_buffer_use_of(buffer);
    if (use == FS_CUPTI_FOREIGN) return;
    pthread_mutex_lock(&capture.lock);
    if (capture.parser.store != NULL && valid > 0) {
        fs_cupti_parse(&capture.parser, buffer, valid, use == FS_CUPTI_KEEP);
    }
    pthread_mutex_unlock(&capture.lock);
    fs_cupti_buffer_give(buffer, valid);
}

static uint64_t host_clock(void)
{
    return (uint64_t)fs_clock_now();
}

/* CUPTI can be detached safely only from the exit of an API call. */
static void called_back(void *FS_UNUSED(context), int domain, uint32_t function, const void *data)
{
    const fs_cupti_callback_data *call = data;
    if (domain == FS_CUPTI_RESOURCE_DOMAIN) {
        if (function == FS_CUPTI_CONTEXT_CREATED) fs_contexts_called(data);
        else if (function == FS_CUPTI_MODULE_PROFILED) tell_module(data);
        else fs_watch_called(function, data);
        return;
    }
    if (!detaching) atomic_store_explicit(&attachment.called, fs_clock_now(), memory_order_relaxed);
    void *const *executable = call->arguments; /* the first argument of functions that launch or change graphs */
    bool watched = capture.watching != NULL && executable != NULL;
    if (domain == FS_CUPTI_DRIVER_DOMAIN && fs_cupti_ids_have(&fs_cupti_functions_found->launching, function)) {
        if (watched && call->site == FS_CUPTI_API_ENTER) fs_watch_launched(*executable);
        return;
    }
    if (call->site != FS_CUPTI_API_EXIT) return;
    if (capture.watching != NULL && fs_cupti_ids_have(&fs_cupti_functions_found->changing[domain], function)) {
        if (watched) fs_watch_changed(*executable);
        return;
    }
    if (!detaching) return;
    detaching = false;
    fs_cupti->unsubscribe(capture.subscriber);
    fs_cupti->finalize();
    capture.subscriber = NULL;
}

/* Start ------------------------------------------------------------------------------------------------------------ */

/* Return whether a client gave no name, as clients that subscribed before CUPTI supported names, such as
 * torch.profiler. */
static bool is_nameless(const char *taken_by)
{
    return taken_by[0] == '\0' || strstr(taken_by, "not provided") != NULL;
}

static fs_status subscribe(const fs_cupti_options *options, char *taken_by, fs_error *err)
{
    char name[TAKEN_BY_BYTES] = "";
    if (capture.subscriber != NULL) return fs_fail(err, FS_RUNTIME_ERROR, "instructions of the GPU are being sampled");
    capture.subscriber = capture.watching;
    if (capture.watching != NULL) return FS_OK;
    fs_cupti_subscriber us = {sizeof us, "flopscope", name, sizeof name};
    int code = fs_cupti->subscribe_named != NULL
                   ? fs_cupti->subscribe_named(&capture.subscriber, called_back, NULL, &us)
                   : fs_cupti->subscribe(&capture.subscriber, called_back, NULL);
    name[sizeof name - 1] = '\0';
    if (code == FS_CUPTI_SUCCESS) return FS_OK;
    capture.subscriber = NULL;
    if (code != FS_CUPTI_ERROR_TAKEN) return fs_cupti_fail(code, "subscribing", err);
    capture.report.shared = options->may_share && is_nameless(name);
    if (capture.report.shared) return FS_OK;
    if (taken_by != NULL)
        snprintf(taken_by, TAKEN_BY_BYTES, "%s", is_nameless(name) ? "a client without a name" : name);
    return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is taken by %s", is_nameless(name) ? "a client without a name" : name);
}

/* X(kind, only with API calls, optional, description), in order of enabling */
#define KINDS(X)                                               \
    X(FS_CUPTI_MEMCPY, false, false, "copies")                 \
    X(FS_CUPTI_MEMCPY_PEER, false, true, "peer copies")        \
    X(FS_CUPTI_MEMSET, false, false, "fills")                  \
    X(FS_CUPTI_KERNEL, false, false, "kernels")                \
    X(FS_CUPTI_SYNCHRONIZATION, true, true, "synchronisation") \
    X(FS_CUPTI_OVERHEAD, true, true, "overhead")               \
    X(FS_CUPTI_RUNTIME, true, false, "runtime API calls")      \
    X(FS_CUPTI_DRIVER, true, false, "driver API calls")

static const struct {
    int kind;
    bool with_calls, optional;
    const char *what;
} kinds[] = {
#define KIND_ROW(kind, with_calls, optional, what) {kind, with_calls, optional, what},
    KINDS(KIND_ROW)
#undef KIND_ROW
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static void disable_all(void)
{
    for (int i = 0; i < KIND_COUNT; i++)
        if (!kinds[i].with_calls || capture.options.api_calls) fs_cupti->disable(kinds[i].kind);
}

/* Functions can be excluded from an enabled kind, but not enabled individually. If they cannot be excluded, the parser
 * skips them. */
static fs_status enable_all(fs_error *err)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (kinds[i].with_calls && !capture.options.api_calls) continue;
        int code = fs_cupti->enable(kinds[i].kind);
        if (code != FS_CUPTI_SUCCESS && !kinds[i].optional) {
            char doing[64];
            snprintf(doing, sizeof doing, "enabling %s", kinds[i].what);
            return fs_cupti_fail(code, doing, err);
        }
    }
    if (!capture.options.api_calls) return FS_OK;
    const fs_cupti_ids *calls = &fs_cupti_functions_found->unwanted[FS_CUPTI_RUNTIME_DOMAIN],
                       *inner = &fs_cupti_functions_found->unwanted[FS_CUPTI_DRIVER_DOMAIN];
    if (fs_cupti->enable_runtime != NULL)
        for (int i = 0; i < calls->count; i++) fs_cupti->enable_runtime(calls->ids[i], 0);
    if (fs_cupti->enable_driver != NULL)
        for (int i = 0; i < inner->count; i++) fs_cupti->enable_driver(inner->ids[i], 0);
    return FS_OK;
}

static void set_flag(int attribute, uint8_t value)
{
    size_t size = sizeof value;
    if (fs_cupti->set_attribute != NULL) fs_cupti->set_attribute(attribute, &size, &value);
}

/* Our buffers are zeroed and shared by all threads: with one buffer per thread, a program of many threads would exceed
 * the memory bound. A later client may be unaware of either setting, so both are reset. */
static void set_up_buffers(bool ours)
{
    set_flag(FS_CUPTI_ZEROED_BUFFERS, ours);
    set_flag(FS_CUPTI_THREAD_BUFFERS, 0);
}

/* Make CUPTI use the store's clock; if it cannot, compute the offset to add to its times. */
static fs_status agree_on_clock(fs_error *err)
{
    capture.parser.offset = 0;
    /* Also if another client is subscribed: torch.profiler leaves the raw cycle counter as clock, which does not count
     * ns, and sets it again when it begins. */
    if (fs_cupti->set_clock != NULL && fs_cupti->set_clock(host_clock) == FS_CUPTI_SUCCESS) return FS_OK;
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < 100; i++) {
        uint64_t theirs;
        int64_t before = fs_clock_now();
        int code = fs_cupti->timestamp(&theirs);
        int64_t after = fs_clock_now();
        if (code != FS_CUPTI_SUCCESS) return fs_cupti_fail(code, "reading its clock", err);
        if (after - before >= shortest) continue;
        shortest = after - before;
        capture.parser.offset = before + shortest / 2 - (int64_t)theirs;
    }
    return FS_OK;
}

/* Return the number of records dropped by CUPTI since the last call. */
static int64_t dropped_by_cupti(void)
{
    size_t dropped = 0;
    return fs_cupti->dropped(NULL, 0, &dropped) == FS_CUPTI_SUCCESS ? (int64_t)dropped : 0;
}

void fs_cupti_hold(bool on)
{
    pthread_mutex_lock(&attachment.lock);
    attachment.holds += on ? 1 : -1;
    pthread_mutex_unlock(&attachment.lock);
}

void fs_cupti_hold_threads_by(int (*hold)(void), void (*release)(int held))
{
    attachment.hold_threads = hold;
    attachment.release_threads = release;
}

/* Keep other threads out while CUPTI is detached; return what let_others_in needs. */
static int keep_others_out(void)
{
    int held = attachment.hold_threads != NULL ? attachment.hold_threads() : 0;
    pthread_mutex_lock(&attachment.lock);
    return held;
}

static void let_others_in(int held)
{
    pthread_mutex_unlock(&attachment.lock);
    if (attachment.release_threads != NULL) attachment.release_threads(held);
}

/* Wait until no other thread calls CUDA; return whether that is so. */
static bool is_quiet(void)
{
    const int64_t begin = fs_clock_now();
    int64_t now = begin, called = begin;
    atomic_store(&attachment.called, begin);
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN; domain++)
        fs_cupti->enable_domain(1, capture.subscriber, domain);
    while (now - called < QUIET_NS && now - begin < PATIENCE_NS) {
        nanosleep(&(struct timespec){.tv_nsec = QUIET_NS / 8}, NULL);
        called = atomic_load(&attachment.called);
        now = fs_clock_now();
    }
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN; domain++)
        fs_cupti->enable_domain(0, capture.subscriber, domain);
    return now - called >= QUIET_NS;
}

/* End the subscription and, unless it is held or in use, detach CUPTI from the process. */
static void detach(void)
{
    int version, others = keep_others_out();
    detaching = attachment.holds == 0 && is_quiet();
    if (detaching) { /* from the exit of a call without effect */
        fs_cupti->enable_callback(1, capture.subscriber, FS_CUPTI_DRIVER_DOMAIN,
                                  fs_cupti_functions_found->driver_version);
        fs_driver->driver_version(&version);
    } else {
        fs_cupti->set_thread_ids(FS_CUPTI_THREAD_DEFAULT);
    }
    if (capture.subscriber != NULL) fs_cupti->unsubscribe(capture.subscriber);
    detaching = false;
    capture.subscriber = NULL;
    let_others_in(others);
}

static void leave(void)
{
    set_up_buffers(false);
    if (capture.subscriber != NULL && capture.watching == NULL) {
        detach();
    } else {
        capture.subscriber = NULL;
        fs_cupti->set_thread_ids(FS_CUPTI_THREAD_DEFAULT);
    }
}

fs_status fs_cupti_start(fs_store *store, const fs_cupti_options *options, char *taken_by, fs_error *err)
{
    fs_status status;
    if (taken_by != NULL) taken_by[0] = '\0';
    if (fs_cupti == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    if (capture.report.version != 0 && capture.generation != fs_fork_generation())
        return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is unavailable in a process forked after CUPTI was used");
    if (atomic_exchange(&capture.capturing, true))
        return fs_fail(err, FS_RUNTIME_ERROR, "a capture is in progress already");
    capture.generation = fs_fork_generation();
    fs_cupti_find_functions();
    capture.options = *options;
    capture.report = (fs_cupti_report){0};
    fs_cupti->version(&capture.report.version);
    FS_TRY_GOTO(status, subscribe(options, taken_by, err), refused);
    FS_TRY_GOTO(status, fs_cupti_buffers_open(options->buffer_bytes, options->most_bytes, err), left);
    FS_TRY_GOTO(status, agree_on_clock(err), closed);
    fs_cupti->set_thread_ids(FS_CUPTI_THREAD_SYSTEM);
    set_up_buffers(true);
    dropped_by_cupti(); /* discard earlier counts */
    pthread_mutex_lock(&capture.lock);
    fs_cupti_parser_begin(&capture.parser, store, fs_clock_now());
    pthread_mutex_unlock(&capture.lock);
    int code = fs_cupti->register_callbacks(request_buffer, complete_buffer);
    status = code == FS_CUPTI_SUCCESS ? enable_all(err) : fs_cupti_fail(code, "registering buffers", err);
    if (status == FS_OK) return FS_OK;
    disable_all();
closed:
    pthread_mutex_lock(&capture.lock);
    fs_cupti_parser_clear(&capture.parser);
    pthread_mutex_unlock(&capture.lock);
left:
    leave();
    fs_cupti_buffers_close();
refused:
    atomic_store(&capture.capturing, false);
    return status;
}

void fs_cupti_restart(fs_store *store)
{
    dropped_by_cupti();
    pthread_mutex_lock(&capture.lock);
    fs_cupti_parser_begin(&capture.parser, store, fs_clock_now());
    pthread_mutex_unlock(&capture.lock);
}

/* Stop ------------------------------------------------------------------------------------------------------------- */

fs_status fs_cupti_collect(fs_error *err)
{
    int failed = fs_devices_wait();
    int code = fs_cupti->flush(FS_CUPTI_FLUSH_FORCED);
    int64_t dropped = dropped_by_cupti();
    pthread_mutex_lock(&capture.lock);
    capture.parser.dropped += dropped;
    fs_store *store = capture.parser.store;
    pthread_mutex_unlock(&capture.lock);
    if (code != FS_CUPTI_SUCCESS) return fs_cupti_fail(code, "flushing its records", err);
    return failed != 0 ? fs_devices_failed(failed, err) : fs_cupti_describe_devices(store, err);
}

fs_status fs_cupti_stop(fs_error *err)
{
    fs_status status = FS_OK;
    if (!atomic_load(&capture.capturing)) return FS_OK;
    if (capture.generation != fs_fork_generation()) {
        atomic_store(&capture.capturing, false); /* the parent process receives the records */
        return FS_OK;
    }
    pthread_mutex_lock(&capture.lock);
    fs_store *store = capture.parser.store;
    int64_t begin, end;
    fs_store_window(store, &begin, &end);
    capture.parser.end = end == FS_MISSING ? fs_clock_now() : end;
    pthread_mutex_unlock(&capture.lock);

    int failed = fs_devices_wait();
    /* First the complete buffers; then, when no thread adds records any more, the others. */
    int code = fs_cupti->flush(0);
    disable_all();
    int forced = fs_cupti->flush(FS_CUPTI_FLUSH_FORCED);
    if (code == FS_CUPTI_SUCCESS) code = forced;
    if (code != FS_CUPTI_SUCCESS) status = fs_cupti_fail(code, "flushing its records", err);
    int64_t dropped = dropped_by_cupti();
    leave();

    pthread_mutex_lock(&capture.lock);
    capture.report.dropped = capture.parser.dropped + dropped;
    fs_cupti_parser_clear(&capture.parser);
    pthread_mutex_unlock(&capture.lock);
    capture.report.taken = fs_cupti_buffers_close();
    atomic_store(&capture.capturing, false);
    if (status == FS_OK && failed != 0) status = fs_devices_failed(failed, err);
    fs_status described = fs_cupti_describe_devices(store, status == FS_OK ? err : NULL);
    return status != FS_OK ? status : described;
}

/* Watching graphs -------------------------------------------------------------------------------------------------- */

static const struct {
    uint32_t function;
    bool optional;
} watched[] = {
    {FS_CUPTI_NODE_CREATED, false},  {FS_CUPTI_NODE_CLONED, false}, {FS_CUPTI_NODE_DESTROYED, false},
    {FS_CUPTI_NODE_UPDATED, true},   {FS_CUPTI_NODE_SET, true},     {FS_CUPTI_GRAPH_DESTROYED, true},
    {FS_CUPTI_EXEC_DESTROYED, true}, {FS_CUPTI_NODE_STARTS, true},  {FS_CUPTI_NODE_LINKED, true},
};

static int set_watched(void *subscriber, uint32_t on)
{
    bool tells_updates = false;
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        int code = fs_cupti->enable_callback(on, subscriber, FS_CUPTI_RESOURCE_DOMAIN, watched[i].function);
        if (code != FS_CUPTI_SUCCESS && !watched[i].optional) return code;
        if (watched[i].function == FS_CUPTI_NODE_UPDATED) tells_updates = code == FS_CUPTI_SUCCESS;
    }
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN && !tells_updates; domain++)
        for (int i = 0; i < fs_cupti_functions_found->changing[domain].count; i++)
            fs_cupti->enable_callback(on, subscriber, domain, fs_cupti_functions_found->changing[domain].ids[i]);
    return FS_CUPTI_SUCCESS;
}

void fs_cupti_watch_launches(bool on)
{
    const fs_cupti_ids *launching = &fs_cupti_functions_found->launching;
    if (capture.watching == NULL || capture.generation != fs_fork_generation()) return;
    for (int i = 0; i < launching->count; i++)
        fs_cupti->enable_callback(on, capture.watching, FS_CUPTI_DRIVER_DOMAIN, launching->ids[i]);
}

void fs_cupti_watch_contexts(void)
{
    fs_contexts_forget();
    if (capture.subscriber != NULL)
        fs_cupti->enable_callback(1, capture.subscriber, FS_CUPTI_RESOURCE_DOMAIN, FS_CUPTI_CONTEXT_CREATED);
}

bool fs_cupti_is_capturing(void)
{
    return atomic_load(&capture.capturing);
}

/* End the subscription of whoever has it. CUPTI attaches to the process again with the next subscription. */
static fs_status evict_client(fs_error *err)
{
    fs_devices_wait();
    int others = keep_others_out();
    bool held = attachment.holds > 0;
    if (!held) {
        fs_cupti->flush(FS_CUPTI_FLUSH_FORCED);
        fs_cupti->finalize();
    }
    let_others_in(others);
    return held ? fs_fail(err, FS_RUNTIME_ERROR, "counters are in use, without which CUPTI cannot be attached anew")
                : FS_OK;
}

static fs_status begin_watching(bool evict, fs_error *err)
{
    const fs_cupti_options alone = {.api_calls = false, .may_share = evict};
    bool capturing = atomic_load(&capture.capturing);
    if ((capture.watching != NULL || capture.report.version != 0) && capture.generation != fs_fork_generation())
        return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is unavailable in a process forked after CUPTI was used");
    if (capture.watching != NULL) return FS_OK;
    fs_cupti_find_functions();
    if (!capturing) {
        FS_TRY(subscribe(&alone, NULL, err));
        if (capture.subscriber == NULL) { /* a client without a name has it */
            FS_TRY(evict_client(err));
            FS_TRY(subscribe(&(fs_cupti_options){.api_calls = false}, NULL, err));
        }
    } else if (capture.subscriber == NULL)
        return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is taken by a client without a name");
    int code = set_watched(capture.subscriber, 1);
    if (code == FS_CUPTI_SUCCESS) {
        capture.generation = fs_fork_generation();
        capture.watching = capture.subscriber;
        if (!capturing) capture.subscriber = NULL;
        return FS_OK;
    }
    if (!capturing) detach();
    return fs_cupti_fail(code, "watching graphs", err);
}

fs_status fs_cupti_watch(bool on, bool evict, fs_error *err)
{
    if (fs_cupti == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    if (on) return begin_watching(evict, err);
    if (capture.watching == NULL || capture.generation != fs_fork_generation()) return FS_OK;
    fs_cupti_watch_launches(false);
    set_watched(capture.watching, 0);
    if (!atomic_load(&capture.capturing)) {
        capture.subscriber = capture.watching;
        capture.watching = NULL;
        detach();
    }
    capture.watching = NULL; /* a running capture keeps the subscription and ends it */
    return FS_OK;
}

/* Attaching -------------------------------------------------------------------------------------------------------- */

fs_status fs_cupti_attach_anew(bool evict, void (*told)(const void *data), fs_error *err)
{
    if (fs_cupti == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    if (atomic_load(&capture.capturing) || capture.watching != NULL)
        return fs_fail(err, FS_RUNTIME_ERROR, "a profile is in progress, or CUDA graphs are watched");
    if (capture.report.version != 0 && capture.generation != fs_fork_generation())
        return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is unavailable in a process forked after CUPTI was used");
    fs_cupti_find_functions();
    FS_TRY(subscribe(&(fs_cupti_options){.may_share = evict}, NULL, err));
    if (capture.subscriber != NULL) fs_cupti->unsubscribe(capture.subscriber);
    capture.subscriber = NULL;
    FS_TRY(evict_client(err));
    FS_TRY(subscribe(&(fs_cupti_options){.may_share = false}, NULL, err));
    capture.generation = fs_fork_generation();
    tell_module = told;
    fs_cupti->enable_callback(1, capture.subscriber, FS_CUPTI_RESOURCE_DOMAIN, FS_CUPTI_MODULE_PROFILED);
    return FS_OK;
}

void fs_cupti_detach(void)
{
    if (capture.generation == fs_fork_generation() && capture.subscriber != NULL) detach();
}

fs_cupti_report fs_cupti_last(void)
{
    if (capture.generation != fs_fork_generation())
        return (fs_cupti_report){0}; /* another thread may have held its lock at the fork */
    pthread_mutex_lock(&capture.lock);
    fs_cupti_report report = capture.report;
    if (atomic_load(&capture.capturing)) report.dropped = capture.parser.dropped;
    pthread_mutex_unlock(&capture.lock);
    return report;
}
