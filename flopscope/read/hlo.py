"""HLO of JAX programs, whose instructions own the kernels that they launched, in recordings and in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from flopscope import _core
from flopscope.read.input import Input
from flopscope.support.package import warn_user
from flopscope.support.safe import printable, shown

if TYPE_CHECKING:
    from flopscope.read.xplane import Modules

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
    if isinstance(hlo, bytes):
        return _checked({"hlo": hlo})
    if isinstance(hlo, str) and (len(hlo) > _MOST_PATH or "\n" in hlo or hlo.lstrip().startswith(_TEXT)):
        return _checked({"hlo": hlo})
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
    note = note_of(counts)
    if texts and note:
        warn_user(printable(f"{name}: hlo: {note}"))
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


def note_of(counts: Mapping[str, int]) -> str:
    """Return how much of the kernels' time belongs to no instruction; "" if little does not."""
    if counts["tied_ns"] >= LITTLE * counts["kernel_ns"]:
        return ""
    untied = counts["works"] - counts["by_name"] - counts["by_order"] - counts["guessed"]
    share = 1 - counts["tied_ns"] / counts["kernel_ns"]
    return (
        f"{untied:,} of {counts['works']:,} kernels, copies and fills, {share:.0%} of the kernels' time, belong to no "
        f"instruction of the modules given; they remain kernels"
    )
