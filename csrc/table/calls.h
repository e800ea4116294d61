/* The distinct calls of a store: what all events of one name, signature and kind have in common, found once.
 * Private to csrc/table. */
#ifndef FS_TABLE_CALLS_H
#define FS_TABLE_CALLS_H

#include "base/intern.h"
#include "roofline/roofline.h"
#include "store/store.h"
#include "work/kernel_class.h"

typedef struct {
    uint64_t key;   /* name, signature */
    uint64_t class; /* stack, kind, on_device */
    uint8_t kind;
    bool on_device;
    uint32_t stack;
    uint32_t outer; /* the call of the op around it, where only that tells the work; else FS_NONE */
    uint8_t device_kind, device_index; /* of the signature */
    uint32_t row;
    const char *text;     /* the name as a row shows it */
    fs_work work;         /* of one call; all NaN for what is no op */
    bool known;           /* of an op: a rule knows FLOPs or bytes */
    bool stated;          /* of a range: the program stated FLOPs or bytes */
    bool launches;        /* of an API call: fs_name_launches */
    bool communication;   /* between devices: no work of any one of them */
    bool gradient;        /* of an op: fs_work_is_gradient */
    bool untyped;         /* of an op: its tensors have one dtype, which the trace does not tell */
    uint8_t dtype;        /* fs_torch_dtype that its kernels tell instead; FS_TORCH_DTYPE_NONE: none does */
    bool tensor;          /* a kernel that uses tensor cores */
    bool wraps;           /* an op of autograd's own that only calls others */
    fs_kernel_extent extent; /* of a kernel */
    bool launch_told;        /* of a kernel: its grid is known */
    bool saves_flops;        /* of a kernel: fs_kernel_saves_flops */
    /* Of device work: whether the op of some such is told and known, or told and not; the time of those untold. */
    bool flops_told, bytes_told, told_unknown;
    int64_t untold_ns;
    bool roof_tensor;      /* `roof` is of work on tensor cores */
    const fs_peaks *peaks; /* that `roof` is of */
    fs_roof roof;          /* of one call */
} fs_call;

typedef struct {
    const fs_store *store;
    bool by_shape;
    fs_call *calls;
    uint32_t count, capacity;
    uint32_t *slots; /* id + 1, 0: free; a power of two, at most half full */
    uint32_t slot_count;
    const uint64_t *keys; /* of their hash */
    fs_intern rows;   /* (name, place, annotation, shapes, stack) of each row; ids are the rows, by first sight */
    fs_intern shapes; /* input shapes */
} fs_calls;

/* All zero but store and by_shape is an empty set. */
void fs_calls_clear(fs_calls *set);

/* The id of the call that an event makes. on_device: the event makes a device row; stack: what parts rows beside, any
 * number. FS_OUT_OF_MEMORY. */
fs_status fs_calls_find(fs_calls *set, uint32_t name, uint32_t signature, fs_event_kind kind, bool on_device,
                        uint32_t stack, uint32_t *id, fs_error *err);

/* The id of the call `inner` (fs_work.of_outer) where `outer` encloses it: its work is what both tell. */
fs_status fs_calls_find_within(fs_calls *set, uint32_t inner, uint32_t outer, uint32_t *id, fs_error *err);

/* What a call was called with; false where it is no call of torch's. */
bool fs_calls_decode(const fs_calls *set, const fs_call *of, fs_torch_call *call);

#endif
