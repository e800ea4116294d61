"""`flopscope try` on programs with a known answer, and on models of other libraries.

    python benchmarks/try.py --device cuda --out FOLDER [--part cured,elsewhere,alike] [--jobs N] [--seconds S]

Parts:

cured: programs whose cure is a switch (try_programs.py): whether `try` proposes it, what it measures, and what is
measured of the same program mended by hand, which runs as often. alike: programs without a fault, each tried against
itself: the verdict must be "no difference". elsewhere: models of torchvision, timm, transformers and torch_geometric
with random weights (try_elsewhere.py), with the three changes that `try` proposes first: predicted beside measured.

Programs run side by side, with --jobs runs at once, of which one at a time is timed while the others are stopped. Each
part ends after --seconds, or at SIGTERM. FOLDER receives try.json, written after each program; programs that it has are
replaced. --report adds the rows of elsewhere to a page, as `flopscope try --report` does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import harness
import try_elsewhere
from try_programs import ALIKE, CURED

from flopscope.support.files import finite
from flopscope.trying.pairs import FEWEST, Ratio, checked
from flopscope.trying.processes import Processes, Program
from flopscope.trying.result import Change
from flopscope.trying.rows import with_rows
from flopscope.trying.switches import SWITCHES
from flopscope.trying.text import parity_text
from flopscope.trying.trial import Options, Trial
from flopscope.trying.turns import Ended, Turns

LEAST_LEFT = 20.0
"""Seconds in which a program can be tried."""
GRACE = 15.0
"""Seconds after the end of the time for runs to end by themselves."""
WITHIN = 10.0
"""Percent of the gain of the program that is mended by hand."""
LEAST = 14
MOST_TRIED = 3
"""Changes of a program from elsewhere."""
COLUMNS = ("program", "change", "proposed", "predicted %", "measured %", "by hand %", "parity", "verdict")

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else each run that compiles starts a pool of processes


def here(name: str) -> str:
    return str(harness.HERE / name)


class Parts:
    """The parts of the benchmark, each from the name of a program to what was found of its changes, for some time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._seconds = options.seconds
        self._turns = Turns(options.jobs, print)
        self._end = time.monotonic() + options.seconds
        self._timer = threading.Timer(options.seconds + GRACE, self.end)
        self._timer.daemon = True
        self._timer.start()

    def end(self, *_: object) -> None:
        """End all runs; programs are told of as far as they were measured."""
        self._timer.cancel()
        self._turns.end()

    def _trial(self, script: str, words: Sequence[str], **options: Any) -> Trial:
        left = self._end - time.monotonic()
        if left < LEAST_LEFT:
            raise Ended
        settings = Options(max_time=left, combine=False, **options)
        return Trial(Program(here(script), tuple(words)), settings, lambda text: None, bool, self._turns)

    def cured(self, name: str) -> list[dict[str, Any]]:
        """Try the switch that cures a program; run the program that is mended by hand as often."""
        switch = CURED[name].switch
        trial = self._trial("try_programs.py", [name], changes=(switch,), recorded_alone=False)
        found = trial.run()
        if not found.changes:
            return [told(switch, problem=" ".join(found.notes))]
        change = found.changes[0]
        proposed = SWITCHES[switch].shown(trial.seen) or not math.isnan(change.predicted)
        plain = [one.seconds for one in trial.plain if one.seconds is not None]
        mended: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            runs = Processes(Program(here("try_programs.py"), (name, "--mended")), Path(folder), self._turns)

            def run() -> None:
                record = runs.run("time", (), trial.seen, trial.plan.warm, trial.plan.steps, self._seconds)
                mended.extend([] if record.seconds is None else [record.seconds])

            count = max(min(len(plain), change.ratio.pairs), FEWEST)
            self._turns.side_by_side([run] * (count if time.monotonic() < self._end else 0))
        by_hand = [(1e6 * a, 1e6 * b) for a, b in zip(plain, mended, strict=False)]
        return [told(switch, change, proposed=proposed, by_hand=by_hand)]

    def alike(self, name: str) -> list[dict[str, Any]]:
        """Try nothing on a program."""
        trial = self._trial("try_programs.py", [name, "--mended"])
        return [told("nothing", trial.against_itself())]

    def elsewhere(self, name: str) -> list[dict[str, Any]]:
        """Try what is proposed for a program."""
        found = self._trial("try_elsewhere.py", [name], most=MOST_TRIED).run()
        more = {"proposed": True, "device": found.device}
        rows = [told(one.name, one, predicted=finite(one.predicted), **more) for one in found.changes]
        return rows or [told("nothing is proposed", problem=" ".join(found.notes))]


def told(name: str, change: Change | None = None, problem: str = "", **facts: Any) -> dict[str, Any]:
    """Return what is kept of a change."""
    if change is None:
        return {"change": name, "verdict": "not tried", "problem": problem, **facts}
    parity = parity_text(change)
    known = {"verdict": change.verdict, "problem": change.problem or " ".join(change.notes), "parity": parity}
    return {"change": name, **known, "ratio": finite(list(change.ratio)), "before": finite(change.before), **facts}


# The report -----------------------------------------------------------------------------------------------------------


