/* What encloses or launches an event comes before it, so one pass gives each event the phase of what is around it; an
 * event in no phase may begin one. */
#include "summaries/phases.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"
#include "work/names.h"

#define PHASE_NAME(NAME, name, prose) [FS_PHASE_##NAME] = #name,
const char *const fs_phase_names[FS_PHASE_COUNT] = {FS_PHASE_LIST(PHASE_NAME)};

/* NONE: in no phase. EARLIER: in one that began outside of the time that is asked for, and does not count. */
enum { NONE = FS_PHASE_COUNT, EARLIER };

static uint8_t begun_phase(fs_names *names, const fs_chunk *chunk, uint32_t at)
{
    static const char optimizer[] = "Optimizer.";
    uint8_t kind = chunk->kind[at];
    if ((kind != FS_EVENT_OP && kind != FS_EVENT_RANGE) || chunk->device[at] >= 0 || chunk->name[at] == FS_NONE)
        return NONE;
    const char *text = fs_store_name_text(names->store, chunk->name[at]);
    if (strncmp(text, optimizer, sizeof optimizer - 1) == 0) return FS_PHASE_OPTIMIZER;
    if (fs_names_host_kind(names, chunk->name[at]) == FS_HOST_LOADS_DATA) return FS_PHASE_DATA;
    if (kind == FS_EVENT_RANGE) return NONE;
    return fs_name_wraps_autograd(text) ? FS_PHASE_BACKWARD : FS_PHASE_FORWARD;
}

fs_status fs_phases_sum(fs_phase_times times[FS_PHASE_COUNT], const fs_store *store, int64_t begin, int64_t end,
                        fs_error *err)
{
    uint32_t count = fs_store_count(store);
    uint8_t *phases = NULL; /* by event */
    fs_names names = {0};
    fs_status status;
    memset(times, 0, FS_PHASE_COUNT * sizeof *times);
    FS_TRY(FS_NEW(&phases, count, err));
    FS_TRY_GOTO(status, fs_names_create(&names, store, err), done);
    FS_EACH_EVENT(store, i, chunk, at) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        uint32_t around = fs_event_around(chunk, at, i);
        bool timed = fs_event_is_timed(chunk, at), on_device = fs_event_kind_on_device[chunk->kind[at]];
        uint8_t phase = around != FS_NONE ? phases[around] : NONE;
        bool begins = phase == NONE && !on_device && (phase = begun_phase(&names, chunk, at)) != NONE;
        if (begins && (!timed || chunk->start[at] < begin || chunk->start[at] >= end)) phase = EARLIER;
        phases[i] = phase;
        if (phase >= FS_PHASE_COUNT || !timed) continue;
        if (on_device) fs_add_to(&times[phase].device, chunk->duration[at]);
        else if (begins) fs_add_to(&times[phase].host, chunk->duration[at]);
    }
    status = FS_OK;
done:
    fs_names_clear(&names);
    fs_free(phases);
    return status;
}
