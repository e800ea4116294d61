/* The cost model of HLO below what Python shows: how instructions appear, compute units, limits, failing memory. What
 * they cost is tested in tests/work/test_hlo_*.py. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "check.h"
#include "work/hlo/cost_parts.h"

static fs_hlo_module read_text(const char *text)
{
    static const fs_hlo_module empty;
    fs_hlo_module module = empty;
    fs_error err = {0};
    CHECK(fs_hlo_read_text(&module, text, strlen(text), &err) == FS_OK, "%s", err.message);
    return module;
}

/* Return the row of the root of an entry with these instructions. */
static fs_hlo_step last_step(const char *instructions)
{
    char text[4096];
    fs_hlo_step *steps, last = {FS_NONE, 0, false, {fs_work_unknown, 0}};
    uint32_t count;
    fs_error err = {0};
    snprintf(text, sizeof text, "HloModule m, is_scheduled=true\n%s", instructions);
    fs_hlo_module module = read_text(text);
    CHECK(fs_hlo_schedule(&module, &steps, &count, &err) == FS_OK, "%s", err.message);
    if (count > 0) last = steps[count - 1];
    fs_free(steps);
    fs_hlo_clear(&module);
    return last;
}

static void test_rows_are_in_order(void)
{
    uint32_t count;
    const fs_hlo_opcode *rows = fs_hlo_opcode_rows(&count);
    for (uint32_t i = 1; i < count; i++) CHECK(strcmp(rows[i - 1].name, rows[i].name) < 0, "%s", rows[i].name);
}

static void test_how_instructions_appear(void)
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "HloModule m\ncomputes {\n p = f32[8] parameter(0)\n ROOT n = f32[8] negate(p)\n}\n"
            "cuts {\n q = f32[8] parameter(0)\n s = f32[4] slice(q), slice={[0:4]}\n ROOT b = f32[4] bitcast(s)\n}\n"
            "ENTRY e {\n x = f32[8] parameter(0)\n ROOT %s\n}\n",
            cases[i].instruction);
        fs_hlo_module module = read_text(text);
        if (module.computation_count > 0) {
            fs_hlo_run run = fs_hlo_run_of(&module, module.computations[module.entry].root);
            CHECK(run == cases[i].run, "%s: %d", cases[i].instruction, run);
        }
        fs_hlo_clear(&module);
    }
}

static void test_products_have_the_unit_of_their_factors(void)
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
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

static void test_limits_are_told(void)
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

static void test_branches_are_marked(void)
{
    fs_hlo_step step = last_step("f {\n p = f32[8] parameter(0)\n ROOT n = f32[8] negate(p)\n}\n"
                                 "ENTRY e {\n i = s32[] parameter(0)\n x = f32[8] parameter(1)\n"
                                 " ROOT r = f32[8] conditional(i, x), branch_computations={f}\n}\n");
    CHECK(step.branch && step.calls == 1);
}

static void test_configs_are_read(void)
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

static void test_memory_may_fail(void)
{
    fs_hlo_module module =
        read_text("HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n ROOT r = f32[8] negate(x)\n}\n");
    int64_t before = fs_memory_live();
    fs_status status = FS_OUT_OF_MEMORY;
    for (int n = 1; n < 40 && status != FS_OK; n++) {
        fs_hlo_step *steps;
        uint32_t count;
        fs_error err;
        fs_memory_fail_at(n);
        status = fs_hlo_schedule(&module, &steps, &count, &err);
        fs_memory_fail_at(0);
        CHECK(status == FS_OK || (err.status == FS_OUT_OF_MEMORY && steps == NULL && count == 0));
        fs_free(steps);
        CHECK(fs_memory_live() == before);
    }
    CHECK(status == FS_OK);
    fs_hlo_clear(&module);
}

int main(void)
{
    test_rows_are_in_order();
    test_how_instructions_appear();
    test_products_have_the_unit_of_their_factors();
    test_limits_are_told();
    test_branches_are_marked();
    test_configs_are_read();
    test_memory_may_fail();
    return failures > 0;
}
