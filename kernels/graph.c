/* Graphs of what a thread's ops launch: they go to a stream that captures, instead of the legacy stream, which can't.
 *
 * A graph works on the addresses that were in use while it was captured. So what ops give back in that time is kept
 * with the graph: nobody else may write there while it can still be launched.
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
    cudaStream_t stream; /* while it is captured */
    cudaGraphExec_t exec;
    kept_block *kept;
    size_t count, capacity;
};

/* Of this thread, NULL while it captures nothing. */
static _Thread_local fs_cuda_graph *capturing;

cudaStream_t fs_cuda_stream(fs_device device)
{
    /* The legacy default stream, so that it orders with torch's and CuPy's. */
    return capturing != NULL && capturing->device.index == device.index ? capturing->stream : 0;
}

bool fs_cuda_graph_keeps(fs_device device, void *data, size_t nbytes)
{
    fs_cuda_graph *graph = capturing;

    if (graph == NULL || graph->device.index != device.index) return false;
    if (graph->count == graph->capacity) {
        size_t wanted = graph->capacity ? 2 * graph->capacity : 32;
        kept_block *moved = fs_realloc(graph->kept, wanted * sizeof *moved);
        if (moved == NULL) return true; /* lost until the process ends, rather than written to by two */
        graph->kept = moved;
        graph->capacity = wanted;
    }
    graph->kept[graph->count++] = (kept_block){data, nbytes};
    return true;
}

static fs_status begin(fs_cuda_graph *graph, fs_error *err)
{
    fs_device device = graph->device;

    FS_CUDA_TRY(cudaStreamCreateWithFlags(&graph->stream, cudaStreamNonBlocking), device, "making a stream", err);
    /* Relaxed: ops may allocate memory meanwhile. */
    FS_CUDA_TRY(cudaStreamBeginCapture(graph->stream, cudaStreamCaptureModeRelaxed), device, "beginning a graph", err);
    return FS_OK;
}

fs_status fs_cuda_graph_begin(fs_device device, fs_error *err)
{
    int previous;

    if (capturing != NULL) return fs_fail(err, FS_RUNTIME_ERROR, "this thread captures a graph already");
    fs_cuda_graph *graph = fs_calloc(1, sizeof *graph);
    if (graph == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "host memory is out: no room for a graph");
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
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, device, "making a graph ready", err);
}

fs_status fs_cuda_graph_end(fs_cuda_graph **graph, fs_error *err)
{
    fs_cuda_graph *ended = capturing;
    int previous;

    *graph = NULL;
    if (ended == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "this thread captures no graph");
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
    fs_free(graph->kept);
    fs_free(graph);
}
