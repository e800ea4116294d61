"""Recordings of XLA's profiler, ``*.xplane.pb``: those of ``jax.profiler.trace()`` and of TensorFlow.

The core reads the protobuf (csrc/sources/protobuf); here its facts become the metadata of a trace.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from flopscope import _core
from flopscope.read.database import finished
from flopscope.read.input import Input
from flopscope.read.paths import hosts_in
from flopscope.support.package import warn_user
from flopscope.support.safe import printable, shown
from flopscope.support.units import plural


class Modules(NamedTuple):
    """The modules of XLA in a recording, and the instructions that kernels run."""

    protos: dict[str, bytes]
    """An HloProto by the name of its module: "jit_step(12)"."""
    events: Sequence[int]
    """Events of the store that run an instruction, in order."""
    places: Sequence[int]
    """Of their instructions, in ``instructions``."""
    instructions: list[tuple[str, str]]
    """Module and name of an instruction, as the profiler wrote them; "" if it named no module."""


_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_NAME = rb"\x12[\x01-\x7f](?:/[a-z]+:|#Chip|Task Environment|[A-Z][ -~]{2,40}[\x1a\"*2])"
_START = re.compile(rb"\n%b(?:\x08%b)?%b" % (_VARINT, _VARINT, _NAME))
"""A field 1, the first plane: perhaps its id, then its name."""

_PROPERTIES = {
    "name": ("gpu_device_name", "device_type_string"),
    "totalGlobalMem": ("memory_size",),
    "computeMajor": ("compute_cap_major",),
    "computeMinor": ("compute_cap_minor",),
    "numSms": ("core_count",),
    "memoryBandwidth": ("memory_bandwidth",),
    "clockRate": ("clock_rate",),
}
"""Kineto's names of the properties of a device, from the stats of its plane."""
_ACCELERATORS = {"AMD": "hip", "/device:TPU": "tpu"}
"""By the vendor of a device, or by the start of the name of its plane."""


def is_xplane(start: bytes) -> bool:
    """Return whether a file that begins so is an XSpace."""
    return _START.match(start) is not None


def read_xplane(
    path: str, name: str, reader: _core.DatabaseReader, store: _core.Store
) -> tuple[Mapping[str, Any], dict[str, Any], list[str], Modules]:
    """Read the events into a store. Return counts, the metadata of a trace, notes for the user, and the modules. Raise
    ValueError if the file is damaged.

    name: of the source, beside which the recordings of other hosts may be.
    """
    with open(path, "rb") as file:
        content = file.read()
    space = reader.read_xspace(content)
    planes = space["planes"]
    stats = {plane["name"]: plane["stats"] for plane in planes}
    devices = [_device(plane) for plane in planes if plane["device"] >= 0 and " " not in plane["name"]]
    start = _start(planes, stats.get("Task Environment", {}))
    protos = dict(space["modules"])
    facts = {
        "hosts": [text for kind, text in space["remarks"] if kind == "host"],
        "versions": {key: value for key, value in stats.get("/host:metadata", {}).items() if key.endswith("_version")},
        "tables": {plane["name"]: sum(line[3] for line in plane["lines"]) for plane in planes},
        "modules": list(protos),
    }
    kinds = ((str(plane["stats"].get("device_vendor")), plane["name"].rpartition(":")[0]) for plane in planes)
    told = {_ACCELERATORS.get(text, "") for kind in kinds for text in kind}
    report, metadata = finished("xplane", reader, store, facts, devices, [], start, accelerator=max(told, default=""))
    if start:
        metadata["baseTimeNanoseconds"] = start
    hosts = hosts_in(os.path.dirname(os.path.abspath(name)))
    if len(hosts) > 1 and os.path.basename(name) in hosts:
        metadata["distributedInfo"] = {"rank": hosts.index(os.path.basename(name)), "world_size": len(hosts)}
    notes = [f"the profiler reported: {text}" for kind, text in space["remarks"] if kind != "host"]
    ties: Any = report["instructions"]
    events, places, instructions = ties or ((), (), [])
    return report, metadata, [*notes, *_notes(planes)], Modules(protos, events, places, instructions)


