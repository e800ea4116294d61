"""Accounting: every instant of each device in each step, in parts that add up to the step; and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope import _core
from flopscope.answers.analysis import PARTS, ROUNDING, WORK_PARTS, Analysis
from flopscope.answers.host_events import causes_of
from flopscope.answers.lines import lines_of, places_of
from flopscope.results.head import LONG, RunSteps
from flopscope.support.columns import cut_end
from flopscope.support.core_facts import parts_of
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    import pandas

    from flopscope.answers.counted import Hfu


def accounting_columns(analysis: Analysis, *, alike: bool = False) -> dict[str, list[Any]]:
    """Return the columns of the accounting, times in µs: a row per device and step, and one for the whole.

    alike: without the first steps that are left out of means, also in the whole, which is then to be divided by
    len(analysis.alike).
    """
    parts, work = part_times(analysis), work_times(analysis)
    columns = part_columns(analysis, parts, work, analysis.apart if alike else 0)
    if analysis.bare is not None and columns["total"]:  # only the whole: nothing was recorded of the parts of one step
        of_alike = columns if alike else part_columns(analysis, parts, work, analysis.apart)
        whole = _bare_whole(analysis, {name: values[-1] for name, values in of_alike.items()}, alike)
        columns = {name: [*values[:-1], whole[name]] for name, values in columns.items()}
    return columns


SHARES = {"mfu": "FLOP/s", "mbu": "bandwidth"}
"""What the shares of a whole are shares of, at the peaks."""


def _bare_whole(analysis: Analysis, whole: Mapping[str, Any], alike: bool) -> dict[str, Any]:
    """Return a row of the steps that are alike as it is in one step that nothing recorded; alike: in as many."""
    work, idle = analysis.bare_scales
    scaled = {name: whole[name] * (work if name in WORK_PARTS else idle) for name in PARTS}
    total = analysis.unobserved * (len(analysis.alike) if alike else 1)  # a caller divides by that number
    ratio = total / math.fsum(scaled.values())  # a device is idle in some parts of work, too
    parts = {name: ratio * time for name, time in scaled.items()}
    shares = {name: whole[name] * whole["total"] / (len(analysis.alike) * analysis.unobserved) for name in SHARES}
    return {**whole, "total": total, **parts, **shares}


def part_columns(
    analysis: Analysis, parts: npt.NDArray[np.int64], work: npt.NDArray[np.float64], first: int = 0
) -> dict[str, list[Any]]:
    """Return the columns for parts by device, step and part, and for the result of work_times(). first: a step."""
    steps, devices = analysis.steps[first:], analysis.devices
    parts, work = parts[:, first:], work[:, first:]
    rated, rows = bool(analysis.peaks), []
    for d, device in enumerate(devices):
        for s, step in enumerate(steps):
            if step.name is not None or len(devices) > 1:
                rows.append(_row(analysis.core.device_name(device), step.name, parts[d, s], work[d, s], rated))
    if devices:
        name = analysis.core.device_name(devices[0]) if len(devices) == 1 else None
        rows.append(_row(name, None, parts.sum(axis=(0, 1), dtype=np.float64), work.sum(axis=(0, 1)), rated))
    names = ("device", "step", "total", *PARTS, "mfu", "mbu")
    return {name: [row[name] for row in rows] for name in names}


def work_times(analysis: Analysis) -> npt.NDArray[np.float64]:
    """Return the times of the FLOPs and of the bytes at the peaks, by device and step, in ns."""
    cells, work = analysis.cells, np.zeros((len(analysis.devices), len(analysis.steps), 2))
    where = analysis.places(cells), cells["step"]
    np.add.at(work[..., 0], where, cells["compute"] - cells["active"])  # activity has no known FLOPs
    np.add.at(work[..., 1], where, cells["memory"])
    return work


def part_times(analysis: Analysis) -> npt.NDArray[np.int64]:
    """Return the parts by device, step and part, in ns."""
    cells, gaps, ideal = analysis.cells, analysis.gap_cells, analysis.cell_ideals()
    where = analysis.places(cells), cells["step"]
    parts = np.zeros((len(analysis.devices), len(analysis.steps), len(PARTS)), dtype=np.int64)
    np.add.at(parts[..., PARTS.index("ideal")], where, ideal)
    np.add.at(parts, (*where, cells["part"]), cells["exclusive"] - ideal)
    np.add.at(parts, (analysis.places(gaps), gaps["step"], gaps["part"]), gaps["time"])
    return parts


def _row(
    device: str | None, step: str | None, parts: npt.NDArray[Any], work: npt.NDArray[np.float64], rated: bool
) -> dict[str, Any]:
    total = int(parts.sum())
    shares = [100 * float(ns) / total if total and rated else float("nan") for ns in work]
    times = {name: int(ns) / 1000 for name, ns in zip(PARTS, parts, strict=True)}
    return {"device": device, "step": step, "total": total / 1000, **times, "mfu": shares[0], "mbu": shares[1]}


def whole_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row for the whole of several rows of accounting_columns()."""
    devices = {row["device"] for row in rows}
    whole: dict[str, Any] = {name: sum(row[name] for row in rows) for name in ("total", *PARTS)}
    for share in SHARES:
        work = sum(row[share] * row["total"] for row in rows)
        whole[share] = work / whole["total"] if whole["total"] else float("nan")
    return {"device": devices.pop() if len(devices) == 1 else None, "step": None, **whole}


