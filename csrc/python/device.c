/* Devices: properties, the datasheet, memory in use, and the probes that measure peaks. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "device/datasheet.h"
#include "device/peaks.h"
#include "kernels/cuda_device.h"
#include "ops/cpu/cpu_device.h"
#include "ops/op.h"
#include "python/core.h"

static PyObject *cuda_device_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    int count = 0;
    fs_error err;
    if (fs_cuda_device_count(&count, &err) != FS_OK) return fs_raise(&err);
    return PyLong_FromLong(count);
}

static PyObject *cuda_device_properties(PyObject *Py_UNUSED(module), PyObject *index)
{
    fs_cuda_properties p;
    fs_error err;
    long at = PyLong_AsLong(index);
    if (at == -1 && PyErr_Occurred()) return NULL;
    if (at < 0 || at > INT_MAX) at = -1; /* rejected by the core */
    if (fs_cuda_device_properties((int)at, &p, &err) != FS_OK) return fs_raise(&err);
    return Py_BuildValue(
        "{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:L,s:L,s:L,s:L,s:L,s:i,s:i,s:i,s:i,s:i}", "name", p.name, "uuid", p.uuid,
        "major", p.major, "minor", p.minor, "sm_count", p.sm_count, "warp_size", p.warp_size, "max_threads_per_sm",
        p.max_threads_per_sm, "max_blocks_per_sm", p.max_blocks_per_sm, "registers_per_sm", p.registers_per_sm,
        "shared_memory_per_sm", (long long)p.shared_memory_per_sm, "shared_memory_per_block_optin",
        (long long)p.shared_memory_per_block_optin, "reserved_shared_memory_per_block",
        (long long)p.reserved_shared_memory_per_block, "l2_bytes", (long long)p.l2_bytes, "memory_bytes",
        (long long)p.memory_bytes, "clock_khz", p.clock_khz, "memory_clock_khz", p.memory_clock_khz, "memory_bus_bits",
        p.memory_bus_bits, "driver_version", p.driver_version, "runtime_version", p.runtime_version);
}

static PyObject *cpu_properties(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("{s:s,s:s,s:i,s:L}", "name", fs_cpu_name(), "isa", fs_cpu_isa(), "threads",
                         fs_parallel_threads(), "cache_bytes", (long long)fs_cpu_cache_bytes());
}

/* Datasheet ----------------------------------------------------------------------------------------------------- */

/* Convert NaN, an unknown value, to None. */
static PyObject *known(double value)
{
    return isnan(value) ? Py_NewRef(Py_None) : PyFloat_FromDouble(value);
}

static PyObject *rates_of(const double rates[FS_UNIT_COUNT])
{
    PyObject *flops = PyDict_New();
    for (int unit = 0; flops != NULL && unit < FS_UNIT_COUNT; unit++) {
        if (!fs_put_column(flops, fs_units[unit].name, known(rates[unit]))) Py_CLEAR(flops);
    }
    return flops;
}

static PyObject *datasheet_row(const fs_datasheet *row)
{
    PyObject *names = PyList_New(0);
    for (int i = 0; names != NULL && row->names[i] != NULL; i++) {
        if (!fs_append(names, PyUnicode_FromString(row->names[i]))) Py_CLEAR(names);
    }
    PyObject *flops = names ? rates_of(row->flops) : NULL;
    if (flops == NULL) {
        Py_XDECREF(names);
        return NULL;
    }
    return Py_BuildValue("{s:N,s:i,s:i,s:i,s:i,s:N,s:N,s:N,s:N,s:i,s:N,s:N,s:s}", "names", names, "major", row->major,
                         "minor", row->minor, "sm_count", row->sm_count, "memory_gib", row->memory_gib, "clock_mhz",
                         known(row->clock_mhz), "tensor_clock_mhz", known(row->tensor_clock_mhz), "l2_bytes",
                         known(row->l2_bytes), "bandwidth", known(row->bandwidth), "memory_bus_bits",
                         row->memory_bus_bits, "memory_pin_rate", known(row->memory_pin_rate), "flops", flops, "source",
                         row->source);
}

