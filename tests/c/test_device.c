/* Units, datasheets, formula peaks, and the choice of the peak that bounds a piece of work. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/datasheet.h"
#include "device/peaks.h"
#include "device/rates.h"
#include "device/units.h"
#include "store/signature.h"
#include "tests/c/check.h"
#include "work/work.h"

static bool is_near(double value, double expected)
{
    return fabs(value - expected) <= 1e-12 * fabs(expected);
}

static void units_are_found_by_exact_name(void)
{
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) {
        CHECK(fs_unit_find(fs_units[unit].name) == (fs_unit)unit);
        CHECK(strlen(fs_units[unit].prose) > 0);
    }
    CHECK(fs_unit_find("FP32") == FS_UNIT_NONE);
    CHECK(fs_unit_find("") == FS_UNIT_NONE);
    /* The H100 whitepaper lists float64 on tensor cores among the units that run at the higher clock. */
    CHECK(!fs_units[FS_UNIT_FP64_TENSOR].tensor_clock);
    CHECK(fs_units[FS_UNIT_BF16_TENSOR].tensor_clock);
}

static void a_device_is_found_by_its_whole_name(void)
{
    const fs_datasheet *h200 = fs_datasheet_find("NVIDIA H200", 0, 0);
    CHECK(h200 != NULL);
    if (h200 == NULL) return;
    CHECK(h200->sm_count == 132 && h200->major == 9 && h200->minor == 0);
    CHECK(is_near(h200->bandwidth, 4.8e12));
    CHECK(is_near(h200->flops[FS_UNIT_BF16_TENSOR], 989.4e12));

    CHECK(fs_datasheet_find("nvidia h200", 0, 0) == h200);
    CHECK(fs_datasheet_find(" \tNVIDIA   H200 \n", 0, 0) == h200);
    CHECK(fs_datasheet_find("NVIDIA H200 NVL", 0, 0) != h200);

    const char *unknown[] = {"",
                             " ",
                             "H200",
                             "NVIDIA",
                             "NVIDIA H2",
                             "NVIDIA H2000",
                             "NVIDIAH200",
                             "NVIDIA H 200",
                             "Graphics Device",
                             "NVIDIA Graphics Device",
                             "Tesla",
                             "AMD Radeon Graphics",
                             "NVIDIA GeForce RTX 4090 Laptop GPU",
                             "NVIDIA H200 MIG 1g.18gb"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) CHECK(fs_datasheet_find(unknown[i], 0, 0) == NULL);
}

static void every_alias_finds_its_own_row(void)
{
    for (int i = 0; i < fs_datasheet_count(); i++) {
        const fs_datasheet *row = fs_datasheet_at(i);
        CHECK(row->names[0] != NULL && row->names[FS_DATASHEET_NAMES] == NULL);
        for (const char *const *name = row->names; *name != NULL; name++) {
            CHECK(fs_datasheet_find(*name, row->sm_count, row->memory_gib * 0x1p30) == row);
        }
        CHECK(strstr(row->source, "https://") != NULL);
    }
    CHECK(fs_datasheet_at(-1) == NULL);
    CHECK(fs_datasheet_at(fs_datasheet_count()) == NULL);
}

static void cards_of_the_same_name_are_distinguished(void)
{
    const char *rtx3080 = "NVIDIA GeForce RTX 3080", *rtx3060 = "NVIDIA GeForce RTX 3060";
    const double gib = 0x1p30;
    CHECK(fs_datasheet_find(rtx3080, 0, 0) == NULL);
    CHECK(is_near(fs_datasheet_find(rtx3080, 68, 0)->bandwidth, 760e9));
    CHECK(is_near(fs_datasheet_find(rtx3080, 70, 0)->bandwidth, 912e9));
    CHECK(is_near(fs_datasheet_find(rtx3080, 0, 9.77 * gib)->bandwidth, 760e9));
    CHECK(fs_datasheet_find(rtx3080, 68, 12 * gib) == NULL);
    CHECK(fs_datasheet_find(rtx3060, 28, 0) == NULL);
    CHECK(is_near(fs_datasheet_find(rtx3060, 28, 11.76 * gib)->bandwidth, 360e9));
    CHECK(is_near(fs_datasheet_find(rtx3060, 28, 7.79 * gib)->bandwidth, 240e9));

    const fs_datasheet *mi250 = fs_datasheet_find("AMD Instinct MI250X / MI250", 104, 0);
    CHECK(mi250 != NULL && mi250 != fs_datasheet_find("AMD Instinct MI250X / MI250", 110, 0));
    CHECK(fs_datasheet_find("AMD Instinct MI250X / MI250", 110, 0) == fs_datasheet_find("AMD Instinct MI250X", 0, 0));

    /* A partition does not have the peaks of the whole device. */
    CHECK(fs_datasheet_find("AMD Instinct MI300X", 304, 0) != NULL);
    CHECK(fs_datasheet_find("AMD Instinct MI300X", 38, 0) == NULL);
    /* Memory size is ignored if the name is unique. */
    CHECK(fs_datasheet_find("NVIDIA H200", 132, 1e9) == fs_datasheet_find("NVIDIA H200", 0, 0));
}

