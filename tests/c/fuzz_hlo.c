/* Fuzz target of the reader of HLO text and of its cost model, built and run with libFuzzer by tests/fuzz/run.sh. What
 * is read without an error keeps the promises of its header; an error names the line.
 *
 * test_fuzz_hlo.c runs it over its corpus without libFuzzer. */
#include <string.h>

#include "tests/c/hlo_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
