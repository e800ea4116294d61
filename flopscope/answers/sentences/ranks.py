"""Ranks of a distributed program: the facts of findings across them. Times are in µs, sizes in bytes.

Each record has ``what``, a sentence that starts in lower case if it starts with a word. What to do depends on the kind
of finding and its cause alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from flopscope.answers.sentences.words import form
from flopscope.support.units import bytes_text, percent_text, short_time_text

SHOWN = 4
SLOW = 1.03
"""Slowness of kernels from which a sentence names it."""
SMALL = 1.0  # percent of a step
STEP, RECORDING = "a step", "the recorded time"
"""What costs are a share of."""


class Facts(Protocol):
    """Facts of a finding across ranks; its sentence is made from them alone."""

    @property
    def what(self) -> str: ...
    def _asdict(self) -> dict[str, object]: ...


class Place(NamedTuple):
    """A rank and where it ran, as far as known."""

    rank: int
    host: str | None
    gpu: int | None

    def __str__(self) -> str:
        where = ([f"host {self.host}"] if self.host else []) + ([] if self.gpu is None else [f"GPU {self.gpu}"])
        return f"rank {self.rank}" + (f" ({', '.join(where)})" if where else "")


class Cost(NamedTuple):
    """A time for each step."""

    time: float
    percent: float
    """In percent of a step."""
    whole: str
    """What that is: STEP or RECORDING."""

    def __str__(self) -> str:
        return f"{short_time_text(self.time)} or {percent_text(self.percent)} of {self.whole}"


def first_of(names: Sequence[object], most: int = SHOWN) -> str:
    """Return the first of the names as text."""
    return ", ".join(map(str, names[:most])) + (", …" if len(names) > most else "")


def ranks_text(ranks: Sequence[int], most: int = SHOWN) -> str:
    """Return the first of the ranks as text: "rank 3", "ranks 3, 4"."""
    return f"{form(len(ranks), 'rank', 'ranks')} {first_of(ranks, most)}"


# What to do -----------------------------------------------------------------------------------------------------------

_GPU = (
    "Compare its GPU with that of another rank: model, clocks, power limit, temperature and other processes "
    "(nvidia-smi)"
)
ACTIONS = {
    ("straggler", "gpu"): f"{_GPU}; then its kernels: flopscope compare.",
    ("straggler", "work"): "Give it as much work as the others: look at how samples, sequence lengths and padding are "
    "divided among the ranks.",
    ("straggler", "kernels"): "Record shapes (record_shapes=True) to distinguish more work from a slower GPU.",
    ("straggler", "data"): "Look at its data loader: number of workers, prefetching, storage, and what else runs on "
    "the CPUs of its host.",
    ("straggler", "host"): "Look at what its Python does while the GPU is idle, such as logging, synchronization or "
    "garbage collection, and at what else runs on the CPUs of its host.",
    ("straggler", "copy"): "Look at its copies between host and GPU: pinned memory, the NUMA node of its process, the "
    "PCIe link of its GPU.",
    ("straggler", ""): "Look at the gaps in its timeline: flopscope report of its trace.",
    ("gpu", ""): f"{_GPU}.",
    ("link", ""): "Test the network of these hosts alone, for example with nccl-tests, and compare its adapters, "
    "routes and error counters with those of another host.",
    ("imbalance", ""): "Move work from these ranks to the others, for example layers of a stage.",
    ("imbalance", "work"): "Spread the tokens more evenly over the experts: capacity, or a loss that balances them.",
    ("step", ""): "Look at what the program does in these steps only, such as checkpoints, evaluation or logging.",
    ("memory", ""): "Compare what it keeps with another rank, for example with torch.cuda.memory_summary().",
    ("missing", ""): "Find out what it did instead: its last ops in its trace, or its stack (py-spy dump) while it "
    "hangs.",
    ("mismatch", ""): "Let all ranks of the group call the same collectives, with the same sizes, in the same order.",
}
"""What to do about a finding, by kind and cause; "" for all causes without a row of their own."""


def action(kind: str, cause: str) -> str:
    """Return what to do about a finding."""
    return ACTIONS.get((kind, cause)) or ACTIONS[kind, ""]


# Slow ranks -----------------------------------------------------------------------------------------------------------

_DOES = {
    "data": ("it waits for its data", "they wait for their data"),
    "host": ("it launches late", "they launch late"),
    "copy": ("it copies longer", "they copy longer"),
    "other": ("it is idle longer", "they are idle longer"),
}
"""What late ranks do, by cause: one, or several."""


class Straggler(NamedTuple):
    """Own work of a rank, or of the ranks of a host, beyond that of the others."""

    places: Sequence[Place]
    cause: str
    excess_us: float
    """More time of its own in each step."""
    alone: Cost
    """What that costs if no other rank is late."""
    cost: Cost
    """What a step would gain now."""
    steps: int
    """Steps in which it is late."""
    all_steps: int
    times_last: int
    collectives: int
    slowness: float
    """Time of its kernels over that of the same kernels, or of all kernels, of the others; NaN: unknown."""
    more: tuple[float, str] | None
    """How many times the work of the others, and the work: "FLOPs" or "bytes"; None: unknown."""
    time: float
    """Time of the cause in the steps in which it is late."""
    usual: float
    """The same of the others."""

    @property
    def what(self) -> str:
        count = len(self.places)
        last = ""
        if self.collectives:
            share = percent_text(100 * self.times_last / self.collectives)
            last = f"{form(count, 'comes', 'come')} last in {share} of {self._its} collectives and "
        price = str(self.cost)
        if self.cost.percent < SMALL:
            price = f"nothing while another rank is later, {self.alone} without that one"
        elif self.cost.time < 0.5 * self.alone.time:
            price += f", as another rank is almost as late, and {short_time_text(self.alone.time)} without that one"
        when = f" in {self.steps} of {self.all_steps} steps" if 2 * self.steps < self.all_steps else ""
        return f"{self._who} {last}{form(count, 'costs', 'cost')} {price}{when}: {self._why}."

    @property
    def _its(self) -> str:
        return form(len(self.places), "its", "their")

    @property
    def _who(self) -> str:
        if len(self.places) == 1:
            return str(self.places[0])
        ranks = [place.rank for place in self.places]
        in_a_row = ranks == list(range(ranks[0], ranks[-1] + 1))
        listed = f"{ranks[0]} to {ranks[-1]}" if in_a_row else ", ".join(map(str, ranks))
        return f"host {self.places[0].host} (ranks {listed})"

    @property
    def _why(self) -> str:
        count = len(self.places)
        if self.cause == "work":
            more = f"{self.more[0]:.2f} times the {self.more[1]} of" if self.more else "beyond that of"
            return f"{form(count, 'it has', 'they have')} more work, {more} the other ranks"
        if self.cause not in ("gpu", "kernels"):
            each = " a step" if self.cost.whole == STEP else ""
            times = f"{short_time_text(self.time)}{each} where others take {short_time_text(self.usual)}"
            return f"{form(count, *_DOES[self.cause])}, {times}"
        if not self.slowness > SLOW:
            return f"{self._its} kernels take longer than those of the other ranks"
        longer = f"{self._its} kernels take {self.slowness:.2f} times as long as"
        if self.cause == "gpu":
            return f"{longer} the same kernels on the other ranks"
        return f"{longer} those of the other ranks: more work or a slower GPU, which only recorded shapes distinguish"


class SlowGpu(NamedTuple):
    """A rank whose kernels take longer, but whose cost does not stand out."""

    place: Place
    slowness: float
    times_last: int
    collectives: int

    @property
    def what(self) -> str:
        effect = "without collectives it is unknown who waits for it"
        if self.collectives:
            share = percent_text(100 * self.times_last / self.collectives)
            effect = f"it comes last in {share} of its collectives, but its cost does not stand out from how steps "
            effect += "differ"
        return (
            f"the kernels of {self.place} take {self.slowness:.2f} times as long as the same kernels on the other "
            f"ranks; {effect}."
        )


# Slow links, uneven work ----------------------------------------------------------------------------------------------


class SlowLink(NamedTuple):
    """Hosts whose groups transfer more slowly than equal groups of other hosts."""

    hosts: Sequence[str]
    collective: str
    nbytes: float
    factor: float
    """How many times longer a transfer takes."""
    members: int
    """Ranks of each group."""
    cost: Cost

    @property
    def what(self) -> str:
        who = f"{form(len(self.hosts), 'host', 'hosts')} {' and '.join(self.hosts)}"
        if len(self.hosts) > 3:
            who = f"a link of the {len(self.hosts)} hosts {self.hosts[0]} to {self.hosts[-1]}"
        return (
            f"{who}: {self.collective} of {bytes_text(self.nbytes)} takes {self.factor:.2f} times as long as in the "
            f"other groups of {self.members} ranks, a slow link; it costs {self.cost}."
        )


class UnevenWork(NamedTuple):
    """Ranks that run a part of one program with more work than the mean of the parts."""

    ranks: Sequence[int]
    ratio: float
    kinds: int
    """Number of parts."""
    cost: Cost

    @property
    def what(self) -> str:
        return (
            f"work is uneven: {ranks_text(self.ranks)} {form(len(self.ranks), 'has', 'have')} {self.ratio:.2f} times "
            f"the mean work of the {self.kinds} kinds of ranks, which costs about {self.cost}."
        )


class SlowSteps(NamedTuple):
    """Steps that take longer on most ranks."""

    steps: Sequence[str]
    all_steps: int
    cause: str
    ratio: float
    """Of the longest to the median."""
    cost: Cost
    """On average."""

    @property
    def what(self) -> str:
        return (
            f"{len(self.steps)} of {self.all_steps} steps {form(len(self.steps), 'takes', 'take')} up to "
            f"{self.ratio:.2f} times the median on most ranks ({first_of(self.steps)}), mostly "
            f"{_STEP_CAUSES[self.cause]}: {self.cost} on average."
        )


_STEP_CAUSES = {
    "data": "waiting for data",
    "host": "late launches",
    "copy": "copies",
    "other": "idle time",
    "gpu": "time of kernels",
    "communication": "communication",
}


class LargeMemory(NamedTuple):
    """A rank that allocates more than the others of its program."""

    place: Place
    peak: float
    ratio: float

    @property
    def what(self) -> str:
        return (
            f"{self.place} allocates {bytes_text(self.peak)} at its peak, {self.ratio:.2f} times as much as the others."
        )


class BusyExpert(NamedTuple):
    """A rank that moves more in all-to-alls than the other members of its group."""

    place: Place
    group: str
    ratio: float

    @property
    def what(self) -> str:
        return (
            f"{self.place} moves {self.ratio:.2f} times the mean bytes of its group {self.group} in all-to-alls: its "
            "experts get more tokens."
        )


# Calls that do not match ----------------------------------------------------------------------------------------------


class Mismatched(NamedTuple):
    """Sequence numbers under which ranks called different collectives."""

    mismatched: int
    number: int
    """The first of them."""
    group: str
    calls: Sequence[tuple[str, float, Sequence[int]]]
    """Collective and size of each call of that number, and the ranks that made it."""

    @property
    def what(self) -> str:
        verb = form(self.mismatched, "call does", "calls do")
        calls = [f"{ranks_text(ranks)}: {what} of {size:,.0f} bytes" for what, size, ranks in self.calls]
        return (
            f"{self.mismatched:,} {verb} not match across ranks; the first is number {self.number} of group "
            f"{self.group} ({'; '.join(calls)})."
        )


class Hang(NamedTuple):
    """A call that ranks of a group did not make, and that the others wait for."""

    absent: Sequence[int]
    collective: str
    number: int
    group: str
    waiting: int
    members: int
    last: int
    """Number of the last call of the first absent rank in the group; -1 if none is recorded."""

    @property
    def what(self) -> str:
        last = f"number {self.last}" if self.last >= 0 else "not recorded"
        return (
            f"{ranks_text(self.absent)} did not join {self.collective} number {self.number} of group {self.group}: "
            f"{self.waiting} of its {self.members} ranks called it and its kernel never ended; the last call of rank "
            f"{self.absent[0]} there is {last}."
        )


# Nothing found --------------------------------------------------------------------------------------------------------

NO_MATCH = "No collective could be matched across the ranks, so it is unknown {}."


def nothing_found(ranks: int, worked: bool, compared: bool, communicated: bool) -> str:
    """Return what no finding means.

    ranks: their number; worked: whether work of a device is recorded; compared: whether two ranks have the same steps
    of the same program; communicated: whether communication is recorded.
    """
    if ranks == 1:
        return "One rank: there is no other to compare it with."
    if not worked:
        return "The ranks cannot be compared: no work of a device is recorded."
    if not compared:
        return "The ranks cannot be compared: no two of them recorded the same steps of the same program."
    if not communicated:
        return (
            "No rank stands out, but no communication is recorded, so that waiting for another rank cannot be "
            "distinguished from work."
        )
    return "No rank, link or step stands out."