static void formula_peaks_are_sms_times_rate_times_clock(void)
{
    const fs_rates *hopper = fs_rates_find(9, 0, FS_TENSOR_FULL);
    CHECK(hopper != NULL);
    if (hopper == NULL) return;
    double flops[FS_UNIT_COUNT];
    fs_rates_flops(hopper, 132, 1980, 1830, flops);
    CHECK(is_near(flops[FS_UNIT_FP32], 132 * 256 * 1980e6));
    CHECK(is_near(flops[FS_UNIT_FP64_TENSOR], 132 * 256 * 1980e6));
    CHECK(is_near(flops[FS_UNIT_FP16_TENSOR], 132 * 4096 * 1830e6));
    fs_rates_flops(hopper, 132, 1500, 1500, flops);
    CHECK(is_near(flops[FS_UNIT_FP8_TENSOR], 132 * 8192 * 1500e6));

    const fs_rates *volta = fs_rates_find(7, 0, FS_TENSOR_FULL);
    fs_rates_flops(volta, 80, 1530, 1530, flops);
    CHECK(isnan(flops[FS_UNIT_BF16_TENSOR]) && isnan(flops[FS_UNIT_FP64_TENSOR]));
    CHECK(fs_rates_find(9, 0, FS_TENSOR_HALF) == NULL);
    CHECK(fs_rates_find(6, 1, FS_TENSOR_FULL) == NULL);
    for (int i = 0; i < fs_datasheet_count(); i++) {
        const fs_datasheet *row = fs_datasheet_at(i);
        CHECK(fs_rates_find(row->major, row->minor, row->tensor_class) != NULL);
        CHECK(fs_tensor_class_names[row->tensor_class] != NULL);
    }
}

static void check_choice(fs_unit_choice choice, fs_unit preferred, fs_unit fallback)
{
    CHECK(choice.preferred == preferred);
    CHECK(choice.fallback == fallback);
}

/* The unit of a native product on CUDA of two 16 × 16 factors. */
static fs_unit unit_of_product(fs_dtype factor, fs_dtype product)
{
    static const int64_t shape[] = {16, 16};
    fs_signature signature = {.argument_count = 3, .device_kind = FS_CUDA};
    for (int i = 0; i < 3; i++) {
        signature.arguments[i] = (fs_argument){.role = i < 2 ? FS_ARGUMENT_IN : FS_ARGUMENT_OUT,
                                               .dtype = (uint8_t)(i < 2 ? factor : product),
                                               .ndim = 2,
                                               .same_as = FS_SAME_AS_NONE,
                                               .dense = 1,
                                               .shape = shape};
    }
    fs_work work = fs_work_of("flopscope::matmul", &signature);
    CHECK(work.flops == 2 * 16 * 16 * 16, "%g", work.flops);
    double bytes = 256.0 * (double)(2 * fs_dtypes[factor].size + fs_dtypes[product].size);
    CHECK(work.bytes_moved == bytes, "%g", work.bytes_moved);
    return work.unit.preferred;
}

static void products_run_on_the_unit_of_their_factors(void)
{
    CHECK(unit_of_product(FS_INT8, FS_INT32) == FS_UNIT_INT8_TENSOR);
    CHECK(unit_of_product(FS_FLOAT8_E4M3FN, FS_BFLOAT16) == FS_UNIT_FP8_TENSOR);
    CHECK(unit_of_product(FS_FLOAT8_E5M2, FS_FLOAT32) == FS_UNIT_FP8_TENSOR);
    CHECK(unit_of_product(FS_BFLOAT16, FS_BFLOAT16) == FS_UNIT_BF16_TENSOR);
}

