/* Support for timing a call on a CUDA device: a flushed cache, a device that waits while the call is launched, a graph
 * of calls. Plain C. A build without CUDA links cuda_stub.c, in which each function fails with the reason.
 *
 * All work goes to the device's stream. Every function makes the device current, and restores the previous one.
 */
#ifndef FS_KERNELS_MEASURE_H
#define FS_KERNELS_MEASURE_H

#include "ops/tensor.h"

/* Wait until the device has finished all queued work, on every stream, and set *done. Return without it if the default
 * stream takes longer than `seconds`. */
fs_status fs_cuda_measure_wait(fs_device device, double seconds, bool *done, fs_error *err);

/* Queue work that fills the L2 cache with unrelated data: persisting lines become ordinary ones, then the kernel
 * flopscope_flush_l2 reads several times the cache's size. It only reads, as lines that it wrote would be written back
 * during the timed work. The buffer stays allocated until the cache of free memory is emptied. */
fs_status fs_cuda_measure_flush(fs_device device, fs_error *err);

/* Flush, and fill the shared memory of all multiprocessors with NaN, which work that reads it before it writes it finds
 * there. If `loaded`, queue some milliseconds of flushes on a stream of their own, beside which other work runs. */
fs_status fs_cuda_measure_disturb(fs_device device, bool loaded, fs_error *err);

/* Queue flopscope_measure_mark, a kernel that does nothing: in CUPTI's records it separates earlier from later work. */
fs_status fs_cuda_measure_mark(fs_device device, fs_error *err);

/* Queue a kernel that runs until fs_cuda_measure_release, but at most `seconds`. One at a time per process:
 * FS_RUNTIME_ERROR while another waits. */
fs_status fs_cuda_measure_hold(fs_device device, double seconds, fs_error *err);
/* Release the hold. Does nothing without one. */
void fs_cuda_measure_release(void);
/* After it has ended: whether it reached its time limit without a release. */
bool fs_cuda_measure_gave_up(void);

/* A graph captures all work of this thread's ops between begin and end without executing it. Memory that these ops
 * release is kept until the graph is freed. */
typedef struct fs_cuda_graph fs_cuda_graph;

/* FS_RUNTIME_ERROR if the thread already captures. After success, fs_cuda_graph_end must follow in any case. */
fs_status fs_cuda_graph_begin(fs_device device, fs_error *err);
/* The caller owns *graph. NULL on failure: FS_RUNTIME_ERROR if some work cannot be captured. */
fs_status fs_cuda_graph_end(fs_cuda_graph **graph, fs_error *err);
/* Queue the whole graph on the device's stream. */
fs_status fs_cuda_graph_launch(fs_cuda_graph *graph, fs_error *err);
/* Free a graph, or do nothing for NULL. Waits for the device. */
void fs_cuda_graph_free(fs_cuda_graph *graph);

#endif
