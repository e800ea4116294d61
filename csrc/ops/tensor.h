/* Tensors: a typed, strided view of a reference-counted block of memory on one device. */
#ifndef FS_OPS_TENSOR_H
#define FS_OPS_TENSOR_H

#ifndef __cplusplus
#include <stdatomic.h>
#else
typedef int atomic_int; /* CUDA code sees the record's layout and never counts references */
#endif
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ops/dtype.h"

enum { FS_MAX_DIMS = 8 };

typedef enum { FS_CPU, FS_CUDA, FS_DEVICE_KIND_COUNT } fs_device_kind;

typedef struct {
    fs_device_kind kind;
    int index; /* of the CUDA device; 0 for the CPU */
} fs_device;

static inline bool fs_device_equal(fs_device a, fs_device b)
{
    return a.kind == b.kind && a.index == b.index;
}

/* "cpu", "cuda:0". `text` holds at least 16 characters. */
const char *fs_device_text(fs_device device, char *text);

/* Memory that tensors share. Ours comes from the backend's cache and goes back to it; foreign memory (DLPack, NumPy)
 * has a `drop` that tells its owner. */
typedef struct fs_storage fs_storage;
struct fs_storage {
    void *data;
    size_t nbytes;
    fs_device device;
    bool read_only;
    atomic_int references;
    void (*drop)(fs_storage *storage); /* releases data, not the record */
    void *owner;                       /* drop's own */
};

/* Strides count elements, may be negative, and are 0 along a broadcast dimension. `data` is element (0, …, 0). */
typedef struct {
    fs_dtype dtype;
    fs_device device;
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    int64_t strides[FS_MAX_DIMS];
    void *data;
    fs_storage *storage;
} fs_tensor;

/* A fresh dense (C-order) tensor, its content undefined. FS_VALUE_ERROR for a negative or overflowing shape,
 * FS_OUT_OF_MEMORY or FS_RUNTIME_ERROR from the device. */
fs_status fs_tensor_empty(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                          fs_error *err);

/* A view of foreign memory; takes over `owner`, which `drop` releases (on failure too). Strides NULL: dense.
 * FS_VALUE_ERROR for strides that reach beyond the address space. */
fs_status fs_tensor_foreign(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                            const int64_t *strides, void *data, bool read_only, void (*drop)(fs_storage *), void *owner,
                            fs_error *err);

/* Another tensor over the same storage; and letting go of one. A released tensor is zeroed. */
void fs_tensor_share(fs_tensor *tensor, const fs_tensor *source);
void fs_tensor_release(fs_tensor *tensor);

int64_t fs_tensor_count(const fs_tensor *tensor);
size_t fs_tensor_nbytes(const fs_tensor *tensor); /* count × element size */
bool fs_tensor_is_dense(const fs_tensor *tensor); /* C order, no gaps */
void fs_dense_strides(int ndim, const int64_t *shape, int64_t *strides);

/* The elements that have memory of their own: those that lie at the same place, as along a broadcast dimension (stride
 * 0) or in windows that overlap, count once. FS_COUNT_UNKNOWN where strides are so entangled that to tell would take
 * too long: their offsets are neither few nor close together. */
enum { FS_COUNT_UNKNOWN = -1 };
int64_t fs_distinct_count(int ndim, const int64_t *shape, const int64_t *strides);

/* "float32 (3, 4) on cuda:0", cut to fit. Returns text. */
const char *fs_tensor_text(const fs_tensor *tensor, char *text, size_t size);
/* "(3, 4)", "(3,)", "()". Returns text. */
const char *fs_shape_text(int ndim, const int64_t *shape, char *text, size_t size);

#endif
