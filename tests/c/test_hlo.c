/* HLO below what Python shows: how instructions appear, compute units and limits of their work; joining a recording
 * with HLO, and failing memory. What instructions cost is tested in tests/work/test_hlo_*.py, rows of joined recordings
 * in tests/traces/test_load_hlo.py. */
#include <stdarg.h>

#include "tests/c/events.h"
#include "work/hlo/cost_parts.h"
#include "work/hlo/join.h"

static fs_hlo_module module;

static void end_module(void)
{
    fs_hlo_clear(&module);
    end_store();
}

__attribute__((constructor)) static void use_a_module_in_each_test(void)
{
    after_each = end_module;
}

__attribute__((format(printf, 1, 2))) static void read_text(const char *format, ...)
{
    char text[4096];
    fs_error err = {0};
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fs_hlo_clear(&module);
    CHECK(fs_hlo_read_text(&module, text, strlen(text), &err) == FS_OK, "%s", err.message);
}

/* Work ------------------------------------------------------------------------------------------------------------- */

/* Return the row of the root of an entry with these instructions. */
static fs_hlo_step last_step(const char *instructions)
{
    fs_hlo_step *steps, last = {FS_NONE, 0, false, {fs_work_unknown, 0}};
    uint32_t count;
    read_text("HloModule m, is_scheduled=true\n%s", instructions);
    CHECK_OK(fs_hlo_schedule(&module, &steps, &count, NULL));
    if (count > 0) last = steps[count - 1];
    fs_free(steps);
    return last;
}

TEST(rows_are_in_order)
{
    uint32_t count;
    const fs_hlo_opcode *rows = fs_hlo_opcode_rows(&count);
    for (uint32_t i = 1; i < count; i++) CHECK(strcmp(rows[i - 1].name, rows[i].name) < 0, "%s", rows[i].name);
}

TEST(how_instructions_appear)
{
    static const struct {
        const char *instruction;
        fs_hlo_run run;
    } cases[] = {
        {"r = f32[8] negate(x)", FS_HLO_RUNS},
        {"r = f32[8] copy(x)", FS_HLO_COPIES},
        {"r = (f32[8], f32[8], u32[]) copy-start(x)", FS_HLO_COPIES},
        {"r = f32[8] copy-done(x)", FS_HLO_WAITS},
        {"r = f32[8] all-reduce-done(x)", FS_HLO_WAITS},
        {"r = ((f32[8]), f32[8], u32[]) all-to-all-start(x)", FS_HLO_RUNS},
        {"r = ((f32[8]), f32[8], u32[]) fusion-start(x), kind=kLoop, calls=computes", FS_HLO_RUNS},
        {"r = ((f32[8]), f32[4], u32[]) fusion-start(x), kind=kLoop, calls=cuts", FS_HLO_COPIES},
        {"r = f32[4] fusion(x), kind=kLoop, calls=cuts", FS_HLO_COPIES},
        {"r = ((f32[8]), f32[8], u32[]) call-start(x), to_apply=computes", FS_HLO_CALLS},
        {"r = ((f32[8]), f32[8], u32[]) async-start(x), calls=computes", FS_HLO_CALLS},
        {"r = ((f32[8]), f32[8], u32[]) async-update(x)", FS_HLO_NOTHING},
        {"r = f32[8] async-done(x)", FS_HLO_WAITS},
        {"r = f32[8] call(x), to_apply=computes", FS_HLO_CALLS},
        {"r = f32[2,4] bitcast(x)", FS_HLO_NOTHING},
        {"r = (f32[8]) tuple(x)", FS_HLO_NOTHING},
        {"r = f32[8] custom-call(x), custom_call_target=\"Sharding\"", FS_HLO_NOTHING},
        {"r = f32[8] custom-call(x), custom_call_target=\"xla_ffi_python_gpu_callback\"", FS_HLO_COPIES},
        {"r = f32[8] custom-call(x), custom_call_target=\"mine\"", FS_HLO_RUNS},
        {"r = f32[8] invented(x)", FS_HLO_RUNS},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        read_text("HloModule m\ncomputes {\n p = f32[8] parameter(0)\n ROOT n = f32[8] negate(p)\n}\n"
                  "cuts {\n q = f32[8] parameter(0)\n s = f32[4] slice(q), slice={[0:4]}\n"
                  " ROOT b = f32[4] bitcast(s)\n}\nENTRY e {\n x = f32[8] parameter(0)\n ROOT %s\n}\n",
                  cases[i].instruction);
        if (module.computation_count == 0) continue;
        fs_hlo_run run = fs_hlo_run_of(&module, module.computations[module.entry].root);
        CHECK(run == cases[i].run, "%s: %d", cases[i].instruction, run);
    }
}

