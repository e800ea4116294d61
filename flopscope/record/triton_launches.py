"""The work of Triton's launches: what a kernel states by its launch_metadata, or else what its tensors limit.

While a profile records, Triton calls a LaunchHook (csrc/python/launch_hook.c) before and after each launch. It records
a launch of known work as an op: of flopscope's recorder, and as an event of torch's profiler if that records. Kernels
of Inductor have ops of their own. They get none here, as no JITFunction.run launches them.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from flopscope._core import LaunchHook
from flopscope.record.work_rules import amount
from flopscope.results.categories import OF_TRITON
from flopscope.support.imports import after_import, replace
from flopscope.support.package import warn_user
from flopscope.support.safe import error_text, printable

_FLOPS = {0: "flops", 8: "flops8", 16: "flops16", 32: "flops32", 64: "flops64"}  # by width in bits; 0: unknown
_ENTER, _EXIT = "launch_enter_hook", "launch_exit_hook"


class Launches:
    """The hooks of this process, which are set while anything records."""

    def __init__(self) -> None:
        self._users: dict[weakref.ref[Any], bool] = {}  # what records: whether it is a profile of torch
        self._awaited = False
        self._kernels: dict[Any, tuple[str, str, bytes | None]] = {}  # by handle of the function
        self._units: dict[Any, Mapping[int, str]] = {}
        self._hook = LaunchHook(self._kernels, self._work_of, self._failed)
        self._restore: list[Callable[[], None]] = []
        self._warned: set[str] = set()

    def begin(self, user: object, *, torch: bool = False) -> None:
        """Record launches until ``user`` ends or is collected, as events of torch's profiler if ``torch``."""
        self._users[weakref.ref(user, self._leave)] = torch
        self._choose()
        if "triton" in sys.modules:
            self._install()
        elif not self._awaited:
            self._awaited = True
            after_import("triton", lambda _: self._install())

    def end(self, user: object) -> None:
        """Record no more for ``user``; remove the hooks after the last."""
        self._leave(weakref.ref(user, self._leave))

    def _leave(self, user: weakref.ref[Any]) -> None:
        self._users.pop(user, None)
        self._choose()
        if not self._users:
            self._remove()

    def _choose(self) -> None:
        torch = sys.modules.get("torch") if any(self._users.values()) else None
        self._hook.record = None if torch is None else torch._C._profiler._RecordFunctionFast

    # Hooks ------------------------------------------------------------------------------------------------------------

    def _install(self) -> None:
        jit = sys.modules.get("triton.runtime.jit")
        owner = _owner_of_hooks()
        if self._restore or not self._users or jit is None or owner is None:
            return
        self._hook.code = jit.JITFunction.run.__code__
        for name, act, last in ((_ENTER, self._hook.enter, True), (_EXIT, self._hook.exit, False)):
            self._restore.append(replace(owner, name, _chained(getattr(owner, name), act, last=last)))

    def _remove(self) -> None:
        for restore in self._restore:
            restore()
        self._hook.code = None
        self._restore.clear()
        self._kernels.clear()
        self._units.clear()
        self._warned.clear()

    def _failed(self, metadata: Any, problem: Exception) -> None:
        name = str(getattr(metadata, "data", {}).get("name", "a kernel"))
        if name not in self._warned:
            self._warned.add(name)
            warn_user(f"the work of launches of {printable(name)} is unknown: {error_text(problem)}")

    def _work_of(self, metadata: Any) -> tuple[str, float | None, float | None, str | None] | None:
        """Return name, FLOPs, bytes and unit of a launch as its kernel states them; None if it states no work.

        Read the code of a kernel that is new. A launch that the kernel does not name is an op of "triton::", as the row
        of the kernel has its name alone.
        """
        given = metadata.get()
        handle = given.get("function")
        if handle not in self._kernels:
            kernel = self._launching(sys._getframe(1)).get("kernel")
            name = str(getattr(kernel, "name", given["name"]))
            uses, self._units[handle] = _read(kernel)
            self._kernels[handle] = name, f"{OF_TRITON}{name}", uses
        stated = _stated(given)
        if stated is None:
            return None
        flops, moved, width = stated
        own, of_launches, _ = self._kernels[handle]
        name = of_launches if given["name"] == own else given["name"]
        return name, flops, moved, self._units[handle].get(width)

    def _launching(self, frame: FrameType | None) -> Mapping[str, Any]:
        """Return the variables of the JITFunction.run that launches; none if other code does."""
        for _ in range(10):  # frames at most
            if frame is None:
                break
            if frame.f_code is self._hook.code:
                return frame.f_locals
            frame = frame.f_back
        return {}