static PyObject *datasheet(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *wanted = NULL;
    if (!PyArg_ParseTuple(args, "|U:datasheet", &wanted)) return NULL;
    const char *name = wanted ? PyUnicode_AsUTF8(wanted) : NULL;
    if (wanted != NULL && name == NULL) return NULL;
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < fs_datasheet_count(); i++) {
        if (name != NULL && !fs_datasheet_has_name(fs_datasheet_at(i), name)) continue;
        if (!fs_append(rows, datasheet_row(fs_datasheet_at(i)))) Py_CLEAR(rows);
    }
    return rows;
}

static PyObject *datasheet_find(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *name;
    int sm_count = 0;
    double memory_bytes = 0;
    if (!PyArg_ParseTuple(args, "U|id:datasheet_find", &name, &sm_count, &memory_bytes)) return NULL;
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    const fs_datasheet *row = fs_datasheet_find(text, sm_count, memory_bytes);
    if (row == NULL) Py_RETURN_NONE;
    return datasheet_row(row);
}

/* Memory and waiting -------------------------------------------------------------------------------------------- */

/* The only argument: a device, or none for the default one. */
static bool take_device(PyObject *args, const char *format, fs_device *device)
{
    PyObject *where = NULL;
    return PyArg_ParseTuple(args, format, &where) && fs_parse_device(where, device);
}

static PyObject *memory_allocated(PyObject *Py_UNUSED(module), PyObject *args)
{
    fs_device device;
    if (!take_device(args, "|O:memory_allocated", &device)) return NULL;
    return PyLong_FromLongLong(fs_backend_of(device)->allocated(device));
}

static PyObject *memory_reserved(PyObject *Py_UNUSED(module), PyObject *args)
{
    fs_device device;
    if (!take_device(args, "|O:memory_reserved", &device)) return NULL;
    return PyLong_FromLongLong(fs_backend_of(device)->reserved(device));
}

static PyObject *empty_cache(PyObject *Py_UNUSED(module), PyObject *args)
{
    fs_device device;
    if (!take_device(args, "|O:empty_cache", &device)) return NULL;
    Py_BEGIN_ALLOW_THREADS fs_backend_of(device)->empty_cache(device);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *synchronize(PyObject *Py_UNUSED(module), PyObject *args)
{
    fs_device device;
    fs_error err;
    if (!take_device(args, "|O:synchronize", &device)) return NULL;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_backend_of(device)->synchronize(device, &err)), &err);
}

static PyObject *num_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLong(fs_parallel_threads());
}

static PyObject *set_num_threads(PyObject *Py_UNUSED(module), PyObject *count)
{
    fs_error err;
    long threads = PyLong_AsLong(count);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    if (threads < 1 || threads > 256) threads = 0; /* rejected by the core, whose error names the range */
    return fs_none_or_raise(fs_parallel_set_threads((int)threads, &err), &err);
}

static PyObject *manual_seed(PyObject *Py_UNUSED(module), PyObject *seed)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(seed);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    fs_op_seed(value);
    Py_RETURN_NONE;
}

/* Probes -------------------------------------------------------------------------------------------------------- */

typedef struct {
    fs_device device;
    fs_dtype dtype;
    bool fast;  /* a product in TF32, or of float8 with fast accumulation */
    int choice; /* the algorithm of a product */
    int64_t amount;
    double done;          /* work of one run: FLOPs, bytes or launches */
    fs_tensor tensors[3]; /* allocated before the clock starts, released after it stops */
} probe;

static fs_status take(probe *p, int place, int ndim, const int64_t *shape, fs_error *err)
{
    return fs_tensor_empty(&p->tensors[place], p->dtype, p->device, ndim, shape, err);
}

static fs_status prepare_nothing(probe *Py_UNUSED(p), fs_error *Py_UNUSED(err))
{
    return FS_OK;
}

static fs_elementwise flat(const probe *p, int out, int in)
{
    return (fs_elementwise){.ndim = 1,
                            .shape = {p->tensors[out].shape[0]},
                            .out_strides = {1},
                            .in_strides = {{1}, {0}},
                            .out = p->tensors[out].data,
                            .in = {p->tensors[in].data},
                            .scalar = {1.0},
                            .dtype = p->dtype,
                            .count = p->tensors[out].shape[0]};
}

