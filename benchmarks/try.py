"""`flopscope try` on programs whose cure is one of its switches, beside the same programs mended by hand.

python benchmarks/try.py --device cuda --out FOLDER [--only NAMES] [--seconds S]

Of each program of try_programs.py: whether the switch is among those that are tried by default, what the advice
predicts, the saving that is measured with the switch, and that of the program mended by hand, both in pairs of fresh
processes. A program without a cure is tried against itself: its verdict must be "no difference".

A program takes up to --seconds for the switch and as long for the program mended by hand. FOLDER receives try.json.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
from try_programs import PROGRAMS, Cured

from flopscope.trying.pairs import CHECKS, MOST, Ratio, checked, word_of
from flopscope.trying.processes import Processes, Program
from flopscope.trying.result import Change
from flopscope.trying.switches import SWITCHES
from flopscope.trying.trial import Candidate, Options, Trial

SCRIPT = str(Path(__file__).resolve().parent / "try_programs.py")
WITHIN = 10.0  # percent of the time of the program that is mended by hand


def tried(name: str, row: Cured, seconds: float) -> dict[str, Any]:
    """Try the switch of a program, and compare the program with the one that is mended by hand."""
    wanted = None if row.switch is None else (row.switch,)
    trial = Trial(Program(SCRIPT, (name,)), Options(wanted, max_time=seconds, combine=False), lambda text: None, bool)
    if row.switch is None:
        return against_itself(trial, seconds)
    found = trial.run()
    if not found.changes:
        return {"verdict": "not tried", "problem": " ".join(found.notes)}
    change = found.changes[0]
    proposed = SWITCHES[row.switch].shown(trial._seen) or not math.isnan(change.predicted)
    result = {"verdict": change.verdict, "problem": change.problem, "proposed": proposed, "ratio": change.ratio}
    return {**result, "predicted": change.predicted, "parity": change.parity, **by_hand(name, trial, seconds)}


def against_itself(trial: Trial, seconds: float) -> dict[str, Any]:
    """Compare a program with itself."""
    with tempfile.TemporaryDirectory() as folder:
        trial._processes = Processes(trial._program, Path(folder))
        trial._look()
        one = Candidate((), (), Change("nothing", "", hits=1))
        trial._measure([one], time.monotonic() + seconds)
    return {"verdict": one.change.verdict, "problem": one.change.problem, "ratio": one.change.ratio}


def by_hand(name: str, trial: Trial, seconds: float) -> dict[str, Any]:
    """Compare the program with the one that is mended by hand, over the same steps."""
    end = time.monotonic() + seconds
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        twins = [
            Processes(Program(SCRIPT, (name,)), Path(one)),
            Processes(Program(SCRIPT, (name, "--mended")), Path(other)),
        ]
        while time.monotonic() < end and len(pairs) < MOST:
            plain, mended = (twin.run("time", (), trial._seen, *trial._plan[:2], seconds).seconds for twin in twins)
            if plain is None or mended is None:
                break
            pairs.append((plain, mended))
            if len(pairs) in CHECKS and word_of(checked(pairs)) != "unclear":
                break
    return {"by_hand": checked(pairs)}


def percent(ratio: Ratio | None) -> str:
    if ratio is None or not ratio.pairs:
        return "--"
    return f"{ratio.gain:.1f} ({100 * (1 - ratio.high):.1f} to {100 * (1 - ratio.low):.1f})"


def apart(one: dict[str, Any]) -> float:
    """Return by how many percent the time with the switch differs from that of the program mended by hand."""
    return float(abs(100 * (one["ratio"].value / one["by_hand"].value - 1)))


def extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", help="names of programs, with commas between them")
    parser.add_argument("--seconds", type=float, default=120.0, help="for a switch, and for the program mended by hand")


def main() -> None:
    options = harness.arguments(__doc__ or "", ("cpu", "cuda"), extend)
    columns = ["program", "switch", "proposed", "predicted %", "measured %", "by hand %", "verdict"]
    report = harness.Report("try", columns, options.out, options.device)
    here = [name for name, row in PROGRAMS.items() if row.device in ("any", options.device)]
    found: dict[str, dict[str, Any]] = {}
    for name in options.only.split(",") if options.only else here:
        try:
            found[name] = one = tried(name, PROGRAMS[name], options.seconds)
        except (RuntimeError, OSError) as problem:
            found[name] = one = {"verdict": "failed", "problem": str(problem)}
        if one["problem"]:
            report.note(f"{name}: {one['problem']}")
        predicted = one.get("predicted", math.nan)
        report.row(
            name,
            PROGRAMS[name].switch or "nothing",
            {True: "yes", False: "no", None: "--"}[one.get("proposed")],
            "--" if math.isnan(predicted) else f"{predicted:.1f}",
            percent(one.get("ratio")),
            percent(one.get("by_hand")),
            one["verdict"],
        )
        print("  ".join(report.rows[-1]), flush=True)
    cured = {name: one for name, one in found.items() if PROGRAMS[name].switch and one.get("by_hand")}
    well = [one["verdict"] for name, one in found.items() if PROGRAMS[name].switch is None]
    if cured:
        gained = [word_of(one["by_hand"]) == one["verdict"] for one in cured.values()]
        report.target("verdicts that are those of the program mended by hand", sum(gained), len(gained), "", least=True)
        worst = max(cured, key=lambda name: apart(cured[name]))
        report.target("time apart from that mended by hand", apart(cured[worst]), WITHIN, "%", worst=worst)
    if well:
        report.target("programs without a cure found alike", well.count("no difference"), len(well), "", least=True)
    report.finish()


if __name__ == "__main__":
    main()