def accounting_frame(analysis: Analysis) -> pandas.DataFrame:
    import pandas

    columns = accounting_columns(analysis)
    if analysis.bare is not None and columns["step"]:
        columns["step"][-1] = "not recorded"  # what the row is of
    return pandas.DataFrame(columns)


# As text: a sentence, and a bar for each part -------------------------------------------------------------------------

BAR = 10
SLOW, WEIGHTY, MOST_OF_LONG = 2.0, 0.05, 4
"""Times the median, above which a step is slow; the part of all time from which steps of LONG times it are told; and
how many ops and idle times are named of one."""
CAUSED = ("communication", "host", "other")
"""Parts whose idle time has several causes."""
PLAIN = {_core.idle_labels[_core.idle_causes.index(cause)] for cause in ("host", "other")}
"""Labels of causes of idleness that say no more than the name of the part."""
KNOWN, FEW = 0.99, 0.1
"""Shares of the time of the work, whatever the idle time. Where less than the first is known, limits are lower ones;
where less than the second is, they are those of something else, and left out."""
PARTLY = "the known work, at the peaks"
"""What the ideal time is of, where it is not of all work."""
WORTH = 0.005
"""Share of the total time below which a cause of idleness is not mentioned."""
LEAST = 0.0005
"""Share of the total time below which a part is left out, as it would show as 0.0%."""
MOSTLY = 0.9
"""Counted share of the work from which on the share is not mentioned."""


class Known(NamedTuple):
    """The shares of the time of the work, as the accounting has it, of which something is known; NaN without work."""

    limit: float
    flops: float
    bytes: float

    def bound(self, name: str, percent: float) -> str | None:
        """Return what to say before an ideal time ("ideal") or a share of the peaks: "at least " of a lower limit;
        None if nothing is to be said. percent: of the time."""
        of = min(self.limit, {"mfu": self.flops, "mbu": self.bytes}.get(name, 1.0))
        if not percent > 0 or of < FEW or (of < KNOWN and percent < 100 * LEAST):
            return None
        return "at least " if of < KNOWN else ""

    def bounds(self, whole: Mapping[str, Any]) -> dict[str, str | None]:
        """Return bound() of each of a row of the accounting."""
        ideal = 100 * whole["ideal"] / whole["total"] if whole["total"] else 0.0
        return {"ideal": self.bound("ideal", ideal), **{name: self.bound(name, whole[name]) for name in SHARES}}


def known_shares(analysis: Analysis) -> Known:
    """Return how much of the work of the steps that are alike is known: what computes, each instant once."""
    chosen = (analysis.cells["step"] >= analysis.apart) & (analysis.cells["class"] == 0)
    cells = {name: np.asarray(values)[chosen] for name, values in analysis.cells.items()}
    row = np.where(cells["row"] >= 0, cells["row"], cells["kernel"])  # -1, no row, takes the last number
    amounts = (np.append(analysis.columns[name], np.nan)[row] for name in ("flops", "bytes_total_moved"))
    flops, moved = (~np.isnan(amount) for amount in amounts)
    time, limited = cells["exclusive"].astype(np.float64), cells["part"] != PARTS.index("unmodelled")
    every = float(time.sum()) or math.nan
    known = limited, flops | (cells["compute"] > cells["active"]), moved | (cells["memory"] > 0)
    return Known(*(float(time[one].sum()) / every for one in known))


def cause_text(causes: Mapping[str, float], total: float) -> str:
    """Return the causes of a part's idle time, in µs by label, that are worth a mention in this time; "" for none."""
    known = {label: time for label, time in causes.items() if time > WORTH * total}
    if all(label in PLAIN for label in known):
        return ""
    return ", ".join(f"{label} {short_time_text(time)}" for label, time in known.items())


