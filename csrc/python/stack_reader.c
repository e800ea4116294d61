/* The only file that knows CPython's own structures. A frame of the interpreter lies behind its caller's in a chunk of
 * memory, so that one copy of what lies before the innermost frame has most of them; the code objects of a stack are
 * copied by one call. */
#define Py_BUILD_CORE
#include <Python.h>

#include "python/stack_reader.h"

#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#elif PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#else
#include <frameobject.h>
#include <pthread.h>
#include <sys/syscall.h>
#endif
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PAGE = 4096,          /* or a part of one */
    MOST_LINES = 1 << 20, /* bytes of a table of lines */
    LONGEST_PATH = 700,
    LONGEST_NAME = 250,
};

/* Copies ----------------------------------------------------------------------------------------------------------- */

static int memory = -1; /* /proc/self/mem, where process_vm_readv is forbidden */

/* Copy memory of this process. Return the bytes that were copied, the first ones. */
static size_t copy(const struct iovec *to, const struct iovec *from, unsigned count)
{
    if (memory < 0) {
        ssize_t copied = process_vm_readv(getpid(), to, count, from, count, 0);
        return copied < 0 ? 0 : (size_t)copied;
    }
    size_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        ssize_t copied = pread(memory, to[i].iov_base, to[i].iov_len, (off_t)(uintptr_t)from[i].iov_base);
        sum += copied < 0 ? 0 : (size_t)copied;
        if (copied != (ssize_t)to[i].iov_len) break;
    }
    return sum;
}

static bool read_memory(const void *from, void *to, size_t size)
{
    const struct iovec there = {(void *)(uintptr_t)from, size}, here = {to, size};
    return copy(&here, &there, 1) == size;
}

/* Frames ----------------------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030b0000
typedef _PyInterpreterFrame frame_head;
enum { FRAME_SIZE = offsetof(_PyInterpreterFrame, localsplus), CODE_SIZE = offsetof(PyCodeObject, co_code_adaptive) };
#else
typedef PyFrameObject frame_head;
enum { FRAME_SIZE = offsetof(PyFrameObject, f_localsplus), CODE_SIZE = sizeof(PyCodeObject) };
#endif

static const void *caller_of(const frame_head *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    return frame->previous;
#else
    return frame->f_back;
#endif
}

static const char *code_of(const frame_head *frame)
{
#if PY_VERSION_HEX >= 0x030e0000
    return (const char *)(frame->f_executable.bits & ~(uintptr_t)3);
#elif PY_VERSION_HEX >= 0x030d0000
    return (const char *)frame->f_executable;
#else
    return (const char *)frame->f_code;
#endif
}

/* Return the offset in bytes of the instruction that a frame is at; below 0 before the first. */
static int64_t instruction_of(const frame_head *frame)
{
#if PY_VERSION_HEX >= 0x030d0000
    return (const char *)frame->instr_ptr - code_of(frame) - CODE_SIZE;
#elif PY_VERSION_HEX >= 0x030b0000
    return (const char *)frame->prev_instr - code_of(frame) - CODE_SIZE;
#else
    return (int64_t)sizeof(_Py_CODEUNIT) * frame->f_lasti;
#endif
}

/* Whether a frame is one between C and Python code, which has no code. */
static bool is_of_c(const frame_head *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    return frame->owner > FRAME_OWNED_BY_FRAME_OBJECT;
#else
    return frame == NULL;
#endif
}

/* What is known of a place from the head of its code object: whether it is one and has the instruction, and whether the
 * frame has begun; one that has not, and what CPython itself runs between calls, is at an instruction before all that
 * have lines. */
typedef enum { TORN, NOT_BEGUN, WITHIN } begun;

static begun set_place(fs_code_place *place, const PyCodeObject *code)
{
    if (Py_TYPE(code) != &PyCode_Type) return TORN;
#if PY_VERSION_HEX >= 0x030b0000
    const void *function = code->co_qualname;
    int64_t size = Py_SIZE(code), first = code->_co_firsttraceable;
#else
    const void *function = code->co_name;
    int64_t size = INT32_MAX / sizeof(_Py_CODEUNIT), first = 0;
#endif
    const int64_t unit = sizeof(_Py_CODEUNIT);
    *place =
        (fs_code_place){place->code, code->co_linetable, code->co_filename, function, code->co_firstlineno, place->at};
    return place->at >= unit * size ? TORN : place->at < unit * first ? NOT_BEGUN : WITHIN;
}

/* What was copied: a frame, and what lies before it in its page, which is there if the frame is. */
static struct {
    uintptr_t begin;
    size_t size;
    char bytes[PAGE + FRAME_SIZE];
} window;

/* at: any number, as what it was read from may have been given away. */
static bool read_frame(const void *at, frame_head *frame)
{
    uintptr_t from = (uintptr_t)at, page = from & ~(uintptr_t)(PAGE - 1);
    if (window.size == 0 || from - window.begin > window.size - FRAME_SIZE) {
        size_t size = (size_t)(from - page) + FRAME_SIZE;
        window.size = 0;
        if (!read_memory((const void *)page, window.bytes, size)) return false;
        window.begin = page;
        window.size = size;
    }
    memcpy(frame, window.bytes + (from - window.begin), FRAME_SIZE);
    return true;
}

