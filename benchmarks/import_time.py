"""Time of `import flopscope`, `import numpy` and `import torch` in fresh processes, interleaved."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path

from harness import Report, Sampler, arguments, interleave, ratio, run, spread

ROUNDS, SECONDS = 15, 0.15
CHILD = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def main() -> None:
    options = arguments(__doc__ or "")
    package = importlib.util.find_spec("flopscope")
    if package is None or package.origin is None:
        raise RuntimeError("flopscope is not installed")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(package.origin).parent.parent), os.environ.get("PYTHONPATH")])
    )
    names = [name for name in ("flopscope", "numpy", "torch") if importlib.util.find_spec(name)]
    report = Report("import_time", ["module", "import, ms", "low", "high", "process, ms", "x numpy"], options.out)
    if "torch" not in names:
        report.note("torch is not installed: no row for it.")
    processes: dict[str, list[float]] = {name: [] for name in names}
    imports = interleave({name: import_sampler(name, processes[name]) for name in names}, ROUNDS, warmup=1)
    processes = {name: values[1:] for name, values in processes.items()}
    report.keep("import", imports)
    report.keep("process", processes)
    for name in names:
        summary, process = spread(imports[name]), spread(processes[name])
        report.row(
            name,
            f"{summary.median * 1e3:.1f}",
            f"{summary.low * 1e3:.1f}",
            f"{summary.high * 1e3:.1f}",
            f"{process.median * 1e3:.1f}",
            f"{ratio(imports[name], imports['numpy']).median:.2f}",
        )
    report.target("import flopscope", spread(imports["flopscope"]).median, SECONDS, "s")
    report.finish()


def import_sampler(name: str, processes: list[float]) -> Sampler:
    """Return a sampler of the seconds of an import in a fresh process; append the process's own to ``processes``."""

    def sample() -> float:
        start = time.perf_counter()
        printed = run([sys.executable, "-c", CHILD.format(name)])
        processes.append(time.perf_counter() - start)
        return float(printed)

    return sample


if __name__ == "__main__":
    main()