def accounting_head(analysis: Analysis, whole: Mapping[str, Any], hfu: Hfu) -> list[str]:
    """Return sentences: the time of a step, shares of the peaks, and what recording cost.

    whole: the last row of the accounting of the steps that are alike. hfu: as it was counted.
    """
    steps, apart = (len(analysis.alike), analysis.apart) if analysis.has_steps else (0, 0)
    total, ideal = (whole[name] / max(steps, 1) for name in ("total", "ideal"))
    a_step = " a step" if steps else ""
    means = f" (mean of {steps} of {steps + apart} steps)" if apart else ""
    devices = len(analysis.devices)
    summed = f", summed over {devices} devices" if devices > 1 else ""
    head = f"{short_time_text(total)}{a_step}{means if analysis.bare is None else ''}{summed}"
    said = analysis.once(known_shares).bounds(whole)
    least = said.pop("ideal")
    shares = [f"{name.upper()} {at}{percent_text(whole[name])} of the peak {SHARES[name]}"
              for name, at in said.items() if at is not None and least is not None]  # fmt: skip
    if shares and whole["ideal"] > 0.01 * whole["total"]:
        whose = "CPU" if whole["device"] == "cpu" else "device"
        head += f"; {least}{short_time_text(ideal)} at the {whose}'s limits"
    else:
        head += "" if steps else " in all"
        most = sorted(((whole[part], row.noun) for part, row in parts_of(analysis.on_device).items()), reverse=True)
        spent = [f"{percent_text(100 * time / whole['total'])} is {noun}" for time, noun in most[:2] if time > 0]
        head += f": {', '.join(spent)}" if spent else ""
    if not math.isnan(hfu.percent):
        part = f" in {percent_text(100 * hfu.share)} of the work" if hfu.share < MOSTLY else ""
        shares.append(f"HFU {percent_text(hfu.percent)} (counted{part})")
    lines = [f"{head}.", *([f"{', '.join(shares)}."] if shares else []), *recorded_lines(analysis)]
    if analysis.bare is not None:  # no estimate beside what was measured
        return lines
    delay = analysis.recording.delay
    if delay > 0.01 * total:
        about, least = ("up to", "at least") if analysis.recording.is_bound else ("about", "about")
        without = ", which is all of its time: its time without recording is unknown."
        if total - delay > ROUNDING * delay:
            busy = sum(whole[part] for part in WORK_PARTS) / max(steps, 1)
            without = f": without, it takes {least} {short_time_text(total - delay)}, by an estimate; between "
            without += f"{short_time_text(busy)}, when the device worked, and the {short_time_text(total)} recorded."
        lines.append(f"Recording delayed it by {about} {short_time_text(delay)}{without}")
    return lines


def recording_facts(analysis: Analysis) -> dict[str, Any]:
    """Return what steps take, those that were recorded and those that were not, as the summary's JSON has it."""
    run, steps = analysis.facts.run_steps or RunSteps(), analysis.steps if analysis.has_steps else []
    known = run.recorded if run.recorded > 0 else analysis.total / max(len(analysis.devices), 1)
    return {
        "step": run.kind or ("marked" if steps else None),
        "step_of": run.of or None,
        "recorded_steps": len(steps) + run.replaced,
        "recorded_step": known if steps else math.nan,
        "bare_steps": run.bare_steps,
        **dict(zip(("bare_step", "bare_step_low", "bare_step_high"), (run.bare, run.low, run.high), strict=True)),
        "slow_steps": analysis.once(slow_steps),
        "long_steps": {
            **{"count": run.long_steps, "median": run.long, "share": 100 * run.long_share},
            "most": [dict(zip(("recorded", "name", "share"), one, strict=True)) for one in run.long_most],
        }
        if run.long_steps
        else None,
        "stalls": [dict(zip(("kernel", "share", "waits"), one, strict=True)) for one in run.stalls],
    }


def stalls_lines(analysis: Analysis) -> list[str]:
    """Return what the warps of kernels wait for, where that was sampled in steps of their own."""
    rows = (analysis.facts.run_steps or RunSteps()).stalls
    lines = [f"  {share:.0f} %  {printable(cut_end(kernel, 60))}: {printable(text)}" for kernel, share, text in rows]
    return ["What warps wait for, in percent of the samples of their instructions", *lines, ""] if lines else []


def steps_lines(analysis: Analysis) -> list[str]:
    """Return sentences on the steps of a program of whose work nothing was recorded."""
    time = analysis.total if analysis.bare is None else analysis.bare.bare
    return [*([f"{short_time_text(time)} a step."] if analysis.has_steps else []), *recorded_lines(analysis)]


