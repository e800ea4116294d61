"""Shared code of the benchmarks: interleaved sampling, statistics, a text table, and JSON with every raw sample.

A benchmark is a module whose ``main()`` creates a ``Report``, checks results, samples its cases and prints the report.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.metadata
import json
import math
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import flopscope as fs

# Otherwise torch's workers keep spinning after a call, on the processors that the next library's sample needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
C_FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-Wall",
    "-Wextra",
    "-ffunction-sections",
    "-Wl,--gc-sections",
]  # unused functions may have unresolved symbols

Sampler = Callable[[], float]


def arguments(
    doc: str,
    devices: Sequence[str] = ("cpu",),
    extend: Callable[[argparse.ArgumentParser], None] | None = None,
    rounds: int | None = None,
) -> argparse.Namespace:
    """Parse the command line: ``--out``, and ``--device`` with a choice of the supported devices.

    ``extend`` adds the program's own options; ``rounds`` is the default of ``--rounds``, where that exists.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", "--json", type=Path, help="folder for NAME.json with every raw sample; default: no file"
    )
    parser.add_argument("--device", choices=devices, default=devices[0], help="device to measure")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"samples of each case, {rounds} by default")
    if extend is not None:
        extend(parser)
    options = parser.parse_args()
    if options.device not in {device.kind for device in fs.devices()}:
        parser.error(f"no {options.device} device found; see `flopscope devices`")
    return options


def optional(name: str) -> ModuleType | None:
    """Import and return a module, or return None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Sampling -----------------------------------------------------------------------------------------------------------


def interleave(
    cases: Mapping[str, Sampler], rounds: int, warmup: int = 2, seconds: float = math.inf, minimum: int = 5
) -> dict[str, list[float]]:
    """Return the samples of each case, taken one per case and round, in an order that rotates from round to round.

    Stop after ``rounds``, or after ``seconds`` once ``minimum`` rounds are complete. Warm-up rounds are discarded.
    """
    names = list(cases)
    samples: dict[str, list[float]] = {name: [] for name in names}
    with collector_off():
        end = math.inf
        for turn in range(-warmup, rounds):
            if turn == 0:
                end = time.perf_counter() + seconds
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                value = cases[name]()
                if turn >= 0:
                    samples[name].append(value)
            if turn + 1 >= minimum and time.perf_counter() > end:
                break
    return samples


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Disable Python's cyclic garbage collector within a ``with`` block."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def stopwatch(call: Callable[[], object]) -> Sampler:
    """Return a sampler that times one call, in seconds, after an untimed one.

    The untimed call leaves the caches as in a loop of such calls. A function that leaves dirty cache lines then pays
    for writing them back itself, instead of the peer that is timed next.
    """

    def sample() -> float:
        call()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return sample


def timed(call: Callable[[], object]) -> Sampler:
    """Return a sampler that times one call, in seconds, and collects its garbage afterwards."""

    def sample() -> float:
        start = time.perf_counter()
        result = call()
        elapsed = time.perf_counter() - start
        del result
        gc.collect()
        return elapsed

    return sample


def per_call(
    op: Callable[..., object],
    a: object,
    b: object,
    number: int,
    out: object = None,
    after: Callable[[], object] | None = None,
) -> Sampler:
    """Return a sampler of the seconds per call of ``op(a, b)``, or with ``out=``, in a bare loop of ``number`` calls.

    ``after`` is called after the loop and is not timed.
    """

    def sample() -> float:
        start = time.perf_counter()
        if out is None:
            for _ in repeat(None, number):
                op(a, b)
        else:
            for _ in repeat(None, number):
                op(a, b, out=out)
        elapsed = time.perf_counter() - start
        if after is not None:
            after()
        return elapsed / number

    return sample


class CudaTimer:
    """A timer of single launches: seconds on the device, by CUDA events on the default stream.

    The L2 cache is emptied by reading, since dirty lines left by a fill would be written back inside the timed window.
    A sleeping kernel gives the host time to queue the events and the launch before the device reaches them.
    """

    FLUSH_BYTES = 256 << 20
    HOLD_CYCLES = 200_000

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._flush = torch.ones(self.FLUSH_BYTES // 4, device="cuda")
        self._sum = torch.empty((), device="cuda")
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def sampler(self, call: Callable[[], object]) -> Sampler:
        start, end = self._events

        def sample() -> float:
            self._torch.sum(self._flush, dim=0, out=self._sum)
            self._torch.cuda._sleep(self.HOLD_CYCLES)
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3

        return sample


# Statistics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The median and quartiles of samples."""

    low: float
    median: float
    high: float

    @property
    def percent(self) -> float:
        """Half the interquartile range, in % of the median."""
        return 50 * (self.high - self.low) / self.median

    def cells(self, digits: int, scale: float = 1.0) -> list[str]:
        """Return the median, the lower and the upper quartile as cells of a table."""
        return [f"{scale * value:.{digits}f}" for value in (self.median, self.low, self.high)]


