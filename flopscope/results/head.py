"""The head of a trace: the members other than its events, and what they say of the process.

A head may have been edited: an invalid value raises ValueError, which names the trace.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from flopscope import _core
from flopscope.support.device import CPU_MEMBER
from flopscope.support.safe import shorten

PEAKS_MEMBER = "rooflinePeaks"
"""The sources of the peaks behind "% roofline", by device."""
STACKS_MEMBER = "stackFrames"
"""The frames of sampled stacks."""
LONG = 3.0
"""Times the median step: such a step is long."""
RUN_MEMBER = "flopscopeRun"
"""What ``flopscope run`` knows of the program's steps, the fields of RunSteps."""
RANK = "distributedInfo"
BASE_TIME = "baseTimeNanoseconds"
OWN_MEMBERS = frozenset(
    {
        *("schemaVersion", "deviceProperties", "flopscope", "displayTimeUnit", "traceEvents", "accelerator"),
        *(BASE_TIME, STACKS_MEMBER, CPU_MEMBER, PEAKS_MEMBER),
    }
)
"""Members that flopscope writes itself: programs cannot set them."""
MOST_RANKS = 1 << 31  # a rank is less, and a world size is no more
LATEST = 1 << 62  # ns since 1970, which ends in 2116: times of the trace can be added in 64 bits
LEFT_OUT = {
    "without_time": "without a time",
    "unknown": "of an unknown category",
    "too_many": f"of devices after the {_core.device_limit}th",
}
"""What events are that a trace has and no table, by the member of its report that counts them."""
ODD = {
    "mended": "events or other members have quotes in strings that are not escaped, as torch before 2.14 writes them; "
    "each string is read up to the quote that is followed by what must follow it",
    "without_duration": "events have a duration that is negative, too long or no number, and are counted as 0",
    "contradicting": "kernels or copies carry an External id that contradicts the call that launched them; each is "
    "attributed to the op around its call",
    "guessed": "kernels or copies have a correlation that several processes have, as each numbers its own, and may "
    "belong to an op of another one; a trace of each process tells",
    "overlapping": "host events overlap another one on their thread without being nested in it; the shared time is "
    "subtracted only once from the event that encloses both",
}
"""What events are that are in the tables all the same, likewise."""
SHOWN = 60  # characters of a wrong value


