"""The advice on programs with one known fault, held against what mending the fault gained.

``python benchmarks/advice.py [--out DIR] [--again]``: runs benchmarks/faults.py on a GPU unless DIR holds its traces,
and prints for each fault the gain measured, the saving predicted and what is still predicted once the fault is mended
(unknown without the trace NAME_after.json.gz). Without a GPU it reads the traces of a folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import flopscope as fs
from flopscope.answers.analysis import analysis_of

HERE = Path(__file__).parent
COMMITTED = HERE / "results" / "nvidia-h200" / "faults"


LEAST_GAIN = 0.05
"""Share of the step: a change that gained less does not tell whether the advice is right."""


def predicted(folder: Path, name: str, pair: dict[str, Any]) -> dict[str, Any]:
    """Return what the advice says of a fault before and after it is mended, times in ms."""
    before, after = fs.load_trace(folder / f"{name}_before.json.gz"), folder / f"{name}_after.json.gz"
    advice, left = before.advice(), fs.load_trace(after).advice() if after.exists() else None
    place = next((i for i, row in enumerate(advice) if row.rule in pair["rules"]), None)
    rule = advice[place].rule if place is not None else None
    saving = advice[place].saving_us / 1000 if place is not None else 0.0
    still = None if left is None else sum(row.saving_us for row in left if row.rule == rule) / 1000
    gained = pair["before_ms"] - pair["after_ms"]
    good = place is not None and place < 2 and 0.5 * gained <= saving <= 2 * gained and (still or 0) <= 0.25 * saving
    analysis = analysis_of(before, "advice")
    return {
        "fault": name,
        "what": pair["what"],
        "before_ms": pair["before_ms"],
        "after_ms": pair["after_ms"],
        "estimated_before_ms": analysis.unobserved / 1000,
        "gained_ms": gained,
        "rule": rule,
        "place": None if place is None else place + 1,
        "saving_ms": saving,
        "ratio": saving / gained if gained > 0 else None,
        "still_ms": still,
        "good": good if pair["rules"] and gained > LEAST_GAIN * pair["before_ms"] else None,
        "advice": [(row.rule, row.saving_us / 1000) for row in advice],
    }


def main() -> None:
    """Print the table and write it to DIR/advice.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=COMMITTED, help="folder of the traces (default: the committed ones)"
    )
    parser.add_argument("--again", action="store_true", help="run the programs even if the folder holds traces")
    options = parser.parse_args()
    if options.again or not (options.out / "pairs.json").exists():
        subprocess.run([sys.executable, str(HERE / "faults.py"), "--out", str(options.out)], check=True)
    pairs = json.loads((options.out / "pairs.json").read_text(encoding="utf-8"))
    rows = [predicted(options.out, name, pair) for name, pair in pairs.items() if "error" not in pair]
    titles = ("before", "est.", "after", "gained", "saving")
    head = f"{'fault':<18} {' '.join(f'{title:>8}' for title in titles)} {'ratio':>6} {'still':>7}  rule"
    print(f"{head}\n{'-' * len(head)}")
    for row in rows:
        ratio = f"{row['ratio']:.2f}" if row["rule"] and row["ratio"] else "--"
        still = "--" if row["still_ms"] is None else f"{row['still_ms']:.2f}"
        verdict = {None: "(not judged)", True: "", False: "MISSED"}[row["good"]]
        print(
            f"{row['fault']:<18} {row['before_ms']:8.2f} {row['estimated_before_ms']:8.2f} {row['after_ms']:8.2f} "
            f"{row['gained_ms']:8.2f} {row['saving_ms']:8.2f} {ratio:>6} {still:>7}  "
            f"{row['rule'] or ''}{f' ({row_place(row)})' if row['place'] else ''} {verdict}"
        )
    for name, pair in pairs.items():
        if "error" in pair:
            print(f"{name}: {pair['error']}")
    judged = [row for row in rows if row["good"] is not None]
    print(f"{sum(row['good'] for row in judged)} of {len(judged)} within the targets; times in ms per step")
    (options.out / "advice.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def row_place(row: dict[str, Any]) -> str:
    """Return the place of the rule in the advice as text."""
    return {1: "first", 2: "second"}.get(row["place"], f"place {row['place']}")


if __name__ == "__main__":
    main()
