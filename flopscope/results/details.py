"""Details of tables as the core lists them, for people: the kernels of each row, and what the coverage leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FIELDS = ("row", "kernel", "count", "busy")


def kernels_of_rows(names: Sequence[str], launched: Mapping[str, Any]) -> list[list[tuple[str, int, float]]]:
    """Return for each row of a table the name, number and µs of the kernels that it launched."""
    found: list[dict[str, list[int]]] = [{} for _ in names]
    for row, kernel, count, busy in zip(*(launched[n].tolist() for n in FIELDS), strict=True):
        total = found[row].setdefault(names[kernel], [0, 0])
        total[0] += count
        total[1] += busy
    return [[(name, count, busy / 1000) for name, (count, busy) in kernels.items()] for kernels in found]


def with_what_there_is(coverage: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is empty, and sources if there is only the model; describe the arguments of misfits."""
    optional = ("estimated", "estimated_flops", "misfits", "unseen_graphs")
    found = {name: value for name, value in coverage.items() if name not in optional or value}
    for name in ("bytes_source", "flops_source"):
        if found.get(name, {}).keys() <= {"model"}:
            found.pop(name, None)
    if "misfits" in found:
        seen = found["misfits"].items()
        found["misfits"] = {name: (_arguments_text(arguments), expected) for name, (arguments, expected) in seen}
    return found


def has_kernels_of_torch(names: Iterable[str]) -> bool:
    """Return whether PyTorch launched any kernel of these names."""
    return any("at::native" in name for name in names)


def has_unknown_kernels(coverage: Mapping[str, Any], columns: Mapping[str, Any]) -> bool:
    """Return whether there are kernels of unknown work that no op launched."""
    on_host = dict(zip(columns["key"], (device == "cpu" for device in columns["device_type"]), strict=True))
    return any(on_host.get(name) is False for name, _ in coverage["unmodelled"])


def _arguments_text(arguments: Sequence[Any]) -> str:
    """Describe the arguments of a call: "float32[8, 4], None, 0.5"."""
    parts = []
    for argument in arguments:
        if isinstance(argument, tuple):
            parts.append(f"{argument[0] or 'tensor'}{list(argument[1])}")
        elif isinstance(argument, list):
            parts.append(f"[{_arguments_text(argument)}]")
        else:
            parts.append(str(argument))
    return ", ".join(parts)