TEST(products_have_the_unit_of_their_factors)
{
    static const struct {
        const char *type, *more;
        fs_unit unit;
    } cases[] = {
        {"bf16", "", FS_UNIT_BF16_TENSOR},
        {"f16", "", FS_UNIT_FP16_TENSOR},
        {"f8e4m3fn", "", FS_UNIT_FP8_TENSOR},
        {"f8e5m2", "", FS_UNIT_FP8_TENSOR},
        {"s8", "", FS_UNIT_INT8_TENSOR},
        {"f64", "", FS_UNIT_FP64_TENSOR},
        {"f32", "", FS_UNIT_FP32}, /* perhaps TF32: the kernels tell */
        {"f32", ", operand_precision={highest,highest}", FS_UNIT_FP32},
        {"f32", ", algorithm=dot_tf32_tf32_f32", FS_UNIT_TF32_TENSOR},
        {"f32", ", algorithm=dot_bf16_bf16_f32_x3", FS_UNIT_BF16_TENSOR},
        {"c64", "", FS_UNIT_FP32},
        {"s32", "", FS_UNIT_NONE},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "f {\n a = %s[8,8] parameter(0)\n d = f32[8,8] dot(a, a), lhs_contracting_dims={1}, "
                 "rhs_contracting_dims={0}%s\n ROOT t = f32[8,8] tanh(d)\n}\n"
                 "ENTRY e {\n x = %s[8,8] parameter(0)\n ROOT r = f32[8,8] fusion(x), kind=kCustom, calls=f\n}\n",
                 cases[i].type, cases[i].more, cases[i].type);
        fs_unit unit = last_step(text).work.work.unit.preferred;
        CHECK(unit == cases[i].unit, "%s%s: %d", cases[i].type, cases[i].more, (int)unit);
    }
}

TEST(limits_are_told)
{
    fs_work work = last_step("ENTRY e {\n x = f32[8] parameter(0)\n"
                             " ROOT r = f32[8] custom-call(x), custom_call_target=\"mosaic_gpu\"\n}\n")
                       .work.work;
    CHECK(isnan(work.flops) && work.at_most && !work.between);
    CHECK(work.bytes_read == 32 && work.bytes_written == 32 && work.bytes_moved == 64);
    work = last_step("add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b)\n}\n"
                     "ENTRY e {\n x = f32[8] parameter(0)\n ROOT r = f32[8] all-reduce(x), to_apply=add\n}\n")
               .work.work;
    CHECK(isnan(work.flops) && !work.at_most && work.between);
    work = last_step("ENTRY e {\n x = f32[8] parameter(0)\n ROOT r = f32[8] negate(x)\n}\n").work.work;
    CHECK(work.flops == 8 && !work.at_most && !work.between);
    work = last_step("ENTRY e {\n x = f32[8] parameter(0)\n ROOT r = f32[16] all-gather(x), dimensions={0}\n}\n")
               .work.work;
    CHECK(work.flops == 0 && !work.at_most && work.between);
}

