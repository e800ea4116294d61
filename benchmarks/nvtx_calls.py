"""Cost of a push and a pop of NVTX: without a tool, and with flopscope as tool, idle and recording.

A library asks NVTX for its tool once, so each way runs in a process of its own, in turns. Needs NVTX's headers, of the
CUDA toolkit or of NVIDIA's wheels.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from harness import HERE, Report, arguments, run, spread

CASES = {
    "clock_reads": "two reads of the clock",
    "text": "a text",
    "registered": "a registered string of a domain, with category and colour",
    "payload": "the same, with a payload that differs each time",
}
WAYS = {"without": "without a tool", "idle": "flopscope, nothing recorded", "recording": "flopscope, recorded"}
COUNT, SAMPLES, ROUNDS = 20_000, 5, 7
RECORDED, IDLE = 100, 10  # ns over NVTX's own


def headers() -> Path:
    """Return the folder with NVTX's headers. Raise RuntimeError without any."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    homes += [*sorted(Path("/usr/local").glob("cuda*"), reverse=True)]
    homes += [*Path(sysconfig.get_path("purelib")).glob("nvidia/*")]
    for home in homes:
        if (home / "include" / "nvtx3" / "nvToolsExt.h").exists():
            return home / "include"
    raise RuntimeError("NVTX's headers were not found: they are part of the CUDA toolkit and of the wheel nvidia-nvtx")


def sample(way: str, path: str) -> None:
    """Print the samples of this process as JSON."""
    from flopscope import _core

    if way != "without":
        assert _core.inject_nvtx(), "another tool is named"
    library, found = ctypes.CDLL(path), {}
    for case in CASES:
        call = getattr(library, case)
        call.restype, values = ctypes.c_double, []
        for number in range(SAMPLES + 1):
            core = _core.Profiler(nvtx=True)
            if way == "recording":
                core.start()
            value = call(COUNT)
            if way == "recording":
                core.stop()
                expected = 0 if case == "clock_reads" else COUNT
                assert core.nvtx["ranges"] == core.store.event_count == expected, core.nvtx
            if number > 0:  # the first warms up
                values.append(value)
        found[case] = values
    print(json.dumps(found))


def main() -> None:
    options = arguments(__doc__ or "")
    report = Report("nvtx_calls", ["message", "tool", "ns", "low", "high", "over NVTX's own"], options.out)
    samples: dict[str, dict[str, list[float]]] = {case: {way: [] for way in WAYS} for case in CASES}
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        library = str(Path(folder) / "nvtx_calls.so")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{headers()}"]
        run([*compiler, *flags, str(HERE / "nvtx_calls.c"), "-o", library, "-ldl"])
        plain = {name: text for name, text in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
        for _ in range(ROUNDS):
            for way in WAYS:
                command = [sys.executable, __file__, "--way", way, library]
                done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
                for case, values in json.loads(done.stdout).items():
                    samples[case][way] += values
    worst = {way: 0.0 for way in WAYS}
    for case, what in CASES.items():
        report.keep(case, samples[case], "ns", "recording", each_of=COUNT)
        without = statistics.median(samples[case]["without"])
        for way, who in WAYS.items():
            if case == "clock_reads" and way != "without":
                continue
            found = spread(samples[case][way])
            over = found.median - without
            worst[way] = max(worst[way], over if case != "payload" else 0.0)
            report.row(what, who, *found.cells(1), "" if way == "without" else f"{over:.1f}")
    report.target("a push and a pop that are recorded, over NVTX's own", worst["recording"], RECORDED, "ns")
    report.target("a push and a pop while nothing is recorded, over NVTX's own", worst["idle"], IDLE, "ns")
    report.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        sample(*sys.argv[2:4])
    else:
        main()
