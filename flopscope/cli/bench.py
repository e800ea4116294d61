"""The benchmark program, ``flopscope bench``: ten ops on one matrix, and what bounds the time of each."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from flopscope import _core
from flopscope.cli.parser import add_files, add_operands, names, positive
from flopscope.record.profile import profile
from flopscope.results.columns import DEVICE, ROW_FIELDS
from flopscope.results.table import EventTable
from flopscope.show.entries import Entry, Listing
from flopscope.show.fitted import print_coloured, render, terminal_width
from flopscope.support.busy import busy_meter, why_busy
from flopscope.support.device import PEAKS_FIELDS, Device, find_device, measure_peaks
from flopscope.support.documents import Document, columns, record, rows
from flopscope.support.files import write_json
from flopscope.support.peak_timing import free_bytes
from flopscope.support.peaks import Peaks
from flopscope.support.progress import progress_bar
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import si_text


class _Program:
    """The matrices that the steps share: ``x``, made by ``ones``, and ``y``, made by ``mul``."""

    def __init__(self, size: int, dtype: str, device: str) -> None:
        self.options: dict[str, Any] = {"shape": (size, size), "dtype": dtype, "device": device}
        self.x = _core.ones(**self.options)
        self.y = _core.full(value=0.5, **self.options)


# The steps in order.
OPS: dict[str, Callable[[_Program], object]] = {
    "ones": lambda p: vars(p).update(x=_core.ones(**p.options)),
    "matmul": lambda p: _core.matmul(p.x, p.x, out=p.x),
    "mul_": lambda p: p.x.__imul__(0.5),
    "mul": lambda p: vars(p).update(y=_core.mul(p.x, 0.5)),
    "add": lambda p: _core.add(p.x, p.y),
    **{op.__name__: partial(lambda op, p: op(p.x), op) for op in (_core.sum, _core.sqrt, _core.sin, _core.sigmoid)},
    "log10": lambda p: _core.log10(p.x),
    "pow": lambda p: _core.pow(p.x, 3.14159),
}

SIZES = (256, 512, 1024, 2048, 4096, 8192)
REPEAT = 10
BENCH = Document(
    "bench",
    "a run of the benchmark program",
    (
        DEVICE,
        *columns("dtype$ size# repeat#", size="side of the square matrix", repeat="calls of each op"),
        *columns("busy$", why="no other work was seen", busy="why the times may be too long"),
        record("peaks", PEAKS_FIELDS, "what shares are relative to"),
        rows("rows", ROW_FIELDS),
    ),
)


@dataclass(frozen=True)
class Bench:
    """The result of a run of the benchmark program."""

    device: Device
    peaks: Peaks
    dtype: str
    size: int
    repeat: int
    table: EventTable
    busy: str | None = None
    """Why the times may be too long: what other processes used of the device meanwhile. None if nothing suggests it."""

    def heading(self) -> list[str]:
        """Return a few lines: whether the device was busy with other work, its name and its peaks."""
        lines = [f"{self.device}: {self.device.name}"]
        if self.busy:
            lines.insert(0, f"The machine was busy: {self.busy}. Times may be too long and shares too low.")
        for peaks in (self.peaks, self.device.datasheet_peaks):
            if peaks is not None:
                units = ", ".join(f"{unit} {_rate(rate, 'FLOP/s')}" for unit, rate in peaks.flops.items())
                lines.append(f"  {peaks.source:9}  memory: {_rate(peaks.bandwidth, 'B/s')}   compute: {units}")
        lines.append(f"{self.size} × {self.size} {self.dtype}, {self.repeat} times after a warm-up")
        return lines

    def text(self, width: int | None = None) -> str:
        """Return the device and the table in lines of at most ``width`` characters, or the terminal's."""
        average = "CUDA avg" if self.table.has_device else "CPU avg"
        columns = [average, "FLOPs", "Bytes", "FLOP/s", "B/s", "FLOP/B", "% Roofline", "Bound"]
        listing = Listing([Entry(row) for row in self.table], [], len(self.table), "op")
        size = terminal_width() if width is None else width
        for left_out in ("", "FLOP/B", "FLOPs"):  # as many as must give way to the width
            columns = [name for name in columns if name != left_out]
            shown = render(self.table, width=size, columns=columns, listing=listing)
            if all(len(line) <= size and "…" not in line for line in shown.splitlines()):
                break
        fill = partial(textwrap.fill, width=size, subsequent_indent="    ", break_on_hyphens=False)
        return "\n".join([*map(fill, self.heading()), "", shown])

    def to_dict(self) -> dict[str, Any]:
        """Return the device, the options, the peaks and the rows as a document for JSON: see docs/json.md."""
        options = {"dtype": self.dtype, "size": self.size, "repeat": self.repeat, "busy": self.busy}
        device = {"kind": self.device.kind, "name": self.device.name}
        return BENCH.of({"device": device, **options, "peaks": asdict(self.peaks), "rows": self.table.row_records()})


