"""The roof of kernels without a rule, from counters, beside Nsight Compute. Needs a GPU whose counters may be read.

Programs of CuPy, cuFFT, cuSPARSE, CUB, Triton, Numba and CUDA C run in a profile with counters, each call for some
milliseconds, and twice under ncu: once for what it counts in one pass, once for the rest. Kernels of 15 us and more
are compared, in percent of the peak:

DRAM      bytes read and written per second, over the peak that ncu derives from the memory's clock
others    share of the kernel's cycles in which the unit, of the L2 its busiest part, worked, or something was issued
bound     of flopscope, and the largest of ncu's shares. They agree if ncu's share of what flopscope names is within 5
          points of the largest; where all are below 50 %, nothing bounds
roofline  of flopscope, over the bandwidth that it measures, which is below that of ncu; and ncu's largest share

ncu leaves clocks and caches as they are, and counts a call just after another that it does not count. It counts kernels
one by one, so what one has written and the L2 still holds is missing. Its times include about 1 us of the launch.

    python benchmarks/counted_roof.py --device cuda --out FOLDER
    python benchmarks/counted_roof.py --page FOLDER/counted_roof.json    prints a section of the documentation
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import nsight
from counted_roof_programs import LIBRARY, PROGRAMS, Program
from harness import Report, arguments, build_cuda_library, run_for, target_text

import flopscope as fs

HERE = Path(__file__).resolve().parent
UNDER_NCU, PROFILED, PAGE = "--under-ncu", "--profiled", "--page"
SECONDS, PART = 150, 50
"""For everything, and for one process."""
SHORTEST_US, WITHIN, HALF = 15, 5.0, 50.0
CALLS, WORK_S = 2, 0.006
"""Of each case under ncu, and the time for which a case is profiled: all of a program within the window of 0.1 s in
which every 2.5 us are a sample."""
DURATION, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
BYTES_SHARE, L2_SECTORS = "dram__bytes.sum.pct_of_peak_sustained_elapsed", "lts__t_sectors_srcunit_tex.sum"
SHARE = ".avg.pct_of_peak_sustained_elapsed"


class Unit(NamedTuple):
    """What may be busy: ncu's share of its peak, our column of it, and our bounds if it is the busiest."""

    metric: str
    column: str
    bounds: tuple[str, ...]


UNITS = {
    "DRAM": Unit(f"dram__throughput{SHARE}", "", ("memory",)),
    "L2": Unit(f"lts__throughput{SHARE}", "l2_active", ("l2", "cache")),
    "L1": Unit(f"l1tex__data_pipe_lsu_wavefronts{SHARE}", "l1_active", ("l1",)),
    "tensor": Unit(f"sm__pipe_tensor_cycles_active{SHARE}", "tensor_active", ("tensor", "compute")),
    "FMA": Unit(f"sm__inst_executed_pipe_fma{SHARE}", "fma_active", ("fma", "compute")),
    "fp64": Unit(f"sm__pipe_fp64_cycles_active{SHARE}", "fp64_active", ("fp64", "compute")),
    "ALU": Unit(f"sm__inst_executed_pipe_alu{SHARE}", "alu_active", ("alu", "compute")),
    "issue": Unit(f"sm__inst_executed{SHARE}", "issue_active", ("issue", "compute")),
}
SEVERAL_PASSES = ("L2", "fp64")
RUNS = {
    "one": (DURATION, READ, WRITTEN, BYTES_SHARE, L2_SECTORS, *(unit.metric for name, unit in UNITS.items()
                                                                if name not in SEVERAL_PASSES)),
    "several": (DURATION, *(UNITS[name].metric for name in SEVERAL_PASSES)),
}  # fmt: skip
"""Metrics of each run under ncu: in one pass kernels are not replayed, so their memory is not restored."""
KEPT = ("count", "device_busy_time", "pct_roofline", "pct_peak_flops", "pct_peak_bandwidth", "gbytes_per_s",
        "dram_bytes_read", "dram_bytes_written", "l2_bytes", "pct_peak_l2", "l2_fabric_active", "sm_active",
        *(unit.column for unit in UNITS.values() if unit.column))  # fmt: skip
COLUMNS = ("program", "kernel", "us", "bound", "ncu's", "% roof|ncu", *(f"{name}|ncu" for name in UNITS))