class Found:
    """What was found, written to the file after each program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._out, self._device = options.out, options.device
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self._samples: list[dict[str, Any]] = []
        if options.out is not None and (options.out / "try.json").exists():
            self._samples = json.loads((options.out / "try.json").read_text(encoding="utf-8"))["samples"]

    def add(self, part: str, name: str, find: Callable[[str], list[dict[str, Any]]]) -> None:
        """Find what there is to find of a program, and write the file. Without time for it, keep what there was."""
        try:
            rows = find(name)
        except Ended:
            return print(f"{name}: the time was over")
        except (RuntimeError, OSError) as problem:
            rows = [told("--", problem=str(problem))]
        with self._lock:
            self._samples = [one for one in self._samples if (one["part"], one["case"]) != (part, name)]
            for row in rows:
                pairs = row.get("by_hand", [])
                facts = {"case": name, "part": part, "who": "by hand", "unit": "us", "values": [b for _, b in pairs]}
                self._samples.append({**facts, **row})
            report = report_of(self._samples, self._out, self._device)
            for line in (one for one in report.rows if one[0] == name):
                print(f"{time.monotonic() - self._begin:4.0f} s", *line, sep="  ", flush=True)
            report.save()

    def finish(self, page: Path | None) -> None:
        """Print the report, and add what was predicted and measured elsewhere to the table of a page."""
        print(report_of(self._samples, self._out, self._device).text())
        if page is None:
            return
        text = page.read_text(encoding="utf-8")
        for one in self._samples:
            if one["part"] == "elsewhere" and one.get("predicted") is not None and one["ratio"][0] is not None:
                text = with_rows(text, one["case"], [prediction_in(one)])
        page.write_text(text, encoding="utf-8")


def report_of(samples: Sequence[dict[str, Any]], out: Path | None, device: str) -> harness.Report:
    """Return the report of what was found."""
    report = harness.Report("try", COLUMNS, out, device)
    report.samples = list(samples)
    for one in samples:
        report.row(
            one["case"],
            one["change"],
            {True: "yes", False: "no", None: "--"}[one.get("proposed")],
            "--" if one.get("predicted") is None else f"{one['predicted']:.1f}",
            percent(ratio_in(one)),
            percent(by_hand_in(one)),
            one.get("parity", "--"),
            one["verdict"],
        )
        if one["problem"]:
            report.note(f"{one['case']}, {one['change']}: {one['problem']}")
    cured = [one for one in samples if one["part"] == "cured"]
    alike = [one["verdict"] for one in samples if one["part"] == "alike"]
    if cured:
        well = [one["case"] for one in cured if one.get("proposed") and apart(one) <= WITHIN]
        text = f"programs whose cure is found, with the gain of the one mended by hand within {WITHIN:g} % of it"
        report.target(text, len(well), min(LEAST, len(cured)), "", least=True)
    if alike:
        report.target("programs without a fault found alike", alike.count("no difference"), len(alike), "", least=True)
    return report


def ratio_in(one: dict[str, Any]) -> Ratio | None:
    known = one.get("ratio")
    return None if known is None else Ratio(*(math.nan if value is None else value for value in known))


def prediction_in(one: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a prediction, as by `flopscope try --keep`."""
    value, low, high, pairs = one["ratio"]
    saved = {"measured": 100 * (1 - value), "low": high and 100 * (1 - high), "high": low and 100 * (1 - low)}
    return {**{name: one[name] for name in ("change", "predicted", "verdict", "device")}, **saved, "pairs": pairs}


def by_hand_in(one: dict[str, Any]) -> Ratio | None:
    return checked(one["by_hand"]) if one.get("by_hand") else None


def percent(ratio: Ratio | None) -> str:
    """Return a saving with its interval."""
    if ratio is None or not ratio.pairs:
        return "--"
    return f"{ratio.gain:.1f} ({100 * (1 - ratio.high):.1f} to {100 * (1 - ratio.low):.1f})"


def apart(one: dict[str, Any]) -> float:
    """Return by how many percent the gain with the switch differs from that of the program mended by hand."""
    measured, by_hand = ratio_in(one), by_hand_in(one)
    if measured is None or by_hand is None or one["verdict"] != "faster":
        return math.inf
    return abs(100 * (measured.gain / by_hand.gain - 1))


def extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", default="cured,elsewhere,alike", help="parts, with commas between them")
    parser.add_argument("--only", help="names of programs, with commas between them")
    parser.add_argument("--seconds", type=float, default=1200.0, help="for each part")
    parser.add_argument("--report", type=Path, help="page to add the table of elsewhere to; also with --part ''")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")


def main() -> None:
    options = harness.arguments(__doc__ or "", ("cpu", "cuda"), extend)
    found = Found(options)
    programs = {
        "cured": [name for name, row in CURED.items() if row.device in ("any", options.device)],
        "alike": [name for name, row in ALIKE.items() if row.device in ("any", options.device)],
        "elsewhere": list(try_elsewhere.MODELS),
    }
    for part in filter(None, options.part.split(",")):
        parts = Parts(options)
        signal.signal(signal.SIGTERM, parts.end)
        chosen = [name for name in programs[part] if not options.only or name in options.only.split(",")]
        with ThreadPoolExecutor(max(options.jobs // 4, 1)) as threads:
            for one in [threads.submit(found.add, part, name, getattr(parts, part)) for name in chosen]:
                one.result()
        parts.end()
    found.finish(options.report)


if __name__ == "__main__":
    main()
