/* StackSampler: where the Python threads of this process are, every one to two milliseconds. A thread without Python
 * code of its own ticks. At a tick it asks the main thread to read the stacks between two instructions (a pending
 * call). If the main thread has not done so by the next tick, it waits, or is in a call, and the ticking thread reads
 * them as soon as it has the GIL: at once, in a call that has released it. To take the GIL at every tick would be
 * wrong: Python code keeps it for up to 5 ms (sys.getswitchinterval()) unless a call releases it before, so that such
 * calls would get the time of the code before them. A sample stands for the time since the one before. A thread that
 * used no CPU time since then is where it was. The interval grows so that sampling takes at most a hundredth of the
 * time, and doubles whenever the number of runs doubles beyond MANY_RUNS. */
#include "python/core.h"

#include <errno.h>
#include <fcntl.h>
#include <frameobject.h> /* what Python.h declares of frames from Python 3.11 on */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "python/pending_calls.h"
#include "python/store_object.h"
#include "store/stacks.h"

/* The ticker ------------------------------------------------------------------------------------------------------- */

/* A thread that ticks. Processes may fork beside it: it is stopped, or held off while they do. The body runs with the
 * mutex held from ticker_wait to ticker_ticked: whoever holds the ticker off, or ends it, takes the mutex and so
 * never meets a tick half done. All signals are blocked in the thread: they are for the program's own. The clock is
 * monotonic: setting the time of day moves no tick. */

typedef struct {
    pthread_t thread;
    pthread_mutex_t mutex; /* of the rest; the thread holds it while it ticks */
    pthread_cond_t wake;
    bool ending;
    uint32_t holds;
} fs_ticker;

/* Start a thread that calls `body`, without signals. Return an errno value. */
static int ticker_start(fs_ticker *ticker, void *(*body)(void *), void *argument)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&ticker->mutex, NULL);
    pthread_cond_init(&ticker->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    ticker->ending = false;
    ticker->holds = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&ticker->thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return problem;
}

/* Tell the thread to end. */
static void ticker_end(fs_ticker *ticker)
{
    pthread_mutex_lock(&ticker->mutex);
    ticker->ending = true;
    pthread_cond_signal(&ticker->wake);
    pthread_mutex_unlock(&ticker->mutex);
}

/* From the return of the first to the call of the second, the thread does not tick. They nest. */
static void ticker_hold(fs_ticker *ticker)
{
    pthread_mutex_lock(&ticker->mutex);
    ticker->holds++;
    pthread_mutex_unlock(&ticker->mutex);
}

static void ticker_release(fs_ticker *ticker)
{
    pthread_mutex_lock(&ticker->mutex);
    ticker->holds--;
    pthread_mutex_unlock(&ticker->mutex);
}

/* In the thread: wait for the next tick, `interval` ns from now, and begin it. Return false at the end. */
static bool ticker_wait(fs_ticker *ticker, const int64_t *interval)
{
    pthread_mutex_lock(&ticker->mutex);
    do {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t at = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + __atomic_load_n(interval, __ATOMIC_RELAXED);
        until = (struct timespec){at / 1000000000, at % 1000000000};
        int status = 0;
        while (!ticker->ending && status != ETIMEDOUT)
            status = pthread_cond_timedwait(&ticker->wake, &ticker->mutex, &until);
    } while (!ticker->ending && ticker->holds > 0);
    if (!ticker->ending) return true;
    pthread_mutex_unlock(&ticker->mutex);
    return false;
}

/* In the thread: end the tick. */
static void ticker_ticked(fs_ticker *ticker)
{
    pthread_mutex_unlock(&ticker->mutex);
}

/* Places of code --------------------------------------------------------------------------------------------------- */

/* Names of places in Python code, "train.py(12): step", remembered by code object and instruction. A hash table by code
 * object and instruction. It owns its code objects, so that an address stays the name of one code object while it is a
 * key. It is emptied when it holds MOST_PLACES, rather than growing with programs that make code without end; names are
 * interned in the stacks and keep their ids. */