def main() -> int:
    if len(sys.argv) == 4 and sys.argv[1] == UNDER_NCU:
        return under_ncu(sys.argv[2], CALLS if sys.argv[3] == "one" else 1)
    if len(sys.argv) == 4 and sys.argv[1] == PROFILED:
        return profiled(sys.argv[2], Path(sys.argv[3]))
    if len(sys.argv) == 3 and sys.argv[1] == PAGE:
        print("\n".join(page(json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))))
        return 0
    options = arguments(__doc__ or "", ("cuda",))
    report = Report("counted_roof", COLUMNS, options.out, "cuda")
    end = time.monotonic() + SECONDS
    processes = list(dict.fromkeys(row.process for row in PROGRAMS.values()))
    with tempfile.TemporaryDirectory(prefix="flopscope-roof-") as folder, ThreadPoolExecutor(1) as pool:
        built = pool.submit(build_cuda_library, HERE / "counted_roof.cu", Path(folder))
        profiles, counted = {}, {}
        for process in processes:
            if process == PROGRAMS["CUDA C"].process:
                announce(built, report)
            profiles[process] = run_profiled(process, Path(folder), end, report)
            counted[process, "one"] = run_ncu(process, "one", end, report)
        for process in processes:
            counted[process, "several"] = run_ncu(process, "several", end, report)
    conclude(compare(profiles, counted, report), report)
    report.finish()
    return 0


def announce(built: Future[Path], report: Report) -> None:
    """Tell the processes that begin from now on where the library is."""
    try:
        os.environ[LIBRARY] = str(built.result())
    except RuntimeError as problem:
        report.note(f"CUDA C: {problem}")


# In processes of their own ------------------------------------------------------------------------------------------


def programs_of(process: str) -> Iterator[tuple[str, Program | str]]:
    """Return the programs of a process, or why they are missing."""
    for name, row in PROGRAMS.items():
        if row.process == process:
            try:
                yield name, row.make()
            except Exception as problem:  # a library that is missing or fails is a row of the report
                yield name, f"{type(problem).__name__}: {problem}"


def under_ncu(process: str, calls: int) -> int:
    """Run each call in a range of its name, between cuProfilerStart and cuProfilerStop, just after the same call."""
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1")
    begin, end = nvtx()
    for name, program in programs_of(process):
        if isinstance(program, str):
            continue
        for case, call in program.calls.items():
            call()
            for _ in range(calls):
                call()
                driver.cuProfilerStart()
                begin(f"{name}: {case}")
                call()
                program.wait()
                end()
                driver.cuProfilerStop()
    return 0


def nvtx() -> tuple[Callable[[str], object], Callable[[], object]]:
    """Return the functions that begin and end a range, of the library that is installed."""
    try:
        from cupy.cuda import nvtx

        return nvtx.RangePush, nvtx.RangePop
    except ImportError:
        from torch.cuda import nvtx

        return nvtx.range_push, nvtx.range_pop


def profiled(process: str, path: Path) -> int:
    """Profile each program; write the rows of its kernels, or why they are missing."""
    results: dict[str, Any] = {}
    for name, program in programs_of(process):
        try:
            results[name] = {"error": program} if isinstance(program, str) else profile(program)
        except Exception as problem:
            results[name] = {"error": f"{type(problem).__name__}: {problem}"}
        path.write_text(json.dumps(results), encoding="utf-8")
    return 0


def profile(program: Program) -> dict[str, Any]:
    """Return the rows of the kernels of each call, which is a step of one profile."""
    calls = {case: (call, times(call, program)) for case, call in program.calls.items()}
    names = list(calls)
    plan = fs.schedule(wait=0, warmup=1, active=len(calls), repeat=1)
    with fs.profile(counters="require", schedule=plan) as prof:
        for case in [names[0], *names]:
            call, number = calls[case]
            for _ in range(number):
                call()
            program.wait()
            prof.step()
    rows = []
    for row in prof.key_averages(group_by=("name", "step")):
        if row.device_type != "cuda" or row.is_user_annotation or row.key.startswith(("Memcpy", "Memset")):
            continue
        case = names[int(row.step.partition("#")[2]) - 1]
        facts = {column: getattr(row, column) for column in KEPT if hasattr(row, column)}
        sources = {"bound": row.bound, "bytes_source": row.bytes_source, "flops_source": row.flops_source}
        rows.append({"case": case, "calls": calls[case][1], "kernel": row.key, **sources, **facts})
    return {"rows": rows, "coverage": prof.coverage(), "summary": str(prof.summary())}


def times(call: Callable[[], object], program: Program) -> int:
    """Return how many calls take WORK_S."""
    call()
    program.wait()
    begin = time.perf_counter()
    for _ in range(3):
        call()
    program.wait()
    return max(3, min(200, math.ceil(3 * WORK_S / (time.perf_counter() - begin))))


# The processes --------------------------------------------------------------------------------------------------------


