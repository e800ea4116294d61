/* Joining a recording with HLO: what the joined store holds, and that memory may fail anywhere. Rows and work are
 * tested in tests/traces/test_load_hlo.py. */
#include <string.h>

#include "base/memory.h"
#include "check.h"
#include "store/event.h"
#include "store/torch_signature.h"
#include "work/hlo/join.h"

static const char text[] =
    "HloModule jit_f, is_scheduled=true\n"
    "FileNames\n1 \"f.py\"\nFunctionNames\n1 \"f\"\n"
    "FileLocations\n1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}\n"
    "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n"
    "%add (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n  ROOT %a = f32[8]{0} add(%p, %p)\n}\n"
    "ENTRY %main (x: f32[8]) -> f32[8] {\n  %x = f32[8]{0} parameter(0)\n"
    "  %first.1 = f32[8]{0} fusion(%x), kind=kLoop, calls=%add, metadata={op_name=\"jit(f)/outer/add\" "
    "stack_frame_id=1}\n"
    "  ROOT %second = f32[8]{0} fusion(%first.1), kind=kLoop, calls=%add, metadata={op_name=\"jit(f)/outer/inner/add\" "
    "stack_frame_id=1}\n}\n";

enum { LAUNCHES = 3 };

/* A range around three graph launches of two kernels each, and a kernel of something else. */
static fs_store *recording(void)
{
    fs_store *store;
    fs_error err;
    uint32_t name, range, call, lane, stream;
    CHECK_OK(fs_store_create(&store, &err));
    CHECK_OK(fs_store_thread_lane_of(store, 7, &lane, &err));
    CHECK_OK(fs_store_device_lane(store, 0, 9, &stream, &err));
    CHECK_OK(fs_store_name(store, "step", &name, &err));
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_RANGE;
    event.start = 0;
    event.duration = 1000;
    event.lane = lane;
    event.name = name;
    CHECK_OK(fs_store_append(store, &event, &range, &err));
    for (int i = 0; i < LAUNCHES; i++) {
        static const char *const kernels[] = {"first_1", "second", "other"};
        event = fs_event_missing;
        event.kind = FS_EVENT_RUNTIME;
        event.start = 10 + 100 * i;
        event.duration = 5;
        event.lane = lane;
        event.parent = range;
        event.correlation = (uint32_t)i + 1;
        CHECK_OK(fs_store_name(store, "cuGraphLaunch", &event.name, &err));
        CHECK_OK(fs_store_append(store, &event, &call, &err));
        for (int k = 0; k < (i == 2 ? 3 : 2); k++) {
            fs_event kernel = fs_event_missing;
            kernel.kind = FS_EVENT_KERNEL;
            kernel.start = event.start + 20 + 10 * k;
            kernel.duration = 8;
            kernel.lane = stream;
            kernel.device = 0;
            kernel.launcher = call;
            kernel.correlation = event.correlation;
            CHECK_OK(fs_store_name(store, kernels[k], &kernel.name, &err));
            CHECK_OK(fs_store_append(store, &kernel, NULL, &err));
        }
    }
    return store;
}

static void check_joined(const fs_store *joined)
{
    static const char *const around[] = {"f.py(3): f", "scope: inner", "scope: outer", "scope: jit(f)", "step"};
    uint32_t ops = 0, frames = 0, untied = 0;
    for (uint32_t i = 0; i < fs_store_count(joined); i++) {
        fs_event event, op;
        fs_store_get(joined, i, &event);
        ops += event.kind == FS_EVENT_OP;
        frames += event.kind == FS_EVENT_FRAME;
        if (event.kind != FS_EVENT_KERNEL) continue;
        fs_store_get(joined, event.launcher, &op);
        untied += op.kind == FS_EVENT_RUNTIME;
        if (op.kind != FS_EVENT_OP || strcmp(fs_store_name_text(joined, op.name), "second") != 0) continue;
        CHECK(strcmp(fs_store_name_text(joined, event.name), "second") == 0);
        for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
            fs_store_get(joined, op.parent, &op);
            CHECK(strcmp(fs_store_name_text(joined, op.name), around[k]) == 0, "%s",
                  fs_store_name_text(joined, op.name));
        }
    }
    CHECK(ops == 2 * LAUNCHES && untied == 1);
    CHECK(frames == 5 * LAUNCHES, "%u", frames); /* jit(f), outer, inner, and the line in each of two scopes */
}

static void test_ops_come_before_their_kernels(void)
{
    int64_t before = fs_memory_live();
    fs_hlo_module module = {0};
    fs_error err;
    CHECK_OK(fs_hlo_read_text(&module, text, sizeof text - 1, &err));
    fs_store *store = recording();
    fs_status status = FS_OUT_OF_MEMORY;
    for (int n = 1; n < 2000 && status != FS_OK; n++) {
        fs_store *joined;
        fs_hlo_report report;
        CHECK_OK(fs_store_create(&joined, &err));
        fs_memory_fail_at(n);
        status = fs_hlo_join(store, &module, 1, NULL, 0, joined, &report, &err);
        fs_memory_fail_at(0);
        CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY);
        if (status == FS_OK) {
            check_joined(joined);
            CHECK(report.works == 7 && report.by_name == 6 && report.by_order == 0 && report.guessed == 0);
            CHECK(report.kernel_ns == 7 * 8 && report.tied_ns == 6 * 8);
            CHECK(report.executions == LAUNCHES && report.instructions == 2 * LAUNCHES);
        }
        fs_store_destroy(joined);
    }
    CHECK(status == FS_OK);
    fs_store_destroy(store);
    fs_hlo_clear(&module);
    CHECK(fs_memory_live() == before);
}

static void test_known_instructions_are_taken(void)
{
    fs_hlo_module module = {0};
    fs_error err;
    CHECK_OK(fs_hlo_read_text(&module, text, sizeof text - 1, &err));
    fs_store *store = recording(), *joined;
    uint32_t last = fs_store_count(store) - 1; /* the kernel of something else */
    fs_hlo_report report;
    for (uint32_t i = 0; i < module.instruction_count; i++) {
        if (strcmp(fs_hlo_text(&module, module.instructions[i].name), "second") != 0) continue;
        fs_hlo_given given = {last, 0, i};
        CHECK_OK(fs_store_create(&joined, &err));
        CHECK_OK(fs_hlo_join(store, &module, 1, &given, 1, joined, &report, &err));
        CHECK(report.by_name == 7 && report.tied_ns == 7 * 8);
        fs_store_destroy(joined);
    }
    fs_store_destroy(store);
    fs_hlo_clear(&module);
}

int main(void)
{
    test_ops_come_before_their_kernels();
    test_known_instructions_are_taken();
    return failures > 0;
}
