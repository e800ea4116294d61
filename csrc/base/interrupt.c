/* The innermost section of a thread is thread-local, and worker threads enter the section of the thread that they work
 * for. Only the owner asks, at most every 50 ms, because the answer may run Python code; every other thread reads the
 * flag. Once a section has stopped, it stays stopped. */
#include "base/interrupt.h"

#include "base/clock.h"

static const int64_t ask_every_ns = 50000000;

static _Thread_local fs_interrupt *current;

void fs_interrupt_open(fs_interrupt *section, bool (*ask)(void *context), void *context)
{
    section->ask = ask;
    section->context = context;
    section->outer = current;
    section->owner = pthread_self();
    section->next = fs_clock_now() + ask_every_ns;
    atomic_init(&section->stopped, false);
    current = section;
}

void fs_interrupt_close(fs_interrupt *section)
{
    current = section->outer;
}

bool fs_interrupted(void)
{
    fs_interrupt *section = current;
    if (section == NULL) return false;
    if (atomic_load_explicit(&section->stopped, memory_order_relaxed)) return true;
    if (!pthread_equal(section->owner, pthread_self())) return false;
    if (fs_clock_now() < section->next) return false;
    bool stops = section->ask(section->context);
    section->next = fs_clock_now() + ask_every_ns;
    if (stops) atomic_store(&section->stopped, true);
    return stops;
}

fs_status fs_interrupt_poll(fs_error *err)
{
    return fs_interrupted() ? fs_fail(err, FS_INTERRUPTED, "interrupted") : FS_OK;
}

bool fs_interrupt_stop(void)
{
    if (current != NULL) atomic_store(&current->stopped, true);
    return current != NULL;
}

fs_interrupt *fs_interrupt_current(void)
{
    return current;
}

void fs_interrupt_enter(fs_interrupt *section)
{
    current = section;
}