typedef struct {
    PyCodeObject *code; /* a reference; NULL: a free slot */
    int at;             /* the offset of the instruction */
    uint32_t name;
} fs_code_place;

/* A hash table, at most half full. Zeroed: empty. */
typedef struct {
    fs_code_place *slots;
    uint32_t count, slot_count;
} fs_code_places;

enum {
    FIRST_SLOTS = 256,
    MOST_PLACES = 1 << 16, /* then all are forgotten, as a program may make code without end */
    LONGEST_TEXT = 1024,
};

static uint32_t slot_of(const fs_code_places *places, const PyCodeObject *code, int at)
{
    uint64_t hash =
        ((uint64_t)(uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u + (uint64_t)(uint32_t)at * 0xc2b2ae3d27d4eb4fu;
    uint32_t mask = places->slot_count - 1, slot = (uint32_t)(hash >> 32) & mask;
    while (places->slots[slot].code != NULL && (places->slots[slot].code != code || places->slots[slot].at != at))
        slot = (slot + 1) & mask;
    return slot;
}

static bool grow(fs_code_places *places)
{
    fs_code_places grown = {NULL, places->count, places->slot_count > 0 ? 2 * places->slot_count : FIRST_SLOTS};
    grown.slots = fs_calloc(grown.slot_count, sizeof *grown.slots);
    if (grown.slots == NULL) return false;
    for (uint32_t i = 0; i < places->slot_count; i++) {
        const fs_code_place *place = &places->slots[i];
        if (place->code != NULL) grown.slots[slot_of(&grown, place->code, place->at)] = *place;
    }
    fs_free(places->slots);
    *places = grown;
    return true;
}

/* The name of a function: with its class where this Python knows it. */
static PyObject *function_name(const PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030b0000
    return code->co_qualname;
#else
    return code->co_name;
#endif
}

static bool add_name(fs_stacks *stacks, PyFrameObject *frame, const PyCodeObject *code, uint32_t *name)
{
    char text[LONGEST_TEXT];
    const char *path = PyUnicode_AsUTF8(code->co_filename), *function = PyUnicode_AsUTF8(function_name(code));
    if (path == NULL || function == NULL) {
        PyErr_Clear();
        return false;
    }
    snprintf(text, sizeof text, "%.700s(%d): %.250s", path, PyFrame_GetLineNumber(frame), function);
    return fs_stacks_name(stacks, text, name, NULL) == FS_OK;
}

static void code_places_clear(fs_code_places *places)
{
    fs_code_places before = *places;
    *places = (fs_code_places){NULL, 0, 0};
    for (uint32_t i = 0; i < before.slot_count; i++) Py_XDECREF(before.slots[i].code);
    fs_free(before.slots);
}

static bool find(fs_code_places *places, fs_stacks *stacks, PyFrameObject *frame, PyCodeObject *code, uint32_t *name)
{
#if PY_VERSION_HEX >= 0x030b0000
    int at = PyFrame_GetLasti(frame);
#else
    int at = frame->f_lasti;
#endif
    if (places->count >= MOST_PLACES) code_places_clear(places);
    if (2 * (places->count + 1) > places->slot_count && !grow(places)) return false;
    fs_code_place *place = &places->slots[slot_of(places, code, at)];
    if (place->code == NULL) {
        if (!add_name(stacks, frame, code, name)) return false;
        *place = (fs_code_place){(PyCodeObject *)Py_NewRef(code), at, *name};
        places->count++;
    }
    *name = place->name;
    return true;
}

/* Find the name of where a frame is, or add it to the stacks' names. Return false if that fails, without an exception.
 * */
static bool code_places_find(fs_code_places *places, fs_stacks *stacks, PyFrameObject *frame, uint32_t *name)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool good = find(places, stacks, frame, code, name);
    Py_DECREF(code);
    return good;
}

/* Stack sampler ---------------------------------------------------------------------------------------------------- */

enum {
    USUAL_INTERVAL = 1000000, /* ns */
    COST_FACTOR = 125,        /* the interval is at least so many times the time that a sample takes; caches add some */
    WAITING = 50,             /* a thread that uses less than the 50th of a time waits */
    MANY_RUNS = 1 << 20,
    FIRST_THREADS = 16,
    LOG_INTERVAL = 20000000, /* ns between the times at which a log is written */
};

/* A Python thread that was seen. */
typedef struct {
    uint64_t id; /* of its state, which no other ever has */
    uint64_t number;
    clockid_t clock;
    int64_t cpu;
    uint32_t run;    /* the latest; FS_NONE: none that may grow */
    uint32_t before; /* the run that it followed at once, if it has one sample; FS_NONE: neither */
    int64_t at;      /* the latest sample that found it */
} seen_thread;

typedef struct {
    PyObject_HEAD
    fs_stacks stacks;
    fs_code_places places;
    seen_thread *threads;
    uint32_t thread_count, thread_capacity;
    int64_t interval, least, begin, last; /* ns; the time of the last sample */
    double cost;                          /* ns that a sample takes */
    int64_t samples, lost, spent;
    uint32_t most_runs;
    bool running;
    uint32_t generation;
    pid_t process;
    fs_ticker ticker;
    sem_t ready; /* the thread has its state: what it needs of memory, it has before the program goes on */
    bool held;
    int file; /* of the log; -1: the samples stay in memory */
    fs_stack_log log;
    int64_t logged; /* ns: when it was written */
    int64_t asked;  /* ns: since when the main thread has a pending call; 0: it has none */
    int64_t tick;   /* ns that a tick takes the ticking thread, without the sample */
} sampler_object;

/* The one that samples. Changed with the GIL. */
static sampler_object *running;

static bool is_running(const sampler_object *self)
{
    return self != NULL && self->running && self->generation == fs_fork_generation();
}

/* Samples -------------------------------------------------------------------------------------------------------- */

/* Return the stack of a thread, FS_NONE if it runs no Python code. The innermost frames of a very deep one are
 * kept. */
static uint32_t stack_of(sampler_object *self, PyThreadState *thread)
{
    uint32_t names[FS_MOST_STACK_DEPTH], depth = 0, id = FS_NONE;
    PyFrameObject *frame = PyThreadState_GetFrame(thread);
    bool good = true;
    while (frame != NULL) {
        good =
            good && depth < FS_MOST_STACK_DEPTH && code_places_find(&self->places, &self->stacks, frame, &names[depth]);
        if (good) depth++;
        PyFrameObject *outer = depth < FS_MOST_STACK_DEPTH ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = outer;
    }
    while (good && depth > 0) good = fs_stacks_push(&self->stacks, id, names[--depth], false, &id, NULL) == FS_OK;
    if (!good) self->lost++;
    return good ? id : FS_NONE;
}

static int64_t cpu_of(clockid_t clock)
{
    struct timespec time;
    return clock_gettime(clock, &time) == 0 ? (int64_t)time.tv_sec * 1000000000 + time.tv_nsec : FS_MISSING;
}

static seen_thread *find_thread(const sampler_object *self, const PyThreadState *thread)
{
    for (uint32_t i = 0; i < self->thread_count; i++)
        if (self->threads[i].id == thread->id) return &self->threads[i];
    return NULL;
}

/* Make room for one more thread; those that have ended are forgotten. */
static bool make_room(sampler_object *self)
{
    if (self->thread_count < self->thread_capacity) return true;
    uint32_t left = 0;
    for (uint32_t i = 0; i < self->thread_count; i++)
        if (self->threads[i].at >= self->last) self->threads[left++] = self->threads[i];
    self->thread_count = left;
    if (2 * left <= self->thread_capacity && self->thread_capacity > 0) return true;
    uint32_t last = self->thread_capacity;
    return FS_LIST_ROOM(&self->threads, last, &self->thread_capacity, FIRST_THREADS, NULL) == FS_OK;
}

/* Add a thread that runs Python code: before it does, its state may not know its id. */
static seen_thread *add_thread(sampler_object *self, const PyThreadState *thread)
{
    if (!make_room(self)) return NULL;
    seen_thread *added = &self->threads[self->thread_count];
    *added = (seen_thread){.id = thread->id, .run = FS_NONE, .before = FS_NONE, .at = self->last};
    /* Linux: the clock of a thread contains its id (MAKE_THREAD_CPUCLOCK in linux/posix-timers.h). */
#if PY_VERSION_HEX >= 0x030b0000
    added->number = thread->native_thread_id;
    added->clock = (clockid_t)(~(unsigned)added->number << 3 | 6U);
#else
    if (pthread_getcpuclockid((pthread_t)thread->thread_id, &added->clock) != 0) return NULL;
    added->number = (uint64_t)~(added->clock >> 3);
#endif
    self->thread_count++;
    return added;
}

/* Append the time since the sample before to what a thread did. */
static void sample_thread(sampler_object *self, PyThreadState *thread, int64_t now)
{
    seen_thread *seen = find_thread(self, thread);
    uint32_t first = FS_NONE;
    if (seen == NULL) {
        first = stack_of(self, thread);
        if (first == FS_NONE) return;
        seen = add_thread(self, thread);
        if (seen == NULL) {
            self->lost++;
            return;
        }
    }
    seen->at = now;
    int64_t cpu = cpu_of(seen->clock),
            used = cpu != FS_MISSING && seen->cpu != FS_MISSING ? cpu - seen->cpu : FS_MISSING;
    seen->cpu = cpu;
    fs_stack_run *run = seen->run != FS_NONE ? &self->stacks.runs[seen->run] : NULL;
    bool follows = run != NULL && run->end == self->last;
    uint32_t stack = first != FS_NONE ? first : follows && used == 0 ? run->stack : stack_of(self, thread);
    if (follows && run->stack == stack) {
        if (seen->before != FS_NONE && used != FS_MISSING && WAITING * used <= now - self->last)
            fs_stacks_begin_later(&self->stacks, seen->run, seen->before);
        seen->before = FS_NONE;
        run->end = now;
        run->cpu = run->cpu == FS_MISSING || used == FS_MISSING ? FS_MISSING : run->cpu + used;
        return;
    }
    const fs_stack_run added = {self->last, now, used, self->process, seen->number, stack};
    seen->before = follows ? seen->run : FS_NONE;
    seen->run = FS_NONE;
    if (stack == FS_NONE) return;
    if (fs_stacks_add(&self->stacks, &added, NULL) == FS_OK) seen->run = self->stacks.count - 1;
    else self->lost++;
}

static PyThreadState *first_thread(void)
{
    return PyInterpreterState_ThreadHead(PyInterpreterState_Main());
}

/* Write the samples to the log. Those that go on begin again. Whoever reads the log removes it. */
static void write_log(sampler_object *self)
{
    struct stat facts;
    self->logged = self->last;
    for (uint32_t i = 0; i < self->thread_count; i++) self->threads[i].run = FS_NONE;
    bool wanted = fstat(self->file, &facts) == 0 && facts.st_nlink > 0;
    if (wanted && fs_stack_log_write(&self->log, &self->stacks, self->file, NULL) == FS_OK) return;
    ticker_end(&self->ticker);
    self->running = false;
    self->stacks.count = 0;
}

/* Take a sample of all threads for the time up to `now`, with the GIL. */
static void take_sample(sampler_object *self, int64_t now)
{
    int64_t used = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    for (PyThreadState *thread = first_thread(); thread != NULL; thread = PyThreadState_Next(thread))
        sample_thread(self, thread, now);
    self->last = now;
    self->samples++;
    if (self->file >= 0 && now - self->logged >= LOG_INTERVAL) write_log(self);
    int64_t took = cpu_of(CLOCK_THREAD_CPUTIME_ID) - used + __atomic_load_n(&self->tick, __ATOMIC_RELAXED);
    self->spent += took;
    self->cost += ((double)took - self->cost) / 16;
    if (self->stacks.count >= self->most_runs) {
        self->most_runs *= 2;
        self->least *= 2;
    }
    int64_t needed = (int64_t)(self->cost * COST_FACTOR);
    self->interval = needed > self->least ? needed : self->least;
}

/* A pending call of the main thread: the sample of the tick that asked for it, as the thread has been in the same call
 * since. Samples must be of instants that the program does not choose, so one that comes after that of a later tick, at
 * the end of a wait, is none. */
static int sample_now(void *Py_UNUSED(unused))
{
    if (!is_running(running)) return 0;
    int64_t asked = __atomic_exchange_n(&running->asked, 0, __ATOMIC_RELAXED);
    if (asked > running->last) take_sample(running, asked);
    return 0;
}

/* Ask the main thread for a sample. Return false if it has not taken the one before, or cannot be asked. */
static bool ask(sampler_object *self)
{
    if (__atomic_load_n(&self->asked, __ATOMIC_RELAXED) != 0) return false;
    __atomic_store_n(&self->asked, fs_clock_now(), __ATOMIC_RELAXED);
    if (Py_AddPendingCall(sample_now, NULL) != 0) {
        __atomic_store_n(&self->asked, 0, __ATOMIC_RELAXED);
        return false;
    }
    fs_look_for_pending_calls();
    return true;
}

static void *tick(void *argument)
{
    sampler_object *self = argument;
    prctl(PR_SET_NAME, "flopscope-stack", 0, 0, 0);
    PyGILState_STATE state = PyGILState_Ensure(); /* CPython 3.11 crashes here without memory, hence `ready` */
    PyThreadState *mine = PyEval_SaveThread();
    sem_post(&self->ready);
    int64_t begun = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    while (ticker_wait(&self->ticker, &self->interval)) {
        bool asked = ask(self);
        ticker_ticked(&self->ticker);
        __atomic_store_n(&self->tick, cpu_of(CLOCK_THREAD_CPUTIME_ID) - begun, __ATOMIC_RELAXED);
        if (!asked) {
            PyEval_RestoreThread(mine);
            if (is_running(self)) take_sample(self, fs_clock_now());
            mine = PyEval_SaveThread();
        }
        begun = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    }
    PyEval_RestoreThread(mine);
    PyGILState_Release(state);
    return NULL;
}

/* Life ----------------------------------------------------------------------------------------------------------- */

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"interval_ns", "log", NULL};
    long long interval = USUAL_INTERVAL;
    PyObject *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LO&:StackSampler", names, &interval, PyUnicode_FSConverter, &path))
        return NULL;
    sampler_object *self = NULL;
    int file = path == NULL ? -1 : open(PyBytes_AS_STRING(path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (interval <= 0) PyErr_Format(PyExc_ValueError, "interval_ns must be positive, not %lld", interval);
    else if (path != NULL && file < 0) PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AS_STRING(path));
    else self = (sampler_object *)type->tp_alloc(type, 0);
    Py_XDECREF(path);
    if (self == NULL) {
        if (file >= 0) close(file);
        return NULL;
    }
    self->least = self->interval = interval;
    self->most_runs = MANY_RUNS;
    self->file = file;
    return (PyObject *)self;
}

