/* Databases: the corpus of fuzz_sqlite.c, which states the invariants. */
#include "tests/c/check.h"
#include "tests/c/fuzz_sqlite.c"
#include "tests/c/fuzz_corpus.h"

int main(void)
{
    CHECK(fuzz_folder("fuzz/corpus/sqlite") > 0);
    return failures > 0;
}