def _owner_of_hooks() -> Any:
    """Return what has the hooks as attributes: the knobs of Triton 3.4 and later, or a class."""
    knobs = sys.modules.get("triton.knobs")
    if knobs is not None:
        return getattr(knobs, "runtime", None)
    compiler: ModuleType | None = sys.modules.get("triton.compiler.compiler")
    return getattr(compiler, "CompiledKernel", None)


def _chained(hook: Any, act: Callable[[Any], None], *, last: bool) -> Any:
    """Return a hook that calls ``hook``, which may be None, and ``act``, last or first.

    Triton 3.5 has chains of hooks. Inductor refuses its fast launcher if a chain is not empty, so that ours calls
    ``act`` without being in the list, which it shares with the chain that it replaces.
    """
    if hook is None:
        return act
    if hasattr(hook, "calls"):

        class Chain(type(hook)):  # type: ignore[misc]
            def __call__(self, metadata: Any) -> None:
                if not last:
                    act(metadata)
                if self.calls:
                    super().__call__(metadata)
                if last:
                    act(metadata)

        chain = Chain.__new__(Chain)
        chain.__dict__.update(hook.__dict__)
        return chain

    def both(metadata: Any) -> None:
        for each in (hook, act) if last else (act, hook):
            each(metadata)

    return both


def _stated(given: Mapping[str, Any]) -> tuple[float | None, float | None, int] | None:
    """Return FLOPs, bytes and the width of the FLOPs (0: unknown) that a kernel states; None if it states neither.

    FLOPs of several widths are added up, as one launch can be rated on one unit only.
    """
    computed = {width: _number(given, key) for width, key in _FLOPS.items() if key in given}
    known = [value for value in computed.values() if value is not None]
    flops = sum(known) if known and len(known) == len(computed) else None
    moved = _number(given, "bytes")
    if flops is None and moved is None:
        return None
    used = [width for width, value in computed.items() if value]
    return flops, moved, used[0] if len(used) == 1 else 0


def _number(given: Mapping[str, Any], key: str) -> float | None:
    value = given.get(key)
    if value is None or hasattr(value, "data_ptr"):  # a tensor: to read it may wait for the device
        return None
    return amount(f"{key} of its launch_metadata", value)


def _read(kernel: Any) -> tuple[bytes | None, Mapping[int, str]]:
    """Return what a compiled kernel does with its pointers and its units, unknown of None or without its code."""
    code = getattr(kernel, "asm", None)
    if not isinstance(code, Mapping):
        return None, {}
    ir = code.get("ttir")
    uses = accesses(ir) if isinstance(ir, str) else None
    return None if uses is None else bytes(uses), units(code)


LAUNCHES = Launches()
"""The hooks of this process."""


# What a compiled kernel does with its pointers and on which units it computes, read from its own code -----------------

READ, WRITTEN = 1, 2
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LINE = re.compile(r"\s*(?:(%[\w$.-]+)(?::(\d+))? = )?([\w.]+)(.*)")
_CARRIED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_DERIVED = {
    *("arith.select", "tt.addptr", "tt.advance", "tt.bitcast", "tt.broadcast", "tt.expand_dims"),
    *("tt.make_tensor_descriptor", "tt.make_tensor_ptr", "tt.reshape", "tt.splat", "tt.trans"),
}
_ACCESS = {
    **dict.fromkeys(("tt.load", "tt.descriptor_load", "tt.descriptor_gather"), READ),
    **dict.fromkeys(("tt.store", "tt.descriptor_store", "tt.descriptor_scatter"), WRITTEN),
    **dict.fromkeys(("tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"), READ | WRITTEN),
}
_MOST_PASSES = 8


def accesses(ir: str) -> list[int] | None:
    """Return what a kernel does with each of its pointers, in order: READ, WRITTEN, both or 0; from its Triton IR.

    Return None if it may reach other memory than that of its pointers, by an address that it computes or loads, or
    passes a pointer to what is not understood.
    """
    begin = ir.find("tt.func public ")
    if begin < 0 or "tt.int_to_ptr" in ir:
        return None
    end = ir.find("tt.func ", begin + 1)
    head, *body = ir[begin : None if end < 0 else end].splitlines()
    types = re.findall(r"(%[\w$.-]+): (\S+)", head)
    pointers = [name for name, kind in types if kind.startswith(("!tt.ptr", "!tt.tensordesc"))]
    flow = _Flow(pointers)
    for _ in range(_MOST_PASSES):
        before = flow.learnt()
        if not all(flow.follow(number, line.split(" loc(")[0]) for number, line in enumerate(body)):
            return None
        if flow.learnt() == before:
            return [flow.done[name] for name in pointers]
    return None


