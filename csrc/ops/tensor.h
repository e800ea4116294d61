/* Tensors: a typed, strided view of a reference-counted block of memory on one device. */
#ifndef FS_OPS_TENSOR_H
#define FS_OPS_TENSOR_H

#ifndef __cplusplus
#include <stdatomic.h>
#else
typedef int atomic_int; /* CUDA code uses the layout of the struct and never counts references */
#endif
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ops/dtype.h"

enum { FS_MAX_DIMS = 8 };

typedef enum { FS_CPU, FS_CUDA, FS_DEVICE_KIND_COUNT } fs_device_kind;

typedef struct {
    fs_device_kind kind;
    int index; /* CUDA device number; 0 for the CPU */
} fs_device;

static inline bool fs_device_equal(fs_device a, fs_device b)
{
    return a.kind == b.kind && a.index == b.index;
}

/* Format as "cpu" or "cuda:0". `text` has room for at least 16 characters. */
const char *fs_device_text(fs_device device, char *text);

/* Memory shared by tensors. The core's own memory comes from the backend's cache and returns to it. Foreign memory
 * (DLPack, NumPy) has a `drop` that notifies its owner. */
typedef struct fs_storage fs_storage;
struct fs_storage {
    void *data;
    size_t nbytes;
    fs_device device;
    bool read_only;
    atomic_int references;
    void (*drop)(fs_storage *storage); /* releases data, not the struct */
    void *owner;                       /* context for drop */
};

/* Strides count elements, may be negative, and are 0 along a broadcast dimension. `data` points to element (0, …,
 * 0). */
typedef struct {
    fs_dtype dtype;
    fs_device device;
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    int64_t strides[FS_MAX_DIMS];
    void *data;
    fs_storage *storage;
} fs_tensor;

/* Allocate a dense (C-order) tensor with uninitialized elements. FS_VALUE_ERROR for a negative or overflowing shape,
 * FS_OUT_OF_MEMORY or FS_RUNTIME_ERROR from the device. */
fs_status fs_tensor_empty(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                          fs_error *err);

/* Create a view of foreign memory. Takes ownership of `owner`, which `drop` releases, also on failure. Strides NULL:
 * dense. FS_VALUE_ERROR for strides that reach beyond the address space. */
fs_status fs_tensor_foreign(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                            const int64_t *strides, void *data, bool read_only, void (*drop)(fs_storage *), void *owner,
                            fs_error *err);

/* Create another tensor over the same storage; release a tensor, which is zeroed. */
void fs_tensor_share(fs_tensor *tensor, const fs_tensor *source);
void fs_tensor_release(fs_tensor *tensor);

int64_t fs_tensor_count(const fs_tensor *tensor);
size_t fs_tensor_nbytes(const fs_tensor *tensor); /* count × element size */
bool fs_tensor_is_dense(const fs_tensor *tensor); /* C order, no gaps */
void fs_dense_strides(int ndim, const int64_t *shape, int64_t *strides);

/* The number of distinct elements in memory: elements at the same address, as along a broadcast dimension (stride 0) or
 * in overlapping windows, count once. FS_COUNT_UNKNOWN if the strides overlap in a way that would take too long to
 * count: too many offsets over too wide a range. */
enum { FS_COUNT_UNKNOWN = -1 };
int64_t fs_distinct_count(int ndim, const int64_t *shape, const int64_t *strides);

/* Format as "float32 (3, 4) on cuda:0", truncated to fit. Returns text. */
const char *fs_tensor_text(const fs_tensor *tensor, char *text, size_t size);
/* Format as "(3, 4)", "(3,)" or "()". Returns text. */
const char *fs_shape_text(int ndim, const int64_t *shape, char *text, size_t size);

#endif