def spread(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of ours / theirs per round; disturbances of a whole round cancel."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


# Report -------------------------------------------------------------------------------------------------------------


class Report:
    """A table built row by row, with the raw samples, notes and targets."""

    def __init__(self, name: str, columns: Sequence[str], out: Path | None, device: str = "cpu") -> None:
        self.name, self.columns, self.out, self.device = name, list(columns), out, device
        self.rows: list[list[str]] = []
        self.samples: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.targets: list[dict[str, Any]] = []

    def keep(
        self,
        case: str,
        values: Mapping[str, Sequence[float]],
        unit: str = "s",
        ours: str | tuple[str, ...] = (),
        **facts: object,
    ) -> None:
        """Store the raw samples of cases that were sampled together.

        ``ours``: how the names of those begin whose ratios over each of the others are compared with those of the
        version before, by run_all.py.
        """
        for who, raw in values.items():
            mark = {"ours": True} if who.startswith(ours) else {}
            self.samples.append({"case": case, "who": who, "unit": unit, **mark, **facts, "values": list(raw)})

    def row(self, *cells: str) -> None:
        self.rows.append(list(cells))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def target(self, text: str, value: float, limit: float, unit: str, *, least: bool = False, worst: str = "") -> None:
        """Record a target: ``value`` must be at most ``limit``, or at least. ``worst`` names the case of the value."""
        met = bool(value >= limit if least else value <= limit)  # a value may be one of NumPy
        target = {"text": text, "value": float(value), "limit": limit, "unit": unit, "met": met}
        self.targets.append(target | ({"least": True} if least else {}) | ({"worst": worst} if worst else {}))

    def text(self) -> str:
        lines = [f"{self.name} ({self.device})", *table_text(self.columns, self.rows)]
        lines += self.notes
        lines += [f"target: {target_text(target)}" for target in self.targets]
        return "\n".join(lines)

    def done(self) -> None:
        """Print the last row, and write what there is so far: a run that is cut off leaves its results."""
        print("  ".join(self.rows[-1]), flush=True)
        self.save()

    def finish(self) -> None:
        """Print the table, and write it."""
        print(self.text() + "\n", flush=True)
        self.save()

    def save(self) -> None:
        """If an output folder was given, write the table there with all samples."""
        if self.out is None:
            return
        content = {
            "name": self.name,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": f"python benchmarks/{self.name}.py --device {self.device}",
            "machine": machine(self.device),
            "columns": self.columns,
            "rows": self.rows,
            "notes": self.notes,
            "targets": self.targets,
        }
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / f"{self.name}.json", {**content, "samples": self.samples})


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return the lines of a table: a header, a rule and the rows, the first ``left`` columns to the left."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    aligned = ["<"] * left + [">"] * (len(columns) - left)
    lines = [columns, ["-" * width for width in widths], *rows]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(cells, aligned, widths, strict=True)).rstrip()
        for cells in lines
    ]


def target_text(target: Mapping[str, Any]) -> str:
    """Return a target with its value and verdict."""
    worst = f" ({target['worst']})" if "worst" in target else ""
    return f"{target['text']} {limit_text(target)}: {amount(target['value'], target['unit'])}{worst}, {verdict(target)}"


def limit_text(target: Mapping[str, Any]) -> str:
    return f"{'>=' if target.get('least') else '<='} {amount(target['limit'], target['unit'])}"


