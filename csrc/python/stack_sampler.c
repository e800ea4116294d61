/* StackSampler: where the Python threads of this process are, every one to ten milliseconds. A thread that Python does
 * not know reads their stacks (python/stack_reader.h): it never has the GIL and asks nothing of the program, so an
 * instant is a sample wherever the program is, in an operator or between two. A sample stands for the time since the
 * one before. A thread that used no CPU time since then is where it was. The interval grows so that sampling takes at
 * most a hundredth of the time, and doubles whenever the number of runs doubles beyond MANY_RUNS. */
#include "python/core.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "base/interrupt.h"
#include "base/memory.h"
#include "python/stack_reader.h"
#include "python/store_object.h"
#include "store/stacks.h"

/* Places of code --------------------------------------------------------------------------------------------------- */

/* Names of places in Python code, "train.py(12): step", remembered by code object and instruction in a hash table. It
 * is emptied when it holds MOST_PLACES, rather than growing with programs that make code without end; names are
 * interned in the stacks and keep their ids. */

typedef struct {
    fs_code_place place; /* of no code: a free slot */
    uint32_t name;
} named_place;

/* At most half full. Zeroed: empty. */
typedef struct {
    named_place *slots;
    uint32_t count, slot_count;
} named_places;

enum {
    FIRST_SLOTS = 256,
    MOST_PLACES = 1 << 16,
    LONGEST_TEXT = 1024,
};

static bool is_place(const fs_code_place *a, const fs_code_place *b)
{
    return a->code == b->code && a->at == b->at && a->lines == b->lines && a->file == b->file &&
           a->function == b->function && a->first == b->first;
}

static uint32_t slot_of(const named_places *places, const fs_code_place *place)
{
    uint64_t hash = ((uint64_t)(uintptr_t)place->code >> 4) * 0x9e3779b97f4a7c15u +
                    (uint64_t)(uint32_t)place->at * 0xc2b2ae3d27d4eb4fu;
    uint32_t mask = places->slot_count - 1, slot = (uint32_t)(hash >> 32) & mask;
    while (places->slots[slot].place.code != NULL && !is_place(&places->slots[slot].place, place))
        slot = (slot + 1) & mask;
    return slot;
}

static bool grow(named_places *places)
{
    named_places grown = {NULL, places->count, places->slot_count > 0 ? 2 * places->slot_count : FIRST_SLOTS};
    grown.slots = fs_calloc(grown.slot_count, sizeof *grown.slots);
    if (grown.slots == NULL) return false;
    for (uint32_t i = 0; i < places->slot_count; i++) {
        const named_place *place = &places->slots[i];
        if (place->place.code != NULL) grown.slots[slot_of(&grown, &place->place)] = *place;
    }
    fs_free(places->slots);
    *places = grown;
    return true;
}

static void places_clear(named_places *places)
{
    fs_free(places->slots);
    *places = (named_places){NULL, 0, 0};
}

/* Find the name of a place, or add it to the stacks' names. */
static bool name_of(named_places *places, fs_stacks *stacks, const fs_code_place *place, uint32_t *name)
{
    char text[LONGEST_TEXT];
    if (places->count >= MOST_PLACES) places_clear(places);
    if (2 * (places->count + 1) > places->slot_count && !grow(places)) return false;
    named_place *slot = &places->slots[slot_of(places, place)];
    if (slot->place.code == NULL) {
        if (!fs_read_place(place, text, sizeof text) || fs_stacks_name(stacks, text, name, NULL) != FS_OK) return false;
        *slot = (named_place){*place, *name};
        places->count++;
    }
    *name = slot->name;
    return true;
}

/* Stack sampler ---------------------------------------------------------------------------------------------------- */

enum {
    USUAL_INTERVAL = 1000000, /* ns */
    COST_FACTOR = 100,        /* the interval is at least so many times the time that a sample takes */
    MANY_RUNS = 1 << 20,
    FIRST_THREADS = 16,
    MOST_THREADS = 4096,
    LATEST = 4096,
    LOG_INTERVAL = 20000000, /* ns between the times at which a log is written */
};

/* A Python thread that was seen. */
typedef struct {
    uint64_t id; /* of its state, which no other ever has */
    uint64_t number;
    clockid_t clock;
    int64_t cpu;
    uint32_t run;   /* the latest; FS_NONE: none that may grow */
    bool works;     /* the latest sample found it at work */
    uint32_t slept; /* where one found it asleep */
    int64_t owed;   /* ns of CPU time that no run has yet */
    int64_t at;     /* the latest sample that found it */
} seen_thread;

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t mutex; /* of the rest; the thread holds it while it takes a sample */
    pthread_cond_t wake;
    bool running, ending, has_begun;
    fs_stacks stacks;
    named_places places;
    seen_thread *threads;
    uint32_t thread_count, thread_capacity;
    int64_t interval, least, begin, last; /* ns; the time of the last sample */
    int64_t used;                         /* ns of CPU time of the thread */
    double cost;                          /* ns that a sample takes, with what it takes to wake up */
    int64_t samples, lost, torn, spent;   /* lost: for want of memory; torn: stacks that changed while they were read */
    uint32_t most_runs;
    uint32_t generation;
    pid_t process;
    int file; /* of the log; -1: the samples stay in memory */
    fs_stack_log log;
    int64_t logged; /* ns: when it was written */
} sampler_object;