/* Read the frames with the addresses of their code. Return their number; -1: they changed. */
static int read_frames(const void *innermost, fs_code_place *places)
{
    frame_head frame;
    int count = 0, met = 0;
    window.size = 0;
    for (const void *at = innermost; at != NULL && count < FS_MOST_STACK_DEPTH; at = caller_of(&frame)) {
        if (!read_frame(at, &frame) || met++ > 4 * FS_MOST_STACK_DEPTH) return -1; /* as in a circle */
        int64_t instruction = instruction_of(&frame);
        if (is_of_c(&frame)) continue;
        if (instruction >= INT32_MAX || instruction < INT32_MIN) return -1;
        places[count++] = (fs_code_place){.code = code_of(&frame), .at = (int32_t)instruction};
    }
    return count;
}

/* The last stack that was read, as its frames and their code objects were: frames that are still there, counted from
 * the outermost, have kept theirs. */
static struct {
    const void *code;
    int32_t at;
    begun state;
    fs_code_place place;
} before[FS_MOST_STACK_DEPTH];
static int before_count;

/* Copy the heads of the code objects of frames that are new in a stack of `count`. Return false if they changed. */
static bool read_new_places(fs_code_place *places, begun *states, int count)
{
    static _Alignas(PyCodeObject) char heads[FS_MOST_STACK_DEPTH][CODE_SIZE];
    struct iovec to[FS_MOST_STACK_DEPTH], from[FS_MOST_STACK_DEPTH];
    int added[FS_MOST_STACK_DEPTH];
    unsigned news = 0;
    for (int i = 0; i < count; i++) {
        int same = i - count + before_count;
        if (same >= 0 && before[same].code == places[i].code && before[same].at == places[i].at) {
            states[i] = before[same].state;
            places[i] = before[same].place;
            continue;
        }
        to[news] = (struct iovec){heads[news], CODE_SIZE};
        from[news] = (struct iovec){(void *)(uintptr_t)places[i].code, CODE_SIZE};
        added[news++] = i;
    }
    if (news > 0 && copy(to, from, news) != (size_t)news * CODE_SIZE) return false;
    for (unsigned n = 0; n < news; n++) {
        states[added[n]] = set_place(&places[added[n]], (const PyCodeObject *)heads[n]);
        if (states[added[n]] == TORN) return false;
    }
    return true;
}

int fs_read_stack(const fs_python_thread *thread, fs_code_place *places)
{
    begun states[FS_MOST_STACK_DEPTH];
    int count = read_frames(thread->frame, places), within = 0;
    if (count < 0 || !read_new_places(places, states, count)) return -1;
    for (int i = 0; i < count; i++) {
        before[i].code = places[i].code;
        before[i].at = places[i].at;
        before[i].state = states[i];
        before[i].place = places[i];
        if (states[i] == WITHIN) places[within++] = places[i];
    }
    before_count = count;
    return within;
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX < 0x030b0000
/* Where the C library keeps the number of a thread in what pthread_t points to; 0: unknown. This Python does not. */
static size_t number_at;

static void find_number(void)
{
    const uint32_t number = (uint32_t)syscall(SYS_gettid);
    const uint32_t *words = (const uint32_t *)pthread_self();
    for (size_t i = 1; number_at == 0 && i < 512; i++)
        if (words[i] == number) number_at = i * sizeof number;
}
#endif

static uint64_t number_of(const PyThreadState *state)
{
#if PY_VERSION_HEX >= 0x030b0000
    return state->native_thread_id;
#else
    uint32_t number = 0;
    bool known = number_at > 0 && state->thread_id != 0;
    return known && read_memory((const char *)state->thread_id + number_at, &number, sizeof number) ? number : 0;
#endif
}

static const void *frame_of(const PyThreadState *state)
{
#if PY_VERSION_HEX >= 0x030d0000
    return state->current_frame;
#elif PY_VERSION_HEX >= 0x030b0000
    _PyCFrame frame; /* on the thread's own stack */
    return read_memory(state->cframe, &frame, sizeof frame) ? frame.current_frame : NULL;
#else
    return state->frame;
#endif
}

uint32_t fs_read_threads(fs_python_thread *threads, uint32_t most)
{
    PyThreadState state;
    uint32_t count = 0;
    const void *at = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    for (; at != NULL && count < most && read_memory(at, &state, sizeof state); at = state.next)
        if (state.interp == PyInterpreterState_Main())
            threads[count++] = (fs_python_thread){state.id, number_of(&state), frame_of(&state)};
        else break; /* it has ended, and its memory was given away */
    return count;
}

clockid_t fs_thread_clock(uint64_t number)
{
    return (clockid_t)(~(unsigned)number << 3 | 6U); /* MAKE_THREAD_CPUCLOCK in linux/posix-timers.h */
}

const char *fs_stack_reader_missing(void)
{
#if PY_VERSION_HEX >= 0x030f0000 || defined(Py_GIL_DISABLED)
    return "the frames of this Python, " PY_VERSION ", are not known to this version of flopscope";
#else
    int from = 1, to = 0;
#if PY_VERSION_HEX < 0x030b0000
    find_number();
#endif
    if (read_memory(&from, &to, sizeof to)) return NULL;
    if (memory < 0) memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory >= 0 && read_memory(&from, &to, sizeof to)) return NULL;
    return "the operating system permits neither process_vm_readv nor /proc/self/mem";
#endif
}

