/* What timing a call on a CUDA device takes beside the call: an emptied cache, a device that waits while the call is
 * launched, a graph of calls. Plain C; a build without CUDA links cuda_stub.c, where each fails and says why.
 *
 * All work goes to the device's stream. Every function makes the device current, and the earlier one again.
 */
#ifndef FS_KERNELS_MEASURE_H
#define FS_KERNELS_MEASURE_H

#include "ops/tensor.h"

/* Wait until the device has done all that was queued, on every stream: *done. If its default stream takes longer than
 * `seconds`, return without. */
fs_status fs_cuda_measure_wait(fs_device device, double seconds, bool *done, fs_error *err);

/* Queue what leaves the L2 cache with other data: persisting lines become ordinary ones, then the kernel
 * flopscope_flush_l2 reads several times the cache's size. It reads, since lines that it wrote would be written back
 * while the timed work runs. The buffer stays for the life of the process. */
fs_status fs_cuda_measure_flush(fs_device device, fs_error *err);

/* Queue flopscope_measure_mark, a kernel that does nothing: among CUPTI's records it separates what came before. */
fs_status fs_cuda_measure_mark(fs_device device, fs_error *err);

/* Queue a kernel that runs until fs_cuda_measure_release, or for `seconds`. One at a time in a process:
 * FS_RUNTIME_ERROR while another waits. */
fs_status fs_cuda_measure_hold(fs_device device, double seconds, fs_error *err);
/* Let it end. Does nothing where none waits. */
void fs_cuda_measure_release(void);
/* Once it has ended: whether for want of a release in time. */
bool fs_cuda_measure_gave_up(void);

/* A graph of all that this thread's ops do between begin and end, which is not done then. Memory that these ops give
 * back stays theirs until the graph is freed. */
typedef struct fs_cuda_graph fs_cuda_graph;

/* FS_RUNTIME_ERROR in a thread that captures already. After success, fs_cuda_graph_end must follow in any case. */
fs_status fs_cuda_graph_begin(fs_device device, fs_error *err);
/* *graph is the caller's, NULL on failure: FS_RUNTIME_ERROR where something was done that no graph can hold. */
fs_status fs_cuda_graph_end(fs_cuda_graph **graph, fs_error *err);
/* Queue all of it on the device's stream. */
fs_status fs_cuda_graph_launch(fs_cuda_graph *graph, fs_error *err);
/* NULL is nothing. Waits for the device. */
void fs_cuda_graph_free(fs_cuda_graph *graph);

#endif
