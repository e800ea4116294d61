/* Distinct calls of a store: the properties shared by all events of one name, signature and kind, computed once.
 * Private to csrc/table. */
#ifndef FS_TABLE_CALLS_H
#define FS_TABLE_CALLS_H

#include "base/intern.h"
#include "roofline/roofline.h"
#include "store/store.h"
#include "work/kernel_class.h"

typedef struct {
    uint64_t key;   /* (name, signature) */
    uint64_t class; /* (part, kind, on_device) */
    uint8_t kind;
    bool on_device;
    uint32_t part;
    uint32_t outer;                    /* id of the enclosing op's or annotation's call if the work depends on it; else
                                          FS_NONE */
    uint8_t device_kind, device_index; /* of the signature */
    uint32_t row;
    const char *text;        /* name shown by the row */
    const char *overload;    /* fs_row.overload */
    fs_work work;            /* of one call; all NaN unless it is an op or a range */
    bool known;              /* op: a rule counts its FLOPs or bytes, or it is a launch of known work */
    bool launch;             /* op: it is one launch of known work */
    bool stated;             /* range: the program declared FLOPs or bytes */
    bool launches;           /* API call: fs_name_launches */
    bool communication;      /* data moves between devices; not the work of one device */
    bool gradient;           /* op: fs_work_is_gradient */
    bool untyped;            /* op: its tensors have one dtype, which the trace does not record */
    uint8_t category;        /* op: fs_row.category */
    uint8_t dtype;           /* fs_torch_dtype inferred from its kernels; FS_TORCH_DTYPE_NONE: none */
    bool tensor;             /* kernel that uses tensor cores */
    bool wraps;              /* autograd op that only calls others */
    bool compiles;           /* op: a compilation, whose work is not the program's */
    fs_kernel_extent extent; /* of a kernel */
    bool launch_known;       /* kernel: its grid is known */
    bool of_graph;           /* kernel: a graph launched it */
    bool saves_flops;        /* kernel: fs_kernel_saves_flops */
    bool has_work;           /* kernel: fs_kernel_has_work, or a rule is registered for its name */
    bool registered;         /* kernel: a rule is registered for its name; */
    uint32_t worked_for;     /* its work was computed for this op's call + 1; 0: not yet */
    fs_work worked;
    bool works;
    const char *expected; /* op: the argument list that its rule expects, if the call has another; else NULL */
} fs_call;

enum { FS_KERNEL_SLOTS = 128 };

typedef struct {
    const fs_store *store;
    bool by_shape, by_dtype, by_overload;
    fs_intern *ops; /* fs_table.ops */
    fs_call *calls;
    uint32_t count, capacity;
    uint32_t *slots; /* id + 1, 0: free; the size is a power of two, at most half full */
    uint32_t slot_count;
    const uint64_t *keys;              /* of the hash */
    fs_intern rows;                    /* (name, place, shapes, dtypes, part, op) of each row; ids are row indices */
    fs_intern shapes;                  /* input shapes and dtypes */
    uint32_t kernels[FS_KERNEL_SLOTS]; /* by name modulo their number: id + 1 of the last such kernel; 0: none yet */
} fs_calls;

/* A set that is zeroed except for store, ops and by_… is empty. */
void fs_calls_clear(fs_calls *set);

/* The key and the class of an event's call. on_device: the event makes a device row; part: any number that separates
 * rows further. */
static inline uint64_t fs_call_key(uint32_t name, uint32_t signature)
{
    return (uint64_t)name << 32 | signature;
}

static inline uint64_t fs_call_class(fs_event_kind kind, bool on_device, uint32_t part)
{
    return (uint64_t)part << 8 | (uint64_t)kind << 1 | on_device;
}

/* Find or add a call. FS_OUT_OF_MEMORY. */
fs_status fs_calls_find(fs_calls *set, uint64_t key, uint64_t class, uint32_t *id, fs_error *err);

/* Find or add the call `inner` (fs_work.needs) as enclosed by `outer`: its work depends on both. */
fs_status fs_calls_find_within(fs_calls *set, uint32_t inner, uint32_t outer, uint32_t *id, fs_error *err);

/* Complete a decoded call of torch by what encloses it: an op, decoded into *outer, or an annotation. */
void fs_calls_surround(const fs_calls *set, const fs_call *of, fs_torch_call *call, fs_torch_call *outer);

/* Decode the arguments of a call; false unless it is a call of torch. */
bool fs_calls_decode(const fs_calls *set, const fs_call *of, fs_torch_call *call);

#endif
