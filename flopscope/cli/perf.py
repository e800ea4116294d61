"""The commands ``flopscope perf list``, ``show`` and ``compare``: the stored runs of performance tests."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from flopscope.support.files import write_json
from flopscope.support.units import plural

if TYPE_CHECKING:
    from flopscope.measuring.perf.history import Stored
    from flopscope.measuring.perf.runs import Row, Run

MARGIN = 0.05  # relative difference up to which times count as the same
SHOWN = 3  # skipped files, or tests, named in a note
SHOW = "min,median,iqr,rounds,ops,verdict"
COMPARE = "min,median,iqr,rounds,ops,ratio,verdict"
RUN = 'a run: "last", a number, a name, or a file *.json'
SORT = "name, or a column of the newest run (default: the order of the tests)"
GROUP = "name, func, file, param, param:NAME or device"
STORAGE = "the folder of the runs (default: .flopscope/perf of this folder or one above it)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``perf`` to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = actions.add_parser("list", help="list the stored runs")
    listing.set_defaults(run=_list)

    show = actions.add_parser("show", help="show the measurements of a run")
    show.add_argument("name", nargs="?", default="last", metavar="RUN", help=f"{RUN} (default: last)")
    show.set_defaults(run=_show)

    compare = actions.add_parser("compare", help="compare runs with the first one")
    compare.add_argument("names", nargs="*", metavar="RUN", help=f"{RUN} (default: the last two)")
    compare.add_argument("--histogram", metavar="FILE", help="draw the times of all tests (.svg, .png, .pdf)")
    compare.add_argument(
        "--fail-over",
        type=_percent,
        metavar="P%",
        help="exit with status 1 if a test is slower by more than this, such as 5%%; also the margin of the verdicts",
    )
    compare.set_defaults(run=_compare)

    for action, usual in ((show, SHOW), (compare, COMPARE)):
        action.add_argument("--sort", metavar="COLUMN", help=SORT)
        action.add_argument("--group", metavar="WHAT", help=GROUP)
        action.add_argument("--columns", default=usual, help="separated by commas (default: %(default)s)")
    for action in (listing, show, compare):
        action.add_argument("--json", metavar="FILE", help="write what is printed as JSON, with all columns")
        action.add_argument("--storage", "--perf-storage", metavar="DIR", help=STORAGE)


def _percent(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d+)?\s*%", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 5%")
    return float(text.rstrip("% ")) / 100


def _storage(options: argparse.Namespace) -> Path:
    from flopscope.measuring.perf import history

    here = Path.cwd()
    return history.storage_of(options.storage, here, history.folder_above(here))


def _say(text: str) -> None:
    from flopscope.measuring.perf.columns import wrapped
    from flopscope.support.safe import printable

    print(wrapped(printable(text)))


def _print_skipped(skipped: Sequence[str]) -> None:
    if skipped:
        _say(f"{plural(len(skipped), 'file')} skipped: {_some(skipped, '; ')}")


def _some(texts: Sequence[str], gap: str = ", ") -> str:
    return gap.join([*texts[:SHOWN], *([f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else [])])


# list -----------------------------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> None:
    from flopscope.measuring.perf import columns, documents, history
    from flopscope.support.columns import aligned_line, column_widths
    from flopscope.support.cutting import cut_end

    storage = _storage(options)
    stored, skipped = history.runs_in(storage)
    by_machine: dict[str, list[list[str]]] = {}
    runs = []
    for place, run in _read(stored, skipped):
        by_machine.setdefault(place.machine, []).append(_line(run))
        runs.append(run)
    if not by_machine:
        _say(f"no run is stored in {storage}; pytest --perf-save stores one")
    head = ["run", "date (UTC)", "commit", "measured", "failed", "devices"]
    for machine, lines in by_machine.items():
        widths = column_widths([head, *lines])
        widths[0] = max(8, widths[0] - max(0, sum(widths) + 10 - columns.terminal_width()))
        _say(machine)
        for cells in (head, *lines):
            cells[0] = cut_end(cells[0], widths[0])
            line = aligned_line(cells, widths, "<<<>><").rstrip()
            print(cut_end(line, columns.terminal_width()))
    _print_skipped(skipped)
    if options.json:
        write_json(options.json, documents.runs_document(storage, runs, skipped))


def _read(stored: Iterable[Stored], skipped: list[str]) -> Iterator[tuple[Stored, Run]]:
    """Yield the runs that can be read, and append the others to ``skipped``, with the reason."""
    from flopscope.measuring.perf import runs

    for place in stored:
        try:
            yield place, runs.read(place.file)
        except (OSError, ValueError) as problem:
            text = getattr(problem, "strerror", None) or str(problem)
            skipped.append(f"{place.file.name}: {text.removeprefix(f'{place.file} is ')}")


def _line(run: Run) -> list[str]:
    devices = sorted({entry.conditions[0] for entry in run.entries.values()})
    return [run.label, _date(run), _commit(run), str(len(run.entries)), str(len(run.failed)), ", ".join(devices)]


def _date(run: Run) -> str:
    return run.when[:16].replace("T", " ") or "--"


def _commit(run: Run) -> str:
    return run.commit[:8] + "*" * run.dirty if run.commit else "--"


# show -----------------------------------------------------------------------------------------------------------------


def _show(options: argparse.Namespace) -> None:
    from flopscope.measuring.perf import documents, history, runs

    by, chosen = _checked(options)
    storage = _storage(options)
    skipped: list[str] = []
    if options.name == history.LAST:
        (run,), skipped = _newest(storage, 1)
    else:
        run = runs.read(history.find(options.name, storage))
    print("\n".join(_head(run)), end="\n\n")
    _print_table([[runs.Row(e, run.label, e.verdict)] for e in run.entries.values()], by, chosen, options, False)
    _print_skipped(skipped)
    if options.json:
        write_json(options.json, documents.run_document(run))


def _checked(options: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Return what to group by and the columns, before any file is read."""
    from flopscope.measuring.perf import columns

    columns.sorted_by([], options.sort)
    return options.group and columns.grouping_of(options.group), columns.columns_of(options.columns)