TEST(configs_are_read)
{
    const char *config = "{\"a\": [\"1\", \"22\"],\"beta\":0.5,\"x_dimensions\":[9],\"dimensions\":[3,4],"
                         "\"mask\":\"PADDING_CAUSAL\",\"flag\":true,\"open\":[1";
    double numbers[4];
    CHECK(fs_hlo_config_numbers(config, "a", numbers, 4) == 2 && numbers[0] == 1 && numbers[1] == 22);
    CHECK(fs_hlo_config_numbers(config, "a", numbers, 1) == 1);
    CHECK(fs_hlo_config_numbers(config, "dimensions", numbers, 4) == 2 && numbers[0] == 3);
    CHECK(fs_hlo_config_numbers(config, "open", numbers, 4) == 1);
    CHECK(fs_hlo_config_numbers(config, "missing", numbers, 4) == -1);
    CHECK(fs_hlo_config_number(config, "beta", 7) == 0.5 && fs_hlo_config_number(config, "alpha", 7) == 7);
    CHECK(fs_hlo_config_is(config, "mask", "PADDING_CAUSAL") && !fs_hlo_config_is(config, "mask", "PADDING"));
    CHECK(fs_hlo_config_is(config, "flag", "true") && !fs_hlo_config_is("", "flag", "true"));
    CHECK(fs_hlo_config_has(config, "mask", "CAUSAL") && !fs_hlo_config_has(config, "mask", "true"));
}

/* Joining a recording ---------------------------------------------------------------------------------------------- */

enum { LAUNCHES = 3 };

/* A module, and a range around three graph launches of two kernels of it each; the last has one of something else. */
static void record(void)
{
    static const char *const kernels[] = {"first_1", "second", "other"};
    read_text("HloModule jit_f, is_scheduled=true\n"
              "FileNames\n1 \"f.py\"\nFunctionNames\n1 \"f\"\n"
              "FileLocations\n1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}\n"
              "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n"
              "%%add (p: f32[8]) -> f32[8] {\n  %%p = f32[8]{0} parameter(0)\n  ROOT %%a = f32[8]{0} add(%%p, %%p)\n}\n"
              "ENTRY %%main (x: f32[8]) -> f32[8] {\n  %%x = f32[8]{0} parameter(0)\n"
              "  %%first.1 = f32[8]{0} fusion(%%x), kind=kLoop, calls=%%add, metadata={op_name=\"jit(f)/outer/add\" "
              "stack_frame_id=1}\n"
              "  ROOT %%second = f32[8]{0} fusion(%%first.1), kind=kLoop, calls=%%add, "
              "metadata={op_name=\"jit(f)/outer/inner/add\" stack_frame_id=1}\n}\n");
    uint32_t range = host(FS_EVENT_RANGE, "step", FS_NONE, 0, 1000);
    for (int i = 0; i < LAUNCHES; i++) {
        int64_t start = 10 + 100 * i;
        uint32_t launch = call("cuGraphLaunch", (uint32_t)i + 1, range, start, start + 5);
        for (int k = 0; k < (i == 2 ? 3 : 2); k++) {
            int64_t at = start + 20 + 10 * k;
            work(FS_EVENT_KERNEL, kernels[k], 0, 9, (uint32_t)i + 1, launch, at, at + 8);
        }
    }
}

static fs_hlo_report report;

static fs_status join(fs_error *err)
{
    fs_store *joined;
    FS_TRY(fs_store_create(&joined, err));
    fs_status status = fs_hlo_join(store, &module, 1, NULL, 0, joined, &report, err);
    fs_store_destroy(joined);
    return status;
}

TEST(memory_may_fail_in_a_join)
{
    record();
    CHECK(fail_each_allocation(join) > 20);
    CHECK(report.works == 7 && report.by_name == 6 && report.by_order == 0 && report.guessed == 0);
    CHECK(report.kernel_ns == 7 * 8 && report.tied_ns == 6 * 8);
    CHECK(report.executions == LAUNCHES && report.instructions == 2 * LAUNCHES);
}