def members_of(head: bytes) -> dict[str, Any]:
    """Parse the members other than the events. Nonstandard JSON is read as far as Python can, or else ignored."""
    try:
        members = json.loads(head.decode("utf-8", "replace"), strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def unfinished_steps(metadata: Mapping[str, Any]) -> list[str]:
    """Return the names of the steps amid which the recording of ``flopscope run`` began or ended; "" stands for all, if
    they were a warm-up for what has no steps."""
    names, run = metadata.get("unfinishedSteps"), run_steps_of(metadata)
    found = [name for name in names if isinstance(name, str) and name.isascii()] if isinstance(names, list) else []
    return [""] if run is not None and not run.kind and run.steps else found


def _integer(text: str) -> int | float:
    """Parse an integer; one with more digits than Python converts becomes an infinity, so that the rest is not lost."""
    try:
        return int(text)
    except ValueError:
        return float(text)


class RunSteps(NamedTuple):
    """What ``flopscope run`` knows of the steps of a program, of which it records some and times the others.

    kind: what ends a step, "optimizer", "forward" (of a module of the class ``of``), "jax" (the jitted function
        ``of``), "flopscope.step()", "repetition" or, without steps, "". steps: how many there are.
    bare, low, high: the median time in µs of the ``bare_steps`` that nothing recorded, and its 95 % interval.
    replaced: how many were recorded first, in a recording that gave way to a later one.
    drained: the least of the first steps after a recording, which began with idle devices: those of the host alone
        where the devices set the pace of the others.
    recorded: the median of those of the recording, which lasted from and to a time in s since the program began; it
        has no begin if it lasted from start to end.
    long_steps, long, long_share: of steps that take LONG times the median or more, how many there are, the median of
        these, and their part of the time of all that nothing recorded.
    long_most: the time of one that was recorded by itself, and what takes the most of it, with its percent of it.
    slowest: time, number, from 1, and end in ns since 1970 of the longest steps that nothing recorded.
    compiled_s: how long XLA compiled. compiled: what took it the longest, and how long.
    stalls: kernels with most samples of instructions, their percent of all, and what these say.
    """

    kind: str = ""
    of: str = ""
    steps: int = 0
    bare: float = math.nan
    low: float = math.nan
    high: float = math.nan
    bare_steps: int = 0
    replaced: int = 0
    drained: float = math.nan
    recorded: float = math.nan
    recorded_from_s: float = math.nan
    recorded_to_s: float = math.nan
    lasted_s: float = math.nan
    long_steps: int = 0
    long: float = math.nan
    long_share: float = math.nan
    long_most: tuple[tuple[float, str, float], ...] = ()
    slowest: tuple[tuple[float, int, int], ...] = ()
    compiled_s: float = math.nan
    compiled: tuple[tuple[str, float], ...] = ()
    stalls: tuple[tuple[str, float, str], ...] = ()


def run_steps_of(metadata: Mapping[str, Any]) -> RunSteps | None:
    """Return what the trace says of its program's steps, without what cannot be so; None if it says nothing."""
    found, usual = metadata.get(RUN_MEMBER), RunSteps()._asdict()
    if not isinstance(found, Mapping):
        return None
    known = {name: value for name, value in found.items() if name in usual and _is_like(value, usual[name])}
    rows = {"slowest": (0.0, 0, 0), "long_most": (0.0, "", 0.0), "compiled": ("", 0.0), "stalls": ("", 0.0, "")}
    known |= {name: _rows_of(found.get(name), row) for name, row in rows.items()}
    return RunSteps(**known)


def _rows_of(found: object, usual: tuple[Any, ...]) -> tuple[Any, ...]:
    rows = [row for row in found if isinstance(row, list) and len(row) == len(usual)] if isinstance(found, list) else ()
    return tuple(tuple(row) for row in rows if all(map(_is_like, row, usual)))


def _is_like(value: object, usual: object) -> bool:
    if isinstance(usual, str):
        return isinstance(value, str)
    number = isinstance(value, (int, float) if isinstance(usual, float) else int) and not isinstance(value, bool)
    return number and 0 <= value < LATEST  # type: ignore[operator]


def rank_of(metadata: Mapping[str, Any], source: str) -> int | None:
    """Return the rank that the trace names, or None. Raise ValueError if it is invalid."""
    info = metadata.get(RANK, {})
    if not isinstance(info, Mapping):
        raise ValueError(_wrong(source, RANK, info, 'an object such as {"rank": 0, "world_size": 8}'))
    return _integer_of(source, f'{RANK}"."rank', info["rank"], range(MOST_RANKS)) if "rank" in info else None


def world_size_of(metadata: Mapping[str, Any], source: str) -> int | None:
    """Return the number of ranks that the trace names, or None. Raise ValueError if it is invalid."""
    info = metadata.get(RANK)
    size = info.get("world_size") if isinstance(info, Mapping) else None
    return None if size is None else _integer_of(source, f'{RANK}"."world_size', size, range(1, MOST_RANKS + 1))


def gpus_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs that the trace lists, or None."""
    devices = metadata.get("deviceProperties")
    return len(devices) if isinstance(devices, list) and devices else None


def base_time_of(metadata: Mapping[str, Any], source: str) -> int:
    """Return the Unix time in ns that the trace's times count from, or 0. Raise ValueError if it is invalid."""
    expected = "an integer of nanoseconds since 1970, before 2116"
    return _integer_of(source, BASE_TIME, metadata.get(BASE_TIME, 0), range(LATEST), expected)


def _integer_of(source: str, member: str, value: object, valid: range, expected: str = "") -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in valid:
        return value
    raise ValueError(_wrong(source, member, value, expected or f"an integer from {valid[0]} to {valid[-1]}"))


def _wrong(source: str, member: str, value: object, expected: str) -> str:
    return f'{source}: "{member}" is {shorten(repr(value), SHOWN)}; it must be {expected}'