def recorded_lines(analysis: Analysis) -> list[str]:
    """Return sentences on which part of the program was recorded, and what steps take that were not."""
    run, bare = analysis.facts.run_steps, analysis.bare
    if run is None:  # recorded by another program, or a profile of the program's own
        return []
    lines = []
    if analysis.has_steps and run.kind in ("forward", "jax", "repetition"):
        of = f" of {printable(run.of)}" if run.of else ""
        unknown = " What one takes that nothing records is unknown." if run.kind == "repetition" else ""
        lines.append(f"A step is a pass{of}, found by repetition: {run.steps:,} of them.{unknown}")
    if bare is not None:
        low, high, recorded = map(short_time_text, (bare.low, bare.high, bare.recorded))
        which = f"That is the median of {plural(bare.bare_steps, 'step')} that nothing recorded"
        lines.append(f"{which} (95 %: {low} to {high}); recorded steps take {recorded}.")
    if not math.isnan(run.recorded_from_s):  # else all is recorded
        counted = analysis.has_steps and run.kind != "repetition"  # of passes that were not recorded, nothing is known
        which = f"{len(analysis.steps):,} of {run.steps:,} steps are recorded, " if counted else "Recorded: "
        lines.append(
            f"{which}from second {run.recorded_from_s:.3g} to {run.recorded_to_s:.3g} of the {run.lasted_s:.3g} that "
            "the program took; flopscope run --whole records all."
        )
    if run.compiled_s > 0.01 * run.lasted_s:
        longest = "".join(f", {took:.3g} s of it {printable(name)}" for name, took in run.compiled)
        lines.append(f"XLA compiled for {run.compiled_s:.3g} s in all{longest}.")
    if bare is None:
        return lines
    if run.long_share >= WEIGHTY:
        time, share = short_time_text(run.long), percent_text(100 * run.long_share)
        lines.append(
            f"{run.long_steps:,} of the steps not recorded take {LONG:g} times that or more, {time} in the median, and "
            f"{share} of their time."
        )
        for nth, took in enumerate(dict.fromkeys(took for took, *_ in run.long_most)):
            parts = (f"{printable(name)} {percent_text(of)}" for own, name, of in run.long_most if own == took)
            lines.append(
                f"{'Another one' if nth else 'One of these'}, recorded in {short_time_text(took)}: {', '.join(parts)}."
            )
    if slow := [one for one in analysis.once(slow_steps) if one["time"] > SLOW * bare.bare]:
        texts = ((one["number"], filter(None, (short_time_text(one["time"]), one["line"]))) for one in slow)
        listed = ", ".join(f"{number:,} ({', '.join(text)})" for number, text in texts)
        lines.append(f"Slow steps among those: {listed}.")
    return lines


def of_long_step(analysis: Analysis) -> list[tuple[str, float]]:
    """Return what takes the most of the longest step, ops and parts of its idle time, with its percent of the step."""
    lasted = [step.end - step.begin for step in analysis.steps]
    place, count = lasted.index(max(lasted)), max(len(analysis.devices), 1)
    parts = dict(zip(PARTS, part_times(analysis)[:, place].sum(axis=0).tolist(), strict=True))
    times = {row.noun: parts[part] for part, row in parts_of(analysis.on_device).items() if part not in WORK_PARTS}
    for op in analysis.ops_of(analysis.cells["step"] == place):
        times[op.key] = times.get(op.key, 0.0) + op.time / analysis.scale
    shares = {name: 100 * time / max(count * lasted[place], 1) for name, time in times.items()}
    return [(name, shares[name]) for name in nlargest(MOST_OF_LONG, shares, key=shares.__getitem__) if shares[name] > 0]


def slow_steps(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the longest steps that nothing recorded, longest first: "number", from 1, "time" in µs, and the "line" of
    the program that the main thread was in for the most of it, or None.

    Lines are those that were sampled meanwhile: samples go on after the last recording.
    """
    run, found = analysis.facts.run_steps or RunSteps(), []
    for time, number, end in run.slowest:
        lines = [
            line for line in lines_of(analysis.core, 0, 0, end - int(1000 * time), end).lines if line.group == "main"
        ]
        places = places_of(lines, lambda line: line.own, lambda line: line.time, 1)
        found.append({"number": number, "time": time, "line": places[0].line if places else None})
    return found


def accounting_bars(analysis: Analysis, whole: Mapping[str, Any]) -> Iterator[str]:
    """Yield for each part that is not empty a bar and what it is. whole: as for accounting_head()."""
    largest, steps = max(whole[part] for part in PARTS), max(len(analysis.alike), 1) if analysis.has_steps else 1
    partly = analysis.once(known_shares).limit < KNOWN
    for part, row in parts_of(analysis.on_device).items():
        if whole[part] <= (0 if part == "ideal" else LEAST * whole["total"]):
            continue
        bar = "█" * round(BAR * whole[part] / largest)
        share = percent_text(100 * (whole[part] / whole["total"]))
        gloss = PARTLY if part == "ideal" and partly else row.gloss
        yield f"{part:<14}{short_time_text(whole[part] / steps):>8}{share:>7}  {bar:<{BAR}}  {gloss}"
        if part in CAUSED and (text := cause_text(causes_of(analysis, part), whole["total"] / steps)):
            yield f"{'':14}of it: {text}"