/* See a thread that runs already: what it did before is not sampled. */
static void see_at_start(sampler_object *self, PyThreadState *thread)
{
    seen_thread *seen = find_thread(self, thread);
    if (seen == NULL && stack_of(self, thread) != FS_NONE) seen = add_thread(self, thread);
    if (seen != NULL) seen->cpu = cpu_of(seen->clock);
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) continue; /* a signal came */
}

static PyObject *sampler_start(PyObject *object, PyObject *Py_UNUSED(unused))
{
    sampler_object *self = (sampler_object *)object;
    if (is_running(running)) return PyErr_Format(PyExc_RuntimeError, "stacks are sampled already");
    self->last = self->logged = fs_clock_now();
    if (self->begin == 0) self->begin = self->last;
    for (PyThreadState *thread = first_thread(); thread != NULL; thread = PyThreadState_Next(thread))
        see_at_start(self, thread);
    self->process = getpid();
    self->generation = fs_fork_generation();
    self->held = false;
    self->asked = 0;
    self->running = true;
    sem_init(&self->ready, 0, 0);
    int problem = ticker_start(&self->ticker, tick, self);
    if (problem != 0) {
        self->running = false;
        return PyErr_Format(PyExc_RuntimeError, "no thread can be started to sample stacks: %s", strerror(problem));
    }
    running = self;
    Py_BEGIN_ALLOW_THREADS wait_for(&self->ready);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void stop(sampler_object *self)
{
    if (running == self && self->generation == fs_fork_generation()) {
        take_sample(self, fs_clock_now());
        if (self->file >= 0) write_log(self);
        running = NULL;
        ticker_end(&self->ticker);
        Py_BEGIN_ALLOW_THREADS pthread_join(self->ticker.thread, NULL);
        Py_END_ALLOW_THREADS
    }
    if (running == self) running = NULL; /* in a forked child */
    self->running = false;
}

static PyObject *sampler_stop(PyObject *object, PyObject *Py_UNUSED(unused))
{
    stop((sampler_object *)object);
    Py_RETURN_NONE;
}

/* Before a fork. A Python that is alone with the ticking thread warns of the fork if that thread runs. In one with
 * other threads, to end and to start it would take its turn, and the caller's, at the GIL: 5 ms for each busy thread,
 * several times. */
static PyObject *sampler_hold(PyObject *object, PyObject *Py_UNUSED(unused))
{
    sampler_object *self = (sampler_object *)object;
    if (running != self || !is_running(self)) Py_RETURN_NONE;
    int threads = 0;
    for (PyThreadState *thread = first_thread(); thread != NULL; thread = PyThreadState_Next(thread)) threads++;
    self->held = threads > 2; /* the caller and the ticking thread */
    if (self->held) ticker_hold(&self->ticker);
    else stop(self);
    Py_RETURN_NONE;
}

static PyObject *sampler_release(PyObject *object, PyObject *unused)
{
    sampler_object *self = (sampler_object *)object;
    if (!self->held) return sampler_start(object, unused);
    ticker_release(&self->ticker);
    Py_RETURN_NONE;
}

static void sampler_dealloc(PyObject *object)
{
    sampler_object *self = (sampler_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    stop(self);
    if (self->file >= 0) close(self->file);
    code_places_clear(&self->places);
    fs_free(self->threads);
    fs_stacks_clear(&self->stacks);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Results -------------------------------------------------------------------------------------------------------- */

/* Return the strings of a tuple as a list that ends in NULL; they live as long as the tuple. PyMem_Free it. NULL with
 * an exception set on failure. */
static const char **texts_of(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    const char **texts = PyMem_Calloc((size_t)count + 1, sizeof *texts);
    if (texts == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; texts != NULL && i < count; i++) {
        texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, i));
        if (texts[i] != NULL) continue;
        PyMem_Free(texts);
        texts = NULL;
    }
    return texts;
}

static PyObject *sampler_pour(PyObject *object, PyObject *args)
{
    sampler_object *self = (sampler_object *)object;
    PyObject *into, *tuples[4];
    const char **lists[4] = {NULL, NULL, NULL, NULL};
    int taken = 0;
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!:pour", fs_store_type, &into, &PyTuple_Type, &tuples[0], &PyTuple_Type,
                          &tuples[1], &PyTuple_Type, &tuples[2], &PyTuple_Type, &tuples[3]))
        return NULL;
    fs_store_object *store = (fs_store_object *)into;
    while (taken < 4 && (lists[taken] = texts_of(tuples[taken])) != NULL) taken++;
    bool good = taken == 4 && fs_store_object_is_stopped(store, "stacks") && fs_store_object_may_change(store);
    if (good) {
        const fs_stack_folders folders = {lists[0], lists[1], lists[2], lists[3]};
        int64_t shift = store->recorded ? fs_clock_unix_offset() - store->clock_base : 0;
        fs_status status =
            fs_stacks_append(fs_store_stacks(store->store), &self->stacks, &folders, shift, INT64_MIN, INT64_MAX, &err);
        if (status != FS_OK) fs_raise(&err);
        good = status == FS_OK;
    }
    for (int i = 0; i < 4; i++) PyMem_Free(lists[i]);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