def _device(plane: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a device under Kineto's names."""
    stats = plane["stats"]
    found = {name: next((stats[key] for key in keys if key in stats), None) for name, keys in _PROPERTIES.items()}
    return {"id": plane["device"], **{name: value for name, value in found.items() if value is not None}}


def _start(planes: list[dict[str, Any]], environment: Mapping[str, Any]) -> int:
    """Return the Unix time in ns that times count from; 0 if they are Unix times, or it is unknown."""
    start = environment.get("profile_start_time")
    relative = all(line[2] < (1 << 60) for plane in planes for line in plane["lines"])
    return start if relative and isinstance(start, int) and 0 < start < 1 << 62 else 0


def _notes(planes: list[dict[str, Any]]) -> Iterator[str]:
    for plane in planes:
        streams = [line for line in plane["lines"] if line[1] == "stream"]
        if streams and not any(line[3] for line in streams):
            yield (
                f"{plane['name']} has {plural(len(streams), 'stream')} without events: XLA's profiler discarded what "
                f"it recorded there, because the times were not within its recording, as happens while another "
                f"profiler of GPUs is in use"
            )


# HLO of JAX programs, in recordings and in this process ---------------------------------------------------------------

Text: TypeAlias = "str | bytes"
Hlo: TypeAlias = "Text | os.PathLike[str] | Mapping[str, Text]"

LITTLE = 0.95
"""Less of the kernels' time that belongs to instructions is worth a note."""

_TEXT = "HloModule "
_MOST_PATH = 4096


def read_hlo(hlo: Hlo | None) -> dict[str, Text]:
    """Return the modules by name, of load_trace(hlo=…).

    Raise TypeError if it is neither text, a path nor a dict of texts, OSError if a file cannot be read, and ValueError
    if it holds no HLO.
    """
    if hlo is None:
        return {}
    if isinstance(hlo, Mapping):
        for name, text in hlo.items():
            if not isinstance(name, str) or not isinstance(text, (str, bytes)):
                raise TypeError(f"hlo must map names of modules to text, not {shown(name)} to {shown(text)}")
        return _checked(dict(hlo))
    is_text = isinstance(hlo, str) and (len(hlo) > _MOST_PATH or "\n" in hlo or hlo.lstrip().startswith(_TEXT))
    if isinstance(hlo, bytes) or is_text:
        return _checked({"hlo": hlo})  # type: ignore[dict-item]
    if isinstance(hlo, (str, os.PathLike)):
        return _read_file(os.fspath(hlo))
    raise TypeError(f"hlo must be HLO as text, a path, or a dict of module to text, not {shown(hlo)}")


def _read_file(path: str) -> dict[str, Text]:
    """Return the modules of a file: HLO as text or as protobuf, or JSON with an object of texts, perhaps compressed."""
    try:
        data = Input(path, path).text()
        if not data.lstrip().startswith(b"{"):
            return _checked({os.path.basename(path): data})
        found = json.loads(data)
        if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
            raise ValueError("it must be an object of module to text")
        return _checked(found)
    except (ValueError, RecursionError) as problem:
        raise ValueError(printable(f"{path}: {problem}")) from None


def tie(core: _core.Store, texts: Mapping[str, Text], modules: Modules | None, name: str) -> dict[str, int]:
    """Give the kernels of a recording the instructions of HLO that launched them; warn if texts explain few of them.

    modules: those that the recording itself holds. name: of the recording, for messages. Return counts: "works",
    kernels, copies and fills; those tied "by_name", "by_order" of the kernels around, or "guessed"; the time of all
    kernels, "kernel_ns", and of those tied, "tied_ns"; "executions" of modules and of "instructions".
    """
    known = {} if modules is None else readable(modules.protos, name)
    both = (*known.items(), *texts.items())
    if not both:
        return {}
    if modules is None:
        counts = core.join_hlo(both)
    else:
        try:
            counts = core.join_hlo(both, modules.events, modules.places, list(modules.instructions))
        except ValueError as problem:
            warn_user(printable(f"{name}: its kernels belong to no instructions, as its HLO cannot be read: {problem}"))
            return {}
    if texts and counts["tied_ns"] < LITTLE * counts["kernel_ns"]:
        untied = counts["works"] - counts["by_name"] - counts["by_order"] - counts["guessed"]
        share = 1 - counts["tied_ns"] / counts["kernel_ns"]
        what = f"{untied:,} of {counts['works']:,} kernels, copies and fills, {share:.0%} of the kernels' time"
        warn_user(printable(f"{name}: hlo: {what}, belong to no instruction of the modules given; they remain kernels"))
    return counts


def _checked(texts: dict[str, Text]) -> dict[str, Text]:
    """Return the modules. Raise ValueError, naming the module and the place, if one is no HLO."""
    for name, text in texts.items():
        try:
            _core._count_hlo(text)
        except ValueError as problem:
            raise ValueError(printable(f"{name}: {problem}")) from None
    return texts


def readable(modules: Mapping[str, Text], source: str) -> dict[str, Text]:
    """Return the modules that are HLO as far as it is known; warn of others."""
    found = {}
    for name, text in modules.items():
        try:
            _checked({name: text})
        except ValueError as problem:
            warn_user(printable(f"{source}: the kernels of a module belong to no instruction: {problem}"))
        else:
            found[name] = text
    return found
