/* HLO: the corpus of fuzz_hlo.c, which states the invariants, whole and cut off at each of its bytes; and failing
 * allocations. */
#include "tests/c/check.h"
#include "tests/c/fuzz_hlo.c"
#include "tests/c/fuzz_corpus.h"

static const char TEXT[] =
    "HloModule small, is_scheduled=true\n"
    "FileNames\n1 \"a.py\"\nFunctionNames\n1 \"f\"\n"
    "FileLocations\n1 {file_name_id=1 function_name_id=1 line=3}\n"
    "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n"
    "%body (x: f32[8]) -> f32[8] {\n"
    "  %x = f32[8]{0:T(8)S(5)} parameter(0)\n"
    "  ROOT %y = (f32[8]{0}, (s8[2])) fft(f32[8]{0} %x), fft_length={8}, metadata={op_name=\"a\\\"b\""
    " stack_frame_id=1}\n"
    "}\n"
    "ENTRY %main (x: f32[8]) -> f32[8] {\n"
    "  %x = f32[8]{0} parameter(0)\n"
    "  %c = f32[] constant(1)\n"
    "  ROOT %w = f32[8]{0} while(%x), condition=%body, body=%body, window={size=3 pad=0_1}, "
    "backend_config={\"known_trip_count\":{\"n\":\"3\"}}\n"
    "}\n";

static void test_cut_texts(void)
{
    for (size_t size = 0; size < sizeof TEXT; size++) LLVMFuzzerTestOneInput((const uint8_t *)TEXT, size);
}

static void test_failing_allocations(void)
{
    int64_t live = fs_memory_live();
    fs_status status = FS_OUT_OF_MEMORY;
    for (int64_t n = 1; status == FS_OUT_OF_MEMORY; n++) {
        fs_hlo_module module;
        fs_error err;
        fs_memory_fail_at(n);
        status = fs_hlo_read_text(&module, TEXT, sizeof TEXT - 1, &err);
        fs_memory_fail_at(0);
        if (status == FS_OK) fs_hlo_clear(&module);
        CHECK(fs_memory_live() == live);
    }
    CHECK(status == FS_OK);
}

int main(void)
{
    test_cut_texts();
    test_failing_allocations();
    CHECK(fuzz_folder("fuzz/corpus/hlo") > 0);
    CHECK(fuzz_folder("data/hlo") > 0);
    return failures > 0;
}
