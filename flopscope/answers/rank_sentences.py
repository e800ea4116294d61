"""Sentences about the ranks of a distributed program; one that starts with a word starts in lower case.

What to do depends on the kind of finding and its cause alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flopscope.answers.words import form
from flopscope.support.units import bytes_text, percent_text, short_time_text

SHOWN = 4
SLOW = 1.03
"""Slowness of kernels from which a sentence names it."""
SMALL = 1.0  # percent of a step
STEP, RECORDING = "a step", "the recorded time"
"""What costs are a share of."""


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
    return ACTIONS.get((kind, cause)) or ACTIONS[kind, ""]


# Slow ranks -----------------------------------------------------------------------------------------------------------

_DOES = {
    "data": ("it waits for its data", "they wait for their data"),
    "host": ("it launches late", "they launch late"),
    "copy": ("it copies longer", "they copy longer"),
    "other": ("it is idle longer", "they are idle longer"),
}
"""What late ranks do, by cause: one, or several."""


def straggler(
    places: Sequence[Place],
    cause: str,
    excess_us: float,
    alone: Cost,
    cost: Cost,
    steps: int,
    all_steps: int,
    times_last: int,
    collectives: int,
    unmatched: int,
    awaited: float,
    slowness: float,
    more: tuple[float, str] | None,
    time: float,
    usual: float,
    line: str = "",
) -> str:
    """Own work of a rank, or of the ranks of a host, beyond that of the others.

    excess_us: more time of its own in each step. alone: what that costs if no other rank is late. cost: what a step
    would gain now. steps: those in which it is late. unmatched: collectives beside the matched ones. awaited: µs that
    each other rank waited for it in a step, in the matched ones. slowness: time of its kernels over that of the same
    kernels, or of all kernels, of the others; NaN: unknown. more: how many times the work of the others, and the work:
    "FLOPs" or "bytes"; None: unknown. time: of the cause in the steps in which it is late. usual: that of the others.
    line: of the program, in which it was for most of that time beyond the others; "": unknown.
    """
    count, its = len(places), form(len(places), "its", "their")
    last, each = "", " a step" if cost.whole == STEP else ""
    if collectives:
        share = percent_text(100 * times_last / collectives)
        last = f"{form(count, 'comes', 'come')} last in {share} of {its} collectives and "
    price = str(cost)
    if cost.percent < SMALL:
        price = f"nothing while another rank is later, {alone} without that one"
    elif cost.time < 0.5 * alone.time:
        price += f", as another rank is almost as late, and {short_time_text(alone.time)} without that one"
    when = f" in {steps} of {all_steps} steps" if 2 * steps < all_steps else ""
    if cause == "work":
        beyond = f"{more[0]:.2f} times the {more[1]} of" if more else "beyond that of"
        why = f"{form(count, 'it has', 'they have')} more work, {beyond} the other ranks"
    elif cause not in ("gpu", "kernels"):
        why = f"{form(count, *_DOES[cause])}, {short_time_text(time)}{each} where others take {short_time_text(usual)}"
        why += f", mostly in {line}" if line else ""
    elif not slowness > SLOW:
        why = f"{its} kernels take longer than those of the other ranks"
    elif cause == "gpu":
        why = f"{its} kernels take {slowness:.2f} times as long as the same kernels on the other ranks"
    else:
        why = (
            f"{its} kernels take {slowness:.2f} times as long as those of the other ranks: more work or a slower GPU, "
            "which only recorded shapes distinguish"
        )
    besides = ""
    if collectives and cost.percent >= SMALL and not 0.5 < awaited / cost.time < 2:
        but = f", and {unmatched:,} more did not match" if unmatched else ""
        besides = (
            f" In the collectives that match, each other rank waited {short_time_text(awaited)}{each} for "
            f"{form(count, 'it', 'them')}{but}; the cost is {its} own work beyond that of the others."
        )
    return f"{_who(places)} {last}{form(count, 'costs', 'cost')} {price}{when}: {why}.{besides}"


def _who(places: Sequence[Place]) -> str:
    if len(places) == 1:
        return str(places[0])
    ranks = [place.rank for place in places]
    in_a_row = ranks == list(range(ranks[0], ranks[-1] + 1))
    listed = f"{ranks[0]} to {ranks[-1]}" if in_a_row else ", ".join(map(str, ranks))
    return f"host {places[0].host} (ranks {listed})"


def slow_gpu(place: Place, slowness: float, times_last: int, collectives: int) -> str:
    """A rank whose kernels take longer, but whose cost does not stand out."""
    effect = "without collectives it is unknown who waits for it"
    if collectives:
        last = f"it comes last in {percent_text(100 * times_last / collectives)} of its collectives"
        effect = f"{last}, but its cost does not stand out from how steps differ"
    return f"the kernels of {place} take {slowness:.2f} times as long as the same kernels on the other ranks; {effect}."


# Slow links, uneven work ----------------------------------------------------------------------------------------------


def slow_link(hosts: Sequence[str], collective: str, nbytes: float, factor: float, members: int, cost: Cost) -> str:
    """Hosts whose groups transfer more slowly than equal groups of other hosts.

    factor: how many times longer a transfer takes. members: ranks of each group.
    """
    who = f"{form(len(hosts), 'host', 'hosts')} {' and '.join(hosts)}"
    if len(hosts) > 3:
        who = f"a link of the {len(hosts)} hosts {hosts[0]} to {hosts[-1]}"
    return (
        f"{who}: {collective} of {bytes_text(nbytes)} takes {factor:.2f} times as long as in the "
        f"other groups of {members} ranks, a slow link; it costs {cost}."
    )


def uneven_work(ranks: Sequence[int], ratio: float, kinds: int, cost: Cost) -> str:
    """Ranks that run a part of one program with more work than the mean of the parts.

    kinds: number of parts.
    """
    return (
        f"work is uneven: {ranks_text(ranks)} {form(len(ranks), 'has', 'have')} {ratio:.2f} times "
        f"the mean work of the {kinds} kinds of ranks, which costs about {cost}."
    )


def slow_steps(steps: Sequence[str], all_steps: int, cause: str, ratio: float, cost: Cost) -> str:
    """Steps that take longer on most ranks.

    ratio: of the longest to the median. cost: on average.
    """
    return (
        f"{len(steps)} of {all_steps} steps {form(len(steps), 'takes', 'take')} up to "
        f"{ratio:.2f} times the median on most ranks ({first_of(steps)}), mostly "
        f"{_STEP_CAUSES[cause]}: {cost} on average."
    )


_STEP_CAUSES = {
    "data": "waiting for data",
    "host": "late launches",
    "copy": "copies",
    "other": "idle time",
    "gpu": "time of kernels",
    "communication": "communication",
}


def large_memory(place: Place, peak: float, ratio: float) -> str:
    """A rank that allocates more than the others of its program."""
    return f"{place} allocates {bytes_text(peak)} at its peak, {ratio:.2f} times as much as the others."


def busy_expert(place: Place, group: str, ratio: float) -> str:
    """A rank that moves more in all-to-alls than the other members of its group."""
    moved = f"{ratio:.2f} times the mean bytes of its group {group} in all-to-alls"
    return f"{place} moves {moved}: its experts get more tokens."


# Calls that do not match ----------------------------------------------------------------------------------------------


def mismatched_calls(
    mismatched: int, number: int, group: str, calls: Sequence[tuple[str, float, Sequence[int]]]
) -> str:
    """Sequence numbers under which ranks called different collectives.

    number: the first of them. calls: collective and size of each call of that number, and the ranks that made it.
    """
    verb = form(mismatched, "call does", "calls do")
    each = [f"{ranks_text(ranks)}: {what} of {size:,.0f} bytes" for what, size, ranks in calls]
    return (
        f"{mismatched:,} {verb} not match across ranks; the first is number {number} of group "
        f"{group} ({'; '.join(each)})."
    )


def hang(absent: Sequence[int], collective: str, number: int, group: str, waiting: int, members: int, last: int) -> str:
    """A call that ranks of a group did not make, and that the others wait for.

    last: number of the last call of the first absent rank in the group; -1 if none is recorded.
    """
    known = f"number {last}" if last >= 0 else "not recorded"
    return (
        f"{ranks_text(absent)} did not join {collective} number {number} of group {group}: "
        f"{waiting} of its {members} ranks called it and its kernel never ended; the last call of rank "
        f"{absent[0]} there is {known}."
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
