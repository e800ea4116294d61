"""The CPU on which a program ran, as its trace describes it, and the peaks that rate its work.

A CPU has no datasheet: its peaks are those that its trace carries or, if it is the CPU of this machine, those that are
stored or measured here. The work of any other CPU is not rated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flopscope.support.device import find_device, measure_peaks
from flopscope.support.peaks import BANDWIDTHS, TIMES, Peaks

CPU_MEMBER = "cpuProperties"
"""Member of a trace's head: name, isa, threads and cache_bytes of the CPU, and its measured "peaks" if known."""
_FACTS: Mapping[str, type] = {"name": str, "isa": str, "threads": int, "cache_bytes": int}
_WRITTEN = ("source", "flops", *BANDWIDTHS, *TIMES, "when", "versions")
_NAMED = ("name", "threads")  # a description without these is none


@dataclass(frozen=True)
class CPU:
    """A CPU: what it is, and its measured peaks, where they are known."""

    facts: Mapping[str, Any]
    """Some of "name", "isa", "threads" (of ops) and "cache_bytes"; always the name and the threads."""
    peaks: Peaks | None = None

    @classmethod
    def here(cls) -> CPU:
        """Return the CPU of this machine, with its stored peaks. Nothing is measured."""
        device = find_device("cpu")
        return cls({name: device.properties[name] for name in _FACTS}, device.measured)

    @classmethod
    def of_head(cls, head: Mapping[str, Any]) -> CPU | None:
        """Return the CPU that the head of a trace (untrusted) describes, or None.

        Raise ValueError for peaks that are none.
        """
        content = head.get(CPU_MEMBER)
        if not isinstance(content, dict):
            return None
        facts = {name: content[name] for name, kind in _FACTS.items() if type(content.get(name)) is kind}
        if any(name not in facts for name in _NAMED):
            return None
        return cls(facts, None if content.get("peaks") is None else Peaks._of_measured(content["peaks"]))

    def to_head(self) -> dict[str, Any]:
        """Return the member of a trace's head, of values that JSON can hold."""
        if self.peaks is None:
            return dict(self.facts)
        numbers = {name: getattr(self.peaks, name) for name in _WRITTEN}
        return {**self.facts, "peaks": {name: value for name, value in numbers.items() if value is not None}}

    @property
    def name(self) -> str:
        """Its model, as the system reports it."""
        return str(self.facts["name"])

    def _is_like(self, other: CPU) -> bool:
        """Return whether the other may be this CPU, with as many threads."""
        return all(other.facts.get(name, value) == value for name, value in self.facts.items())

    def __str__(self) -> str:
        count = self.facts["threads"]
        return f"{self.name}, {count} thread{'s' * (count != 1)}"


def peaks_of_cpu(cpu: CPU | None, source: str) -> Peaks | None:
    """Return the measured peaks of the CPU of a trace; None if they are unknown.

    :param cpu: what the trace says of it; None if nothing. Then only "measured" rates its work, by this machine.
    :param source: "measured" (measured now if this is its machine and none are stored), "datasheet" for what is known
        without measuring, or "none".
    """
    if source == "none":
        return None
    if cpu is not None and cpu.peaks is not None:
        return cpu.peaks
    if cpu is None:
        return measure_peaks("cpu") if source == "measured" else None
    here = CPU.here()
    if not cpu._is_like(here):
        return None
    return measure_peaks("cpu") if source == "measured" else here.peaks


def why_cpu_unknown(cpu: CPU | None) -> str:
    """Return why the peaks of the CPU of a trace are unknown without measuring, and what to do: a clause."""
    if cpu is None:
        return (
            'the trace does not name its CPU; --peaks measured (peaks="measured") rates it by the CPU of this machine'
        )
    here = CPU.here()
    if cpu._is_like(here):
        return (
            "they were never measured on this machine: run flopscope devices --measure once, which takes about 5 s, or "
            'pass peaks="measured"'
        )
    return (
        f"the trace is of another CPU ({cpu}; here: {here}) and carries no peaks; run flopscope devices "
        "--measure there before it is recorded, or state them by --peaks memory=…,fp32=… in bytes/s and FLOP/s"
    )
