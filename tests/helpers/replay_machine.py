"""A machine that runs small programs event by event: the oracle of csrc/replay, which also records traces for it.

Whatever happens is an event on one heap. Threads are coroutines that sleep until a time or until work has ended; work
starts once all that it needs has happened.
"""

import heapq
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.hand_traces import PAGEABLE, Json, call, kernel, op

CALL, ARRIVAL, QUEUE, RETURN, NODE = 5000, 5000, 1000, 3000, 500  # ns: of a launch; delays; between nodes of a graph
LEAST, COST = 1000, 2000  # of a call, what recording leaves and takes
ROUNDS = 8
NAMES = {"launch": "cudaLaunchKernel", "copy": "cudaMemcpyAsync", "other": "cudaEventRecord", "end": "",
         "order": "cudaStreamWaitEvent", "stream": "cudaStreamSynchronize",
         "device": "cudaDeviceSynchronize"}  # fmt: skip


@dataclass(frozen=True)
class Do:
    """What the host does in ``gap`` ns, in which ``ops`` begin, and then its call: one of NAMES.

    ``works`` are (stream, ns). order: the next launch waits for the last work on another stream than ``stream``.
    ``gone``: there is no call.
    """

    what: str
    gap: int = 0
    ops: int = 0
    works: tuple[tuple[int, int], ...] = ()
    stream: int = 0
    gone: bool = False
    own: int = CALL


Programs = Sequence[Sequence[Do]]


@dataclass
class Work:
    stream: int
    time: int
    turn: int
    place: tuple[int, int]
    needs: int = 0  # what must happen before it starts
    start: int = 0
    end: int | None = None
    then: list[Callable[[], None]] = field(default_factory=list)


class Machine:
    def __init__(self, threads: Programs, rounds: int, event_ns: int = 0) -> None:
        self.now, self.event_ns, self.order = 0, event_ns, itertools.count()
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.works: list[Work] = []  # in order of launch
        self.calls: list[tuple[tuple[int, int], int, int]] = []
        self.rounds: list[list[int]] = [[] for _ in threads]
        for thread, program in enumerate(threads):
            self.resume(self.run(thread, program, rounds))
        while self.heap:
            self.now, _, action = heapq.heappop(self.heap)
            action()

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (max(time, self.now), next(self.order), action))

    def after(self, work: Work, lag: int, action: Callable[[], None]) -> None:
        if work.end is None:
            work.then.append(lambda: self.after(work, lag, action))
        else:
            self.at(work.end + lag, action)

    def resume(self, thread: Generator[int | Work, None, None]) -> None:
        for wish in thread:
            if isinstance(wish, int):
                self.at(wish, lambda: self.resume(thread))
            else:
                self.after(wish, RETURN, lambda: self.resume(thread))
            return

    def last(self, chosen: Callable[[int], bool]) -> Work | None:
        return next((work for work in reversed(self.works) if chosen(work.stream)), None)

    def launch(self, work: Work, needs: Iterable[tuple[Work | None, int]], arrives: int) -> None:
        def came() -> None:
            work.needs -= 1
            if work.needs == 0:
                work.start = self.now
                self.at(self.now + work.time, ended)

        def ended() -> None:
            work.end = self.now
            for action in work.then:
                action()

        known = [(other, lag) for other, lag in needs if other is not None]
        work.needs = 1 + len(known)
        self.at(arrives, came)
        for other, lag in known:
            self.after(other, lag, came)
        self.works.append(work)

    def run(self, thread: int, program: Sequence[Do], rounds: int) -> Generator[int | Work, None, None]:
        ordered: Work | None = None
        for turn, (place, do) in itertools.product(range(rounds), enumerate(program)):
            cheap = max(do.gap - self.event_ns * do.ops, do.gap // 100 * 15)
            yield self.now + (cheap if self.event_ns else do.gap)
            begin, own = self.now, 0 if do.gone or do.what == "end" else do.own
            if self.event_ns and own > LEAST:
                own = max(own - min(self.event_ns, COST), LEAST)
            if do.what != "copy":
                yield begin + own
            for number, (stream, time) in enumerate(do.works):
                before = self.last(lambda one, stream=stream: one == stream)  # type: ignore[misc]
                needs = [(before, NODE if number else QUEUE), (ordered, QUEUE)]
                self.launch(Work(stream, time, turn, (thread, place)), needs, begin + own + ARRIVAL)
                ordered = None
            if do.what == "order":
                ordered = self.last(lambda one, stream=do.stream: one != stream)  # type: ignore[misc]
            yield begin + own
            streams = {"copy": [one for one, _ in do.works], "stream": [do.stream],
                       "device": sorted({work.stream for work in self.works})}.get(do.what, [])  # fmt: skip
            awaited = [self.last(lambda one, stream=stream: one == stream) for stream in streams]  # type: ignore[misc]
            yield from (work for work in awaited if work is not None and not do.gone)
            self.calls.append(((thread, place), begin, self.now))
            if place == len(program) - 1:
                self.rounds[thread].append(self.now)


def step_time(threads: Programs, steps: int, event_ns: int = 0) -> float:
    """Return the ns of a step once rounds of the program take the same time, as csrc/replay defines it."""
    machine = Machine(threads, ROUNDS, event_ns)
    launches = [sum(bool(do.works) for do in program) for program in threads]
    clock = machine.rounds[launches.index(max(launches))]
    ends = [max([clock[turn], *(w.end or 0 for w in machine.works if w.turn <= turn)]) for turn in range(ROUNDS)]
    took = [end - before for end, before in zip(ends, [0, *ends], strict=False)]
    even = (turn for turn in range(2, ROUNDS) if abs(took[turn] - took[turn - 1]) <= took[turn] // 4096)
    return took[next(even, ROUNDS - 1) if steps > 1 else 0] / steps


def recorded(threads: Programs) -> tuple[list[Json], int]:
    """Run the programs once; return the events of a trace of it, and when the last thread ends."""
    machine, events = Machine(threads, 1), []
    for (thread, place), begin, end in machine.calls:
        do: Any = threads[thread][place]
        args = {"tid": thread + 1, "correlation": 1 + 100000 * thread + place}
        for number in range(do.ops):
            events.append(op("aten::add", (begin - do.gap + number) / 1000, 0.001, tid=thread + 1))
        if do.what != "end":
            events.append(call(NAMES[do.what], begin / 1000, (end - begin) / 1000, **args))
    for work in machine.works:
        thread, place = work.place
        copies = threads[thread][place].what == "copy"
        one = kernel(PAGEABLE if copies else "kernel", work.start / 1000, work.time / 1000, work.stream,
                     correlation=1 + 100000 * thread + place)  # fmt: skip
        events.append(one | {"cat": "gpu_memcpy"} if copies else one)
    return events, max((end[0] for end in machine.rounds if end), default=0)
