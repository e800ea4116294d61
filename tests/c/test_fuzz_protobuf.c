/* Protobuf: the corpus of fuzz_protobuf.c, which states the invariants; a message cut off at each of its bytes; and
 * failing allocations. */
#include "tests/c/check.h"
#include "tests/c/fuzz_protobuf.c"
#include "tests/c/fuzz_corpus.h"

/* An XSpace: a stream with a kernel, its names, a stat and a host; and a module, each cut off. */
static const uint8_t SPACE[] =
    "\n\x45\x12\x0d/device:GPU:0\x1a\x19\x08\x0e\x12\x09Stream #7\x22\x0a\x08\x01\x10\xe8\x07"
    "\x18\xd0\x0f\x22\x00\x22\x07\x08\x01\x12\x03\x12\x01k\x2a\x10\x08\x02\x12\x0c\x12\x0a"
    "core_count\x22\x01h";
static const uint8_t MODULE[] = "\x0a\x01m\x1a\x25\x0a\x01"
                                "c\x12\x20\x0a\x01p\x12\x09parameter\x1a\x0b\x10\x0b\x1a\x02"
                                "\x08\x02*\x03\x0a\x01\x00\x98\x02\x07";

/* Cut a message off at each of its bytes, in a block of exactly that size. */
static void test_cut_message(const uint8_t *bytes, size_t whole)
{
    for (size_t size = 0; size <= whole; size++) {
        uint8_t *cut = malloc(size > 0 ? size : 1);
        if (cut == NULL) return;
        memcpy(cut, bytes, size);
        LLVMFuzzerTestOneInput(cut, size);
        free(cut);
    }
}

static void test_failing_allocations(void)
{
    for (int64_t place = 1; place <= 120; place++) {
        fs_memory_fail_at(place);
        LLVMFuzzerTestOneInput(SPACE, sizeof SPACE - 1);
        fs_memory_fail_at(place);
        LLVMFuzzerTestOneInput(MODULE, sizeof MODULE - 1);
        fs_memory_fail_at(0);
    }
}

int main(void)
{
    int64_t live = fs_memory_live();
    test_cut_message(SPACE, sizeof SPACE - 1);
    test_cut_message(MODULE, sizeof MODULE - 1);
    CHECK(fs_memory_live() == live);
    test_failing_allocations();
    CHECK(fs_memory_live() == live);
    CHECK(fuzz_folder("fuzz/corpus/protobuf") > 4);
    return failures > 0;
}
