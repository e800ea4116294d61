"""The ranks of a distributed program, compared."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.answers.analysis import PARTS
from flopscope.answers.rank_sentences import nothing_found
from flopscope.ranks.calls import Floats, median
from flopscope.ranks.digest import Source, of_one_run
from flopscope.ranks.findings import Comparison, Finding, find, last_calls_by_group
from flopscope.ranks.schema import RANKS, SCHEMA, records, with_types
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.text import notes_of, summary_parts

if TYPE_CHECKING:
    import pandas

    from flopscope.show.summary import Summary

SPREAD = 0.95


class Ranks:
    """The ranks of a distributed program: what load_ranks() returns. Times are in µs.

    source: any iterable of flopscope.ranks.digest.Digest, one per rank, and of Failure, one per profile that is left
        out: a list, a file that a program keeps them in, or digests_of() of profiles in memory. Second digests of a
        rank are left out.

    Raises ValueError if the source has no digest.
    """

    def __init__(self, source: Source) -> None:
        self.comparison = Comparison(*of_one_run(source))
        """What the rules and the tables look at."""

    def __len__(self) -> int:
        """Number of ranks."""
        return len(self.comparison.digests)

    def __repr__(self) -> str:
        failures = self.comparison.failures
        left_out = f", {len(failures)} files left out" if failures else ""
        return f"<flopscope.Ranks: {len(self)} ranks{left_out}>"

    @cached_property
    def files(self) -> pandas.DataFrame:
        """A row per file: ``source``; ``rank`` and ``rank_from`` ("trace", "file name", "order"), missing for a file
        that is left out; ``host``: from the file's name, or counted by the GPUs of each host ("#0"); ``device``;
        ``events``; ``dropped``: events in no table; ``problem``: why the file is left out, or the warning of its
        reader; "" for none."""
        import pandas

        rows: list[dict[str, Any]] = []
        for digest, host in zip(self.comparison.digests, self.comparison.hosts, strict=True):
            named = {name: getattr(digest.identity, name) for name in ("source", "rank", "rank_from")}
            counts = {"events": digest.events, "dropped": digest.dropped, "problem": "; ".join(digest.problems)}
            rows.append({**named, "host": host, "device": digest.identity.device, **counts})
        rows += [{"source": f.source, "problem": f.reason} for f in self.comparison.failures]
        return pandas.DataFrame(rows).astype({"rank": "Int64", "events": "Int64", "dropped": "Int64"})

    @cached_property
    def findings(self) -> list[Finding]:
        """What is slow or wrong, the largest cost first.

        Each has ``kind`` ("straggler", "gpu", "link", "imbalance", "step", "memory", "missing" or "mismatch"), ``what``
        (a sentence), ``ranks``, ``cost_us`` (of each step; NaN if unknown), ``cost_pct`` (of a step), ``cause`` (of a
        straggler, "" else), ``action`` (a sentence: what to do about it) and ``evidence``.
        """
        return find(self.comparison)

    @cached_property
    def verdict(self) -> str:
        """The sentence of the first finding, or a sentence that nothing stands out or can be compared."""
        if self.findings:
            return self.findings[0].what
        work = self.comparison.work
        worked, compared = (bool(np.isfinite(times).any()) for times in (work.total, work.excess))
        return nothing_found(len(self), worked, compared, bool(np.nansum(work.part("communication")) > 0))

    @cached_property
    def notes(self) -> list[str]:
        """What is left out, differs between the ranks, or is uncertain: a sentence each."""
        return notes_of(self.comparison)

    def stragglers(self) -> Stragglers:
        """Return which ranks wait for which in collectives; point-to-point calls are omitted.

        Collectives are matched across ranks by their process group and sequence number, or by kind, message size and
        order if PyTorch recorded no sequence numbers. If the traces name no process group, as with torch before 2.2,
        all collectives called by ops of the trace are assumed to be of one group of all ranks; if sizes are missing
        too, they are matched by kind and order.

        The clocks are aligned by the ends of the collectives that end on all ranks nearly at once (allreduce,
        allgather, reducescatter, alltoall, barrier), as flopscope.ranks.stragglers describes: offsets, and drifts where
        enough calls show one. A delay that is equal in all groups of a rank is attributed to its clock.

        The rank that starts a collective last is its straggler and has the shortest kernel: the kernels of the other
        ranks run, and wait, from their own start to the straggler's.

        fs.stragglers(traces) does the same for a few traces in memory.
        """
        return self.comparison.stragglers

    @cached_property
    def ranks(self) -> pandas.DataFrame:
        """A row per rank. ``host``, ``gpu``, ``device``: where it ran, as far as known; ``steps``: number recorded;
        ``total``, ``own``, ``excess``, ``communication`` (exposed: nothing else ran), ``data``: medians over the steps,
        as in steps(); ``flops``, ``bytes_total_moved``: known work per step; ``slowness``: the time of its kernels over
        that of the same kernels and shapes on the other ranks; ``memory_peak``: bytes allocated; and the columns of
        Stragglers.ranks."""
        import pandas

        work, digests = self.comparison.work, self.comparison.digests
        identities = [digest.identity for digest in digests]
        steps = {name: getattr(work, name) for name in ("total", "own", "excess")}
        steps |= {name: work.part(name) for name in ("communication", "data")}
        columns: dict[str, Any] = {
            "rank": [digest.rank for digest in digests],
            "host": pandas.array(self.comparison.hosts, dtype="string"),
            "gpu": pandas.array([one.device_index for one in identities], dtype="Int64"),
            "device": pandas.array([one.device for one in identities], dtype="string"),
            "steps": [digest.steps for digest in digests],
            **{name: [median(row) for row in values] for name, values in steps.items()},
            "flops": work.amounts["FLOPs"],
            "bytes_total_moved": work.amounts["bytes"],
            "slowness": work.ops.slowness,
            "memory_peak": [digest.memory_peak for digest in digests],
        }
        return pandas.DataFrame(columns).merge(self.comparison.stragglers.ranks, on="rank", validate="1:1")

    def hosts(self) -> pandas.DataFrame:
        """Return a row per host, those that others waited for longest first: ``host``; ``ranks``; ``first_rank``;
        ``own``, ``communication``, ``slowness``: medians over its ranks; ``times_last``, ``waited``, ``awaited``: sums
        over its ranks; the ranks that waited include those of the same host."""
        grouped = self.ranks[self.ranks["host"].notna()].astype({"host": str}).groupby("host", sort=False)
        frame = grouped.agg(
            **{"ranks": ("rank", "size"), "first_rank": ("rank", "min")},
            **{name: (name, "median") for name in ("own", "communication", "slowness")},
            **{name: (name, "sum") for name in ("times_last", "waited", "awaited")},
        )
        return _sorted(frame.reset_index(), "hosts", "awaited")

    def groups(self) -> pandas.DataFrame:
        """Return a row per process group, those that waited longest first: ``group``; ``members``: as recorded;
        ``ranks``: members with a trace; ``calls`` matched; ``waited``: time that members waited for the last one;
        ``waited_pct``: in percent of the time of these calls; ``most_last``: the rank that came last most often;
        ``times_last``: how often; ``awaited``: time that the others waited for it there."""
        stragglers = self.comparison.stragglers
        calls, groups = stragglers.calls, stragglers.matched.groups
        frame = calls.groupby("place").agg(calls=("place", "size"), waited=("waited", "sum"), time=("time", "sum"))
        frame["group"] = [group.name for group in groups]
        frame["members"] = [group.ranks for group in groups]
        frame["ranks"] = [len(group.members) for group in groups]
        frame["waited_pct"] = (100 * frame["waited"] / frame["time"]).where(frame["time"] > 0)
        last = calls.groupby(["place", "straggler"]).agg(times_last=("waited", "size"), awaited=("waited", "sum"))
        last = last.reset_index("straggler").rename(columns={"straggler": "most_last"})
        most = last.sort_values("times_last", ascending=False, kind="stable").groupby("place").first()
        return _sorted(frame.join(most), "groups", "waited")

    def collectives(self, *, by_group: bool = True) -> pandas.DataFrame:
        """Return the matched collectives by kind, group and size, the most exposed first: arrival apart from transfer.

        by_group: False: groups with as many members on as many hosts are one row, ``group`` is missing.

        ``collective``; ``group``; ``groups``: number of them; ``ranks`` of each; ``hosts``, missing if unknown;
        ``bytes_from``, ``bytes_to``: the bucket of message sizes, a power of two; ``calls``; ``skew_median``,
        ``skew_p95``: from the first start to the last; ``skew_uncertainty``: median standard error of these;
        ``transfer_median``: from the last start to the end; ``bus_gbytes_per_s``: median over the transfer; ``time``,
        ``waited``, ``exposed``: duration, time waiting for the last member, and time in which nothing computed, per
        step and member; time that two collectives share counts for both.
        """
        stragglers = self.comparison.stragglers
        groups, calls = stragglers.matched.groups, stragglers.calls
        hosts = [len({self.comparison.hosts[member] for member in group.members} - {None}) for group in groups]
        place = calls["place"].to_numpy(np.intp)
        calls = calls.assign(
            size=_buckets(calls["message_bytes"].to_numpy(np.float64)),
            ranks=np.array([len(group.members) for group in groups], np.int64)[place],
            hosts=np.array(hosts, np.int64)[place],
            which=place if by_group else 0,
        ).sort_values(["place", "kind", "size"], kind="stable")
        classes = calls.groupby(["collective", "size", "ranks", "hosts", "which"], sort=False)
        frame = classes.agg(
            **{"group": ("group", "first"), "groups": ("place", "nunique"), "calls": ("skew", "size")},
            **{f"{name}_median": (name, "median") for name in ("skew", "transfer")},
            **{name: (name, "median") for name in ("skew_uncertainty", "bus_gbytes_per_s")},
            **{name: (name, "sum") for name in ("time", "waited", "exposed")},
        )
        frame["skew_p95"] = classes["skew"].quantile(SPREAD)
        frame = frame.reset_index()
        size = frame["size"].to_numpy(np.float64)
        frame["bytes_from"] = np.select([size >= 0, size == ZERO], [2.0**size, 0.0], np.nan)
        frame["bytes_to"] = np.select([size >= 0, size == ZERO], [2.0 ** (size + 1), 1.0], np.nan)
        per = frame["ranks"] * frame["groups"] * float(np.median(self.comparison.work.step_counts))
        for name in ("time", "waited", "exposed"):
            frame[name] /= per
        frame["hosts"] = frame["hosts"].astype("Int64").replace(0, None)
        if not by_group:
            frame["group"] = None
        return _sorted(frame, "collectives", "exposed")

    def key_averages(self) -> pandas.DataFrame:
        """Return the ops of all ranks with statistics over the ranks: a row per name, device, shapes and dtypes.

        Times and counts are per step, or of the profile if it has no steps.

        key, device_type, is_user_annotation, input_shapes, input_dtypes: as in Results.key_averages().
        ranks: number of ranks that have the row.
        count: median over those ranks.
        time_min, time_median, time_max: self time over those ranks, of the device, or of the CPU for rows without any.
        rank_min, rank_max: ranks with the least and the most.
        flops, bytes_total_moved: median over those ranks whose work is known; NaN for none.
        pct_roofline: median; bound: that of most ranks.
        """
        return self.comparison.work.ops.frame()

    def steps(self) -> pandas.DataFrame:
        """Return a row per step and rank: ``step``, missing if the program marked none; ``rank``; ``total``; ``own``:
        the total without the time in which the rank only communicated; ``excess``: own less the median of the other
        ranks that run the same program; and the parts of Results.accounting(), all means over the rank's devices."""
        import pandas

        work = self.comparison.work
        ranks, steps = work.total.shape
        columns: dict[str, Any] = {
            "step": np.tile(np.array(work.steps, object), ranks),
            "rank": np.repeat([d.rank for d in self.comparison.digests], steps),
        }
        columns |= {name: getattr(work, name).ravel() for name in ("total", "own", "excess")}
        return pandas.DataFrame(columns | {part: work.part(part).ravel() for part in PARTS})

    def summary(self) -> Summary:
        """Return what is slow across the ranks, the largest cost first.

        A REPL or a notebook's cell displays the result; scripts print() it. Its text fits the terminal; ``to_dict()``
        equals Ranks.to_dict()."""
        from flopscope.show.summary import Summary

        return Summary(summary_parts(self), self.to_dict)

    def __str__(self) -> str:
        return f"{self.summary()}\n"

    def write_report(self, path: str | os.PathLike[str], *, title: str | None = None) -> None:
        """Write the report of the ranks: one HTML page that needs no network. ``title``: its heading.

        An existing file is replaced only by a complete one. Raises OSError if it cannot be written, ImportError if
        Jinja2 is not installed.
        """
        from flopscope.ranks.page import ranks_page
        from flopscope.show.page.page import write

        write(path, ranks_page(self, title))

    @cached_property
    def last_calls(self) -> pandas.DataFrame:
        """A row per rank and process group whose collectives have sequence numbers: ``rank``; ``group``; ``members``:
        as recorded; ``called``: number of the last call, missing if the rank called none; ``collective``: of that call;
        ``ran``: number of the last call whose kernel is recorded; ``waiting``: that of the first call after it, and
        ``waiting_collective``; missing for none."""
        import pandas

        digests = self.comparison.digests
        names = list(SCHEMA["last_calls"])
        rows = [
            [digests[place].rank, group, members, *(getattr(call, name) for name in names[3:])]
            for (group, members), calls in last_calls_by_group(digests).items()
            for place, call in sorted(calls.items())
        ]
        frame = pandas.DataFrame(rows, columns=names)
        for name in ("called", "ran", "waiting"):
            frame[name] = frame[name].astype("Int64").where(frame[name] >= 0)
        return frame

    def tables(self) -> dict[str, pandas.DataFrame]:
        """Return all tables by name: ``files``, ``findings``, ``ranks``, ``hosts``, ``groups``, ``collectives``,
        ``steps``, ``last_calls`` as the methods and properties of these names; ``calls``: Stragglers.collectives;
        ``ops``: key_averages(), with lists as texts. Columns have the same types whatever the rows hold."""
        frames = {
            **{"files": self.files, "findings": self._finding_rows(), "ranks": self.ranks, "hosts": self.hosts()},
            **{"groups": self.groups(), "calls": self.comparison.stragglers.collectives},
            **{"collectives": self.collectives(), "ops": self.key_averages(), "steps": self.steps()},
            "last_calls": self.last_calls,
        }
        return {name: with_types(name, frame) for name, frame in frames.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict, findings, notes, ranks and files as a document for JSON: see docs/json.md."""
        frames = {"findings": self._finding_rows(), "ranks": self.ranks, "files": self.files}
        tables = {name: records(frame) for name, frame in frames.items()}
        return RANKS.of({"verdict": self.verdict, "notes": self.notes, **tables})

    def _finding_rows(self) -> pandas.DataFrame:
        import pandas

        names = list(SCHEMA["findings"])
        rows = [[*(getattr(one, name) for name in names)] for one in self.findings]
        frame = pandas.DataFrame(rows, columns=names).astype({"cost_us": "float64", "cost_pct": "float64"})
        frame["ranks"] = frame["ranks"].map(list)
        return frame


ZERO, UNKNOWN = -1.0, -2.0
"""Buckets of messages of no bytes, and of those of an unknown size."""


def _buckets(sizes: Floats) -> Floats:
    """Return the binary logarithm of the power of two that each size is at least."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.select([np.isnan(sizes), sizes <= 0], [UNKNOWN, ZERO], np.floor(np.log2(sizes)))


def _sorted(frame: pandas.DataFrame, table: str, most: str) -> pandas.DataFrame:
    """Return the columns of a table of Ranks, the rows with the most of a column first."""
    return frame[list(SCHEMA[table])].sort_values(most, ascending=False, kind="stable").reset_index(drop=True)
