/* Graphs of the work that a thread's ops launch, captured on a stream of the graph, as the legacy stream cannot be
 * captured.
 *
 * A graph uses the addresses of its capture. Memory that ops release during the capture is therefore kept with the
 * graph, so that nothing else writes to it while the graph can be launched; and so are uses of scratch blocks.
 */
#include "base/memory.h"
#include "kernels/context.h"
#include "kernels/measure.h"

typedef struct {
    void *data;
    size_t nbytes;
} kept_block;

struct fs_cuda_graph {
    fs_device device;
    cudaStream_t stream; /* during the capture */
    cudaGraphExec_t exec;
    kept_block *kept;
    size_t count, capacity;
    bool scratch[FS_CUDA_SCRATCH_COUNT]; /* whether the graph keeps a use of the block */
};

/* The graph that this thread captures, or NULL. */
static _Thread_local fs_cuda_graph *capturing;

cudaStream_t fs_cuda_stream(fs_device device)
{
    /* The legacy default stream, which is ordered with torch's and CuPy's work. */
    return capturing != NULL && capturing->device.index == device.index ? capturing->stream : 0;
}

bool fs_cuda_graph_keeps(fs_device device, void *data, size_t nbytes)
{
    fs_cuda_graph *graph = capturing;

    if (graph == NULL || graph->device.index != device.index) return false;
    if (graph->count == graph->capacity) {
        size_t wanted = graph->capacity ? 2 * graph->capacity : 32;
        kept_block *moved = fs_realloc(graph->kept, wanted * sizeof *moved);
        if (moved == NULL) return true; /* leak the block rather than let two users write to it */
        graph->kept = moved;
        graph->capacity = wanted;
    }
    graph->kept[graph->count++] = (kept_block){data, nbytes};
    return true;
}

bool fs_cuda_graph_keeps_scratch(fs_device device, int which)
{
    fs_cuda_graph *graph = capturing;

    if (graph == NULL || graph->device.index != device.index || graph->scratch[which]) return false;
    graph->scratch[which] = true;
    return true;
}

static fs_status begin(fs_cuda_graph *graph, fs_error *err)
{
    fs_device device = graph->device;

    FS_CUDA_TRY(cudaStreamCreateWithFlags(&graph->stream, cudaStreamNonBlocking), device, "making a stream", err);
    /* Relaxed, as ops may allocate memory during the capture. */
    FS_CUDA_TRY(cudaStreamBeginCapture(graph->stream, cudaStreamCaptureModeRelaxed), device, "beginning a graph", err);
    return FS_OK;
}

fs_status fs_cuda_graph_begin(fs_device device, fs_error *err)
{
    int previous;

    if (capturing != NULL) return fs_fail(err, FS_RUNTIME_ERROR, "this thread already captures a graph");
    fs_cuda_graph *graph = fs_calloc(1, sizeof *graph);
    if (graph == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "out of host memory: cannot allocate a graph");
    graph->device = device;
    fs_status status = fs_cuda_enter(device, &previous, err);
    if (status == FS_OK) {
        status = begin(graph, err);
        fs_cuda_leave(previous);
    }
    if (status == FS_OK) capturing = graph;
    else fs_cuda_graph_free(graph);
    return status;
}

static fs_status end(fs_cuda_graph *graph, fs_error *err)
{
    cudaGraph_t captured = NULL;
    fs_device device = graph->device;

    FS_CUDA_TRY(cudaStreamEndCapture(graph->stream, &captured), device, "ending a graph", err);
    cudaError_t code = cudaGraphInstantiate(&graph->exec, captured, 0);
    cudaGraphDestroy(captured);
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, device, "instantiating a graph", err);
}

fs_status fs_cuda_graph_end(fs_cuda_graph **graph, fs_error *err)
{
    fs_cuda_graph *ended = capturing;
    int previous;

    *graph = NULL;
    if (ended == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "this thread is not capturing a graph");
    capturing = NULL;
    fs_status status = fs_cuda_enter(ended->device, &previous, err);
    if (status == FS_OK) {
        status = end(ended, err);
        fs_cuda_leave(previous);
    }
    if (status == FS_OK) *graph = ended;
    else fs_cuda_graph_free(ended);
    return status;
}

fs_status fs_cuda_graph_launch(fs_cuda_graph *graph, fs_error *err)
{
    int previous;

    FS_TRY(fs_cuda_enter(graph->device, &previous, err));
    cudaError_t code = cudaGraphLaunch(graph->exec, fs_cuda_stream(graph->device));
    fs_cuda_leave(previous);
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, graph->device, "launching a graph", err);
}

void fs_cuda_graph_free(fs_cuda_graph *graph)
{
    int previous;

    if (graph == NULL) return;
    if (fs_cuda_enter(graph->device, &previous, NULL) == FS_OK) {
        cudaDeviceSynchronize();
        if (graph->exec != NULL) cudaGraphExecDestroy(graph->exec);
        if (graph->stream != NULL) cudaStreamDestroy(graph->stream);
        cudaGetLastError();
        fs_cuda_leave(previous);
    }
    for (size_t i = 0; i < graph->count; i++)
        fs_cuda_release(graph->device, graph->kept[i].data, graph->kept[i].nbytes);
    for (int i = 0; i < FS_CUDA_SCRATCH_COUNT; i++)
        if (graph->scratch[i]) fs_cuda_scratch_give(graph->device, (fs_cuda_scratch)i);
    fs_free(graph->kept);
    fs_free(graph);
}
