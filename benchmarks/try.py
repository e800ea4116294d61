"""`flopscope try` on programs with a known answer, and on models of other libraries.

    python benchmarks/try.py --device cuda --out FOLDER [--part elsewhere,cured,alike] [--jobs N] [--seconds S]

Parts:

cured: programs whose cure is a switch (try_programs.py): whether `try` proposes it, what it measures, and what is
measured of the same program mended by hand. Rounds of three runs, of the program, with the switch, and mended, are
added until the interval of the switch's gain over that by hand is clear. alike: programs without a fault, each tried
against itself: the verdict must be "no difference". elsewhere: models of torchvision, timm, transformers and
torch_geometric with random weights (try_elsewhere.py), with the three changes that `try` proposes first: predicted
beside measured.

Programs run side by side, with --jobs runs at once, of which one at a time is timed. All ends after --seconds, or at
SIGTERM. FOLDER receives try.json, written after each program; programs that it has are replaced. Several GPUs: one
process for each, with CUDA_VISIBLE_DEVICES, CPUs of its own (taskset), a TMPDIR of its own, as measurements of one
folder exclude each other, and --share 1/2 and 2/2. --merge makes one result of several folders: what they measured of
a program counts together. --report adds the rows of elsewhere to a page, as `flopscope try --report` does. Both also
with --part ''.
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
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import harness
import try_elsewhere
from try_programs import ALIKE, CURED, LAST

from flopscope.measuring.trying.pairs import FEWEST, Ratio, Word, checked, ratio_of, word_of
from flopscope.measuring.trying.processes import Processes, Program
from flopscope.measuring.trying.result import Change
from flopscope.measuring.trying.rows import with_rows
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.measuring.trying.text import interval_text, parity_text
from flopscope.measuring.trying.trial import Options, Trial
from flopscope.measuring.trying.turns import Ended, Late, Turns
from flopscope.support.files import finite

LEAST_LEFT = 60.0
"""Seconds in which a program can be tried."""
MOST_OF_TIME = 0.8
"""Of the whole time, for a program."""
GRACE = 15.0
"""Seconds after the end of the time for runs to end by themselves."""
WITHIN = 0.1
"""Relative difference of gains up to which they count as the same."""
CONFIDENCE = 0.95
"""Of the interval of the ratio of gains."""
MORE, MOST_ROUNDS = 3, 24
LEAST = 14
MOST_TRIED = 3
"""Changes of a program from elsewhere."""
COLUMNS = ("program", "change", "proposed", "predicted %", "measured %", "by hand %", "ratio", "parity", "verdict")
UNKNOWN = math.nan, math.nan, math.nan

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else each run that compiles starts a pool of processes
# Inductor would choose configurations by their times while other runs use the GPU, and keep them in its cache.
os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")


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
        settings = Options(max_time=min(left, MOST_OF_TIME * self._seconds), combine=False, **options)
        return Trial(Program(here(script), tuple(words)), settings, lambda text: None, bool, self._turns)

    def cured(self, name: str) -> list[dict[str, Any]]:
        """Try the switch that cures a program, and run the program that is mended by hand."""
        switch = CURED[name].switch
        trial = self._trial("try_programs.py", [name], changes=(switch,))
        found = trial.run()
        if not found.changes:
            return [told(switch, problem=" ".join(found.notes))]
        change = found.changes[0]
        proposed = SWITCHES[switch].shown(trial.seen) or not math.isnan(change.predicted)
        rounds = self._rounds(name, switch, trial) if change.ratio.pairs else []
        return [told(switch, change, proposed=proposed, predicted=finite(change.predicted), rounds=rounds)]

    def _rounds(self, name: str, switch: str, trial: Trial) -> list[tuple[float, ...]]:
        """Return rounds of the time of a step in us: of the program, with the switch, and mended by hand."""
        rounds = [[plain, changed, math.nan] for plain, changed in trial.candidates[0].pairs]
        with tempfile.TemporaryDirectory() as folder:
            kinds = []
            for number, (words, switches) in enumerate((((), ()), ((), (switch,)), (("--mended",), ()))):
                (Path(folder) / str(number)).mkdir()
                program = Program(here("try_programs.py"), (name, *words))
                kinds.append((Processes(program, Path(folder) / str(number), self._turns), switches))

            def run(times: list[float], kind: int) -> None:
                runs, switches = kinds[kind]
                with suppress(Late):
                    plan, limit = trial.plan, self._seconds
                    record = runs.run("time", switches, trial.seen, plan.warm, plan.steps, limit, self._end)
                    if record.seconds is None:
                        raise RuntimeError(f"{name}: {record.problem}")
                    times[kind] = 1e6 * record.seconds

            with suppress(Ended):
                while True:
                    missing = [partial(run, one, kind) for one in rounds for kind in range(3) if math.isnan(one[kind])]
                    self._turns.side_by_side(missing)
                    if is_clear(whole(rounds)) or len(rounds) >= MOST_ROUNDS or time.monotonic() > self._end:
                        break
                    rounds += [[*UNKNOWN] for _ in range(MORE)]
        return whole(rounds)

    def alike(self, name: str) -> list[dict[str, Any]]:
        """Try nothing on a program."""
        trial = self._trial("try_programs.py", [name, "--mended"])
        change = trial.against_itself()
        return [told("nothing", change, pairs=trial.candidates[0].pairs)]

    def elsewhere(self, name: str) -> list[dict[str, Any]]:
        """Try what is proposed for a program."""
        trial = self._trial("try_elsewhere.py", [name], most=MOST_TRIED)
        found = trial.run()
        rows = []
        for one in trial.candidates:
            more = {"proposed": True, "device": found.device, "pairs": one.pairs}
            rows.append(told(one.change.name, one.change, predicted=finite(one.change.predicted), **more))
        return rows or [told("nothing is proposed", problem=" ".join(found.notes))]


def whole(rounds: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    return [tuple(one) for one in rounds if not any(map(math.isnan, one))]


def ratio_of_gains(rounds: Sequence[Sequence[float]]) -> Ratio:
    """Return what the switch saves over what the change by hand saves. Without a gain in each round it is unknown."""
    gains = [(plain - mended, plain - changed) for plain, changed, mended in rounds]
    known = all(one > 0 for pair in gains for one in pair)
    return ratio_of(gains, CONFIDENCE) if known else Ratio(*UNKNOWN, len(rounds))


def is_clear(rounds: Sequence[Sequence[float]]) -> bool:
    """Return whether the switch certainly gains as much as the change by hand, or certainly not."""
    ratio = ratio_of_gains(rounds)
    return ratio.pairs >= FEWEST and (is_same(ratio) or ratio.low > 1 + WITHIN or ratio.high < 1 - WITHIN)


def is_same(ratio: Ratio) -> bool:
    return ratio.low >= 1 - WITHIN and ratio.high <= 1 + WITHIN


def told(name: str, change: Change | None = None, problem: str = "", **facts: Any) -> dict[str, Any]:
    """Return what is kept of a change."""
    if change is None:
        return {"change": name, "verdict": "not tried", "problem": problem, **facts}
    parity = parity_text(change)
    known = {"verdict": change.verdict, "problem": change.problem or " ".join(change.notes), "parity": parity}
    return {"change": name, **known, "ratio": finite(list(change.ratio)), "before": finite(change.before), **facts}


# The report -----------------------------------------------------------------------------------------------------------

Samples = list[dict[str, Any]]


def replaced(known: Samples, new: Samples) -> Samples:
    """Return samples with those of the programs of others in the place of their own."""
    again = {(one["part"], one["case"]) for one in new}
    return [one for one in known if (one["part"], one["case"]) not in again] + new


class Found:
    """What was found, written to the file after each program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._out, self._device = options.out, options.device
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self._samples: Samples = []
        if options.out is not None and (options.out / "try.json").exists():
            self._samples = loaded(options.out)["samples"]

    def add(self, part: str, name: str, find: Callable[[str], list[dict[str, Any]]]) -> None:
        """Find what there is to find of a program, and write the file. Without time for it, keep what there was."""
        try:
            rows = find(name)
        except Ended:
            return print(f"{self._seconds()}  {name}: the time was over", flush=True)
        except (RuntimeError, OSError) as problem:
            rows = [told("--", problem=str(problem))]
        facts = {"case": name, "part": part, "who": "by hand", "unit": "us"}
        new = [{**facts, "values": [times[-1] for times in row.get("rounds", [])], **row} for row in rows]
        with self._lock:
            self._samples = replaced(self._samples, new)
            for line in report_of(new, None, self._device).rows:
                print(self._seconds(), *line, sep="  ", flush=True)
            report_of(self._samples, self._out, self._device).save()

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._begin:4.0f} s"

    def finish(self) -> None:
        """Print the report."""
        print(report_of(self._samples, self._out, self._device).text())


