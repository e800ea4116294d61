/* Fuzz target of the reader of machine code: what it finds lies in the file, and each count is of an instruction. */
#include "sources/counters/sass.h"
#include "tests/c/fake_cubin.h"
#include "tests/c/fuzz.h"

CORPORA("fuzz/corpus/sass")

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const functions[] = {"_Z1fv", "plain", ""};
    char name[FS_SASS_NAME];
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        uint32_t counts[FS_SASS_KINDS];
        uint64_t all = 0;
        fs_sass code = fs_sass_find(data, size, functions[i]);
        FUZZ_CHECK(code.bytes == NULL ? code.size == 0 : code.bytes >= data, "before the file");
        FUZZ_CHECK(code.size <= size - (size_t)(code.bytes != NULL ? code.bytes - data : 0), "behind the file");
        fs_sass_count(&code, counts);
        for (int k = 0; k < FS_SASS_KINDS; k++) all += counts[k];
        FUZZ_CHECK(all <= code.size / 16, "%llu", (unsigned long long)all);
        for (uint64_t at = 0; at < code.size + 32; at += 8) fs_sass_name(&code, at, name);
        fs_sass_name(&code, UINT64_MAX, name);
    }
    return 0;
}

TEST(cut_and_changed_files)
{
    uint8_t file[FAKE_CUBIN_BYTES];
    memcpy(file, fake_cubin(), sizeof file);
    for (size_t size = 0; size <= sizeof file; size++) fuzz_exact(file, size);
    for (size_t at = 0; at < 8 * sizeof file; at++) {
        file[at / 8] ^= (uint8_t)(1 << at % 8);
        fuzz_exact(file, sizeof file);
        file[at / 8] ^= (uint8_t)(1 << at % 8);
    }
}

TEST(instructions_are_named_and_counted)
{
    static const char *const names[] = {"LDG.128", "STG.32", "LDL.32", "LDG.32", "LDG.32", "", "BAR", "HGMMA", ""};
    char name[FS_SASS_NAME];
    uint32_t counts[FS_SASS_KINDS], found = 0;
    fs_sass code = fs_sass_find(fake_cubin(), FAKE_CUBIN_BYTES, "plain");
    CHECK(fs_sass_find(fake_cubin(), FAKE_CUBIN_BYTES, "plai").bytes == NULL && code.size == sizeof fake_code);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        fs_sass_name(&code, 16 * i, name);
        CHECK(strcmp(name, names[i]) == 0, "%s", name);
    }
    fs_sass_count(&code, counts);
    for (int k = 0; k < FS_SASS_KINDS; k++) {
        if (counts[k] == 0) continue;
        const char *kind = fs_sass_kinds[k];
        found += counts[k] == (strcmp(kind, "4-byte loads") == 0 ? 2 : 1);
    }
    CHECK(found == 6, "%u", found);
}
