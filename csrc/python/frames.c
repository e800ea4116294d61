/* The GIL guards all state here. Each thread has a stack of calls in progress that mirrors Python's: a return ends its
 * call and all inside it, so a return that was not seen cannot leave an event open. Code objects are owned, frames are
 * only compared. A function that may run Python code is followed by a new look at `running`, as that code may have
 * stopped the tracing. Without memory a call is counted as lost, and the program goes on. */
#include "python/frames.h"

#include <frameobject.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "python/core.h"
#include "python/task.h"

/* A call in progress. The pointer is compared, never dereferenced: it identifies the call that a return ends. */
typedef struct {
    const PyFrameObject *frame;
    uint32_t event; /* FS_NONE: no event is recorded for the call */
} call_entry;

/* The state of one thread: its calls in progress, the innermost last. */
typedef struct thread_calls {
    uint32_t lane;
    uint32_t depth, capacity;
    bool begun; /* started by fs_frames_start, before the thread's first event */
    call_entry *calls;
    struct thread_calls *next;
} thread_calls;

/* A function and the name of its frames: an id in the store, or FS_NONE for flopscope's own functions. */
typedef struct {
    PyCodeObject *code; /* owned, so that its address is not reused; NULL: free slot */
    uint32_t name;
} code_slot;

struct fs_frames {
    fs_store *store;
    uint64_t serial;     /* distinguishes tracers in thread_cache, as addresses may be reused */
    uint32_t generation; /* of the process */
    PyObject *paths; /* (flopscope's own folder, the folders that paths are relative to), each ending in a separator */
    PyObject *previous_hook; /* threading's profile hook before tracing */
    code_slot *codes;        /* hash table by address; a power of two, at most half full */
    uint32_t code_count, slot_count;
    thread_calls *threads;
    int64_t lost;
};

enum { FIRST_SLOTS = 1024, FIRST_CALLS = 64 };

/* The active tracer. The GIL guards all state of this file. */
static fs_frames *running;
static PyObject *thread_hook;
static uint64_t serials;

/* The calling thread's state in the tracer that used it last. */
static _Thread_local struct {
    uint64_t serial;
    thread_calls *calls;
} thread_cache;

/* Names of functions --------------------------------------------------------------------------------------------- */

static uint32_t slot_of(const fs_frames *frames, const PyCodeObject *code)
{
    uint32_t slot = (uint32_t)(((uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u >> 32) & (frames->slot_count - 1);
    while (frames->codes[slot].code != NULL && frames->codes[slot].code != code) {
        slot = (slot + 1) & (frames->slot_count - 1);
    }
    return slot;
}

static bool grow_codes(fs_frames *frames)
{
    code_slot *before = frames->codes;
    uint32_t count = frames->slot_count, more = count ? 2 * count : FIRST_SLOTS;
    code_slot *codes = fs_calloc(more, sizeof *codes);
    if (codes == NULL) return false;
    frames->codes = codes;
    frames->slot_count = more;
    for (uint32_t i = 0; i < count; i++) {
        if (before[i].code != NULL) codes[slot_of(frames, before[i].code)] = before[i];
    }
    fs_free(before);
    return true;
}

/* Return `path` relative to the first folder that contains it, or `path` itself. A new reference. */
static PyObject *below(PyObject *path, PyObject *folders)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(folders); i++) {
        PyObject *folder = PyTuple_GET_ITEM(folders, i);
        Py_ssize_t inside = PyUnicode_Tailmatch(path, folder, 0, PY_SSIZE_T_MAX, -1);
        if (inside < 0) return NULL;
        if (inside) return PyUnicode_Substring(path, PyUnicode_GET_LENGTH(folder), PY_SSIZE_T_MAX);
    }
    return Py_NewRef(path);
}

/* Look up or add the function's name in the store. Return false with an exception set on failure. */
static bool name_function(fs_frames *frames, const PyCodeObject *code, uint32_t *name)
{
    *name = FS_NONE;
    Py_ssize_t own = PyUnicode_Tailmatch(code->co_filename, PyTuple_GET_ITEM(frames->paths, 0), 0, PY_SSIZE_T_MAX, -1);
    if (own != 0) return own > 0;
    PyObject *path = below(code->co_filename, PyTuple_GET_ITEM(frames->paths, 1));
    PyObject *text = path ? PyUnicode_FromFormat("%U(%d): %U", path, code->co_firstlineno, code->co_name) : NULL;
    PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
    bool good = bytes != NULL && fs_store_name(frames->store, PyBytes_AS_STRING(bytes), name, NULL) == FS_OK;
    Py_XDECREF(path);
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    return good;
}