def amount(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".rstrip()


def verdict(target: Mapping[str, Any]) -> str:
    return "met" if target["met"] else "MISSED"


DIGITS = 6
"""Significant digits of numbers in the results; whole numbers are kept as they are."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result: a line for each member."""
    members = [f"{json.dumps(name)}: {_compact(value)}" for name, value in content.items()]
    path.write_text("{\n " + ",\n ".join(members) + "\n}\n", encoding="utf-8")


def _compact(value: object) -> str:
    return json.dumps(_rounded(value), ensure_ascii=False, separators=(",", ":"))


def _rounded(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else float(f"{value:.{DIGITS}g}")
    return value


def machine(device: str) -> dict[str, Any]:
    """Return a description of the machine and the versions. Without CUDA, flopscope describes no GPU."""
    by_kind: dict[str, fs.Device] = {candidate.kind: candidate for candidate in reversed(fs.devices())}
    chosen = by_kind.get(device)
    properties = dict(chosen.properties) if chosen else {}
    properties.pop("uuid", None)
    torch = sys.modules.get("torch")
    return {
        "device": chosen.name if chosen else None,
        "device_properties": properties,
        "cpu": by_kind["cpu"].name,
        "cpus": len(os.sched_getaffinity(0)),
        "threads": fs.num_threads(),
        "load_average": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "flopscope": fs.__version__,
        "numpy": version("numpy"),
        "torch": version("torch"),
        "torch_cuda": torch.version.cuda if torch is not None else None,
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# Programs in C ------------------------------------------------------------------------------------------------------


def run_c(program: Path, sources: Sequence[str]) -> list[dict[str, str]]:
    """Compile a C program with sources of the core, run it, and return its output.

    ``sources`` are patterns relative to the project's root. Each line of output consists of ``key=value`` pairs.
    """
    files = sorted(path for pattern in sources for path in ROOT.glob(pattern))
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        binary = Path(folder) / program.stem
        _compile(C_FLAGS, program, files, binary)
        printed = run([str(binary)])
    return [dict(pair.split("=", 1) for pair in line.split()) for line in printed.splitlines()]


def build_cuda_library(source: Path, folder: Path) -> Path:
    """Compile a .cu file to a shared object for this machine's GPU. Raise RuntimeError without nvcc."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise RuntimeError("nvcc was not found on PATH")
    library = folder / f"{source.stem}.so"
    run([nvcc, "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", str(source), "-o", str(library)])
    return library


def build_c_library(source: Path, folder: Path) -> Path:
    """Compile a C file, which may include the core's headers, to a shared object."""
    library = folder / f"{source.stem}.so"
    _compile(["-std=gnu11", "-O2", "-shared", "-fPIC"], source, [], library)
    return library


def _compile(flags: Sequence[str], source: Path, others: Sequence[Path], target: Path) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    includes = [f"-I{ROOT}", f"-I{ROOT / 'csrc'}"]
    sources = [str(path) for path in (source, *others)]
    run([*compiler, *flags, *includes, *sources, "-o", str(target), "-lm", "-lpthread", "-ldl"])


# Processes ------------------------------------------------------------------------------------------------------------


def run(command: Sequence[str]) -> str:
    """Run a program and return its output. Raise RuntimeError with its errors if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} exited with {done.returncode}:\n{done.stderr}")
    return done.stdout


COST = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib, pathlib, time
status = lambda key: int(pathlib.Path("/proc/self/status").read_text().split(key + ":")[1].split()[0])
call = importlib.import_module(sys.argv[2]).readers(pathlib.Path(sys.argv[3]))[sys.argv[4]]
pathlib.Path("/proc/self/clear_refs").write_text("5")  # reset the peak
before, start = status("VmRSS"), time.process_time()
result = call()
print((status("VmHWM") - before) * 1024, time.process_time() - start)
"""


def cost_of(module: str, path: Path, name: str) -> tuple[float, float]:
    """Return the increase of peak memory in bytes and the processors' seconds of a reader, from a separate process.

    ``module``: a benchmark whose ``readers(path)`` has the reader under its name.
    """
    memory, seconds = run([sys.executable, "-c", COST, str(HERE), module, str(path), name]).split()
    return float(memory), float(seconds)


def run_for(command: Sequence[str], seconds: float) -> str:
    """Run a program and all that it starts for at most that time. Return what went wrong, or ""."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children as well
            process.wait()
        if code == 0:
            return ""
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    why = f"it took more than {seconds:g} s" if code is None else f"exit status {code}"
    return f"{why}: {lines[-1]}" if lines else why
