/* A shape is accepted only if its bytes fit into int64_t, and foreign strides only if every element has an address;
 * products of sizes are not checked again after that. In an empty tensor strides mean nothing and may overflow, which
 * the unsigned arithmetic here allows. Storage is shared by counting references, and the last one drops it: memory is
 * told to the observer once when it comes and once when it goes. */
#include "ops/tensor.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ops/backend.h"
#include "ops/observer.h"

const char *fs_device_text(fs_device device, char *text)
{
    if (device.kind == FS_CUDA) {
        snprintf(text, 16, "cuda:%d", device.index & 0xffff);
    } else {
        strcpy(text, "cpu");
    }
    return text;
}

const char *fs_shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(");
    for (int d = 0; d < ndim && used < size; d++) {
        used += (size_t)snprintf(text + used, size - used, d ? ", %lld" : "%lld", (long long)shape[d]);
    }
    if (used < size) snprintf(text + used, size - used, ndim == 1 ? ",)" : ")");
    return text;
}

const char *fs_tensor_text(const fs_tensor *tensor, char *text, size_t size)
{
    char shape[128], device[16];
    snprintf(text, size, "%s %s on %s", fs_dtypes[tensor->dtype].name,
             fs_shape_text(tensor->ndim, tensor->shape, shape, sizeof shape), fs_device_text(tensor->device, device));
    return text;
}

int64_t fs_tensor_count(const fs_tensor *tensor)
{
    uint64_t count = 1; /* in an empty tensor the other sizes may overflow it before the 0 */
    for (int d = 0; d < tensor->ndim; d++) count *= (uint64_t)tensor->shape[d];
    return (int64_t)count;
}

size_t fs_tensor_nbytes(const fs_tensor *tensor)
{
    return (size_t)fs_tensor_count(tensor) * fs_dtypes[tensor->dtype].size;
}

void fs_dense_strides(int ndim, const int64_t *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        /* In an empty tensor the other axes may have any size. */
        if (__builtin_mul_overflow(stride, shape[d], &stride)) stride = 0;
    }
}

bool fs_tensor_is_dense(const fs_tensor *tensor)
{
    uint64_t stride = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->shape[d] != 1 && (uint64_t)tensor->strides[d] != stride) return fs_tensor_count(tensor) == 0;
        stride *= (uint64_t)tensor->shape[d];
    }
    return true;
}

/* Copy the shape into the tensor and check that the byte count fits. */
static fs_status set_shape(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                           fs_error *err)
{
    char text[128];
    if (ndim < 0 || ndim > FS_MAX_DIMS) {
        return fs_fail(err, FS_VALUE_ERROR, "a tensor has at most %d dimensions, not %d", FS_MAX_DIMS, ndim);
    }
    *tensor = (fs_tensor){.dtype = dtype, .device = device, .ndim = ndim};
    size_t nbytes = fs_dtypes[dtype].size;
    bool empty = false;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0) {
            return fs_fail(err, FS_VALUE_ERROR, "the shape %s has a negative dimension",
                           fs_shape_text(ndim, shape, text, sizeof text));
        }
        tensor->shape[d] = shape[d];
        empty |= shape[d] == 0;
    }
    for (int d = 0; d < ndim && !empty; d++) {
        if (__builtin_mul_overflow(nbytes, (size_t)shape[d], &nbytes) || nbytes > INT64_MAX) {
            return fs_fail(err, FS_OUT_OF_MEMORY, "a %s tensor of shape %s is larger than the address space",
                           fs_dtypes[dtype].name, fs_shape_text(ndim, shape, text, sizeof text));
        }
    }
    return FS_OK;
}

