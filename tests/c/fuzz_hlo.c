/* Fuzz target of the reader of HLO text and of its cost model. What is read without an error keeps the promises of its
 * header; an error names the line. The tests cut a text off at each of its bytes and let each allocation fail. */
#include "tests/c/hlo_check.h"

CORPORA("fuzz/corpus/hlo", "data/hlo")

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const fs_hlo_module empty;
    fs_hlo_module module;
    fs_error err = {.message = ""};
    fs_status status = fs_hlo_read_text(&module, (const char *)data, size, &err);
    if (status == FS_OK) check_module(&module);
    else FUZZ_CHECK(memcmp(&module, &empty, sizeof module) == 0, "not empty: %s", err.message);
    if (status == FS_VALUE_ERROR) FUZZ_CHECK(strncmp(err.message, "line ", 5) == 0, "%s", err.message);
    if (status == FS_OK) fs_hlo_clear(&module);
    return 0;
}

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

TEST(cut_texts)
{
    for (size_t size = 0; size < sizeof TEXT; size++) fuzz_exact(TEXT, size);
}

static fs_status read_text(fs_error *err)
{
    fs_hlo_module module;
    fs_status status = fs_hlo_read_text(&module, TEXT, sizeof TEXT - 1, err);
    if (status == FS_OK) fs_hlo_clear(&module);
    return status;
}

TEST(failing_allocations)
{
    CHECK(fail_each_allocation(read_text) > 9);
}
