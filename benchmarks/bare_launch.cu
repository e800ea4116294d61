// The minimum host time of a launch: an empty kernel, launched from a loop in C.
#include <cuda_runtime.h>
#include <time.h>

__global__ void empty_kernel()
{
}

static double seconds_now()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Launch `count` times; *seconds is the host's time without waiting for the device. Return a cudaError_t.
extern "C" int launch_empty_kernels(int count, double *seconds)
{
    double start = seconds_now();
    for (int i = 0; i < count; i++) empty_kernel<<<1, 32>>>();
    *seconds = seconds_now() - start;
    cudaError_t launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}
