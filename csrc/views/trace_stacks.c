/* Sampled stacks of a trace: the runs of a store as sample events, and the frames that they refer to. */

#include "base/interrupt.h"
#include "store/event.h"
#include "store/stacks.h"
#include "views/chrome_trace.h"

static void put_run(fs_json *out, const fs_stacks *stacks, const fs_stack_run *run, uint64_t begin)
{
    const fs_stack frame = fs_stacks_get(stacks, fs_stacks_line(stacks, run->stack));
    FS_JSON_LITERAL(out, "{\"ph\": \"P\", \"cat\": \"python_stack\", \"name\": ");
    fs_json_string(out, fs_stacks_text(stacks, frame.name));
    FS_JSON_LITERAL(out, ", \"pid\": ");
    fs_json_integer(out, run->process);
    FS_JSON_LITERAL(out, ", \"tid\": ");
    fs_json_integer(out, (int64_t)run->thread);
    FS_JSON_LITERAL(out, ", \"ts\": ");
    fs_json_time(out, begin);
    FS_JSON_LITERAL(out, ", \"dur\": ");
    fs_json_time(out, (uint64_t)(run->end - run->begin));
    if (run->cpu != FS_MISSING) {
        FS_JSON_LITERAL(out, ", \"tdur\": ");
        fs_json_time(out, (uint64_t)run->cpu);
    }
    FS_JSON_LITERAL(out, ", \"sf\": ");
    fs_json_integer(out, run->stack);
    FS_JSON_LITERAL(out, "},\n");
}

fs_status fs_trace_stack_samples(fs_json *out, const fs_store *store, uint64_t shift, fs_error *err)
{
    const fs_stacks *stacks = fs_store_stacks(store);
    for (uint32_t i = 0; i < stacks->count && out->status == FS_OK; i++) {
        const fs_stack_run *run = &stacks->runs[i];
        uint64_t begin = (uint64_t)run->begin + shift;
        FS_POLL(i, err);
        if ((int64_t)begin >= 0) put_run(out, stacks, run, begin);
    }
    return out->status;
}

fs_status fs_trace_stack_frames(fs_json *out, const fs_store *store, fs_error *err)
{
    const fs_stacks *stacks = fs_store_stacks(store);
    if (stacks->count == 0) return out->status;
    FS_JSON_LITERAL(out, "\"stackFrames\": {");
    for (uint32_t id = 0; id < stacks->stacks.count && out->status == FS_OK; id++) {
        const fs_stack frame = fs_stacks_get(stacks, id);
        FS_POLL(id, err);
        if (id > 0) FS_JSON_LITERAL(out, ",");
        FS_JSON_LITERAL(out, "\n\"");
        fs_json_integer(out, id);
        FS_JSON_LITERAL(out, "\": {\"name\": ");
        fs_json_string(out, fs_stacks_text(stacks, frame.name));
        if (frame.program) FS_JSON_LITERAL(out, ", \"category\": \"program\"");
        else FS_JSON_LITERAL(out, ", \"category\": \"library\"");
        if (frame.parent != FS_NONE) {
            FS_JSON_LITERAL(out, ", \"parent\": ");
            fs_json_integer(out, frame.parent);
        }
        FS_JSON_LITERAL(out, "}");
    }
    FS_JSON_LITERAL(out, "},\n");
    return out->status;
}