static void work_is_bounded_by_the_unit_it_runs_on(void)
{
    check_choice(fs_unit_choose(FS_FLOAT32, false, true, FS_CUDA), FS_UNIT_FP32, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_FLOAT16, false, false, FS_CUDA), FS_UNIT_FP32, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_BFLOAT16, false, false, FS_CUDA), FS_UNIT_FP32, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_FLOAT64, false, false, FS_CUDA), FS_UNIT_FP64, FS_UNIT_FP64);
    check_choice(fs_unit_choose(FS_INT64, false, false, FS_CUDA), FS_UNIT_NONE, FS_UNIT_NONE);
    check_choice(fs_unit_choose(FS_DTYPE_NONE, false, false, FS_CUDA), FS_UNIT_NONE, FS_UNIT_NONE);

    check_choice(fs_unit_choose(FS_FLOAT32, true, false, FS_CUDA), FS_UNIT_FP32, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_FLOAT32, true, true, FS_CUDA), FS_UNIT_TF32_TENSOR, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_FLOAT64, true, true, FS_CUDA), FS_UNIT_FP64_TENSOR, FS_UNIT_FP64);
    check_choice(fs_unit_choose(FS_FLOAT16, true, false, FS_CUDA), FS_UNIT_FP16_TENSOR, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_BFLOAT16, true, true, FS_CUDA), FS_UNIT_BF16_TENSOR, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_INT8, true, false, FS_CUDA), FS_UNIT_INT8_TENSOR, FS_UNIT_INT8_TENSOR);
    check_choice(fs_unit_choose(FS_INT8, true, false, FS_CPU), FS_UNIT_INT8_TENSOR, FS_UNIT_INT8_TENSOR);
    check_choice(fs_unit_choose(FS_FLOAT8_E5M2, true, false, FS_CPU), FS_UNIT_FP32, FS_UNIT_FP32);

    check_choice(fs_unit_choose(FS_FLOAT16, true, true, FS_CPU), FS_UNIT_FP32, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_FLOAT32, true, true, FS_CPU), FS_UNIT_FP32, FS_UNIT_FP32);
    check_choice(fs_unit_choose(FS_FLOAT64, true, false, FS_CPU), FS_UNIT_FP64, FS_UNIT_FP64);
}

static void take_datasheet(const char *name, fs_peaks *peaks)
{
    const fs_datasheet *datasheet = fs_datasheet_find(name, 0, 0);
    memcpy(peaks->flops, datasheet->flops, sizeof peaks->flops);
}

static void a_missing_unit_falls_back_and_unknown_stays_unknown(void)
{
    fs_peaks peaks;
    fs_unit used = FS_UNIT_FP8_TENSOR;
    fs_unit_choice fp64_product = fs_unit_choose(FS_FLOAT64, true, false, FS_CUDA);

    fs_peaks_unknown(&peaks);
    CHECK(isnan(peaks.bandwidth) && isnan(peaks.launch_ns));
    CHECK(isnan(fs_peaks_flops(&peaks, fp64_product, &used)));
    CHECK(used == FS_UNIT_NONE);

    take_datasheet("Tesla V100-SXM2-16GB", &peaks);
    CHECK(is_near(fs_peaks_flops(&peaks, fp64_product, &used), 7.8e12));
    CHECK(used == FS_UNIT_FP64);

    take_datasheet("NVIDIA A100-SXM4-80GB", &peaks);
    CHECK(is_near(fs_peaks_flops(&peaks, fp64_product, &used), 19.5e12));
    CHECK(used == FS_UNIT_FP64_TENSOR);
    CHECK(is_near(fs_peaks_flops(&peaks, fp64_product, NULL), 19.5e12));
    CHECK(isnan(fs_peaks_flops(&peaks, fs_unit_choose(FS_INT32, false, false, FS_CUDA), &used)));
    CHECK(used == FS_UNIT_NONE);
}

int main(void)
{
    units_are_found_by_exact_name();
    a_device_is_found_by_its_whole_name();
    every_alias_finds_its_own_row();
    cards_of_the_same_name_are_distinguished();
    formula_peaks_are_sms_times_rate_times_clock();
    work_is_bounded_by_the_unit_it_runs_on();
    products_run_on_the_unit_of_their_factors();
    a_missing_unit_falls_back_and_unknown_stays_unknown();
    return failures != 0;
}
