"""What a compiled Triton kernel does with its pointers and on which units it computes, read from its own code."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