class _Flow:
    """Which pointers each value of a function derives from.

    Names of values are unique within their region only, so a definition replaces what its name meant before.
    """

    def __init__(self, pointers: list[str]) -> None:
        self.of: dict[str, frozenset[str]] = {name: frozenset([name]) for name in pointers}
        self.done = dict.fromkeys(pointers, 0)
        self._yielded: dict[tuple[int, int], frozenset[str]] = {}  # by line of the loop or branch, and position
        self._regions: list[tuple[int, list[str]]] = []  # that are open: their line, and the names of their results

    def learnt(self) -> tuple[int, ...]:
        """Return what grows while a further pass over the lines may learn more."""
        return (sum(map(len, self._yielded.values())), *self.done.values())

    def follow(self, number: int, line: str) -> bool:
        """Take in a line; return False if a pointer goes where it cannot be followed."""
        match = _LINE.match(line)
        if match is None:
            text = line.strip()
            if self._regions and text.startswith("}") and not text.startswith("})") and not text.endswith("{"):
                self._regions.pop()  # not at "} else {", nor where the function of a reduction ends
            return True
        result, count, op, rest = match[1], match[2], match[3], match[4]
        results = [f"{result}#{place}" for place in range(int(count))] if count else [result] * bool(result)
        values = _VALUE.findall(rest)
        if op in _ACCESS:
            for name in self.of.get(values[0], ()) if values else ():
                self.done[name] |= _ACCESS[op]
        elif op == "scf.yield":
            self._yield(values)
        elif op == "scf.for":
            self._begin_loop(number, _CARRIED.findall(rest.partition("iter_args(")[2]))
        elif op not in _DERIVED and op != "scf.if" and any(value in self.of for value in values):
            return False
        derived = self._union(values) if op in _DERIVED else frozenset()
        for name in results:
            self._set(name, derived)
        if line.endswith("{"):
            self._regions.append((number, results if op in ("scf.for", "scf.if") else []))
        return True

    def _begin_loop(self, number: int, carried: list[tuple[str, str]]) -> None:
        for place, (name, value) in enumerate(carried):
            self._set(name, self._union([value]) | self._yielded.get((number, place), frozenset()))
            self._yielded[number, place] = self.of.get(name, frozenset())

    def _yield(self, values: list[str]) -> None:
        number, results = self._regions[-1] if self._regions else (0, [])
        for place, (name, value) in enumerate(zip(results, values, strict=False)):
            found = self._yielded.get((number, place), frozenset()) | self._union([value])
            self._yielded[number, place] = found
            self._set(name, found)

    def _union(self, values: list[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self.of.get(value, frozenset()) for value in values))

    def _set(self, name: str, pointers: frozenset[str]) -> None:
        if pointers:
            self.of[name] = pointers
        else:
            self.of.pop(name, None)


# Width of a FLOP's operands, what the name of an instruction of a tensor core contains, its unit; the first that fits.
_TENSOR_UNITS = (
    (8, ("e4m3", "e5m2", "f8", "fp8", "bf8"), "fp8_tensor"),
    (8, (".s8", ".u8", "_i8", "::i8"), "int8_tensor"),
    (16, ("bf16",), "bf16_tensor"),
    (16, ("f16",), "fp16_tensor"),
    (32, ("tf32", "xf32"), "tf32_tensor"),
    (64, ("f64",), "fp64_tensor"),
)
_OTHER_UNITS = {16: "fp16", 32: "fp32", 64: "fp64"}
_TENSOR_CORES = re.compile(r"^\s*(?:@\S+\s+)?((?:wgmma\.mma_async|mma|wmma\.mma|tcgen05\.mma)\.\S+)", re.MULTILINE)
_MATRIX_CORES = re.compile(r"^\s*(v_(?:mfma|wmma|smfmac)\S*)", re.MULTILINE)


def units(code: Mapping[str, object]) -> dict[int, str]:
    """Return the compute unit on which a kernel does FLOPs of a width in bits, by width, from its assembly.

    A width is absent if no unit is known for it; all are without assembly.
    """
    text = code.get("ptx") or code.get("amdgcn")
    if not isinstance(text, str):
        return {}
    names = {*_TENSOR_CORES.findall(text), *_MATRIX_CORES.findall(text)}
    found: dict[int, str] = {}
    for width, parts, unit in _TENSOR_UNITS:
        if width not in found and any(part in name for name in names for part in parts):
            found[width] = unit
    return {**_OTHER_UNITS, **found}