static bool add_function(fs_frames *frames, PyCodeObject *code, uint32_t *name)
{
    if (2 * (frames->code_count + 1) > frames->slot_count && !grow_codes(frames)) return false;
    if (!name_function(frames, code, name)) {
        PyErr_Clear();
        return false;
    }
    frames->codes[slot_of(frames, code)] = (code_slot){(PyCodeObject *)Py_NewRef(code), *name};
    frames->code_count++;
    return true;
}

static bool find_function(fs_frames *frames, PyFrameObject *frame, uint32_t *name)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    const code_slot *slot = &frames->codes[slot_of(frames, code)];
    bool good = true;
    *name = slot->name;
    if (slot->code == NULL) good = add_function(frames, code, name);
    Py_DECREF(code);
    return good;
}

/* Calls ---------------------------------------------------------------------------------------------------------- */

static void begin_call(fs_frames *frames, thread_calls *thread, PyFrameObject *frame)
{
    uint32_t name, event = FS_NONE;
    if (FS_LIST_ROOM(&thread->calls, thread->depth, &thread->capacity, FIRST_CALLS, NULL) != FS_OK) {
        frames->lost++;
        return;
    }
    if (!find_function(frames, frame, &name) ||
        (name != FS_NONE &&
         fs_store_begin_on(frames->store, thread->lane, FS_EVENT_FRAME, name, fs_clock_now(), &event, NULL) != FS_OK)) {
        frames->lost++;
    }
    thread->calls[thread->depth++] = (call_entry){frame, event};
}

/* End calls until only `depth` remain. */
static void end_calls(fs_frames *frames, thread_calls *thread, uint32_t depth)
{
    if (thread->depth <= depth) return;
    int64_t now = fs_clock_now();
    while (thread->depth > depth) {
        uint32_t event = thread->calls[--thread->depth].event;
        if (event != FS_NONE) fs_store_end(frames->store, event, now);
    }
}

/* End the call of the frame, and the calls inside it whose returns were not observed. A return without a recorded call
 * is ignored. */
static void end_call(fs_frames *frames, thread_calls *thread, const PyFrameObject *frame)
{
    uint32_t depth = thread->depth;
    while (depth > 0 && thread->calls[depth - 1].frame != frame) depth--;
    if (depth > 0) end_calls(frames, thread, depth - 1);
}

/* Begin `frame`, which may be NULL, and its callers, the outermost first. Takes ownership of the reference. */
static void begin_calls(fs_frames *frames, thread_calls *thread, PyFrameObject *frame)
{
    PyObject *chain = PyList_New(0);
    while (frame != NULL) {
        PyFrameObject *outer = PyFrame_GetBack(frame);
        if (chain == NULL || PyList_Append(chain, (PyObject *)frame) < 0) {
            PyErr_Clear();
            frames->lost++;
        }
        Py_DECREF(frame);
        frame = outer;
    }
    for (Py_ssize_t i = chain ? PyList_GET_SIZE(chain) : 0; i-- > 0;) {
        begin_call(frames, thread, (PyFrameObject *)PyList_GET_ITEM(chain, i));
    }
    Py_XDECREF(chain);
}

static thread_calls *add_thread(fs_frames *frames, uint32_t lane)
{
    thread_calls *thread = fs_calloc(1, sizeof *thread);
    if (thread == NULL) return NULL;
    thread->lane = lane;
    thread->next = frames->threads;
    return frames->threads = thread;
}

/* Return the calling thread's state. On the thread's first event, begin the calls around `frame`. */
static thread_calls *this_thread(fs_frames *frames, PyFrameObject *frame)
{
    uint32_t lane;
    if (thread_cache.serial == frames->serial) return thread_cache.calls;
    if (fs_store_thread_lane(frames->store, &lane, NULL) != FS_OK) return NULL;
    thread_calls *thread = frames->threads;
    while (thread != NULL && thread->lane != lane) thread = thread->next;
    if (thread == NULL) thread = add_thread(frames, lane);
    if (thread == NULL) return NULL;
    if (!thread->begun) { /* a new thread, or one that reuses the id of an ended thread */
        end_calls(frames, thread, 0);
        begin_calls(frames, thread, PyFrame_GetBack(frame));
    }
    thread->begun = false;
    thread_cache.serial = frames->serial;
    return thread_cache.calls = thread;
}

