/* Digests of ranks: the corpora of fuzz_ranks.c, which states the invariants. */
#include "tests/c/check.h"
#include "tests/c/fuzz_ranks.c"
#include "tests/c/fuzz_corpus.h"

int main(void)
{
    CHECK(fuzz_folder("data/corpus") > 0);
    CHECK(fuzz_folder("fuzz/corpus/ranks") > 0);
    return failures > 0;
}
