"""Single events of a profile, with the attribute names of torch.profiler's ``events()``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from flopscope.support.core_facts import UNKNOWN_TIME, WORK
from flopscope.support.safe import printable

if TYPE_CHECKING:
    import numpy
    import numpy.typing as npt
    import pandas

    from flopscope import _core

ANNOTATIONS = ("range", "step")


class Interval(NamedTuple):
    """A start and an end in µs since the profile began to record, NaN where unknown."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return the length in µs."""
        return self.end - self.start


class Event:
    """One event of a profile. Times are in µs."""

    __slots__ = ("_events", "id")

    def __init__(self, events: EventList, index: int) -> None:
        self._events = events
        self.id = index
        """The index in the list, whose order is that in which the events were first recorded."""

    def _value(self, name: str) -> int:
        return int(self._events._columns[name][self.id])

    @property
    def name(self) -> str:
        """The name by which tables group events, and for steps "ProfilerStep#3"."""
        number = self._value("name")
        return self._events._names[number] if number >= 0 else ""

    key = name
    """The name, as in torch."""

    @property
    def kind(self) -> str:
        """The kind of the event: one of these strings.

        "op", "range", "step", "runtime" (a CUDA API call), "kernel", "memcpy", "memset", "interval" (device time of an
        op between two CUDA events), "sync" (a wait for a device), "overhead" (of profiling), "memory" or "frame" (a
        Python call).
        """
        return self._events._kinds[self._value("kind")]

    @property
    def time_range(self) -> Interval:
        """Start and end; the end is NaN if the event had not ended."""
        start = self._events._microseconds("start", self.id)
        return Interval(start, start + self._events._microseconds("duration", self.id))

    @property
    def device_type(self) -> str:
        """Where the event ran: "cpu", "cuda", or torch's type of another accelerator, such as "xpu"."""
        return self._events._device_type if self._value("on_device") else "cpu"

    @property
    def device_index(self) -> int:
        """The device that the event ran on, or whose memory it changed; -1 for the CPU."""
        return self._value("device")

    @property
    def thread(self) -> int:
        """The operating system's thread id; for device work, the stream."""
        return self._value("resource")

    @property
    def correlation(self) -> int:
        """The CUPTI correlation id that an API call shares with the work that it launched; -1 if there is none."""
        return self._value("correlation")

    @property
    def nbytes(self) -> int:
        """Bytes copied or filled, or allocated (above 0) or freed (below 0); 0 for other events."""
        return self._value("bytes")

    @property
    def is_user_annotation(self) -> bool:
        """Whether the event is a range or a step named by the program."""
        return self.kind in ANNOTATIONS

    @property
    def is_python_function(self) -> bool:
        """Whether the event is a Python call."""
        return self.kind == "frame"

    @property
    def cpu_time_total(self) -> float:
        """Host time in µs, 0 for device work."""
        return 0.0 if self._value("on_device") else self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """Host time without that of the events inside. Python calls count for the event around them, as in tables."""
        time, left, inside = self.cpu_time_total, self.cpu_children, []
        while left:
            event = left.pop()
            if event.is_python_function:
                left += event.cpu_children
            elif event.cpu_time_total > 0:
                inside.append(event.time_range)
        until, end = self.time_range
        for span in sorted(inside):  # count overlaps once
            if min(span.end, end) > max(span.start, until):
                time -= min(span.end, end) - max(span.start, until)
                until = min(span.end, end)
        return time

    @property
    def device_time_total(self) -> float:
        """Total time of the device work launched by the event or inside it; for device work, its own time."""
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
        """Total time of ``kernels``; for device work, its own time."""
        if self._value("on_device"):
            return self.time_range.elapsed_us()
        return sum((work.time_range.elapsed_us() for work in self.kernels), 0.0)

    @property
    def cpu_parent(self) -> Event | None:
        """The event that encloses this one on its thread, if any."""
        return self._events._event_or_none(self._value("parent"))

    @property
    def cpu_children(self) -> list[Event]:
        """The events directly inside this one on its thread."""
        return self._events._pointing_at("parent", self.id)

    @property
    def launcher(self) -> Event | None:
        """The op, range or step that launched the device work, if known."""
        return self._events._event_or_none(self._value("launcher"))

    @property
    def kernels(self) -> list[Event]:
        """The kernels, copies and fills that this event launched, without those of events inside."""
        return [event for event in self._events._pointing_at("launcher", self.id) if event.kind in WORK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self._events is other._events and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self._events), self.id))

    def __repr__(self) -> str:
        start, end = self.time_range
        where = f"{self.device_type}:{self.device_index} stream" if self._value("on_device") else "cpu thread"
        name = printable(repr(self.name))
        return f"<Event {self.id}: {self.kind} {name}, {start:.3f} to {end:.3f}us, {where} {self.thread}>"


class EventList(Sequence[Event]):
    """All events of a profile. Events are created on access; a slice is a list of events.

    core: a stopped profile; RuntimeError for a running one.
    """

    def __init__(self, core: _core.Store) -> None:
        self._columns, self._names, self._kinds, self._begin = core.events()
        self._device_type = core.device_type
        self._sorted: dict[str, tuple[npt.NDArray[numpy.int64], npt.NDArray[numpy.int64]]] = {}
        if self._begin == UNKNOWN_TIME:  # a recorder that was never started
            self._begin = min((int(start) for start in self._columns["start"] if start != UNKNOWN_TIME), default=0)

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
            raise IndexError(f"event {index} is out of range: the profile has {len(self)} events") from None

    def __iter__(self) -> Iterator[Event]:
        return (Event(self, i) for i in range(len(self)))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per event, in the order of the list.

        The columns are name, kind, device_type, device (-1 for the CPU), thread (for device work the stream), start
        (since the profile began to record) and duration in µs (NaN if unknown), bytes, parent and launcher (indices of
        rows), and correlation; the last three are -1 if missing.
        """
        import pandas

        columns = self._columns
        start, duration = (columns[name].astype(float) for name in ("start", "duration"))
        for values, integers in ((start, columns["start"]), (duration, columns["duration"])):
            values[integers == UNKNOWN_TIME] = float("nan")
        frame: dict[str, Any] = {
            "name": [self._names[number] if number >= 0 else "" for number in columns["name"].tolist()],
            "kind": [self._kinds[number] for number in columns["kind"].tolist()],
            "device_type": [self._device_type if on_device else "cpu" for on_device in columns["on_device"].tolist()],
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
        if value == UNKNOWN_TIME:
            return float("nan")
        return (value - (self._begin if column == "start" else 0)) / 1000

    def _event_or_none(self, index: int) -> Event | None:
        return Event(self, index) if index >= 0 else None

    def _pointing_at(self, column: str, index: int) -> list[Event]:
        """Return the events whose parent or launcher is ``index``. The first call sorts the column."""
        if column not in self._sorted:
            values = self._columns[column]
            order = values.argsort(kind="stable")
            self._sorted[column] = values[order], order
        values, order = self._sorted[column]
        first, last = values.searchsorted(index), values.searchsorted(index, side="right")
        return [Event(self, int(i)) for i in order[first:last]]