static PyObject *sampler_add_log(PyObject *object, PyObject *bytes)
{
    sampler_object *self = (sampler_object *)object;
    char *text;
    Py_ssize_t size;
    fs_stacks found = {0};
    fs_error err;
    if (PyBytes_AsStringAndSize(bytes, &text, &size) < 0) return NULL;
    fs_status status = fs_stack_log_read(&found, text, (size_t)size, &err);
    if (status == FS_OK) status = fs_stacks_append(&self->stacks, &found, NULL, 0, INT64_MIN, INT64_MAX, &err);
    fs_stacks_clear(&found);
    return fs_none_or_raise(status, &err);
}

static PyObject *sampler_report(PyObject *object, void *Py_UNUSED(unused))
{
    const sampler_object *self = (const sampler_object *)object;
    return Py_BuildValue("{s:L,s:I,s:L,s:L,s:L,s:L}", "samples", (long long)self->samples, "runs", self->stacks.count,
                         "lost", (long long)self->lost, "interval_ns", (long long)self->interval, "spent_ns",
                         (long long)self->spent, "lasted_ns", (long long)(self->last - self->begin));
}

static PyMethodDef sampler_methods[] = {
    {"start", sampler_start, METH_NOARGS, "Begin to sample. RuntimeError says why that is impossible."},
    {"stop", sampler_stop, METH_NOARGS, "End sampling, until it is started again."},
    {"hold", sampler_hold, METH_NOARGS, "Before a fork: let no thread of the sampler do anything."},
    {"release", sampler_release, METH_NOARGS, "After a fork, in the parent: go on."},
    {"add_log", sampler_add_log, METH_O,
     "Append the samples of the log of another sampler, as bytes; of this one, stopped."},
    {"pour", sampler_pour, METH_VARARGS,
     "pour($self, store, launchers, hidden, libraries, shortened, /)\n--\n\nAppend the samples to a store. Tuples of "
     "folders, with their separators: those whose frames and their callers\nare left out, those whose frames are left "
     "out, those of libraries, and those below which names begin."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef sampler_getset[] = {
    {"report", sampler_report, NULL, "What was sampled, and what that took.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot sampler_slots[] = {
    {Py_tp_new, sampler_new},
    {Py_tp_dealloc, sampler_dealloc},
    {Py_tp_methods, sampler_methods},
    {Py_tp_getset, sampler_getset},
    {Py_tp_doc,
     "StackSampler(interval_ns=1_000_000, log=None)\n--\n\n"
     "Samples the stacks of all Python threads of this process. log: a file to create, which then has them."},
    {0, NULL},
};

static PyType_Spec sampler_spec = {
    .name = "flopscope._core.StackSampler",
    .basicsize = sizeof(sampler_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = sampler_slots,
};

int fs_add_stack_sampler(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, &sampler_spec);
}