def _print_table(
    tests: Iterable[Sequence[Row]], by: str | None, chosen: list[str], options: argparse.Namespace, with_run: bool
) -> None:
    from flopscope.measuring.perf import columns, runs

    groups = runs.grouped(columns.sorted_by(tests, options.sort), by)
    print("\n".join(columns.table(groups, chosen, with_run)) if groups else "The run has no measurements.")


def _head(run: Run) -> list[str]:
    """Return what is known of a run, a line for each."""
    from flopscope.measuring.perf.columns import wrapped
    from flopscope.support.safe import printable

    commit = (run.commit[:8] + f" on {run.branch}" * bool(run.branch) + ", with changes" * run.dirty) * bool(run.commit)
    facts = {
        "run": f"{run.label}, {plural(len(run.entries), 'measurement')}"
        + f", {plural(len(run.failed), 'failed test')}" * bool(run.failed),
        "date": f"{_date(run)} UTC" * bool(run.when),
        "commit": commit,
        "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
        **{printable(device)[:8]: _device(run, device) for device in run.machines},
        "failed": _some(run.failed),
    }
    return [wrapped(f"{name:<9}{text}", " " * 9) for name, text in facts.items() if text]


def _device(run: Run, device: str) -> str:
    import math
    from statistics import median

    from flopscope.support.safe import printable

    facts = run.machines[device]
    clocks = [e.numbers["clock_mhz"] for e in run.entries.values() if e.conditions[0] == device]
    known = [clock for clock in clocks if not math.isnan(clock)]
    text = [str(facts.get("name") or "unknown")]
    text += [f"{facts['threads']} threads"] if "threads" in facts else []
    text += [f"{median(known):.0f} MHz (median of the tests)"] if known else []
    return printable(", ".join(text))[:200]


