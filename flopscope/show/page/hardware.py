"""What the Overview shows of the devices and the profilers of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flopscope.support.units import bytes_text, number_text

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

_PROFILERS = {
    "nsys": "Nsight Systems",
    "xplane": "XLA's profiler",
    "rocpd": "rocprofv3 (rocpd)",
    "rocprof": "rocprofv3",
}
_MOST_TEXT = 300  # characters of a fact from a file


def sizes(source: Profile) -> dict[str, str]:
    """Return multiprocessors, memory, bandwidth, clock and L2 of each device that a file describes."""
    metadata = getattr(source.results, "metadata", None)
    entries = metadata.get("deviceProperties") if isinstance(metadata, dict) else None
    found = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            parts = [text(number) for name, text in _SIZES.items() if (number := _count(entry.get(name)))]
            if parts:
                found[f"{source.core.device_type}:{entry['id']}"] = ", ".join(parts)
    return found


_SIZES: Mapping[str, Callable[[int], str]] = {
    "numSms": lambda count: f"{count:,} multiprocessors",
    "totalGlobalMem": bytes_text,
    "memoryBandwidth": lambda rate: f"{number_text(rate / 1e9)} GB/s",
    "clockRate": lambda rate: f"{number_text(rate / 1e9)} GHz",
    "l2CacheSize": lambda size: f"L2 of {bytes_text(size)}",
}


def _count(value: object) -> int:
    """Return a positive integer of a file, or 0 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else 0


def profiler(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield which profiler recorded a file and the program that it ran, unless it was torch's."""
    for key, name in _PROFILERS.items():
        facts = metadata.get(key)
        if isinstance(facts, dict):
            yield "Recorded by", f"{name} {facts.get('version') or ''}"[:_MOST_TEXT].strip()
            if facts.get("command"):
                yield "Command", str(facts["command"])[:_MOST_TEXT]