def run_profiled(process: str, folder: Path, end: float, report: Report) -> dict[str, Any]:
    begin, path = time.monotonic(), folder / f"{process}.json"
    command = [sys.executable, str(HERE / "counted_roof.py"), PROFILED, process, str(path)]
    problem = run_for(command, max(1, min(PART, end - begin)))
    if problem:
        report.note(f"{process}, profiled: {problem}")
    print(f"({process}: profiled in {time.monotonic() - begin:.0f} s)", flush=True)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def run_ncu(process: str, passes: str, end: float, report: Report) -> list[nsight.Kernel]:
    begin, kernels = time.monotonic(), []
    try:
        program = [str(HERE / "counted_roof.py"), UNDER_NCU, process, passes]
        kernels = nsight.kernels(program, RUNS[passes], "none", max(1, min(PART, end - begin)))
    except RuntimeError as problem:
        report.note(f"{process}, in {passes} pass{'es' if passes != 'one' else ''}: {problem}")
    print(f"({process}: {len(kernels)} kernels under ncu in {time.monotonic() - begin:.0f} s)", flush=True)
    for kernel in kernels:
        report.keep(f"ncu, {kernel.range}: {kernel.name}", {m: [value] for m, value in kernel.values.items()}, "")
    return kernels


# Comparison -----------------------------------------------------------------------------------------------------------


class Pair:
    """A kernel of a case as flopscope counted it, and as ncu did. Shares are in percent, NaN if unknown."""

    def __init__(self, program: str, ours: Mapping[str, Any], theirs: Mapping[str, float], dram_peak: float) -> None:
        self.name = f"{ours['case']}: {base_name(ours['kernel'])}"
        self.program, self.bound = program, str(ours["bound"])
        self.us, self.roofline = ours["device_busy_time"] / ours["count"], float(ours["pct_roofline"])
        self.ours = {name: float(ours.get(unit.column, math.nan)) for name, unit in UNITS.items()}
        self.ours["L2"] = largest(float(ours.get(part, math.nan)) for part in ("l2_active", "l2_fabric_active"))
        self.ours["DRAM"] = 1e11 * float(ours["gbytes_per_s"]) / dram_peak
        self.theirs = {name: theirs.get(unit.metric, math.nan) for name, unit in UNITS.items()}

    def off(self, unit: str) -> float:
        return abs(self.ours[unit] - self.theirs[unit])

    @property
    def speed_of_light(self) -> float:
        """ncu's largest share; NaN if it has not counted the kernel."""
        return largest(self.theirs.values())

    @property
    def their_bound(self) -> str:
        if math.isnan(self.speed_of_light):
            return "–"
        return next((u for u, share in self.theirs.items() if share == self.speed_of_light and share >= HALF), "none")

    def agrees(self) -> bool:
        """Whether the bounds agree. "unknown" never does; other words that name no unit say that nothing was busy."""
        if self.bound == "unknown":
            return False
        named = [share for name, share in self.theirs.items() if self.bound in UNITS[name].bounds]
        if not named:
            return self.speed_of_light < HALF + WITHIN
        return largest(named) >= max(self.speed_of_light, HALF) - WITHIN

    def cells(self) -> list[str]:
        both = [f"{text(self.ours[unit])}|{text(self.theirs[unit])}" for unit in UNITS]
        roof = f"{text(self.roofline)}|{text(self.speed_of_light)}"
        return [self.program, self.name[:60], f"{self.us:.1f}", self.bound, self.their_bound, roof, *both]


def largest(shares: Iterable[float]) -> float:
    return max((share for share in shares if not math.isnan(share)), default=math.nan)


def text(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0f}"


def compare(
    profiles: Mapping[str, Mapping[str, Any]],
    counted: Mapping[tuple[str, str], Sequence[nsight.Kernel]],
    report: Report,
) -> list[Pair]:
    """Return the kernels of all programs; add a row for each program that failed."""
    pairs: list[Pair] = []
    peak = dram_peak([kernel for (_, passes), kernels in counted.items() if passes == "one" for kernel in kernels])
    report.keep("DRAM's peak by ncu", {"ncu": [peak]}, "bytes/s")
    for name, row in PROGRAMS.items():
        result = profiles[row.process].get(name, {"error": "it was not profiled"})
        if "error" in result:
            report.row(name, result["error"][:120], *["–"] * (len(COLUMNS) - 2))
            continue
        theirs = by_case(name, counted[row.process, "one"])
        for key, values in by_case(name, counted[row.process, "several"]).items():
            theirs[key] = values | theirs.get(key, {})
        pairs += matched(name, result, theirs, peak, report)
    return pairs


def dram_peak(kernels: Sequence[nsight.Kernel]) -> float:
    """Return the bytes/s of which ncu takes its shares, from the kernels that come nearest to it."""
    values = sorted((kernel.values for kernel in kernels), key=lambda values: values[BYTES_SHARE])[-5:]
    found = [1e11 * (v[READ] + v[WRITTEN]) / v[DURATION] / v[BYTES_SHARE] for v in values if v[BYTES_SHARE] > 0]
    return statistics.median(found) if found else math.nan