static uint64_t magnitude(int64_t value)
{
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

/* CuPy divides a negative stride in bytes by the item's size as unsigned numbers. The result addresses the same
 * elements modulo the address space. Return the negative stride it stands for. */
static int64_t wrapped_stride(int64_t stride, uint64_t item)
{
    int64_t size = (int64_t)item, bytes = (int64_t)((uint64_t)stride * item);
    return stride > INT64_MAX / size && bytes < 0 && bytes % size == 0 ? bytes / size : stride;
}

/* Copy foreign strides into the tensor after checking that every element has a valid address. A stride that no element
 * uses (along an axis of size 1, or in an empty tensor) may have any value, and is replaced if its bytes would
 * overflow. */
static fs_status set_strides(fs_tensor *tensor, const int64_t *strides, const void *data, fs_error *err)
{
    uint64_t item = fs_dtypes[tensor->dtype].size, reach, low = 0, high = item;
    bool empty = fs_tensor_count(tensor) == 0, good = true;
    fs_dense_strides(tensor->ndim, tensor->shape, tensor->strides);
    for (int d = 0; strides != NULL && d < tensor->ndim; d++) {
        uint64_t step;
        int64_t stride = wrapped_stride(strides[d], item);
        bool fits = !__builtin_mul_overflow(magnitude(stride), item, &step) && step <= INT64_MAX;
        if (fits) tensor->strides[d] = stride;
        if (empty || tensor->shape[d] == 1) continue;
        uint64_t *side = stride < 0 ? &low : &high;
        good = good && fits && !__builtin_mul_overflow(step, (uint64_t)tensor->shape[d] - 1, &reach) &&
               !__builtin_add_overflow(*side, reach, side);
    }
    good = good && low <= INT64_MAX && high <= INT64_MAX - low;
    if (!empty) good = good && low <= (uintptr_t)data && high <= UINTPTR_MAX - (uintptr_t)data;
    if (good) return FS_OK;
    char text[128];
    return fs_fail(err, FS_VALUE_ERROR, "the strides of a tensor of shape %s reach beyond the address space",
                   fs_shape_text(tensor->ndim, tensor->shape, text, sizeof text));
}

static void tell_memory(fs_device device, int64_t delta, const void *data)
{
    const fs_observer *observer = delta ? fs_observer_enter() : NULL;
    if (observer == NULL) return;
    observer->memory(observer->context, device, delta, (uintptr_t)data);
    fs_observer_leave();
}

static void drop_own(fs_storage *storage)
{
    tell_memory(storage->device, -(int64_t)storage->nbytes, storage->data);
    fs_backend_of(storage->device)->release(storage->device, storage->data, storage->nbytes);
}

fs_status fs_tensor_empty(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                          fs_error *err)
{
    FS_TRY(set_shape(tensor, dtype, device, ndim, shape, err));
    fs_dense_strides(ndim, shape, tensor->strides);
    fs_storage *storage = fs_calloc(1, sizeof *storage);
    if (storage == NULL) return fs_no_memory(err);
    storage->nbytes = fs_tensor_nbytes(tensor);
    storage->device = device;
    storage->drop = drop_own;
    atomic_init(&storage->references, 1);
    fs_status status = fs_backend_of(device)->allocate(device, storage->nbytes, &storage->data, err);
    if (status != FS_OK) {
        fs_free(storage);
        return status;
    }
    tell_memory(device, (int64_t)storage->nbytes, storage->data);
    tensor->storage = storage;
    tensor->data = storage->data;
    return FS_OK;
}

fs_status fs_tensor_foreign(fs_tensor *tensor, fs_dtype dtype, fs_device device, int ndim, const int64_t *shape,
                            const int64_t *strides, void *data, bool read_only, void (*drop)(fs_storage *), void *owner,
                            fs_error *err)
{
    fs_storage foreign = {.data = data, .device = device, .read_only = read_only, .drop = drop, .owner = owner};
    fs_storage *storage = NULL;
    fs_status status = set_shape(tensor, dtype, device, ndim, shape, err);
    if (status == FS_OK) status = set_strides(tensor, strides, data, err);
    if (status == FS_OK) status = FS_NEW(&storage, 1, err);
    if (status != FS_OK) {
        drop(&foreign);
        return status;
    }
    *storage = foreign;
    atomic_init(&storage->references, 1);
    storage->nbytes = fs_tensor_nbytes(tensor);
    tensor->data = data;
    tensor->storage = storage;
    return FS_OK;
}

void fs_tensor_share(fs_tensor *tensor, const fs_tensor *source)
{
    *tensor = *source;
    atomic_fetch_add_explicit(&tensor->storage->references, 1, memory_order_relaxed);
}

void fs_tensor_release(fs_tensor *tensor)
{
    fs_storage *storage = tensor->storage;
    memset(tensor, 0, sizeof *tensor);
    if (storage == NULL || atomic_fetch_sub(&storage->references, 1) != 1) return;
    storage->drop(storage);
    fs_free(storage);
}
