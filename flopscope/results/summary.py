"""What a whole profile says: how well the GPUs were used, what the steps' time went to, how kernels were launched.

The definitions of GPU efficiency and of the step breakdown are those of PyTorch's TensorBoard plugin
(github.com/pytorch/kineto, tb_plugin). All numbers come from the C core; here they become DataFrames and text.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope.support.columns import aligned_lines
from flopscope.support.safe import printable
from flopscope.support.units import MISSING, bytes_text, number_text, percent_text, short_time_text, tenths_text

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store

__all__ = ["gpu_summary", "launch_summary", "step_breakdown", "text"]

Columns = Mapping[str, Sequence[Any]]

GPU_COLUMNS = ("device", "gpu_utilization", "sm_efficiency", "achieved_occupancy", "tensor_core_time", "idle")
PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "data_loading", "other_cpu", "other")


def gpu_summary(core: Store, step: str | None = None) -> pandas.DataFrame:
    """How well each GPU was used: one row per device that worked, all columns but ``device`` in percent.

    The time that counts is that of the steps; of the steps called ``step`` where it is given (a name in the column
    ``step`` of step_breakdown); of the whole profile where it has no steps. NaN says that a fact is missing.

    gpu_utilization: of the time in which a kernel ran.
    sm_efficiency: mean over the time of min(blocks of all kernels that run / SMs, 1).
    achieved_occupancy: mean over the kernels, by their time, of 100 * min(blocks that an SM holds, blocks / SMs) *
        threads of a block / threads of an SM. Blocks that an SM holds: the rules of CUDA's cuda_occupancy.h.
    tensor_core_time: of the kernels' time in kernels that use the tensor cores, as far as their names tell.
    idle: of the time in which the device had no work at all: no kernel, copy or fill.

    ValueError where no step is called so; RuntimeError while the profile is running.
    """
    columns = core.gpu_summary(step)
    return _frame({name: columns[name] for name in GPU_COLUMNS})


def step_breakdown(core: Store) -> pandas.DataFrame:
    """What the time of each step went to, in µs: one row per step, or one for all (step None) where there is none.

    A step lasts from its start on the host, or the end of the step before it, to its end on the host, or the end of the
    last work on a device that was launched in it: whichever is later. Each moment of it counts once, as the first of
    these that goes on then: kernel (but those of communication), memcpy, memset, communication (so: what of it no
    kernel hides), runtime (API calls, waiting for a device, profiling's own work), data_loading (ops and ranges of a
    DataLoader), other_cpu (all other ops and ranges), other. They sum to total.

    Columns: step, the parts, total. No row where nothing was recorded. RuntimeError while the profile is running.
    """
    return _frame(_microseconds(core.step_breakdown()))


def launch_summary(core: Store) -> pandas.DataFrame:
    """How kernels were launched: one row per device that worked; times in µs, NaN where there is nothing to tell from.

    A launch is an API call that launched kernels, on any thread; of the many kernels of a CUDA graph the first counts.

    kernels: kernels whose API call was recorded.
    launches: those API calls.
    delay_min, delay_median, delay_p95, delay_max: from the start of the call to the start of its (first) kernel.
    negative_delays: launches whose kernel started before their call did. That cannot be: the clocks of host and device
        disagree, by at least -delay_min, and all delays and queues of the device are off by as much.
    call_time_median: time of the call on the host.
    queue_mean, queue_max: at the start of a call, the earlier launches whose kernel had not started.
    launch_bound_pct: of the launches onto a stream that had worked before, those that came too late: the work on the
        stream had ended before the call returned, so the device waited for the host.
    idle_lost: time in which the device had no work at all, each time until such a launch gave it some.

    RuntimeError while the profile is running.
    """
    return _frame(core.launch_summary())


def _frame(columns: Columns) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("this summary is a pandas DataFrame: pip install pandas; summary() does without") from error
    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


def _microseconds(columns: Columns) -> dict[str, list[Any]]:
    return {name: [v if name == "step" else v / 1000 for v in values] for name, values in columns.items()}


# Text --------------------------------------------------------------------------------------------------------------

LABELS = {"communication": "comm", "data_loading": "loading", "other_cpu": "cpu"}  # of columns, where short ones do
WIDTH = 100
STEPS_SHOWN = 6
NAME_WIDTH = 18


class Totals(NamedTuple):
    """What advice is given from: each device's numbers, and each part's share of the steps' time in percent."""

    gpu: Columns
    launches: Columns
    share: Mapping[str, float]


