"""Run performance tests, store the run, and write a table of it and of the run before it as Markdown.

    python perf.py --history FOLDER [--margin 10%] [--table FILE] -- PYTEST-ARGUMENT…

The table also goes to the summary of the job, if there is one. The exit status is pytest's; without failures, 1 if a
test is slower than before by more than the margin.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KEPT = 50
"""Stored runs of a machine; older ones are deleted."""
MOST_ROWS = 200
"""Rows of the table: a comment has at most 65,536 characters."""
NO_TESTS = 5
"""pytest's exit status."""


def flopscope(*arguments: str) -> tuple[int, dict[str, Any] | None]:
    """Run a command of flopscope, and return its status and the JSON that it writes, if it writes any."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "out.json")
        done = subprocess.run([sys.executable, "-m", "flopscope", *arguments, "--json", str(file)], check=False)
        return done.returncode, json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def trimmed(history: Path) -> None:
    """Delete the oldest runs of each machine."""
    for machine in filter(Path.is_dir, history.iterdir()):
        for file in sorted(machine.glob("[0-9]*.json"))[:-KEPT]:
            file.unlink()


def cell(value: object) -> str:
    """Return a text that Markdown shows as it is, in one cell."""
    return (
        str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("`", "'")
    )


def time_text(us: float | None) -> str:
    """Return a time of four digits."""
    if us is None:
        return "unknown"
    unit, scale = next((one for one in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)) if us >= one[1]), ("ns", 1e-3))
    return f"{us / scale:.4g} {unit}"


def table(compared: dict[str, Any] | None, shown: dict[str, Any]) -> str:
    """Return the table of the newest run, compared with the one before if there is such a comparison."""
    new, old = shown["run"], compared["runs"][0]["run"] if compared else None
    rows = [one for one in compared["measurements"] if one["run"] != old] if compared else shown["measurements"]
    before = {one["key"]: one for one in compared["measurements"] if one["run"] == old} if compared else {}
    lines = ["### flopscope: performance", ""]
    if old is None:
        lines += [f"Run `{cell(new)}`; there is no earlier run on this machine to compare it with.", ""]
        lines += ["| test | median | ± | limits |", "|---|---:|---:|---|"]
    else:
        counts = {verdict: sum(one["verdict"] == verdict for one in rows) for verdict in ("slower", "faster", "same")}
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        lines += [
            f"Run `{cell(new)}` compared with `{cell(old)}`: {said} (margin {100 * compared['margin_share']:g} %).",
            "",
        ]
        lines += ["| test | before | now | ratio | verdict |", "|---|---:|---:|---:|---|"]
    order = {"slower": 0, "unclear": 1, "not alike": 1, "faster": 2, "new": 3}
    for one in sorted(rows, key=lambda one: order.get(one["verdict"], 4))[:MOST_ROWS]:
        median = time_text(one["median_us"])
        if old is None:
            known = None not in (one["low_us"], one["high_us"]) and one["median_us"]
            half = f"{50 * (one['high_us'] - one['low_us']) / one['median_us']:.1f} %" if known else ""
            lines.append(f"| {cell(one['test'])} | {median} | {half} | {cell(one['verdict'])} |")
        else:
            was = time_text(before[one["key"]]["median_us"]) if one["key"] in before else ""
            ratio = f"{one['ratio']:.3f}" if one["ratio"] is not None else ""
            lines.append(f"| {cell(one['test'])} | {was} | {median} | {ratio} | {cell(one['verdict'])} |")
    if len(rows) > MOST_ROWS:
        lines.append(f"\n{len(rows) - MOST_ROWS} more rows are in the artifact.")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the tests and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--margin", default="10%")
    parser.add_argument("--table", type=Path)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    options.history.mkdir(parents=True, exist_ok=True)
    storage = ["--perf-storage", str(options.history)]
    tests = [sys.executable, "-m", "pytest", *options.tests, "--perf-save", *storage]
    status = subprocess.run(tests, check=False).returncode
    if status == NO_TESTS:
        print("no test was selected: nothing is measured")
        return status
    trimmed(options.history)
    failed, shown = flopscope("perf", "show", *storage)
    if shown is None:
        return status or failed
    slower, compared = flopscope("perf", "compare", "--fail-over", options.margin, *storage)
    text = table(compared, shown)
    for path in (options.table, os.environ.get("GITHUB_STEP_SUMMARY")):
        if path:
            with open(path, "a" if path != options.table else "w", encoding="utf-8") as file:
                file.write(text)
    print(text)
    return status or (slower if compared else 0)


if __name__ == "__main__":
    sys.exit(main())