/* Allocate vectors of `amount` bytes in total and fill them: untouched pages may not be backed by memory. */
static fs_status prepare_vectors(probe *p, int count, fs_error *err)
{
    int64_t length = p->amount / count / (int64_t)fs_dtypes[p->dtype].size;
    if (length < 1) return fs_fail(err, FS_VALUE_ERROR, "a probe of %lld bytes is too small", (long long)p->amount);
    for (int i = 0; i < count; i++) {
        FS_TRY(take(p, i, 1, &length, err));
        fs_elementwise space = flat(p, i, i);
        FS_TRY(fs_backend_of(p->device)->fill(p->device, &space, err));
    }
    p->done = (double)length * (double)fs_dtypes[p->dtype].size * (double)count;
    return FS_OK;
}

static fs_status prepare_one(probe *p, fs_error *err)
{
    return prepare_vectors(p, 1, err);
}

static fs_status prepare_two(probe *p, fs_error *err)
{
    return prepare_vectors(p, 2, err);
}

/* Fill the factors at random: a product of zeros draws less power and so runs faster than one of real data. */
static fs_status prepare_matrices(probe *p, fs_error *err)
{
    int64_t shape[2] = {p->amount, p->amount};
    const double limit = p->dtype == FS_INT8 ? 127 : 1;
    const bool is_float = fs_dtype_is_float(p->dtype);
    const fs_backend *backend = fs_backend_of(p->device);
    for (int i = 0; i < 2; i++) FS_TRY(take(p, i, 2, shape, err));
    fs_dtype product = fs_dtype_of_product(p->dtype, p->dtype);
    FS_TRY(fs_tensor_empty(&p->tensors[2], product, p->device, 2, shape, err));
    /* Numbers of 8 bits are drawn as float16 in the memory of the product, which is at least as wide. */
    for (int i = 0; i < 2; i++) {
        fs_random random = {.out = p->tensors[is_float ? i : 2].data,
                            .count = shape[0] * shape[1],
                            .seed = 1 + (uint64_t)i,
                            .low = -limit,
                            .high = limit,
                            .dtype = is_float ? p->dtype : FS_FLOAT16};
        FS_TRY(backend->random(p->device, FS_UNIFORM, &random, err));
        if (is_float) continue;
        fs_conversion conversion = {.space = flat(p, i, 2), .in_dtype = FS_FLOAT16};
        conversion.space.shape[0] = conversion.space.count = random.count;
        FS_TRY(backend->convert(p->device, &conversion, err));
    }
    p->done = 2.0 * (double)p->amount * (double)p->amount * (double)p->amount;
    return FS_OK;
}

static fs_status prepare_empty(probe *p, fs_error *err)
{
    int64_t one = 1;
    p->done = (double)p->amount;
    return take(p, 0, 1, &one, err);
}

static fs_status run_fma(probe *p, fs_error *err)
{
    if (p->device.kind == FS_CPU) return fs_cpu_probe_fma(p->dtype, p->amount, &p->done, err);
    return fs_cuda_probe_fma(p->device, p->dtype, (int)p->amount, &p->done, err);
}

static fs_status run_read(probe *p, fs_error *err)
{
    size_t nbytes = fs_tensor_nbytes(&p->tensors[0]);
    return p->device.kind == FS_CPU ? fs_cpu_probe_read(p->tensors[0].data, nbytes, err)
                                    : fs_cuda_probe_read(p->device, p->tensors[0].data, nbytes, err);
}

static fs_status run_l2(probe *p, fs_error *err)
{
    if (p->device.kind == FS_CPU) return fs_fail(err, FS_VALUE_ERROR, "the L2 is probed on CUDA devices only");
    return fs_cuda_probe_l2(p->device, p->tensors[0].data, fs_tensor_nbytes(&p->tensors[0]), &p->done, err);
}

static fs_status run_write(probe *p, fs_error *err)
{
    fs_elementwise space = flat(p, 0, 0);
    return fs_backend_of(p->device)->fill(p->device, &space, err);
}

