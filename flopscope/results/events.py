"""The single events of a profile, with the names that torch.profiler's ``events()`` gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

if TYPE_CHECKING:
    import numpy
    import numpy.typing as npt
    import pandas

    from flopscope import _core

__all__ = ["Event", "EventList", "Interval"]

MISSING = -(2**63)  # the core's, of a time
WORK = ("kernel", "memcpy", "memset", "interval")  # kinds of what keeps a device busy
ANNOTATIONS = ("range", "step")


class Interval(NamedTuple):
    """From when to when, in µs since the profile began to record; NaN where that is not known."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long, in µs."""
        return self.end - self.start


class Event:
    """One event of a profile. Times are in µs."""

    __slots__ = ("_events", "id")

    def __init__(self, events: EventList, index: int) -> None:
        self._events = events
        self.id = index
        """Its place in the list, which is the order in which events began to be known."""

    def _value(self, name: str) -> int:
        return int(self._events._columns[name][self.id])

    @property
    def name(self) -> str:
        """What the rows of tables group by, but for steps: "ProfilerStep#3"."""
        number = self._value("name")
        return self._events._names[number] if number >= 0 else ""

    @property
    def key(self) -> str:
        """The same as name, as torch has it."""
        return self.name

    @property
    def kind(self) -> str:
        """ "op", "range", "step", "runtime" (a CUDA API call), "kernel", "memcpy", "memset", "interval" (device time of
        an op, between two CUDA events), "sync" (waiting for a device), "overhead" (of profiling), "memory" or "frame"
        (a Python call).
        """
        return self._events._kinds[self._value("kind")]

    @property
    def time_range(self) -> Interval:
        """From when to when; the end is NaN of what had not ended."""
        start = self._events._microseconds("start", self.id)
        return Interval(start, start + self._events._microseconds("duration", self.id))

    @property
    def device_type(self) -> str:
        """Where it lies: "cpu" or "cuda"."""
        return "cuda" if self._value("on_device") else "cpu"

    @property
    def device_index(self) -> int:
        """The device that it ran on or whose memory it is; -1 for the CPU."""
        return self._value("device")

    @property
    def thread(self) -> int:
        """The operating system's id of its thread; of what ran on a device, the stream."""
        return self._value("resource")

    @property
    def correlation(self) -> int:
        """The number that CUPTI gave an API call and the work that it launched; -1 where there is none."""
        return self._value("correlation")

    @property
    def nbytes(self) -> int:
        """Bytes of a copy or a fill, or of memory that was taken (above 0) or given back (below); 0 of the rest."""
        return self._value("bytes")

    @property
    def is_user_annotation(self) -> bool:
        """Whether it is a range or a step that the program named."""
        return self.kind in ANNOTATIONS

    @property
    def is_python_function(self) -> bool:
        """Whether it is a Python call."""
        return self.kind == "frame"

    @property
    def cpu_time_total(self) -> float:
        """How long it took on the host, 0 of what ran on a device."""
        return 0.0 if self._value("on_device") else self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """That without what the events inside took. Python calls are of the event that they lie in, as in tables."""
        time, left, inside = self.cpu_time_total, self.cpu_children, []
        while left:
            event = left.pop()
            if event.is_python_function:
                left += event.cpu_children
            elif event.cpu_time_total > 0:
                inside.append(event.time_range)
        until, end = self.time_range
        for span in sorted(inside):  # what overlaps is taken once
            if min(span.end, end) > max(span.start, until):
                time -= min(span.end, end) - max(span.start, until)
                until = min(span.end, end)
        return time

    @property
    def device_time_total(self) -> float:
        """Time of the device work that ran for it or what it encloses, summed; its own where it ran on a device."""
        if self._value("on_device"):
            return self.time_range.elapsed_us()
        time, left = 0.0, [self]
        while left:
            event = left.pop()
            time += event.self_device_time_total
            left += event.cpu_children
        return time

    @property
    def self_device_time_total(self) -> float:
        """Time of its own kernels, or its own on a device."""
        if self._value("on_device"):
            return self.time_range.elapsed_us()
        return sum((work.time_range.elapsed_us() for work in self.kernels), 0.0)

    @property
    def cpu_parent(self) -> Event | None:
        """The event that encloses it on its thread."""
        return self._events._event_or_none(self._value("parent"))

    @property
    def cpu_children(self) -> list[Event]:
        """The events right inside of it on its thread."""
        return self._events._pointing_at("parent", self.id)

    @property
    def launcher(self) -> Event | None:
        """Of device work: the op, range or step that it ran for."""
        return self._events._event_or_none(self._value("launcher"))

    @property
    def kernels(self) -> list[Event]:
        """The kernels, copies and fills that ran for it rather than for something inside."""
        return [event for event in self._events._pointing_at("launcher", self.id) if event.kind in WORK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self._events is other._events and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self._events), self.id))

    def __repr__(self) -> str:
        start, end = self.time_range
        where = f"cuda:{self.device_index} stream" if self._value("on_device") else "cpu thread"
        return f"<Event {self.id}: {self.kind} {self.name!r}, {start:.3f} to {end:.3f}us, {where} {self.thread}>"