/* The one that samples. Changed with the GIL. */
static sampler_object *running;
static fs_python_thread latest[MOST_THREADS]; /* of its last sample */

static bool is_running(const sampler_object *self)
{
    return self != NULL && self->running && self->generation == fs_fork_generation();
}

/* Samples -------------------------------------------------------------------------------------------------------- */

/* Return the stack of a thread, FS_NONE if it runs no Python code or cannot be read. The innermost frames of a very
 * deep one are kept. */
static uint32_t stack_of(sampler_object *self, const fs_python_thread *thread)
{
    fs_code_place places[FS_MOST_STACK_DEPTH];
    uint32_t id = FS_NONE, name;
    int depth = fs_read_stack(thread, places);
    for (int i = 0; i < 2 && depth < 0; i++) depth = fs_read_stack(thread, places);
    self->torn += depth < 0;
    while (depth > 0) {
        bool good = name_of(&self->places, &self->stacks, &places[--depth], &name) &&
                    fs_stacks_push(&self->stacks, id, name, false, &id, NULL) == FS_OK;
        if (good) continue;
        self->lost++;
        return FS_NONE;
    }
    return id;
}

static int64_t cpu_of(clockid_t clock)
{
    struct timespec time;
    return clock_gettime(clock, &time) == 0 ? (int64_t)time.tv_sec * 1000000000 + time.tv_nsec : FS_MISSING;
}

static seen_thread *find_thread(const sampler_object *self, const fs_python_thread *thread)
{
    for (uint32_t i = 0; i < self->thread_count; i++)
        if (self->threads[i].id == thread->id) return &self->threads[i];
    return NULL;
}

/* Give a run of CPU time that no run of its thread has yet what it can have used. */
static void settle(seen_thread *seen, fs_stack_run *run)
{
    int64_t room = run->end - run->begin - run->cpu, given = seen->owed < room ? seen->owed : room;
    if (given <= 0) return;
    run->cpu += given;
    seen->owed -= given;
}

/* At the end of a thread: its latest runs in which it computed did the rest. */
static void settle_all(const sampler_object *self, seen_thread *seen)
{
    uint32_t first = self->stacks.count > LATEST ? self->stacks.count - LATEST : 0;
    for (uint32_t i = self->stacks.count; i > first && seen->owed > 0; i--)
        if (self->stacks.runs[i - 1].thread == seen->number && self->stacks.runs[i - 1].cpu > 0)
            settle(seen, &self->stacks.runs[i - 1]);
}

/* Make room for one more thread; those that have ended are forgotten. */
static bool make_room(sampler_object *self)
{
    if (self->thread_count < self->thread_capacity) return true;
    uint32_t left = 0;
    for (uint32_t i = 0; i < self->thread_count; i++)
        if (self->threads[i].at >= self->last) self->threads[left++] = self->threads[i];
        else settle_all(self, &self->threads[i]);
    self->thread_count = left;
    if (2 * left <= self->thread_capacity && self->thread_capacity > 0) return true;
    uint32_t last = self->thread_capacity;
    return FS_LIST_ROOM(&self->threads, last, &self->thread_capacity, FIRST_THREADS, NULL) == FS_OK;
}

/* Add a thread that runs Python code: before it does, its state may not know its number. */
static seen_thread *add_thread(sampler_object *self, const fs_python_thread *thread)
{
    if (!make_room(self)) return NULL;
    seen_thread *added = &self->threads[self->thread_count++];
    clockid_t clock = fs_thread_clock(thread->number);
    *added = (seen_thread){thread->id, thread->number, clock, 0, FS_NONE, false, FS_NONE, 0, self->last};
    return added;
}

/* Whether a thread sleeps, by its state. */
static bool sleeps(const seen_thread *seen)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%llu/stat", (unsigned long long)seen->number);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0) close(file);
    text[size > 0 ? size : 0] = '\0';
    const char *state = strrchr(text, ')');
    return state != NULL && strncmp(state, ") R", 3) != 0;
}

/* Whether a thread computes in a stack, which used the CPU for `used` ns of the `time` since the sample before. Its
 * clock goes on while it has a CPU. It may have none, as ours has it; where it slept before, it may only have been
 * woken. */