static fs_status run_copy(probe *p, fs_error *err)
{
    fs_conversion conversion = {.space = flat(p, 1, 0), .in_dtype = p->dtype};
    return fs_backend_of(p->device)->convert(p->device, &conversion, err);
}

static fs_status run_matmul(probe *p, fs_error *err)
{
    int64_t n = p->amount;
    fs_matmul matmul = {.a = p->tensors[0].data,
                        .b = p->tensors[1].data,
                        .out = p->tensors[2].data,
                        .m = n,
                        .n = n,
                        .k = n,
                        .batch = 1,
                        .a_ld = n,
                        .b_ld = n,
                        .out_ld = n,
                        .b_transposed = fs_dtypes[p->dtype].size == 1,
                        .allow_tf32 = p->fast,
                        .fast_accumulation = p->fast && fs_dtype_is_float8(p->dtype),
                        .choice = p->choice,
                        .a_dtype = p->dtype,
                        .b_dtype = p->dtype,
                        .dtype = p->tensors[2].dtype};
    return fs_backend_of(p->device)->matmul(p->device, &matmul, err);
}

/* On the CPU an empty call is an op on one element, including its checks. On CUDA it is an empty kernel. */
static fs_status run_empty(probe *p, fs_error *err)
{
    fs_call call = {.op = fs_op_find("neg_"), .in = {&p->tensors[0]}};
    for (int64_t i = 0; i < p->amount; i++) {
        if (p->device.kind == FS_CUDA) {
            FS_TRY(fs_cuda_probe_empty(p->device, err));
            continue;
        }
        fs_tensor result;
        FS_TRY(fs_op_run(&call, &result, err));
        fs_tensor_release(&result);
    }
    return FS_OK;
}

static const struct {
    const char *name;
    fs_status (*prepare)(probe *p, fs_error *err);
    fs_status (*run)(probe *p, fs_error *err);
} probes[] = {
    {"fma", prepare_nothing, run_fma}, {"read", prepare_one, run_read},          {"write", prepare_one, run_write},
    {"copy", prepare_two, run_copy},   {"matmul", prepare_matrices, run_matmul}, {"empty", prepare_empty, run_empty},
    {"l2", prepare_one, run_l2},
};
enum { PROBE_COUNT = sizeof probes / sizeof *probes };

static fs_status time_on_cpu(probe *p, int which, int64_t *ns, fs_error *err)
{
    int64_t began = fs_clock_now();
    FS_TRY(probes[which].run(p, err));
    *ns = fs_clock_now() - began;
    return FS_OK;
}

static fs_status time_on_cuda(probe *p, int which, int64_t *ns, fs_error *err)
{
    const fs_backend *backend = fs_backend_of(p->device);
    fs_mark *from = NULL, *to = NULL;
    fs_status status;
    FS_TRY_GOTO(status, backend->mark_take(p->device, &from, err), done);
    FS_TRY_GOTO(status, probes[which].run(p, err), done);
    FS_TRY_GOTO(status, backend->mark_take(p->device, &to, err), done);
    status = backend->mark_elapsed(p->device, from, to, ns, err);
done:
    if (from != NULL) backend->mark_give(p->device, from);
    if (to != NULL) backend->mark_give(p->device, to);
    return status;
}

