"""Reading a recorded trace, compared with Holistic Trace Analysis and TraceLens if they are installed.

Times are from a trace of 20 000 small additions (100 000 events) to the first table of each tool: flopscope's rows by
name, HTA's parsed frame, TraceLens's kernel launchers.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from harness import Report, arguments, interleave, optional, ratio, spread
from load_trace import table_of, timed, write

CALLS, ROUNDS = 20_000, 3


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["100 000 events", "seconds", "low", "high", "ours / it"]
    report = Report("trace_tools", columns, options.out, options.device)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = write(Path(folder) / "trace.json", CALLS)
        cases = {name: timed(call) for name, call in readers(report, path).items()}
        samples = interleave(cases, ROUNDS, warmup=1, seconds=60, minimum=2)
    report.keep("trace", samples, ours="flopscope", events=5 * CALLS)
    for name, values in samples.items():
        summary = spread(values)
        relative = ratio(samples["flopscope"], values).median
        report.row(name, f"{summary.median:.3f}", f"{summary.low:.3f}", f"{summary.high:.3f}", f"{relative:.4f}")
    report.finish()


def readers(report: Report, path: Path) -> dict[str, Callable[[], object]]:
    result: dict[str, Callable[[], object]] = {"flopscope": lambda: table_of(path)}
    hta, lens = optional("hta.trace_analysis"), optional("TraceLens")
    if hta is None:
        report.note("HolisticTraceAnalysis is not installed: no row for it.")
    else:
        result["Holistic Trace Analysis"] = lambda: hta.TraceAnalysis(trace_files={0: str(path)})
    if lens is None:
        report.note("TraceLens is not installed: no row for it.")
    else:
        result["TraceLens"] = lambda: lens.TreePerfAnalyzer.from_file(str(path)).get_df_kernel_launchers()
    return result


if __name__ == "__main__":
    main()