def loaded(folder: Path) -> dict[str, Any]:
    """Return the results in a folder."""
    content: dict[str, Any] = json.loads((folder / "try.json").read_text(encoding="utf-8"))
    return content


def pooled(known: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a change from the rounds or pairs of both, and otherwise from the last."""
    kind = "rounds" if "rounds" in one else "pairs"
    times = known.get(kind, []) + one.get(kind, [])
    if one["verdict"] not in get_args(Word) or not times:
        return one
    ratio = checked([row[:2] for row in times])
    values = {"values": [row[-1] for row in times]} if kind == "rounds" else {}
    return {**one, kind: times, **values, "ratio": finite(list(ratio)), "verdict": word_of(ratio)}


def merge(folders: Sequence[str], out: Path) -> None:
    """Write the results of several folders as one, with the machine of the first."""
    contents = [loaded(Path(one)) for one in folders]
    samples: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in (sample for content in contents for sample in content["samples"]):
        key = one["part"], one["case"], one["change"]
        samples[key] = pooled(samples[key], one) if key in samples else one
    report = report_of(list(samples.values()), out, contents[0]["command"].rpartition(" ")[2])
    print(report.text())
    out.mkdir(parents=True, exist_ok=True)
    found = {"summary": report.summary(), "samples": list(samples.values())}
    harness.write_json(out / "try.json", {**contents[0], **found})


def add_to_page(samples: Samples, page: Path) -> None:
    """Add what was predicted and measured elsewhere to the table of a page."""
    text = page.read_text(encoding="utf-8")
    for one in samples:
        if one["part"] == "elsewhere" and one.get("predicted") is not None and one["ratio"][0] is not None:
            text = with_rows(text, one["case"], [prediction_in(one)])
    page.write_text(text, encoding="utf-8")


def report_of(samples: Sequence[dict[str, Any]], out: Path | None, device: str) -> harness.Report:
    """Return the report of what was found."""
    report = harness.Report("try", COLUMNS, out, device)
    report.samples = list(samples)
    for one in samples:
        rounds = one.get("rounds", [])
        ratio = ratio_of_gains(rounds)
        report.row(
            one["case"],
            one["change"],
            {True: "yes", False: "no", None: "--"}[one.get("proposed")],
            "--" if one.get("predicted") is None else f"{one['predicted']:.1f}",
            percent(ratio_in(one)),
            percent(ratio_of([(plain, mended) for plain, _, mended in rounds], CONFIDENCE)),
            "--" if math.isnan(ratio.value) else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
            one.get("parity", "--"),
            one["verdict"],
        )
        if one["problem"]:
            report.note(f"{one['case']}, {one['change']}: {one['problem']}")
    cured = [one for one in samples if one["part"] == "cured"]
    alike = [one["verdict"] for one in samples if one["part"] == "alike"]
    if cured:
        found = [one for one in cured if one.get("proposed") and one["verdict"] == "faster"]
        well = [one for one in found if is_same(ratio_of_gains(one["rounds"]))]
        text = f"programs whose cure is found, and gains what the change by hand does, within {100 * WITHIN:g} %"
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


def percent(ratio: Ratio | None) -> str:
    """Return a saving with its interval."""
    if ratio is None or not ratio.pairs:
        return "--"
    return f"{ratio.gain:.1f} ({interval_text(ratio)})"


def extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", default="elsewhere,cured,alike", help="parts, with commas between them")
    parser.add_argument("--only", help="names of programs, with commas between them")
    parser.add_argument("--skip", default="", help="names of programs to leave out")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="the K-th of N shares of the programs")
    parser.add_argument("--seconds", type=float, default=1200.0, help="for all")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--merge", metavar="FOLDER,...", help="folders with results, written to --out as one")
    parser.add_argument("--report", type=Path, help="page to add the table of elsewhere to")


def measure(options: argparse.Namespace) -> None:
    """Find what there is to find of the programs of the parts."""
    found, parts = Found(options), Parts(options)
    signal.signal(signal.SIGTERM, parts.end)
    programs = {
        "cured": [name for name, row in CURED.items() if row.device in ("any", options.device)],
        "alike": [name for name, row in ALIKE.items() if row.device in ("any", options.device)],
        "elsewhere": list(try_elsewhere.MODELS),
    }
    first, shares = (int(number) for number in options.share.split("/"))
    only, skipped = (options.only or "").split(","), options.skip.split(",")
    queue = []
    for part in options.part.split(","):
        chosen = [name for name in programs[part] if (not options.only or name in only) and name not in skipped]
        queue += [(part, name) for name in chosen[first - 1 :: shares]]
    with ThreadPoolExecutor(max(3 * options.jobs // 4, 1)) as threads:
        for part, name in sorted(queue, key=lambda one: one[1] in LAST):
            threads.submit(found.add, part, name, getattr(parts, part))
    parts.end()
    found.finish()


def main() -> None:
    options = harness.arguments(__doc__ or "", ("cpu", "cuda"), extend)
    if options.merge:
        merge(options.merge.split(","), options.out)
    if options.part:
        measure(options)
    if options.report:
        add_to_page(loaded(options.out)["samples"], options.report)


if __name__ == "__main__":
    main()