/* The profile function ------------------------------------------------------------------------------------------- */

static bool is_running(void)
{
    return running != NULL && running->generation == fs_fork_generation();
}

static int trace(PyObject *Py_UNUSED(unused), PyFrameObject *frame, int what, PyObject *Py_UNUSED(result))
{
    if (!is_running()) { /* a thread that fs_frames_stop could not reach, or a forked child */
        PyEval_SetProfile(NULL, NULL);
        return 0;
    }
    if (what != PyTrace_CALL && what != PyTrace_RETURN) return 0;
    fs_task_look();
    if (!is_running()) return 0;
    thread_calls *thread = this_thread(running, frame);
    if (thread == NULL) running->lost++;
    else if (what == PyTrace_CALL) begin_call(running, thread, frame);
    else end_call(running, thread, frame);
    return 0;
}

/* The hook that threading passes to sys.setprofile in each new thread. At its first event it installs `trace`
 * instead. */
static PyObject *enter_thread(PyObject *Py_UNUSED(unused), PyObject *args)
{
    PyObject *frame, *event, *result;
    if (!PyArg_ParseTuple(args, "O!UO", &PyFrame_Type, &frame, &event, &result)) return NULL;
    PyEval_SetProfile(is_running() ? trace : NULL, NULL);
    if (is_running() && PyUnicode_CompareWithASCIIString(event, "call") == 0) {
        trace(NULL, (PyFrameObject *)frame, PyTrace_CALL, NULL);
    }
    Py_RETURN_NONE;
}

static PyMethodDef hook_method = {"enter_thread", enter_thread, METH_VARARGS, NULL};

/* Replace threading's profile hook by `hook`, or restore the previous one if it is NULL. Return false with an exception
 * set on failure. */
static bool set_hook(fs_frames *frames, PyObject *hook)
{
    PyObject *threading = PyImport_ImportModule("threading"), *done = NULL;
    PyObject *now = threading ? PyObject_CallMethod(threading, "getprofile", NULL) : NULL;
    if (now != NULL && hook != NULL) {
        frames->previous_hook = Py_NewRef(now);
        done = PyObject_CallMethod(threading, "setprofile", "O", hook);
    } else if (now == thread_hook && frames->previous_hook != NULL) {
        done = PyObject_CallMethod(threading, "setprofile", "O", frames->previous_hook);
    }
    bool good = done != NULL || !PyErr_Occurred();
    Py_XDECREF(threading);
    Py_XDECREF(now);
    Py_XDECREF(done);
    return good;
}

static bool is_ours(const PyThreadState *thread)
{
    return thread->c_profilefunc == trace || (thread_hook != NULL && thread->c_profileobj == thread_hook);
}

static PyThreadState *first_thread(void)
{
    return PyInterpreterState_ThreadHead(PyInterpreterState_Get());
}

/* Return the thread with the largest id below `id`, or NULL. Ids ascend and are never reused. A loop that may run
 * Python code uses this to continue, as the current thread may have ended meanwhile. */
static PyThreadState *thread_below(uint64_t id)
{
    PyThreadState *result = NULL;
    for (PyThreadState *thread = first_thread(); thread != NULL; thread = PyThreadState_Next(thread)) {
        if (thread->id < id && (result == NULL || thread->id > result->id)) result = thread;
    }
    return result;
}

/* Return false, with an exception set, if a thread has a foreign profile function. */
static bool none_is_foreign(void)
{
    for (PyThreadState *thread = first_thread(); thread != NULL; thread = PyThreadState_Next(thread)) {
        if (thread->c_profilefunc == NULL || is_ours(thread)) continue;
        PyObject *owner = Py_NewRef(thread->c_profileobj != NULL ? thread->c_profileobj : Py_None);
        PyErr_Format(PyExc_RuntimeError,
                     "with_stack needs Python's profile function, but another profiler uses it (%R): end that profiler "
                     "first (sys.setprofile(None)), or profile without stacks",
                     owner);
        Py_DECREF(owner);
        return false;
    }
    return true;
}