static bool computes(seen_thread *seen, uint32_t stack, int64_t used, int64_t time)
{
    if (used == 0) return false;
    if (cpu_of(seen->clock) > seen->cpu) return true;
    if (!sleeps(seen)) return stack != seen->slept || 2 * used >= time;
    seen->slept = stack;
    return false;
}

/* Append the time since the sample before to what a thread did. It may have computed and waits now: if the sample
 * before found it at work, it went on there for as long as it used the CPU. If not, it worked in between, at a place
 * that is not known: samples that find it at work get that time. */
static void sample_thread(sampler_object *self, const fs_python_thread *thread, int64_t now)
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
    int64_t begin = self->last, cpu = cpu_of(seen->clock);
    if (cpu == FS_MISSING) return; /* it has ended, and its state is about to */
    int64_t used = cpu - seen->cpu;
    seen->at = now;
    seen->cpu = cpu;
    fs_stack_run *run = seen->run != FS_NONE ? &self->stacks.runs[seen->run] : NULL;
    bool follows = run != NULL && run->end == begin;
    uint32_t stack = first != FS_NONE ? first : follows && used == 0 ? run->stack : stack_of(self, thread);
    bool same = follows && run->stack == stack, worked = follows && seen->works;
    seen->works = computes(seen, stack, used, now - self->last);
    if (used > 0 && !seen->works && !(same && worked)) {
        int64_t moved = worked ? used < now - begin ? used : now - begin : 0;
        if (worked) {
            run->cpu += moved;
            begin = run->end += moved;
        }
        seen->owed += used - moved;
        used = 0;
    }
    const fs_stack_run added = {begin, now, 0, self->process, seen->number, stack};
    if (same) run->end = now;
    else {
        seen->run = FS_NONE;
        if (stack != FS_NONE && fs_stacks_add(&self->stacks, &added, NULL) == FS_OK) seen->run = self->stacks.count - 1;
        else self->lost += stack != FS_NONE;
    }
    seen->owed += used;
    if (seen->run != FS_NONE && used > 0) settle(seen, &self->stacks.runs[seen->run]);
}

/* Write the samples to the log. Those that go on begin again. Whoever reads the log removes it. */
static void write_log(sampler_object *self)
{
    struct stat facts;
    self->logged = self->last;
    for (uint32_t i = 0; i < self->thread_count; i++) self->threads[i].run = FS_NONE;
    bool wanted = fstat(self->file, &facts) == 0 && facts.st_nlink > 0;
    if (wanted && fs_stack_log_write(&self->log, &self->stacks, self->file, NULL) == FS_OK) return;
    self->ending = true;
    self->stacks.count = 0;
}

/* Take a sample of all threads for the time up to now. */
static void take_sample(sampler_object *self)
{
    int64_t now = fs_clock_now();
    uint32_t count = fs_read_threads(latest, MOST_THREADS);
    for (uint32_t i = 0; i < count; i++)
        if (latest[i].number != 0) sample_thread(self, &latest[i], now);
    self->last = now;
    self->samples++;
    if (self->file >= 0 && now - self->logged >= LOG_INTERVAL) write_log(self);
    int64_t used = cpu_of(CLOCK_THREAD_CPUTIME_ID), took = used - self->used;
    self->used = used;
    self->spent += took;
    double more = (double)took - self->cost;
    self->cost += more > 0 ? more / 2 : more / 16;
    if (self->stacks.count >= self->most_runs) {
        self->most_runs *= 2;
        self->least *= 2;
    }
    int64_t needed = (int64_t)(self->cost * COST_FACTOR);
    self->interval = needed > self->least ? needed : self->least;
}

/* The time `interval` ns from now. Its clock is monotonic: setting the time of day moves no sample. */
static struct timespec after(int64_t interval)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + interval;
    return (struct timespec){at / 1000000000, at % 1000000000};
}

static void *sample(void *argument)
{
    sampler_object *self = argument;
    prctl(PR_SET_NAME, "flopscope-stack", 0, 0, 0);
    FS_IGNORE(fs_interrupted()); /* a first use of thread-local data aborts if there is no memory left for it */
    pthread_mutex_lock(&self->mutex);
    self->has_begun = true;
    pthread_cond_signal(&self->wake);
    self->used = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    while (!self->ending) {
        const struct timespec until = after(self->interval);
        int status = 0;
        while (!self->ending && status != ETIMEDOUT) status = pthread_cond_timedwait(&self->wake, &self->mutex, &until);
        if (!self->ending) take_sample(self);
    }
    pthread_mutex_unlock(&self->mutex);
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
static void see_at_start(sampler_object *self, const fs_python_thread *thread)
{
    seen_thread *seen = find_thread(self, thread);
    if (seen == NULL && stack_of(self, thread) != FS_NONE) seen = add_thread(self, thread);
    int64_t cpu = seen != NULL ? cpu_of(seen->clock) : FS_MISSING;
    if (cpu != FS_MISSING) seen->cpu = cpu;
}

/* Start the thread. All signals are blocked in it: they are for the program's own. Return an errno value. */
static int start_thread(sampler_object *self)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    /* pthread_exit(), with which Python ends threads at its exit, aborts if there is no memory left to load this. */
    FS_IGNORE(dlopen("libgcc_s.so.1", RTLD_LAZY));
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    self->has_begun = false;
    int problem = pthread_create(&self->thread, NULL, sample, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&self->mutex);
    while (problem == 0 && !self->has_begun) pthread_cond_wait(&self->wake, &self->mutex);
    pthread_mutex_unlock(&self->mutex);
    return problem;
}

