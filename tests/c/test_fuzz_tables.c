/* Tables, summaries and exports of traces: the corpora of fuzz_tables.c, which states the invariants. */
#include "tests/c/check.h"
#include "tests/c/fuzz_tables.c"
#include "tests/c/fuzz_corpus.h"

int main(void)
{
    CHECK(fuzz_folder("data/corpus") > 0);
    CHECK(fuzz_folder("fuzz/corpus/kineto") > 0);
    CHECK(fuzz_folder("fuzz/corpus/tables") > 0);
    return failures > 0;
}
