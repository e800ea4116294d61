"""The CPU's ops on tensors of any layout, against NumPy and the same ops on dense copies, beside memory that traps.

The memory of a tensor ends, or begins, at a page that must not be accessed; an op that does ends this program. Elements
between those of an output must not change. Run as a program, so that FLOPSCOPE_ISA chooses the instruction set; prints
the one that was used.
"""

import ctypes
import faulthandler
import mmap
from contextlib import suppress
from typing import Any

import numpy as np

import flopscope as fs
from helpers import ops_reference as reference
from helpers.ops_reference import BINARY, FLOATS, REDUCTIONS, UNARY

with suppress(ImportError):  # NumPy has no bfloat16 of its own
    import ml_dtypes  # noqa: F401

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
PAGE = mmap.PAGESIZE
SIZES = (3, 1, 2, 4, 5, 7, 8, 16, 17, 33, 64, 100, 0)
MOVES = ("copy", "cast", "transpose_copy", "copy_", "fill_")
ROWS = (*REDUCTIONS, "argmax", "cumsum", "softmax", "log_softmax", "layer_norm", "rms_norm")
NAMES = (*UNARY, *BINARY, *(f"{name}_" for name in (*UNARY, *BINARY)), *ROWS, *MOVES, "matmul", "addmm")
WHOLE = ("int64", "int32", "int8", "uint8", "bool")
OTHERS = {"argmax": np.argmax, "matmul": np.matmul, "cumsum": lambda x: np.cumsum(x, -1)}
LIBC = ctypes.CDLL(None, use_errno=True)


def dtypes() -> list[str]:
    """Return the floating dtypes that NumPy can hold here."""
    found = []
    for name in FLOATS:
        with suppress(TypeError):
            found.append(np.dtype(name).name)
    return found


def fenced(count: int, dtype: str) -> Array:
    """Return an array of values between 0.1 and 2.5 beside a page that traps."""
    size = count * np.dtype(dtype).itemsize
    pages = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, pages + 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for edge in (0, PAGE + pages):
        assert LIBC.mprotect(ctypes.c_void_p(address + edge), ctypes.c_size_t(PAGE), 0) == 0
    array: Array = np.frombuffer(memory, dtype, count, PAGE + (pages - size) * int(RNG.integers(2)))
    array[:] = RNG.uniform(0.1, 2.5, count).astype(dtype)
    return array


def view(shape: tuple[int, ...], dtype: str, repeats: bool = True) -> tuple[Array, Array]:
    """Return an array of this shape and the memory that it is in: axes reordered, stepped, reversed or broadcast."""
    order, steps = RNG.permutation(len(shape)), RNG.choice([1, 1, 1, 2, 3, -1, -2], len(shape))
    repeated = (RNG.random(len(shape)) < 0.15) & repeats
    sizes = [1 if repeated[d] else max(0, (shape[d] - 1) * abs(steps[d]) + 1) if shape[d] else 0 for d in order]
    base = fenced(int(np.prod(sizes, dtype=int)), dtype)
    array = base.reshape(sizes).transpose(np.argsort(order).tolist() if sizes else [])
    cuts = (slice(None, None, 1 if one else int(n)) for n, one in zip(steps, repeated, strict=True))
    array = array[(..., *cuts)]
    return np.broadcast_to(array, shape) if repeated.any() else array, base


