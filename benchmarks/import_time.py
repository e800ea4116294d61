"""First calls in fresh processes, interleaved: imports, the first and the second key_averages(), and commands.

The trace is a small one of torch's; the whole process is timed, with Python's own start, which has a row.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import ROOT, Report, Sampler, arguments, interleave, ratio, run, spread

ROUNDS = 15
TRACE = str(ROOT / "tests" / "data" / "traces" / "tracking_flops.json.gz")
TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
RECORD = "x = fs.rand((256, 256))\nwith fs.profile(record_shapes=True) as prof:\n for _ in range(50): fs.matmul(x, x)"
LOAD = f"prof = fs.load_trace({TRACE!r})"
AVERAGES = """
import time
import flopscope as fs
{}
times = [time.perf_counter()]
for _ in range(2):
    prof.key_averages()
    times.append(time.perf_counter())
print(times[1] - times[0], times[2] - times[1])
"""

# Seconds of the whole process.
COMMANDS = {
    "--version": (["--version"], None),
    "--help": (["--help"], None),
    "table": (["table", TRACE], 0.25),
    "summary": (["summary", TRACE], 0.25),
    "report": (["report", TRACE, "-o"], 0.3),
}
IMPORT_SECONDS, FIRST_SECONDS = 0.06, 0.03


def main() -> None:
    options = arguments(__doc__ or "")
    package = importlib.util.find_spec("flopscope")
    if package is None or package.origin is None:
        raise RuntimeError("flopscope is not installed")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(package.origin).parent.parent), os.environ.get("PYTHONPATH")])
    )
    names = [name for name in ("flopscope", "numpy", "torch") if importlib.util.find_spec(name)]
    columns = ["in a fresh process", "ms", "low", "high", "process, ms", "x import numpy"]
    report = Report("import_time", columns, options.out)
    if "torch" not in names:
        report.note("torch is not installed: no row for it.")
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        page = str(Path(folder) / "page.html")
        processes: dict[str, list[float]] = {name: [] for name in names}
        cases = {f"import {name}": import_sampler(name, processes[name]) for name in names}
        cases["python"] = process_sampler([sys.executable, "-c", "pass"])
        for name, (command, _) in COMMANDS.items():
            more = [page] if name == "report" else []
            cases[f"flopscope {name}"] = process_sampler([sys.executable, "-m", "flopscope", *command, *more])
        samples = interleave(cases, ROUNDS, warmup=1)
    pairs: dict[str, list[tuple[float, float]]] = {"profile": [], "trace": []}
    interleave({name: pair_sampler(code, pairs[name]) for name, code in (("profile", RECORD), ("trace", LOAD))}, ROUNDS)
    for name, values in pairs.items():
        taken = values[-ROUNDS:]
        samples[f"first key_averages() of a {name}"] = [first for first, _ in taken]
        samples[f"second key_averages() of a {name}"] = [second for _, second in taken]
    report.keep("import", {name: samples[f"import {name}"] for name in names}, ours="flopscope")
    report.keep("process", {name: values[1:] for name, values in processes.items()}, ours="flopscope")
    peers = ("python", "import numpy")
    commands = {name: values for name, values in samples.items() if name.startswith("flopscope ") or name in peers}
    report.keep("command", commands, ours="flopscope ")
    report.keep("key_averages()", {name: values for name, values in samples.items() if "key_averages" in name})
    for name, values in samples.items():
        process = processes.get(name.removeprefix("import "))
        report.row(
            name,
            *spread(values).cells(1, 1e3),
            f"{1e3 * spread(process[1:]).median:.1f}" if process else "",
            f"{ratio(values, samples['import numpy']).median:.2f}",
        )
    report.target("import flopscope", spread(samples["import flopscope"]).median, IMPORT_SECONDS, "s")
    for name in pairs:
        first, second = (samples[f"{which} key_averages() of a {name}"] for which in ("first", "second"))
        more_time = spread([a - b for a, b in zip(first, second, strict=True)]).median
        report.target(f"first key_averages() of a {name} over the second", more_time, FIRST_SECONDS, "s")
    for name, (_, limit) in COMMANDS.items():
        if limit is not None:
            report.target(f"flopscope {name}", spread(samples[f"flopscope {name}"]).median, limit, "s")
    report.finish()


def import_sampler(name: str, processes: list[float]) -> Sampler:
    """Return a sampler of the seconds of an import in a fresh process; append the process's own to ``processes``."""

    def sample() -> float:
        start = time.perf_counter()
        printed = run([sys.executable, "-c", TIMED.format(name)])
        processes.append(time.perf_counter() - start)
        return float(printed)

    return sample


def process_sampler(command: Sequence[str]) -> Sampler:
    """Return a sampler of the seconds that a command takes."""

    def sample() -> float:
        start = time.perf_counter()
        run(command)
        return time.perf_counter() - start

    return sample


def pair_sampler(record: str, pairs: list[tuple[float, float]]) -> Sampler:
    """Return a sampler of the first key_averages() in a fresh process; append the first two to ``pairs``."""

    def sample() -> float:
        first, second = map(float, run([sys.executable, "-c", AVERAGES.format(record)]).split())
        pairs.append((first, second))
        return first

    return sample


if __name__ == "__main__":
    main()