def _newest(storage: Path, count: int) -> tuple[list[Run], list[str]]:
    """Return the last runs of this machine that can be read, oldest first, and those skipped."""
    from flopscope.measuring.perf import history

    last = history.find(history.LAST, storage)
    stored = [run for run in history.runs_in(storage)[0] if run.file.parent == last.parent]
    skipped: list[str] = []
    found = [run for _, run in islice(_read(reversed(stored), skipped), count)]
    if len(found) == count:
        return found[::-1], skipped
    _print_skipped(skipped)
    raise ValueError(
        f"{len(found)} of the {count} runs needed can be read in {last.parent}; pytest --perf-save stores another"
    )


# compare --------------------------------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> int:
    from flopscope.measuring.perf import documents, history, runs

    by, chosen = _checked(options)
    if len(options.names) == 1:
        raise ValueError(f"{options.names[0]!r} is one run; name the run to compare with it, or none for the last two")
    storage = _storage(options)
    skipped: list[str] = []
    if options.names:
        found = [runs.read(history.find(name, storage)) for name in options.names]
    else:
        found, skipped = _newest(storage, 2)
    found = runs.labelled(found)
    margin = MARGIN if options.fail_over is None else options.fail_over
    tests = runs.compare(found, margin)
    for number, run in enumerate(found):
        _say(f"{'with' if number else 'from'}  {run.label}  {_date(run)} UTC  {_commit(run)}")
    _print_changed_versions(found)
    print()
    _print_table(tests, by, chosen, options, True)
    slower = _print_verdicts(found, tests, margin)
    _print_skipped(skipped)
    if options.histogram:
        from flopscope.show.runs import draw_runs

        drawn = {rows[0].entry.label: {row.run: row.entry.samples for row in rows} for rows in tests}
        _say(draw_runs(options.histogram, drawn, [run.label for run in found], margin))
    if options.json:
        write_json(options.json, documents.comparison_document(found, tests, margin))
    return 1 if slower and options.fail_over is not None else 0


def _print_changed_versions(found: Sequence[Run]) -> None:
    for name in dict.fromkeys(name for run in found for name in run.versions):
        versions = [run.versions.get(name, "none") for run in found]
        if len(set(versions)) > 1:
            _say(f"{name}: {', then '.join(versions)}")


def _print_verdicts(found: Sequence[Run], tests: Sequence[Sequence[Row]], margin: float) -> list[str]:
    """Print what the verdicts amount to, and what could not be compared. Return the tests that are slower."""
    by_verdict: dict[str, list[str]] = {}
    for rows in tests:
        for row in rows:
            by_verdict.setdefault(row.verdict, []).append(row.entry.label)
    if not any(verdict in by_verdict for verdict in ("faster", "slower", "same", "unclear")):
        raise ValueError(f"{found[0].label} and the others have no measurement in common that can be compared")
    print()
    texts = {
        "slower": f"slower by more than {100 * margin:g} %",
        "faster": f"faster by more than {100 * margin:g} %",
        "same": f"the same within {100 * margin:g} %",
        "unclear": "unclear: the intervals are too wide for a verdict",
        "not alike": "not alike: the device, the timer or the state of the cache differs",
        "new": f"missing from {found[0].label}",
    }
    for verdict, text in texts.items():
        if verdict in by_verdict:
            named = f" ({_some(list(dict.fromkeys(by_verdict[verdict])))})" if verdict not in ("same", "new") else ""
            _say(f"{len(by_verdict[verdict])} {text}{named}")
    for run in found[1:]:
        gone = [entry.label for key, entry in found[0].entries.items() if key not in run.entries]
        if gone:
            _say(f"{len(gone)} missing from {run.label} ({_some(gone)})")
    for run in found:
        if run.failed:
            _say(f"{plural(len(run.failed), 'test')} failed in {run.label} ({_some(run.failed)})")
    return by_verdict.get("slower", [])