def text(core: Store) -> str:
    """The profile's summary for a terminal, at most 100 columns wide; RuntimeError while the profile is running."""
    steps = _microseconds(core.step_breakdown())
    if not steps["step"]:
        return "Nothing was recorded.\n"
    gpu, launches = core.gpu_summary(), core.launch_summary()
    total = sum(steps["total"])
    totals = Totals(gpu, launches, {part: 100 * sum(steps[part]) / total if total else math.nan for part in PARTS})
    sections = [
        _gpu_section(gpu, "the steps" if steps["step"][0] is not None else "the profile"),
        _step_section(steps),
        _launch_section(launches),
        _communication_section(core.collectives()[0]),
        [line for rule in ADVICE for advice in rule(totals) for line in _wrapped(advice)],
    ]
    titled = zip(("GPUs", "Time", "Launches", "Communication", "Advice"), sections, strict=True)
    return "\n".join("\n".join([title, *lines, ""]) for title, lines in titled if lines)


def _gpu_section(gpu: Columns, whole: str) -> list[str]:
    if not gpu["device"]:
        return ["  No work on a device was recorded."]
    headers = ("device", "utilization", "SM efficiency", "occupancy", "tensor cores", "idle")
    facts = zip(*(gpu[name] for name in GPU_COLUMNS), strict=True)
    rows = [(f"cuda:{device}", *map(percent_text, shares)) for device, *shares in facts]
    return [
        *table_lines([headers, *rows]),
        f"  utilization, SM efficiency, idle: of the time of {whole}; tensor cores: of the kernels'",
    ]


def _step_section(steps: Columns) -> list[str]:
    names = [_short("all" if name is None else name) for name in steps["step"]]
    shown = STEPS_SHOWN if len(names) > STEPS_SHOWN + 1 else len(names)
    columns = ("total", *(part for part in PARTS if any(steps[part]) or part in ("kernel", "other")))
    sums = {name: sum(steps[name]) for name in columns}
    rows = [("step", *(LABELS.get(name, name) for name in columns))]
    rows += [(names[i], *(short_time_text(steps[name][i]) for name in columns)) for i in range(shown)]
    if shown < len(names):
        rows.append((f"… {len(names) - shown} more", *("" for _ in columns)))
    if len(names) > 1:
        rows.append(("mean", *(short_time_text(sums[name] / len(names)) for name in columns)))
    rows.append(
        ("share", *(percent_text(100 * sums[name] / sums["total"] if sums["total"] else math.nan) for name in columns))
    )
    return table_lines(rows)


def _launch_section(launches: Columns) -> list[str]:
    delays = ("delay median", "p95", "max")
    rows: list[tuple[str, ...]] = [
        ("device", "launches", "kernels", *delays, "call", "queue", "max", "late", "idle lost"),
    ]
    for i, device in enumerate(launches["device"]):
        if launches["launches"][i]:
            counts = (f"{launches[name][i]:.0f}" for name in ("launches", "kernels"))
            names = ("delay_median", "delay_p95", "delay_max", "call_time_median")
            times = (short_time_text(launches[name][i]) for name in names)
            queue = (tenths_text(launches["queue_mean"][i]), f"{launches['queue_max'][i]:.0f}")
            late = (percent_text(launches["launch_bound_pct"][i]), short_time_text(launches["idle_lost"][i]))
            rows.append((f"cuda:{device}", *counts, *times, *queue, *late))
    note = "  late: the stream had run dry before the call that launched more returned"
    return [*table_lines(rows), note, *_skewed_clocks(launches)] if len(rows) > 1 else []