static PyObject *sampler_start(PyObject *object, PyObject *Py_UNUSED(unused))
{
    sampler_object *self = (sampler_object *)object;
    if (is_running(running)) return PyErr_Format(PyExc_RuntimeError, "stacks are sampled already");
    const char *missing = fs_stack_reader_missing();
    if (missing != NULL) return PyErr_Format(PyExc_NotImplementedError, "stacks cannot be sampled: %s", missing);
    self->last = self->logged = fs_clock_now();
    if (self->begin == 0) self->begin = self->last;
    uint32_t count = fs_read_threads(latest, MOST_THREADS);
    for (uint32_t i = 0; i < count; i++) see_at_start(self, &latest[i]);
    self->process = getpid();
    self->generation = fs_fork_generation();
    self->ending = false;
    int problem = start_thread(self);
    self->running = problem == 0;
    if (problem != 0)
        return PyErr_Format(PyExc_RuntimeError, "no thread can be started to sample stacks: %s", strerror(problem));
    running = self;
    Py_RETURN_NONE;
}

/* End the thread, which needs nothing of the caller's. */
static void stop(sampler_object *self)
{
    if (running == self && is_running(self)) {
        pthread_mutex_lock(&self->mutex);
        bool ended = self->ending; /* nobody reads its log */
        self->ending = true;
        pthread_cond_signal(&self->wake);
        pthread_mutex_unlock(&self->mutex);
        pthread_join(self->thread, NULL);
        self->used = cpu_of(CLOCK_THREAD_CPUTIME_ID);
        if (!ended) take_sample(self);
        for (uint32_t i = 0; i < self->thread_count; i++) settle_all(self, &self->threads[i]);
        if (!ended && self->file >= 0) write_log(self);
    }
    if (running == self) running = NULL; /* also in a forked child */
    self->running = false;
}

static PyObject *sampler_stop(PyObject *object, PyObject *Py_UNUSED(unused))
{
    stop((sampler_object *)object);
    Py_RETURN_NONE;
}

static void sampler_dealloc(PyObject *object)
{
    sampler_object *self = (sampler_object *)object;
    stop(self);
    if (self->file >= 0) close(self->file);
    places_clear(&self->places);
    fs_free(self->threads);
    fs_stacks_clear(&self->stacks);
    fs_free_object(object);
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

/* Keep the thread from taking a sample; it may be none that runs. */
static bool lock(sampler_object *self)
{
    bool runs = is_running(self);
    if (runs) pthread_mutex_lock(&self->mutex);
    return runs;
}

static void unlock(sampler_object *self, bool locked)
{
    if (locked) pthread_mutex_unlock(&self->mutex);
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
    bool locked = lock(self);
    if (good) {
        const fs_stack_folders folders = {lists[0], lists[1], lists[2], lists[3]};
        int64_t shift = store->recorded ? fs_clock_unix_offset() - store->clock_base : 0;
        fs_status status =
            fs_stacks_append(fs_store_stacks(store->store), &self->stacks, &folders, shift, INT64_MIN, INT64_MAX, &err);
        if (status != FS_OK) fs_raise(&err);
        good = status == FS_OK;
    }
    unlock(self, locked);
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
    sampler_object *self = (sampler_object *)object;
    bool locked = lock(self);
    const sampler_object now = *self;
    unlock(self, locked);
    return Py_BuildValue("{s:L,s:I,s:L,s:L,s:L,s:L,s:L}", "samples", (long long)now.samples, "runs", now.stacks.count,
                         "lost", (long long)now.lost, "torn", (long long)now.torn, "interval_ns",
                         (long long)now.interval, "spent_ns", (long long)now.spent, "lasted_ns",
                         (long long)(now.last - now.begin));
}

static PyMethodDef sampler_methods[] = {
    {"start", sampler_start, METH_NOARGS,
     "Begin to sample. RuntimeError if another does; NotImplementedError says why no stack can be read."},
    {"stop", sampler_stop, METH_NOARGS, "End sampling, until it is started again."},
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

int fs_add_stack_sampler(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, FS_TYPE_SPEC("flopscope._core.StackSampler", sampler_object, 0, sampler_slots));
}