def by_case(program: str, kernels: Sequence[nsight.Kernel]) -> dict[tuple[str, str], dict[str, float]]:
    """Return ncu's metrics of the kernels of a program by case and name: means, weighted by time."""
    launches: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    around = ""
    for kernel in kernels:
        around = kernel.range if any(kernel.range.startswith(f"{name}: ") for name in PROGRAMS) else around
        if around.startswith(f"{program}: "):  # inside of ranges of the library itself, the last of ours holds
            case = around.removeprefix(f"{program}: ")
            launches.setdefault((case, base_name(kernel.name)), []).append(kernel.values)
    found = {}
    for key, values in launches.items():
        whole = sum(one[DURATION] for one in values)
        found[key] = {m: sum(one[m] * one[DURATION] for one in values) / whole for m in values[0]}
    return found


def base_name(name: str) -> str:
    """Return the name of a kernel without its type, namespaces, tags, template arguments and parameters."""
    name, count = re.sub(r"\[[^\]]*\]|\(anonymous namespace\)::", "", name), 1
    while count:
        name, count = re.subn(r"<[^<>]*>", "", name)
    return name.partition("(")[0].rpartition("::")[2].rpartition(" ")[2]


def matched(
    program: str,
    result: Mapping[str, Any],
    theirs: Mapping[tuple[str, str], Mapping[str, float]],
    dram_peak: float,
    report: Report,
) -> list[Pair]:
    """Return pairs of the kernels of a program; note what has no partner."""
    pairs, missing = [], []
    for ours in result["rows"]:
        numbers = {column: [ours[column]] for column in KEPT if column in ours}
        report.keep(f"{program}, {ours['case']}: {ours['kernel']}", numbers, "", bound=ours["bound"])
        if ours["device_busy_time"] / ours["count"] < SHORTEST_US:
            continue
        key = (ours["case"], base_name(ours["kernel"]))
        if key not in theirs:
            missing.append(": ".join(key))
        pairs.append(Pair(program, ours, theirs.get(key, {}), dram_peak))
    if missing:
        report.note(f"{program}: ncu has no {', '.join(missing)}")
    known = result["coverage"]["bytes"]
    report.keep(f"{program}, coverage", {"bytes": [known]}, "")
    report.target(f"{program}: bytes known, by time", known, 0.95, "", least=True)
    return pairs


def conclude(pairs: Sequence[Pair], report: Report) -> None:
    for pair in pairs:
        report.row(*pair.cells())
    both = [pair for pair in pairs if not math.isnan(pair.speed_of_light)]
    for unit in ("DRAM", "tensor", "FMA", "L2", "L1"):
        off = {f"{pair.program}, {pair.name}": pair.off(unit) for pair in both}
        known = {name: value for name, value in off.items() if not math.isnan(value)}
        if len(known) < len(off):
            report.note(f"{unit}: unknown for {len(off) - len(known)} of {len(off)} kernels")
        within = sum(value <= WITHIN for value in known.values())
        report.note(f"{unit}: {within} of {len(known)} kernels within {WITHIN:g} points")
        worst = max(known, key=known.__getitem__, default="")
        report.target(f"{unit} off by", known.get(worst, math.nan), WITHIN, "points", worst=worst)
    agree = sum(pair.agrees() for pair in both) / len(both) if both else math.nan
    report.target(f"bounds of {len(both)} kernels that are ncu's", 100 * agree, 90, "%", least=True)


def page(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a section of the documentation: what was compared, the targets, and a table of all kernels."""
    rows = [row for row in result["summary"]["rows"] if row[2] != "–"]
    shown = ("program", "kernel", "us", "bound", "ncu's", "DRAM|ncu", "tensor|ncu", "FMA|ncu")
    places = [COLUMNS.index(name) for name in shown]
    yield "## Beside Nsight Compute"
    yield ""
    yield (
        f"The table compares {len(rows)} kernels on one {result['machine']['device']}, in % of the peak: first by "
        "counters in a profile, then by ncu, which runs each kernel alone. DRAM's share is of the peak that ncu uses. "
        "Writes that the L2 still holds when a kernel ends are missing from ncu's."
    )
    yield ""
    for target in result["summary"]["targets"]:
        if "bytes known" not in target["text"]:
            yield f"- {target_text(target)}"
    yield ""
    yield "| program | kernel | µs | bound | by ncu | DRAM % | tensor % | FMA % |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(row[place].replace('|', ' / ') for place in places)} |"


if __name__ == "__main__":
    sys.exit(main())