def _skewed_clocks(launches: Columns) -> Iterator[str]:
    """Say where delays cannot be right."""
    counts = zip(*(launches[name] for name in ("device", "negative_delays", "launches", "delay_min")), strict=True)
    for device, negative, all_of_them, least in counts:
        if negative:
            yield from textwrap.wrap(
                f"cuda:{device}: {negative:.0f} of {all_of_them:.0f} launches have a negative delay: their kernel "
                f"started before their call, by up to {short_time_text(-least)}. The clocks of host and device "
                "disagree by about that or more, and all delays, queues and late launches here are off by as much.",
                WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
            )


def _communication_section(calls: Columns) -> list[str]:
    """A line for each device and kind; sizes and bandwidths are of the calls that PyTorch tells them of."""
    places: dict[tuple[int, str], list[int]] = {}
    for i, place in enumerate(zip(calls["device"], calls["collective"], strict=True)):
        places.setdefault(place, []).append(i)
    rows: list[tuple[str, ...]] = [
        ("device", "collective", "calls", "message", "time", "exposed", "share", "bus GB/s", "max"),
    ]
    for (device, kind), where in sorted(places.items()):
        message, bus = (
            [value for i in where if not math.isnan(value := calls[name][i])]
            for name in ("message_bytes", "bus_gbytes_per_s")
        )
        time, exposed = (sum(calls[name][i] for i in where) for name in ("duration", "exposed"))
        speeds = (number_text(of(bus)) if bus else MISSING for of in (statistics.median, max))
        size = bytes_text(statistics.median(message)) if message else MISSING
        share = percent_text(100 * exposed / time if time else math.nan)
        times = map(short_time_text, (time, exposed))
        rows.append((f"cuda:{device}", kind, str(len(where)), size, *times, share, *speeds))
    notes = [
        "  time: with the wait for other ranks; exposed: of it, while nothing was computed on the device;",
        "  message, bus GB/s: medians, the latter over the time with the wait",
    ]
    return [*table_lines(rows), *notes] if places else []


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a section: the first column to the left, the others to the right."""
    return [f"  {line}".rstrip() for line in aligned_lines(rows)]


def _wrapped(advice: str) -> list[str]:
    return textwrap.wrap(advice, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _short(name: str) -> str:
    """A name cut in its middle: steps differ at their ends."""
    end, name = NAME_WIDTH // 2, printable(name)
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1 - end]}…{name[-end:]}"


# Advice: rules of the TensorBoard plugin, with its thresholds, each with the number that it rests on ------------------


def _data_loading(totals: Totals) -> Iterator[str]:
    if totals.share["data_loading"] > 5:
        yield (
            f"{totals.share['data_loading']:.1f}% of the time waits for data (more than 5%): give the DataLoader more "
            "workers, pin its memory, or do less per sample."
        )


def _communication(totals: Totals) -> Iterator[str]:
    if totals.share["communication"] > 10:
        yield (
            f"{totals.share['communication']:.1f}% of the time is communication that no kernel hides (more than 10%): "
            "overlap it, accumulate gradients, compress them, or use larger batches."
        )


def _low_utilization(totals: Totals) -> Iterator[str]:
    late = dict(zip(totals.launches["device"], totals.launches["launch_bound_pct"], strict=True))
    for device, used in zip(totals.gpu["device"], totals.gpu["gpu_utilization"], strict=True):
        if used < 50:
            why = "larger batches would fill it"
            if late.get(device, math.nan) > 50:
                why = (
                    f"{late[device]:.1f}% of its launches came late, so the host holds it up: larger batches, "
                    "CUDA graphs or torch.compile give it more work per call"
                )
            yield f"cuda:{device} runs kernels {used:.1f}% of the time (less than 50%): {why}."


def _tensor_cores(totals: Totals) -> Iterator[str]:
    for device, unused in zip(totals.gpu["device"], totals.gpu["matrix_time"], strict=True):
        if unused > 5:
            yield (
                f"{unused:.1f}% of the kernels' time on cuda:{device} multiplies matrices without the tensor cores: "
                "use bfloat16 or float16 (torch.autocast), or allow TF32."
            )


ADVICE: Iterable[Callable[[Totals], Iterator[str]]] = (_data_loading, _low_utilization, _tensor_cores, _communication)