def run(
    device: str | None = None,
    dtype: str = "float32",
    size: int | None = None,
    ops: Sequence[str] | None = None,
    repeat: int = REPEAT,
    progress: bool = False,
) -> Bench:
    """Run each op of the benchmark program ``repeat`` times after a warm-up, and profile it.

    ``size`` is the side of the square matrix; by default the largest of 256 … 8192 that the device finishes in a few
    seconds. Raises ValueError for an unknown op or dtype, RuntimeError for a missing device.
    """
    chosen = list(OPS) if ops is None else list(ops)
    unknown = [name for name in chosen if name not in OPS]
    if unknown:
        hint = did_you_mean(unknown[0], OPS) or f"; choose from {', '.join(OPS)}"
        raise ValueError(f"unknown op {unknown[0]!r}{hint}")
    where = find_device(device)
    peaks = measure_peaks(where, progress)
    side = _suitable_size(where, peaks, dtype, repeat) if size is None else size
    with progress_bar("running the ops", (repeat + 1) * len(chosen), progress) as advance:
        program = _Program(side, dtype, str(where))

        def once() -> None:
            for name in chosen:
                OPS[name](program)
                advance()

        once()
        _core.synchronize(str(where))
        others = busy_meter(where)
        with profile() as prof:
            for _ in range(repeat):
                once()
        busy = why_busy(others())
    table = prof.key_averages()
    # Only the program's own rows: their times include the CUDA work that they launched.
    own = table.select(i for i, row in enumerate(table) if row.key.startswith("flopscope::"))
    return Bench(where, peaks, dtype, side, repeat, own, busy)


def _suitable_size(device: Device, peaks: Peaks, dtype: str, repeat: int) -> int:
    """Return the largest side that fits into memory and, by the peaks, takes a few seconds in all."""
    seconds = 5.0 if device.kind == "cuda" else 8.0
    row = _core.dtypes.get(dtype, _core.dtypes["float16"])  # what is no dtype is refused when the tensors are made
    item, rate = row.bytes, peaks.flops.get(row.unit or "fp32", 1e9)
    bandwidth = peaks.bandwidth or 1e9
    memory = free_bytes(device)
    fitting = [SIZES[0]]
    for side in SIZES:
        once = 2 * side**3 / rate + 24 * item * side**2 / bandwidth
        if once * (repeat + 1) <= seconds and 8 * item * side**2 <= memory:
            fitting.append(side)
    return max(fitting)


def _rate(rate: float | None, unit: str) -> str:
    return "unknown" if rate is None else si_text(rate, unit, prefixes="TGM")


# The command ----------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_operands(parser, "matrix")
    parser.add_argument("--size", type=positive, help="side of the square matrix (default: chosen for the device)")
    parser.add_argument("--ops", type=names, help="ops to run, separated by commas (default: all)")
    parser.add_argument("--repeat", type=positive, default=10, help="number of runs of each op (default: %(default)s)")
    add_files(parser, csv="the rows of the table", json="the device, its peaks and the rows of the table")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    result = run(options.device, options.dtype, options.size, options.ops, options.repeat, progress=True)
    print_coloured(result.text())
    if options.csv:
        result.table.to_csv(options.csv)
    if options.json:
        write_json(options.json, result.to_dict())
