"""The summary of a profile: its accounting and advice, utilization of the GPUs, the steps, launches of kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flopscope._core import Store
from flopscope.answers.accounting import (
    CAUSED,
    accounting_bars,
    accounting_columns,
    accounting_head,
    cause_text,
    recording_facts,
    stalls_lines,
    steps_lines,
)
from flopscope.answers.analysis import PARTS, Analysis, analysis_of
from flopscope.answers.collective_rules import kinds_of
from flopscope.answers.counted import Counted, counter_rows
from flopscope.answers.host_events import causes_of
from flopscope.answers.lines import host_lines, lines_of, waiting_lines
from flopscope.answers.notes import skewed_clocks, without_peaks
from flopscope.answers.pieces import Op, first_apart
from flopscope.answers.top import Most, exposed, most_time, phases_of
from flopscope.results.categories import short_names
from flopscope.results.results import Results, device_of, store_of
from flopscope.results.summaries import GPU_COLUMNS, Columns, microseconds, of_gpus, records
from flopscope.show.advice import SUMMARY, AdviceTable, advise
from flopscope.show.html import render
from flopscope.show.summary import Bars, Summary
from flopscope.support.columns import Rows, cut_apart, cut_middle
from flopscope.support.device import STORED
from flopscope.support.safe import markup, printable, shorten
from flopscope.support.units import (
    bytes_text,
    count_text,
    flop_rate_text,
    number_text,
    percent_text,
    rate_text,
    short_time_text,
    tenths_text,
)

if TYPE_CHECKING:
    from flopscope.support.nvml import Energy

Section = Sequence[str | Rows]
"""Tables and notes, which are indented."""

STEP_PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "data_loading", "other_cpu", "other")


# Text --------------------------------------------------------------------------------------------------------------

GPUS = ("cuda", "hip")
"""Accelerators that are called so."""
OF_A_CPU = ("other_cpu", "other")
LABELS = {"communication": "comm", "data_loading": "loading", "other_cpu": "cpu"}  # short labels of columns
STEPS_SHOWN = 6
MOSTLY = 0.5
"""Share of the time; with more unmodelled work, the option that records shapes comes first."""
NAME_WIDTH = 18
OPS_SHOWN = 10
MISSING = {
    "communication": "communication is limited by other ranks and the link",
    "copy": "copies are limited by the link to the host",
    "peaks": "a peak that limits it is unknown",
    "op": "the work is unknown: no op that launched it was recorded",
    "rule": "the work is unknown: no rule gives it",
    "arguments": "the work is unknown: its arguments do not give it",
    "shapes": "the work is unknown: no shapes were recorded",
}
"""Why a limit is unknown, by what is missing."""
MOST_WIDTH = 40  # characters of the names of the ops with the most time
HEAD = 300  # characters


def summarize(results: Results, peaks: str | None = None) -> Summary:
    """Return the summary of a profile. Raise RuntimeError while it is running. peaks: as in key_averages()."""
    core = store_of(results, "summary")
    with ThreadPoolExecutor(1) as other:  # beside the accounting, on another processor
        finding = other.submit(found_in, core)
        analysis = analysis_of(results, "summary", peaks)
        found = finding.result()
    advice = advise(analysis)
    sampled = lines_of(core, analysis.apart)
    counted = Counted(core)
    rest = details(core, counted, energy_section(results.energy, analysis), found)
    every, most, phases = accounting_columns(analysis), most_time(analysis), phases_of(analysis)
    steps = len(analysis.alike) if analysis.has_steps else 0
    whole = {name: values[-1] for name, values in accounting_columns(analysis, alike=True).items() if values}
    alone = exposed(whole, steps, found.collectives) if whole else None
    document = partial(
        SUMMARY.of,
        {
            "file": getattr(results, "source", None),
            "device": device_of(results),
            "recording": recording_facts(analysis),
            "accounting": records(every),
            "most": [one._asdict() for one in most],
            "phases": [{"phase": name, "host": host, "device": device} for name, host, device in phases],
            "exposed": alone,
            "advice": advice.to_dicts(),
            "notes": advice.notes,
            "gpus": records(of_gpus(found.gpus)),
            "steps": records(found.steps),
            "launches": records(found.launches),
            "lines": sampled.to_dicts(),
        },
    )
    hints = analysis.facts.hints
    busy = [hints.busy] if hints.busy else []
    if not analysis.devices:
        said = [printable(text) for text in hints.said]
        above = [*busy, *steps_lines(analysis)]
        shown = [*above, *[""] * bool(above), *host_lines(sampled), *said]
        return Summary(shown if sampled.lines else [*rest, *(said or _without_work(results))], document)
    if analysis.only_compiles:
        compiled, said = [_compiled(analysis.tried)] * bool(analysis.tried), [*map(printable, hints.said)]
        return Summary([*busy, *steps_lines(analysis), *compiled, "", *host_lines(sampled), *said], document)
    hfu = counted.hfu(every)
    per = {name: whole[name] / max(steps, 1) for name in ("total", *PARTS)}
    causes = {part: cause_text(causes_of(analysis, part), per["total"]) for part in CAUSED}
    said = [f"{part}: {text}" for part, text in causes.items() if text]
    bars = Bars(list(accounting_bars(analysis, whole)), per, said, analysis.on_device)
    where = [*waiting_lines(sampled, whole["total"], steps, analysis.on_device), *host_lines(sampled)]
    first = [*busy, *without_peaks(analysis)]  # before all else, as the rest depends on it
    if whole["unmodelled"] > MOSTLY * whole["total"]:
        first = [note for note in advice.notes if note == hints.advice] + first
    advice = AdviceTable(list(advice), analysis.has_steps, [note for note in advice.notes if note not in first])
    above = [*map(printable, first), *accounting_head(analysis, whole, hfu)]
    above += [_exposed(**alone, per=analysis.per)] if alone else []
    above += [_phases(phases, analysis.on_device, analysis.per)] if phases else []
    below = [*_most_section(most, per["total"]), "Advice", advice, "", *stalls_lines(analysis), *where, *rest]
    return Summary([*above, "", bars, "", *below], document)


def _compiled(ops: Sequence[Op]) -> str:
    """Compilations, the longest first, beside which no op was recorded."""
    longest = ", ".join(f"{printable(op.key)} {short_time_text(op.time)}" for op in ops[:3])
    whole = short_time_text(sum(op.time for op in ops))
    return f"Compiling took {whole}, the longest of it {longest}; no other op was recorded."


def _most_section(most: Sequence[Most], total: float) -> Section:
    """Return the section about the ops with the most time, of a total in µs."""
    rows: list[tuple[str, ...]] = [("name", "calls", "time", "share", "rate", "at its limits")]
    short = {key: printable(name) for key, name in short_names(one.op for one in most).items()}
    cut = cut_apart(short.values(), MOST_WIDTH)
    names = {key: cut[name] for key, name in short.items()}
    for one in most:
        parts = ((one.time, total), (one.ideal, one.time))
        share, limit = (percent_text(100 * part / whole if whole else math.nan) for part, whole in parts)
        rate = _rate(one.tflops_per_s, one.gbytes_per_s, one.computes)
        rows.append((names[one.op], count_text(one.calls), short_time_text(one.time), share, rate, limit))
    why = _unknown_limits({names[one.op]: one.unknown for one in most if one.unknown}, len(most))
    return ["Most time", Rows(rows), *why, ""] if most else []


def _unknown_limits(missing: Mapping[str, str], of: int) -> list[str]:
    """Return why the limits of these of so many names are unknown, as a line; [] if they are known. missing: the key of
    MISSING by name."""
    names: dict[str, list[str]] = {}
    for name, key in missing.items():
        names.setdefault(MISSING[key], []).append(name)
    if len(names) == 1 and len(missing) == of:
        return [f"  --: {next(iter(names))}"]
    return ["  --: " + "; ".join(f"{', '.join(some)}: {why}" for why, some in names.items())] if names else []


def _rate(tflops_per_s: float, gbytes_per_s: float, computes: bool) -> str:
    """Return the rate of what limits an op; that of the other where it is unknown."""
    if not math.isnan(tflops_per_s) and (computes or math.isnan(gbytes_per_s)):
        return flop_rate_text(tflops_per_s)
    return rate_text(gbytes_per_s, "GB/s")


def _exposed(time: float, share: float, collective: str | None, bus_gbytes_per_s: float, per: str) -> str:
    """Communication during which nothing computes. time: µs. share: percent."""
    bus = rate_text(bus_gbytes_per_s, "GB/s")
    at = "" if math.isnan(bus_gbytes_per_s) else f" at a bus bandwidth of {bus} (median, with waits)"
    most = f", most of it {collective}{at}" if collective else ""
    of = f"{percent_text(share)} of the time, {short_time_text(time)} {per}"
    return f"Communication that no computation hides takes {of}{most}."


def _phases(times: Sequence[tuple[str, float, float]], on_device: bool, per: str) -> str:
    """Phases with µs of the host and of the devices, in their order."""
    both = [(name, short_time_text(host), f", {short_time_text(device)}" * on_device) for name, host, device in times]
    return f"Phases ({'host, device, ' * on_device}{per}): {'; '.join(f'{name} {a}{b}' for name, a, b in both)}."


def _without_work(results: Results) -> list[str | Rows]:
    """Return what took the time of a recording in which no op and no device took any; [] of one without events."""
    table = results.key_averages(peaks=STORED)
    if not len(table):
        return []
    timed = [row for row in table if row.self_cpu_time_total > 0]
    rows = sorted(timed, key=lambda row: row.self_cpu_time_total, reverse=True)[:OPS_SHOWN]
    said = "No op and no work of a device was recorded with a duration"
    if not rows:
        return [f"{said}."]
    shown = [(shorten(row.key, HEAD), f"{row.count:,}", short_time_text(row.self_cpu_time_total)) for row in rows]
    said += ", only calls, ranges or waits of the host; the longest by self time:"
    return [said, "", Rows([("name", "calls", "time"), *shown])]


def overview_html(results: Results) -> str:
    """Return the summary and the first rows of the table as HTML. It never raises: what prevents it is its text."""
    head = shorten(repr(results), HEAD)
    try:
        shown = [summarize(results, STORED).html, render(results.key_averages(peaks=STORED), OPS_SHOWN)]
    except Exception as problem:
        return f"<div>{markup(head)}: {markup(shorten(str(problem) or type(problem).__name__, HEAD))}</div>"
    return "\n".join([f"<div>{markup(head)}</div>", *shown])


class Found(NamedTuple):
    """What the core finds of devices, steps, launches and collectives, as columns; times in µs."""

    gpus: Columns
    steps: Columns
    launches: Columns
    collectives: Columns


def found_in(core: Store) -> Found:
    steps = microseconds(core.step_breakdown())
    return Found(core.gpu_summary(), steps, core.launch_summary(), core.collectives()[0])


def details(core: Store, counted: Counted, energy: Section = (), found: Found | None = None) -> list[str | Rows]:
    """Return device_sections() one below the other, with their titles.

    counted, found: of the same profile; None: read here. energy: what energy_section() returns.
    """
    known = device_sections(core, counted, found)
    if not known:
        return ["Nothing was recorded."]
    sections = {**known, "Energy in J, W": energy}
    return [part for title, parts in sections.items() if parts for part in (title, *parts, "")]


def device_sections(core: Store, counted: Counted, found: Found | None = None) -> dict[str, Section]:
    """Return the sections about GPUs, steps, launches and communication by their titles; {} if nothing was recorded."""
    gpu, steps, launches, collectives = found or found_in(core)
    if not steps["step"]:
        return {}
    whole = "the steps" if steps["step"][0] is not None else "the profile"
    return {
        "GPUs" if core.accelerator in GPUS else "Devices": _gpu_section(core, gpu, whole),
        "Counters": _counter_section(counted),
        **_step_section(steps, bool(gpu["device"])),
        "Launches": _launch_section(core, launches),
        "Communication": _communication_section(core, collectives),
    }


def _gpu_section(core: Store, gpu: Columns, whole: str) -> Section:
    headers = ("device", "utilization", "SM efficiency", "occupancy", core.matrix_units, "idle")
    facts = zip(*(gpu[name] for name in GPU_COLUMNS), strict=True)
    rows = [(core.device_name(device), *map(percent_text, shares)) for device, *shares in facts]
    note = (
        f"  utilization, SM efficiency, idle: of the time of {whole}; {core.matrix_units}: of the kernels' time, "
        "in kernels whose names show their use"
    )
    return [Rows([headers, *rows]), note] if rows else []


def _counter_section(counted: Counted) -> Section:
    rows = counter_rows(counted)
    if not rows:
        return []
    return [
        Rows(rows),
        "  read, written: of device memory in the whole profile, at the rate of the part that was counted;",
        "  counted: share of the device's work, by time; mean, active: of the time that was counted;",
        "  tensor active: share of the cycles in which tensor cores worked (HFU is that of the whole profile;",
        "  MFU takes the model's FLOPs and the stated peak)",
    ]


def energy_section(energy: Mapping[str, Energy], analysis: Analysis) -> Section:
    """Return the section about energy. FLOPs of a joule are those of the model; of several devices they are mixed."""
    if not energy:
        return []
    known = [number for number in analysis.columns["flops"] if not math.isnan(number)]
    rows: list[tuple[str, ...]] = [("device", "energy", "mean power", "GFLOP/J")]
    for device, one in energy.items():
        rate = sum(known) / one.joules / 1e9 if known and len(energy) == 1 and one.joules > 0 else math.nan
        rows.append((device, *map(number_text, (one.joules, one.watts, rate))))
    return [Rows(rows), *(f"  {device}: {one.missing}" for device, one in energy.items() if one.missing)]


def _step_section(steps: Columns, on_device: bool) -> dict[str, Section]:
    """Return the section about the steps by its title. On a CPU, the accounting says what is between the ops."""
    if on_device:
        return {"Time": [_step_rows(steps, True)]}
    shown = {name: values for name, values in steps.items() if name not in OF_A_CPU}
    return {"Steps": [_step_rows(shown, False)]} if steps["step"][0] is not None else {}


def _step_rows(steps: Columns, on_device: bool) -> Rows:
    names = [cut_middle(printable("all" if name is None else name), NAME_WIDTH) for name in steps["step"]]
    shown = STEPS_SHOWN if len(names) > STEPS_SHOWN + 1 else len(names)
    always = {"other", "kernel"} if on_device else set()
    columns = ("total", *(part for part in STEP_PARTS if part in always or any(steps.get(part, ()))))
    apart = first_apart(steps["total"])
    sums = {name: sum(steps[name][apart:]) for name in columns}
    rows = [("step", *(LABELS.get(name, name) for name in columns))]
    rows += [(names[i], *(short_time_text(steps[name][i]) for name in columns)) for i in range(shown)]
    if shown < len(names):
        rows.append((f"… {len(names) - shown} more", *("" for _ in columns)))
    if len(names) > 1:
        mean = f"mean of the last {len(names) - apart}" if apart else "mean"
        rows.append((mean, *(short_time_text(sums[name] / (len(names) - apart)) for name in columns)))
    if len(columns) > 1:
        shares = (100 * sums[name] / sums["total"] if sums["total"] else math.nan for name in columns)
        rows.append(("share", *map(percent_text, shares)))
    return Rows(rows)


def _launch_section(core: Store, launches: Columns) -> Section:
    delays = ("delay median", "p95", "max")
    rows: list[tuple[str, ...]] = [
        ("device", "launches", "kernels", *delays, "call", "queue", "max", "late", "idle lost")
    ]
    for i, device in enumerate(launches["device"]):
        if launches["launches"][i]:
            counts = (f"{launches[name][i]:.0f}" for name in ("launches", "kernels"))
            names = ("delay_median", "delay_p95", "delay_max", "call_time_median")
            times = (short_time_text(launches[name][i]) for name in names)
            queue = (tenths_text(launches["queue_mean"][i]), f"{launches['queue_max'][i]:.0f}")
            late = (percent_text(launches["launch_bound_pct"][i]), short_time_text(launches["idle_lost"][i]))
            rows.append((core.device_name(device), *counts, *times, *queue, *late))
    note = "  late: launches onto a stream whose work had ended before the call returned"
    warnings = (f"  {warning}" for warning in skewed_clocks(core, launches))
    return [Rows(rows), note, *warnings] if len(rows) > 1 else []


def _communication_section(core: Store, calls: Columns) -> Section:
    """Return a line for each device and kind; sizes and bandwidths are those of the calls that have them."""
    rows: list[tuple[str, ...]] = [
        ("device", "collective", "calls", "message", "time", "exposed", "share", "bus GB/s", "max")
    ]
    for kind in kinds_of(calls):
        times = map(short_time_text, (kind.time, kind.exposed))
        speeds = map(number_text, (kind.bus_median, kind.bus_max))
        size, share = bytes_text(kind.message_bytes), percent_text(kind.exposed_pct)
        rows.append((core.device_name(kind.device), kind.collective, str(kind.calls), size, *times, share, *speeds))
    notes = [
        "  time: includes the wait for other ranks; exposed: the part without computation on the device;",
        "  message, bus GB/s: medians; the bandwidth is over the time with the wait",
    ]
    return [Rows(rows), *notes] if len(rows) > 1 else []
