/* The choice is made once, at first use, and never changes: results of one process come from one set of loops.
 * FLOPSCOPE_ISA can only lower it, as a higher one would execute instructions that the processor lacks. */
#include "ops/cpu/isa.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static fs_isa isa_supported(void)
{
#if FS_ISA_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return FS_ISA_BASELINE;
    /* Every processor with AVX2 has F16C. Older compilers cannot test for it by name. */
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return FS_ISA_AVX512;
    }
    return FS_ISA_AVX2;
#else
    return FS_ISA_BASELINE;
#endif
}

static fs_isa isa_choose(void)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    fs_isa best = isa_supported();
    const char *wanted = getenv("FLOPSCOPE_ISA");
    if (wanted == NULL) return best;
    for (fs_isa isa = FS_ISA_BASELINE; isa < best; isa++) {
        if (strcmp(wanted, names[isa]) == 0) return isa;
    }
    return best;
}

fs_isa fs_cpu_isa_id(void)
{
    /* Threads that race here all compute the same answer. */
    static atomic_int chosen = -1;
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa < 0) {
        isa = (int)isa_choose();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return (fs_isa)isa;
}
