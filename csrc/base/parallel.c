/* The pool runs one loop at a time. The loop's owner opens the gate, works on pieces together with the workers that
 * enter, closes the gate when no pieces remain and waits for workers still inside. A worker that wakes too late finds
 * the gate closed and delays no one.
 *
 *   gate:  OPEN bit | workers inside        job fields change only while the gate is 0
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"

enum { MAX_THREADS = 256, SPIN_NS = 30000, SPINS_PER_CLOCK = 32, PIECES_PER_THREAD = 8 };

/* Interruptible loops poll at least this often, in grains of the loop. */
enum { INTERRUPT_GRAINS = 64 };

#define GATE_OPEN 0x10000u

static struct {
    atomic_bool busy; /* a caller owns the pool */
    atomic_uint gate;
    atomic_uint generation; /* number of jobs: workers wait for it to change */
    atomic_int sleepers;
    atomic_int threads; /* 0: not yet determined */
    int started;        /* number of worker threads; only the owner uses it */
    pthread_mutex_t mutex;
    pthread_cond_t wake;

    fs_parallel_body body;
    void *context;
    fs_interrupt *interrupt; /* the owner's section */
    int64_t count, piece;
    atomic_uint helpers; /* maximum number of workers inside */
    _Alignas(64) atomic_llong next;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void pieces_run(void)
{
    int64_t count = pool.count, piece = pool.piece;
    while (!fs_interrupted()) {
        int64_t begin = atomic_fetch_add_explicit(&pool.next, piece, memory_order_relaxed);
        if (begin >= count) return;
        int64_t end = count - begin < piece ? count : begin + piece;
        pool.body(pool.context, begin, end);
    }
}

/* A worker enters while the gate is open and fewer workers than the job's maximum are inside. */
static bool gate_enter(void)
{
    unsigned gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
    while ((gate & GATE_OPEN) && (gate & (GATE_OPEN - 1)) < atomic_load_explicit(&pool.helpers, memory_order_relaxed)) {
        if (atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_acquire)) {
            return true;
        }
    }
    return false;
}

static void generation_await(unsigned last)
{
    int64_t until = fs_clock_now() + SPIN_NS;
    do {
        for (int spin = 0; spin < SPINS_PER_CLOCK; spin++) {
            if (atomic_load_explicit(&pool.generation, memory_order_acquire) != last) return;
            cpu_relax();
        }
    } while (fs_clock_now() < until);

    pthread_mutex_lock(&pool.mutex);
    /* The owner increments the generation, then looks for sleepers. A worker does the reverse, so one of them sees the
     * other. */
    atomic_fetch_add(&pool.sleepers, 1);
    while (atomic_load(&pool.generation) == last) pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.mutex);
}

static void *worker_main(void *first)
{
    unsigned last = (unsigned)(uintptr_t)first;
    for (;;) {
        generation_await(last);
        last = atomic_load_explicit(&pool.generation, memory_order_acquire);
        if (!gate_enter()) continue;
        fs_interrupt_enter(pool.interrupt);
        pieces_run();
        atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
    }
    return NULL;
}

/* A forked child has only the calling thread, so its pool starts anew. */
static void pool_forked(void)
{
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
    atomic_store(&pool.busy, false);
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.sleepers, 0);
    pool.started = 0;
}

static void fork_watch(void)
{
    pthread_atfork(NULL, NULL, pool_forked);
}

/* Signals are left to the program's own threads. */
static void workers_start(int wanted)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, fork_watch);

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    uintptr_t last = atomic_load(&pool.generation);
    while (pool.started < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, worker_main, (void *)last) != 0) break;
        pool.started++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void job_open(int helpers)
{
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.helpers, (unsigned)helpers, memory_order_relaxed);
    atomic_store(&pool.gate, GATE_OPEN);
    atomic_fetch_add(&pool.generation, 1);
    int sleepers = atomic_load(&pool.sleepers);
    if (sleepers > 0) {
        pthread_mutex_lock(&pool.mutex);
        if (sleepers > helpers) {
            for (int i = 0; i < helpers; i++) pthread_cond_signal(&pool.wake);
        } else {
            pthread_cond_broadcast(&pool.wake);
        }
        pthread_mutex_unlock(&pool.mutex);
    }
}

/* Take the pool for a job and wake its workers. Return false if the caller has to run it alone. */
static bool job_begin(int64_t count, int64_t grain, fs_parallel_body body, void *context, fs_interrupt *interrupt)
{
    int threads = count <= grain ? 1 : fs_parallel_threads();
    if (threads == 1 || atomic_exchange_explicit(&pool.busy, true, memory_order_acquire)) return false;
    int64_t grains = (count - 1) / grain + 1;
    int helpers = (int)(grains < threads ? grains : threads) - 1;
    if (pool.started < helpers) workers_start(helpers);
    if (helpers > pool.started) helpers = pool.started;
    if (helpers == 0) {
        atomic_store_explicit(&pool.busy, false, memory_order_release);
        return false;
    }
    int64_t grains_each = (grains - 1) / ((int64_t)(helpers + 1) * PIECES_PER_THREAD) + 1;
    if (interrupt != NULL && grains_each > INTERRUPT_GRAINS) grains_each = INTERRUPT_GRAINS;
    pool.interrupt = interrupt;
    pool.body = body;
    pool.context = context;
    pool.count = count;
    pool.piece = grains_each * grain;
    job_open(helpers);
    return true;
}

void fs_parallel_end(void)
{
    pieces_run();
    atomic_fetch_and(&pool.gate, ~GATE_OPEN);
    for (int spin = 0; atomic_load_explicit(&pool.gate, memory_order_acquire) != 0; spin++) {
        if (spin < 20000) cpu_relax();
        else sched_yield();
    }
    atomic_store_explicit(&pool.busy, false, memory_order_release);
}

static void run_alone(int64_t count, int64_t grain, fs_parallel_body body, void *context)
{
    int64_t piece = count;
    if (fs_interrupt_current() != NULL && count / INTERRUPT_GRAINS > grain) piece = grain * INTERRUPT_GRAINS;
    for (int64_t begin = 0; begin < count && (begin == 0 || !fs_interrupted()); begin += piece)
        body(context, begin, count - begin < piece ? count : begin + piece);
}

void fs_parallel_for(int64_t count, int64_t grain, fs_parallel_body body, void *context)
{
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    if (job_begin(count, grain, body, context, fs_interrupt_current())) fs_parallel_end();
    else run_alone(count, grain, body, context);
}

bool fs_parallel_begin(int64_t count, int64_t grain, fs_parallel_body body, void *context)
{
    return job_begin(count, grain < 1 ? 1 : grain, body, context, NULL);
}

static int threads_default(void)
{
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        int count = CPU_COUNT(&allowed);
        return count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : count;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > MAX_THREADS ? MAX_THREADS : (int)online;
}

int fs_parallel_threads(void)
{
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (threads == 0) {
        threads = threads_default();
        atomic_store_explicit(&pool.threads, threads, memory_order_relaxed);
    }
    return threads;
}

fs_status fs_parallel_set_threads(int threads, fs_error *err)
{
    if (threads < 1 || threads > MAX_THREADS) {
        return fs_fail(err, FS_VALUE_ERROR, "threads must be between 1 and %d, not %d", MAX_THREADS, threads);
    }
    atomic_store_explicit(&pool.threads, threads, memory_order_relaxed);
    return FS_OK;
}