/* Lines ------------------------------------------------------------------------------------------------------------ */

#if PY_VERSION_HEX >= 0x030b0000

/* A number of the table; false if the table ends in it. */
static bool read_number(const unsigned char **at, const unsigned char *end, uint32_t *number)
{
    *number = 0;
    for (unsigned shift = 0; *at < end; shift += 6) {
        unsigned char byte = *(*at)++;
        *number |= shift < 32 ? (uint32_t)(byte & 63) << shift : 0;
        if (!(byte & 64)) return true;
    }
    return false;
}

/* Return the line of an instruction by the table of locations (Objects/locations.md of CPython). An instruction without
 * a line, such as a jump back, has that of the one before. */
static int line_at(const unsigned char *at, const unsigned char *end, int line, int instruction)
{
    int found = line;
    for (int64_t next = 0; at < end && next <= instruction;) {
        unsigned kind = (*at >> 3) & 15;
        next += (int64_t)sizeof(_Py_CODEUNIT) * ((*at++ & 7) + 1);
        uint32_t number = 0, column;
        if (kind == 13 || kind == 14) {
            if (!read_number(&at, end, &number)) break;
            line += number & 1 ? -(int)(number >> 1) : (int)(number >> 1);
            for (int i = 0; kind == 14 && i < 3; i++) (void)read_number(&at, end, &column);
        } else if (kind >= 10 && kind <= 12) {
            line += (int)kind - 10;
            at += 2;
        } else if (kind < 10) at++;
        if (kind != 15) found = line;
    }
    return found;
}
#else
/* Likewise by pairs of changes of the instruction and of the line; -128: no line (Objects/lnotab_notes.txt). */
static int line_at(const unsigned char *at, const unsigned char *end, int line, int instruction)
{
    int found = line;
    for (int64_t next = 0; at + 1 < end && next <= instruction; at += 2) {
        int change = (signed char)at[1];
        next += at[0];
        if (change == -128) continue;
        line += change;
        if (at[0] > 0) found = line;
    }
    return found;
}
#endif

/* Append a character as UTF-8. Return its size, 0 if there is no room. */
static size_t put(char *to, size_t room, uint32_t c)
{
    if (c >= 0xd800 && c < 0xe000) c = 0xfffd; /* a surrogate, which UTF-8 has not */
    size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (size > room) return 0;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 63));
    to[0] = (char)(first[size] | c);
    return size;
}

/* Read a text as UTF-8, its beginning of at most `room` bytes. */
static bool read_text(const void *text, char *to, size_t room)
{
    PyCompactUnicodeObject head;
    uint32_t wide[LONGEST_PATH];
    if (!read_memory(text, &head, sizeof(PyASCIIObject))) return false;
    const PyASCIIObject *ascii = &head._base;
    if (Py_TYPE(ascii) != &PyUnicode_Type || !ascii->state.compact || ascii->length < 0) return false;
    size_t kind = ascii->state.kind, length = (size_t)ascii->length;
    if (length > LONGEST_PATH) length = LONGEST_PATH;
    const char *begin = (const char *)text + (ascii->state.ascii ? sizeof(PyASCIIObject) : sizeof head);
    if ((kind != 1 && kind != 2 && kind != 4) || !read_memory(begin, wide, kind * length)) return false;
    for (size_t i = 0; i < length; i++) {
        uint32_t c = kind == 1 ? ((uint8_t *)wide)[i] : kind == 2 ? ((uint16_t *)wide)[i] : wide[i];
        size_t size = put(to, room, c);
        if (size == 0) break;
        to += size;
        room -= size;
    }
    *to = '\0';
    return true;
}

bool fs_read_place(const fs_code_place *place, char *text, size_t size)
{
    static unsigned char lines[MOST_LINES];
    char path[LONGEST_PATH + 1], function[LONGEST_NAME + 1];
    PyBytesObject head;
    if (!read_memory(place->lines, &head, offsetof(PyBytesObject, ob_sval)) || Py_TYPE(&head) != &PyBytes_Type)
        return false;
    Py_ssize_t length = Py_SIZE(&head);
    if (length < 0 || length > MOST_LINES) return false;
    if (!read_memory((const char *)place->lines + offsetof(PyBytesObject, ob_sval), lines, (size_t)length))
        return false;
    if (!read_text(place->file, path, LONGEST_PATH) || !read_text(place->function, function, LONGEST_NAME))
        return false;
    snprintf(text, size, "%s(%d): %s", path, line_at(lines, lines + length, place->first, place->at), function);
    return true;
}