def narrower(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to this one."""
    dropped = int(RNG.integers(len(shape) + 1)) if RNG.random() < 0.3 else 0
    return tuple(1 if RNG.random() < 0.25 else n for n in shape[dropped:])


def choose(name: str) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    """Return shapes of the arguments of an op, and its other arguments."""
    shape = tuple(int(n) for n in RNG.choice(SIZES, RNG.integers(name in (*ROWS, "transpose_copy"), 4)))
    if RNG.random() < 0.1 and shape:  # of which threads compute parts
        shape = (*shape[:-1], shape[-1] * 40)
    more: dict[str, Any] = {}
    shapes = [shape]
    if name.strip("_") in BINARY or name == "copy_":
        shapes.append(narrower(shape))
    elif name in (*REDUCTIONS, "argmax"):
        shapes = [tuple(max(n, 2) for n in shape)]
        more = {"axis": [None, -1][RNG.integers(2)], "keepdims": bool(RNG.integers(2))}
    elif name in ("layer_norm", "rms_norm"):
        shapes += [shape[-1:]] * int(RNG.integers(3 if name == "layer_norm" else 2))
    elif name in ("matmul", "addmm"):
        m, n, k = (int(size) for size in RNG.choice(SIZES, 3))
        batch = tuple(int(size) for size in RNG.integers(1, 4, RNG.integers(3 if name == "matmul" else 1)))
        shapes = [(*batch, m, k), (*narrower(batch), k, n)]
        if name == "addmm":
            shapes.insert(0, (n,))
    elif name == "transpose_copy":
        shapes = [(*shape, 5)]
    elif name == "cast":
        more = {"dtype": str(RNG.choice([*dtypes(), *WHOLE]))}
    elif name == "fill_":
        more = {"value": 2}
    return shapes, more


def check(name: str, got: Array, arrays: list[Array], more: dict[str, Any]) -> None:
    """Compare the result of an op on dense tensors with NumPy's in float64."""
    plain = name.rstrip("_")
    function: Any = {**UNARY, **BINARY, **REDUCTIONS, **OTHERS}.get(plain, getattr(reference, plain, None))
    wide = [array.astype(np.float64) for array in arrays]
    if function is not None and plain != "gelu" and all(array.size for array in arrays):
        near = reference.TOLERANCE.get(got.dtype.name, 0) * (8 if plain in {**UNARY, **BINARY} else 20)
        np.testing.assert_allclose(got.astype(float), function(*wide, **more), near, near, err_msg=name)


def same(got: Array, want: Array, name: str) -> None:
    """Check a result; the order of a sum depends on the layout, and its error on how much is summed."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    sums = name in (*ROWS, "matmul", "addmm")
    rtol = {"float64": 1e-15, "float32": 5e-7, "float16": 2e-3, "bfloat16": 1.6e-2}.get(want.dtype.name, 0)
    rtol *= 200 if sums and want.dtype.itemsize > 2 else 4
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol, rtol if sums else 0, err_msg=name)


def run(name: str) -> None:
    """Call an op on views and on dense copies of them; also into an output of any layout, or over its first input."""
    shapes, more = choose(name)
    dtype = str(RNG.choice(dtypes()))
    op, in_place = getattr(fs, name), name.endswith("_")
    given = [view(shape, dtype, repeats=i > 0 or not in_place) for i, shape in enumerate(shapes)]
    arrays, base = [array for array, _ in given], given[0][1]
    copies = [fs.from_numpy(array.copy()) for array in arrays]
    dense = [array.copy() for array in arrays]
    want = to_numpy(op(*copies, **more))
    check(name, want, dense, more)
    if in_place:
        into, memory = arrays[0], base
    else:
        same(to_numpy(op(*map(fs.from_numpy, arrays), **more)), want, name)
        over = RNG.random() < 0.3 and arrays[0].flags.writeable
        fits = arrays[0].ndim > 0 and (arrays[0].shape, arrays[0].dtype) == (want.shape, want.dtype)
        into, memory = (arrays[0][::-1], base) if over and fits else view(want.shape, want.dtype.name, False)
    before = memory.copy()
    outside = np.ones(memory.nbytes, bool)
    outside[places(into, memory)] = False
    tensors = [*map(fs.from_numpy, arrays)]
    op(*tensors, **more) if in_place else op(*tensors, **more, out=fs.from_numpy(into))
    same(into, want, name)
    assert (memory.view("u1")[outside] == before.view("u1")[outside]).all(), f"{name} writes beside its output"


def places(array: Array, memory: Array) -> Array:
    """Return which bytes the elements of an array are, from where the memory begins."""
    at = np.full(array.shape, array.__array_interface__["data"][0] - memory.__array_interface__["data"][0], np.int64)
    for axis, stride in enumerate(array.strides):
        at += (np.arange(array.shape[axis]) * stride).reshape([-1 if d == axis else 1 for d in range(array.ndim)])
    return (at.reshape(-1, 1) + np.arange(array.itemsize)).ravel()


def distinct_bytes(*arrays: Array) -> int:
    """Return the number of bytes of the distinct elements of the arrays."""
    return np.unique(np.concatenate([places(array, arrays[0]) for array in arrays])).size


def to_numpy(tensor: fs.Tensor) -> Array:
    """Return the elements in their own dtype."""
    array: Array = tensor.to("float64").numpy().astype(tensor.dtype)
    return array


if __name__ == "__main__":
    faulthandler.enable()
    fs.set_num_threads(3)
    with np.errstate(all="ignore"):
        for _ in range(50):
            for name in NAMES:
                run(name)
    print(fs._core.cpu_properties()["isa"])
