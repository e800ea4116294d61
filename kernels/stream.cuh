/* Bulk copies from device memory to shared memory, which arrive while threads compute (compute capability 9.0): the
 * thread that starts one names its bytes, and threads wait for the barrier's phases 0, 1, 0, 1, … in turn. */
#ifndef FS_KERNELS_STREAM_CUH
#define FS_KERNELS_STREAM_CUH

#include <stdint.h>

#include "kernels/types.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FS_HAS_STREAM
FS_DEVICE uint32_t fs_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* By one thread, before the block synchronises. */
FS_DEVICE void fs_barrier_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(fs_shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* By one thread. Addresses and bytes are multiples of 16. No thread reads `to` before the barrier's next phase. */
FS_DEVICE void fs_bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    uint32_t arrived = fs_shared_address(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(arrived), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     fs_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(arrived)
                 : "memory");
}

FS_DEVICE void fs_barrier_wait(uint64_t *barrier, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(fs_shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}
#endif

#endif
