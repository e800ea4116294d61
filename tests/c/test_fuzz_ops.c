/* Ops on tensors of any layout: the corpus of fuzz_ops.c, which states the invariants. */
#include "tests/c/fuzz_ops.c"
#include "tests/c/fuzz_corpus.h"

int main(void)
{
    CHECK(fuzz_folder("fuzz/corpus/ops") > 0);
    return failures > 0;
}
