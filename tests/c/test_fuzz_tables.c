/* What becomes of traces: the corpora through tables, summaries and exports (fuzz_tables.c says what holds). */
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