class EventList(Sequence[Event]):
    """All events of a profile. An event is made when it is asked for; a slice is a list of them.

    core: a stopped profile; RuntimeError for one that runs.
    """

    def __init__(self, core: _core.Store) -> None:
        self._columns, self._names, self._kinds, self._begin = core.events()
        self._sorted: dict[str, tuple[npt.NDArray[numpy.int64], npt.NDArray[numpy.int64]]] = {}
        if self._begin == MISSING:  # of a recorder that was never started
            self._begin = min((int(start) for start in self._columns["start"] if start != MISSING), default=0)

    def __len__(self) -> int:
        return len(self._columns["kind"])

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        if isinstance(index, slice):
            return [Event(self, i) for i in range(len(self))[index]]
        try:
            return Event(self, range(len(self))[index])
        except IndexError:
            raise IndexError(f"there is no event {index}: the profile has {len(self)}") from None

    def __iter__(self) -> Iterator[Event]:
        return (Event(self, i) for i in range(len(self)))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per event, in the order of the list.

        name, kind, device_type; device (-1: the CPU); thread (of device work: the stream); start (since the profile
        began to record) and duration in µs, NaN where not known; bytes; parent, launcher: rows, as the events of these
        names; correlation; -1 where there is none. Raises ImportError where there is no pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas; the list itself does without") from error
        columns = self._columns
        start, duration = (columns[name].astype(float) for name in ("start", "duration"))
        for values, whole in ((start, columns["start"]), (duration, columns["duration"])):
            values[whole == MISSING] = float("nan")
        frame: dict[str, Any] = {
            "name": [self._names[number] if number >= 0 else "" for number in columns["name"].tolist()],
            "kind": [self._kinds[number] for number in columns["kind"].tolist()],
            "device_type": ["cuda" if there else "cpu" for there in columns["on_device"].tolist()],
            "device": columns["device"],
            "thread": columns["resource"],
            "start": (start - self._begin) / 1000,
            "duration": duration / 1000,
            **{name: columns[name] for name in ("bytes", "parent", "launcher", "correlation")},
        }
        return pandas.DataFrame(frame)

    def __repr__(self) -> str:
        return f"<EventList: {len(self)} events>"

    def _microseconds(self, column: str, index: int) -> float:
        value = int(self._columns[column][index])
        if value == MISSING:
            return float("nan")
        return (value - (self._begin if column == "start" else 0)) / 1000

    def _event_or_none(self, index: int) -> Event | None:
        return Event(self, index) if index >= 0 else None

    def _pointing_at(self, column: str, index: int) -> list[Event]:
        """The events whose parent or launcher is that one. The first question sorts them all."""
        if column not in self._sorted:
            values = self._columns[column]
            order = values.argsort(kind="stable")
            self._sorted[column] = values[order], order
        values, order = self._sorted[column]
        first, last = values.searchsorted(index), values.searchsorted(index, side="right")
        return [Event(self, int(i)) for i in order[first:last]]
