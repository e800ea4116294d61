"""Arrays of torch, NumPy, CuPy, JAX and flopscope: their values, their memory, and new ones like them.

Values are exchanged as arrays of NumPy, floating ones in float64, which holds those of all shorter dtypes exactly.
"""

from __future__ import annotations

import copy
import copyreg
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flopscope import _core

GUARD = 1024
"""Elements before and after the values of a new array, which no call may read or write."""
OF_INTEGERS = 77
SPOILED = 4
"""Arrays whose memory is filled before a call."""


def is_array(value: Any) -> bool:
    like_one = all(hasattr(value, name) for name in ("dtype", "shape", "__getitem__"))
    return like_one or isinstance(value, _core.Tensor)


def library_of(array: Any) -> str:
    """Return "torch", "numpy", "cupy", "jax" or "flopscope"; that of NumPy for its scalars and all others."""
    if isinstance(array, _core.Tensor):
        return "flopscope"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    name = type(array).__module__.partition(".")[0]
    return {"jaxlib": "jax", "jax": "jax", "cupy": "cupy"}.get(name, "numpy")


def leaves(value: Any, path: str = "", numbers: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in nested tuples, lists and dicts, each with its path, such as "[0]['q']"; numbers as arrays."""
    if is_array(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in dict.items(value):  # what the object holds: methods of its class might compute more
            yield from leaves(item, f"{path}[{key!r}]", numbers)
    elif isinstance(value, (tuple, list)):
        held = tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
        for at, item in enumerate(held):
            yield from leaves(item, f"{path}[{at}]", numbers)
    elif numbers and isinstance(value, (bool, int, float, complex)):
        import numpy

        yield path, numpy.asarray(value)


def plain(array: Any) -> Any:
    """Return an array as one of its library's own class, since methods of another may compute more than it holds.

    Raise TypeError for one whose memory holds no values, or that is of no known library.
    """
    library, kind = library_of(array), type(array).__name__
    if library == "torch":
        torch: Any = sys.modules["torch"]
        if array.is_meta or array.layout != torch.strided:
            raise TypeError(f"it returns a {kind} of {array.layout} on {array.device}, whose values cannot be read")
        if type(array).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return array
        with torch._C.DisableTorchFunctionSubclass():
            return torch.Tensor.as_subclass(array, torch.Tensor)
    if library == "numpy":
        import numpy

        if not isinstance(array, (numpy.ndarray, numpy.generic)):
            raise TypeError(f"it returns a {kind}, which is no array of torch, NumPy, CuPy, JAX or flopscope")
        return numpy.asarray(array)
    return array


def flat(values: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """Return the values, and instead of nested tuples, lists and dicts the arrays in them, by name: place and
    path."""
    pairs = ((at, [*leaves(value, numbers=False)] or [("", value)]) for at, value in enumerate(values))
    return tuple((f"{at}{path}", one) for at, found in pairs for path, one in found)


def nested(like: Sequence[Any], values: Iterator[Any]) -> list[Any]:
    """Return values that replace those of flat(like), nested as these are."""
    return [_replaced(one, values) if any(leaves(one, numbers=False)) else next(values) for one in like]


def _replaced(value: Any, values: Iterator[Any]) -> Any:
    if is_array(value):
        return next(values)
    if isinstance(value, dict):
        new = copy.copy(value)
        new.update((key, _replaced(item, values)) for key, item in value.items())
        return new
    if isinstance(value, (tuple, list)):
        items = [_replaced(item, values) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def dtype_of(array: Any) -> str:
    """Return the name of the dtype, as "float32"."""
    return str(array.dtype).rpartition(".")[2]


def is_floating(array: Any) -> bool:
    """Return whether an array holds rounded numbers, real or complex."""
    return dtype_of(array).startswith(("float", "bfloat", "complex"))


def is_contiguous(array: Any) -> bool:
    """Return whether the elements lie in memory in their order, unless torch, NumPy or CuPy say otherwise."""
    if library_of(array) == "torch":
        return bool(array.is_contiguous())
    return bool(getattr(getattr(array, "flags", None), "c_contiguous", True))


def place_of(array: Any) -> str:
    """Return the library and the device of an array, as "torch, cuda:0"."""
    device = getattr(array, "device", "")
    return f"{library_of(array)}, {device}" if isinstance(device, str) or hasattr(device, "type") else library_of(array)


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Return the size of an array of a dtype of this name."""
    bits = "".join(filter(str.isdigit, dtype.partition("_")[0].partition("e")[0])) or "8"
    return math.prod(shape) * int(bits) // 8


def values_of(array: Any) -> Any:
    """Return a copy of the values as a contiguous array of NumPy; those of a floating dtype as float64, complex
    ones as complex128."""
    import numpy

    library = library_of(array)
    if library == "torch":
        torch: Any = sys.modules["torch"]
        plain = array.detach().resolve_conj().resolve_neg().contiguous().cpu()
        exact = torch.complex128 if plain.is_complex() else torch.float64
        return plain.to(exact if is_floating(array) else plain.dtype, copy=True).numpy()
    if library == "cupy":
        array = array.get()
    elif library == "flopscope":
        array = (array.to(dtype="float64") if is_floating(array) else array).numpy()
    elif dtype_of(array) == "bfloat16":
        array = array.astype("float32")
    kind = getattr(array, "dtype", numpy.dtype(object)).kind
    return numpy.array(array, dtype={"f": "float64", "c": "complex128"}.get(kind), order="C")


def copied(array: Any) -> Any:
    """Return a copy in the library of the array."""
    library = library_of(array)
    if library == "torch":
        return array.detach().clone()
    if library == "jax":  # never written
        return array
    return own_array(values_of(array), dtype_of(array), array.device) if library == "flopscope" else array.copy()


def is_same(array: Any, copy: Any) -> bool:
    """Return whether an array still has the bits of its copied()."""
    library = library_of(array)
    if library == "jax":
        return array is copy
    if library == "torch":
        torch: Any = sys.modules["torch"]
        return bool(array.shape == copy.shape and torch.equal(_bits_of_torch(array), _bits_of_torch(copy)))
    if library == "flopscope":
        array, copy = values_of(array), values_of(copy)
    xp: Any = sys.modules["cupy" if library == "cupy" else "numpy"]
    one, other = (xp.ascontiguousarray(each).view(xp.uint8) for each in (array, copy))
    return bool(xp.array_equal(one, other))


def _bits_of_torch(array: Any) -> Any:
    torch: Any = sys.modules["torch"]
    array = array.detach().contiguous()
    plain = torch.view_as_real(array.resolve_conj()) if array.is_complex() else array
    return plain.view(getattr(torch, f"int{8 * plain.element_size()}"))


def address_of(value: Any) -> set[int]:
    """Return the addresses of the arrays in a value that have one."""
    found = set()
    for _, array in leaves(value, numbers=False):
        library = library_of(array)
        if library == "torch":
            found.add(int(array.untyped_storage().data_ptr()))
        elif library == "cupy":
            found.add(int(array.data.mem.ptr))
        elif library == "jax":
            found.add(int(array.unsafe_buffer_pointer()))
        elif library == "flopscope":
            found.add(int(array.data_ptr))
        else:
            base = array
            while getattr(base, "base", None) is not None and hasattr(base.base, "__array_interface__"):
                base = base.base
            found.add(int(base.__array_interface__["data"][0]))
    return found - {0}


def returns_the_same_again(call: Callable[[], Any]) -> bool:
    """Return whether two calls return the same memory, and the second does not write it.

    What it holds is overwritten in between and, if the call does not write it, put back; False where that is refused.
    """
    arrays = [array for _, array in leaves(call(), numbers=False)]
    if not arrays or address_of(arrays[0]).isdisjoint(address_of(call())):
        return False
    array = arrays[0].detach() if library_of(arrays[0]) == "torch" else arrays[0]
    before = values_of(array)
    try:
        array[...] = filler(dtype_of(array))
    except (TypeError, ValueError, RuntimeError):  # JAX's and read-only arrays
        return False
    filled = copied(array)
    call()
    if not is_same(array, filled):
        return False
    _write(array, before)
    return True


def _write(array: Any, values: Any) -> None:
    """Write values, as of values_of(), in an array that is not JAX's."""
    library = library_of(array)
    if library == "torch":
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            array.copy_(torch.from_numpy(values))
    elif library == "flopscope":
        _core.copy_(array, own_array(values, dtype_of(array), array.device))
    else:
        array[...] = sys.modules["cupy"].asarray(values) if library == "cupy" else values


def filler(dtype: str) -> float:
    """Return what memory is filled with that no result may have: NaN, or 77 for other dtypes than floating ones."""
    return math.nan if dtype.startswith(("float", "bfloat")) else OF_INTEGERS


def _empty(array: Any, dtype: str, shape: Sequence[int]) -> Any:
    """Return new memory of the library and the device of an array of torch, NumPy or CuPy."""
    library: Any = sys.modules[library_of(array)]
    if library.__name__ == "torch":
        return library.empty(tuple(shape), dtype=getattr(library, dtype), device=array.device)
    return library.empty(tuple(shape), dtype=dtype)


class Guarded:
    """A new array with given values, like another in its library, device and dtype, between guards where its library
    allows that. layout: "plain", or "strided": not contiguous."""

    def __init__(self, like: Any, values: Any, dtype: str = "", layout: str = "plain") -> None:
        self._library, self._guards = library_of(like), None
        dtype = dtype or dtype_of(like)
        count = math.prod(values.shape)
        if self._library in ("torch", "numpy", "cupy"):
            buffer = _empty(like, dtype, [count + 2 * GUARD])
            buffer[:] = filler(dtype)
            inner = buffer[GUARD : GUARD + count]
            turned = layout == "strided" and len(values.shape) > 1
            shape = (*values.shape[:-2], values.shape[-1], values.shape[-2]) if turned else values.shape
            self.array = inner.reshape(shape).swapaxes(-1, -2) if turned else inner.reshape(shape)
            self._guards = (buffer[:GUARD], buffer[GUARD + count :])
            self._copies = [copied(guard) for guard in self._guards]
        elif self._library == "flopscope":
            self.array = own_array(values, dtype, like.device)
        else:
            self.array = _on_jax(values, dtype, like)
        self.write(values)
        if self._library == "torch" and like.requires_grad and dtype == dtype_of(like):
            self.array.requires_grad_()

    def write(self, values: Any) -> None:
        """Write values in place; JAX's arrays are constant, so that ``array`` is then another one."""
        if self._library == "jax":
            self.array = _on_jax(values, dtype_of(self.array), self.array)
        else:
            _write(self.array, values)

    def roll(self, source: Guarded, places: int) -> None:
        """Write the elements of another array of this shape, as rolled() does."""
        if self._library not in ("torch", "numpy", "cupy"):
            self.write(rolled(values_of(source.array), places))
            return
        mine, theirs = (one.array.detach() if self._library == "torch" else one.array for one in (self, source))
        mine, theirs = mine.reshape(-1), theirs.reshape(-1)
        at = places % max(len(mine), 1)
        mine[at:], mine[:at] = theirs[: len(mine) - at], theirs[len(mine) - at :]
        if places:
            mine[:-1][:1] = mine[1:][:1]

    @property
    def intact(self) -> bool:
        """Whether the guards have not been written."""
        return self._guards is None or all(map(is_same, self._guards, self._copies))


def rolled(values: Any, places: int) -> Any:
    """Return values of NumPy moved by so many places and, if that is not 0, the first one replaced by the second, so
    that the same elements in another order are not returned twice."""
    import numpy

    found = numpy.roll(values, places)
    if places and found.size > 1:
        found.reshape(-1)[0] = found.reshape(-1)[1]
    return found


def _on_jax(values: Any, dtype: str, like: Any) -> Any:
    jax: Any = importlib.import_module("jax")
    if dtype == "float64" and not jax.config.jax_enable_x64:
        raise TypeError("JAX has no float64 unless jax_enable_x64 is set")
    return jax.device_put(jax.numpy.asarray(values, dtype=dtype), next(iter(like.devices())))


def own_array(values: Any, dtype: str, device: str) -> Any:
    of_numpy = values.astype("float32" if dtype == "bfloat16" else dtype)
    return _core.from_numpy(of_numpy, device=device).to(dtype=dtype)


# Those of other libraries can be pickled.
copyreg.pickle(_core.Tensor, lambda one: (own_array, (values_of(one), dtype_of(one), str(one.device))))


def spoil(array: Any, dtype: str, shape: Sequence[int]) -> None:
    """Fill memory with NaN that the library of an array gives to its next arrays of this size."""
    if library_of(array) in ("torch", "numpy", "cupy"):
        for one in [_empty(array, dtype, shape) for _ in range(SPOILED)]:
            one[...] = filler(dtype)