/* Install the profile function in every thread, or remove it if `function` is NULL. */
static void set_on_all_threads(Py_tracefunc function)
{
#if PY_VERSION_HEX >= 0x030c0000
    bool all = function != NULL || none_is_foreign();
    PyErr_Clear();
    if (all) PyEval_SetProfileAllThreads(function, NULL);
    else if (is_ours(PyThreadState_Get()))
        PyEval_SetProfile(NULL, NULL); /* other threads remove it at their next
                                        * event */
#else
    uint64_t id = UINT64_MAX;
    for (PyThreadState *thread; (thread = thread_below(id)) != NULL;) {
        id = thread->id;
        if ((function != NULL || is_ours(thread)) && _PyEval_SetProfile(thread, function, NULL) < 0) PyErr_Clear();
    }
#endif
}

/* Begin the calls that every thread is in. Before Python 3.11 a thread state does not hold its thread's id, so the
 * other threads are recorded from their next call or return. */
static void begin_threads(fs_frames *frames)
{
    const PyThreadState *mine = PyThreadState_Get();
    uint64_t id = UINT64_MAX;
    for (PyThreadState *thread; (thread = thread_below(id)) != NULL;) {
        uint32_t lane = FS_NONE;
        fs_status status = FS_OK;
        id = thread->id;
        if (thread == mine) status = fs_store_thread_lane(frames->store, &lane, NULL);
#if PY_VERSION_HEX >= 0x030b0000
        else status = fs_store_thread_lane_of(frames->store, thread->native_thread_id, &lane, NULL);
#endif
        if (status == FS_OK && lane == FS_NONE) continue;
        thread_calls *calls = status == FS_OK ? add_thread(frames, lane) : NULL;
        if (calls == NULL) {
            frames->lost++;
            continue;
        }
        calls->begun = true;
        begin_calls(frames, calls, PyThreadState_GetFrame(thread));
    }
}

/* Life ----------------------------------------------------------------------------------------------------------- */

static void destroy(fs_frames *frames)
{
    for (uint32_t i = 0; i < frames->slot_count; i++) Py_XDECREF(frames->codes[i].code);
    while (frames->threads != NULL) {
        thread_calls *thread = frames->threads;
        frames->threads = thread->next;
        fs_free(thread->calls);
        fs_free(thread);
    }
    Py_XDECREF(frames->paths);
    Py_XDECREF(frames->previous_hook);
    fs_free(frames->codes);
    fs_free(frames);
}

/* Return (own folder, (folder, …)), or NULL with an exception set. */
static PyObject *find_paths(void)
{
    PyObject *module = PyImport_ImportModule("flopscope.support.package"), *own, *folders, *paths = NULL;
    PyObject *result = module ? PyObject_CallMethod(module, "source_folders", NULL) : NULL;
    if (result != NULL && PyArg_ParseTuple(result, "UO!", &own, &PyList_Type, &folders)) {
        folders = PyList_AsTuple(folders);
        paths = folders ? PyTuple_Pack(2, own, folders) : NULL;
        Py_XDECREF(folders);
    }
    Py_XDECREF(result);
    Py_XDECREF(module);
    return paths;
}

fs_frames *fs_frames_start(fs_store *store)
{
    if (is_running())
        return PyErr_Format(PyExc_RuntimeError,
                            "another profile already records stacks; stop it before starting this one"),
               NULL;
    if (!none_is_foreign()) return NULL;
    if (thread_hook == NULL) thread_hook = PyCFunction_New(&hook_method, NULL);
    if (thread_hook == NULL) return NULL;
    fs_frames *frames = fs_calloc(1, sizeof *frames);
    if (frames == NULL || !grow_codes(frames)) {
        fs_free(frames);
        PyErr_NoMemory();
        return NULL;
    }
    frames->store = store;
    frames->serial = ++serials;
    frames->generation = fs_fork_generation();
    frames->paths = find_paths();
    if (frames->paths == NULL || !set_hook(frames, thread_hook)) {
        destroy(frames);
        return NULL;
    }
    begin_threads(frames);
    running = frames;
    set_on_all_threads(trace);
    return frames;
}

void fs_frames_stop(fs_frames *frames, int64_t *lost)
{
    if (frames == NULL) return;
    fs_pending pending = fs_pending_take();
    if (running == frames) running = NULL;
    set_on_all_threads(NULL);
    if (!set_hook(frames, NULL)) PyErr_Clear();
    if (lost != NULL) *lost += frames->lost;
    destroy(frames);
    fs_pending_put(pending);
}