static PyObject *run_probe(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *what, *dtype;
    PyObject *where;
    long long amount;
    probe p = {.dtype = FS_FLOAT32};
    if (!PyArg_ParseTuple(args, "OssL|i:probe", &where, &what, &dtype, &amount, &p.choice) ||
        !fs_parse_device(where, &p.device))
        return NULL;
    int which = 0;
    while (which < PROBE_COUNT && strcmp(probes[which].name, what) != 0) which++;
    bool is_fp8 = strcmp(dtype, "fp8") == 0;
    p.fast = is_fp8 || strcmp(dtype, "tf32") == 0;
    if (!p.fast) p.dtype = fs_dtype_find(dtype);
    if (is_fp8) p.dtype = FS_FLOAT8_E4M3FN;
    bool known = strcmp(what, "matmul") == 0 ? fs_dtype_of_product(p.dtype, p.dtype) != FS_DTYPE_NONE
                                             : fs_dtype_is_float(p.dtype);
    if (which == PROBE_COUNT || !known || amount < 1 || amount > INT64_MAX / 64)
        return PyErr_Format(PyExc_ValueError, "unsupported probe: %s of dtype %s and amount %lld", what, dtype, amount);
    p.amount = amount;
    fs_error err;
    fs_status status;
    int64_t ns = 0;
    Py_BEGIN_ALLOW_THREADS status = probes[which].prepare(&p, &err);
    if (status == FS_OK) {
        status = p.device.kind == FS_CPU ? time_on_cpu(&p, which, &ns, &err) : time_on_cuda(&p, which, &ns, &err);
    }
    for (int i = 0; i < 3; i++) fs_tensor_release(&p.tensors[i]);
    Py_END_ALLOW_THREADS if (status != FS_OK) return fs_raise(&err);
    return Py_BuildValue("(dd)", (double)ns / 1e9, p.done);
}

static PyMethodDef functions[] = {
    {"cuda_device_count", cuda_device_count, METH_NOARGS,
     "Return the number of CUDA devices. Raise RuntimeError with the reason if there is none."},
    {"cuda_device_properties", cuda_device_properties, METH_O,
     "cuda_device_properties($module, index, /)\n--\n\nReturn the driver's properties of a CUDA device as a dict."},
    {"cpu_properties", cpu_properties, METH_NOARGS, "Return the CPU's name, isa, threads and cache_bytes as a dict."},
    {"datasheet", datasheet, METH_VARARGS,
     "datasheet([name])\n\nReturn the rows of the datasheet table, or those with that name, as dicts."},
    {"datasheet_find", datasheet_find, METH_VARARGS,
     "datasheet_find($module, name, sm_count=0, memory_bytes=0.0, /)\n--\n\nReturn the datasheet row of the device "
     "that "
     "reports these values, or None. 0: unknown."},
    {"probe", run_probe, METH_VARARGS,
     "probe($module, device, what, dtype, amount, choice=0, /)\n--\n\nRun fma, read, write, copy, matmul or empty "
     "once. "
     "Return (seconds, amount done). `choice`: the place of a product's algorithm in the list of cuBLASLt's heuristic; "
     "RuntimeError after the last."},
    {"memory_allocated", memory_allocated, METH_VARARGS,
     "memory_allocated($module, device=None, /)\n--\n\nReturn the bytes of a device's memory that tensors occupy now."},
    {"memory_reserved", memory_reserved, METH_VARARGS,
     "memory_reserved($module, device=None, /)\n--\n\nReturn the bytes of a device's memory that tensors, the cache of "
     "free blocks, and on CUDA the workspaces of matrix products and measurements occupy."},
    {"empty_cache", empty_cache, METH_VARARGS,
     "empty_cache($module, device=None, /)\n--\n\nRelease the free blocks of the cache, and "
     "workspaces that are not in use, to the device."},
    {"synchronize", synchronize, METH_VARARGS,
     "synchronize($module, device=None, /)\n--\n\nWait until the device has finished all queued work. Raise "
     "RuntimeError if that work failed."},
    {"num_threads", num_threads, METH_NOARGS,
     "num_threads($module, /)\n--\n\nReturn the number of threads of CPU ops."},
    {"set_num_threads", set_num_threads, METH_O,
     "set_num_threads($module, count, /)\n--\n\nSet the number of threads of CPU ops, 1 to 256. NumPy's BLAS has its "
     "own "
     "threads."},
    {"manual_seed", manual_seed, METH_O,
     "manual_seed($module, seed, /)\n--\n\nSeed the random number generator. The same seed gives the same numbers on "
     "every device."},
    {"set_default_device", fs_set_default_device, METH_O,
     "set_default_device($module, device, /)\n--\n\nSet the device of new tensors for which no device is named. None: "
     "the first GPU, or the CPU if there is none."},
    {"default_device", fs_get_default_device, METH_NOARGS,
     "default_device($module, /)\n--\n\nReturn the device of new tensors for which no device is named."},
    {NULL, NULL, 0, NULL},
};

int fs_add_device(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
