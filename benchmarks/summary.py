"""What a run of the benchmarks says: which targets are met, and its ratios beside those of the version before.

A ratio is our time over a peer's in one run. Its pairs are those samples of a case that a program kept as ``ours`` and
those that it did not; the same pairs are looked up in the results before, whose raw samples need no marks. Targets
in "x" are ratios too. Times of different runs are shown, never compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import Spread, amount, limit_text, ratio, spread, table_text, verdict

TIMES = {"s", "ms", "us", "ns"}
RATIOS = {"x", "×"}  # units of targets
IDENTIFYING = ("dtype", "form", "shape", "time")  # the facts that tell the cases of one name apart
MACHINE = ("device", "cpus")
LIMIT = 0.05  # change of a ratio that is told

Content = Mapping[str, Any]
"""A result: the JSON file of a program."""
Samples = dict[str, list[float]]
Summary = dict[str, list[dict[str, Any]]]
"""Rows under "programs", "targets" and "ratios"."""


def read(path: Path) -> dict[str, Any] | None:
    """Return a result; None without the file or without a result in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "machine" in content and "samples" in content else None


def same_machine(a: Content, b: Content) -> bool:
    return all(a["machine"].get(fact) == b["machine"].get(fact) for fact in MACHINE)


def before(now: Content, candidates: Iterable[Content]) -> Content | None:
    """Return the newest of the results before that were measured on the same kind of machine."""
    return max((one for one in candidates if same_machine(now, one)), key=lambda one: one["date"], default=None)


# Ratios -------------------------------------------------------------------------------------------------------------


def label(sample: Content) -> str:
    facts = (sample[fact] for fact in IDENTIFYING if fact in sample)
    return " ".join([sample["case"], *("x".join(map(str, one)) if isinstance(one, list) else one for one in facts)])


def samples_of(content: Content) -> dict[str, Samples]:
    """Return the times by case and name."""
    cases: dict[str, Samples] = {}
    for sample in content["samples"]:
        if sample["unit"] in TIMES:
            cases.setdefault(label(sample), {})[sample["who"]] = sample["values"]
    return cases


def pairs_of(content: Content) -> Iterator[tuple[str, str, str]]:
    """Yield a case, one of ours and each peer sampled beside it."""
    ours = {(label(sample), sample["who"]) for sample in content["samples"] if sample.get("ours")}
    for case, samples in samples_of(content).items():
        mine = [who for who in samples if (case, who) in ours]
        yield from ((case, who, peer) for who in mine for peer in samples if peer not in mine)


def ratio_of(samples: Samples, ours: str, peer: str) -> Spread | None:
    """Return the spread of ours over the peer's: by round, or of medians if the numbers of rounds differ."""
    if not samples.get(ours) or not samples.get(peer):
        return None
    if len(samples[ours]) == len(samples[peer]):
        return ratio(samples[ours], samples[peer])
    return spread([spread(samples[ours]).median / spread(samples[peer]).median])


def ratios(program: str, now: Content, old: Content | None) -> list[dict[str, Any]]:
    """Return a row for each ratio of a result, with the one before; ``before`` is None where there was none."""
    times, times_before = samples_of(now), samples_of(old) if old is not None else {}
    rows = []
    for case, ours, peer in pairs_of(now):
        value = ratio_of(times[case], ours, peer)
        assert value is not None
        last = ratio_of(times_before.get(case, {}), ours, peer)
        rows.append(ratio_row(program, f"{case}: {ours} / {peer}", value, last))
    known = {target["text"]: target["value"] for target in old["summary"]["targets"]} if old is not None else {}
    for target in now["summary"]["targets"]:
        if target["unit"] in RATIOS and not target.get("least"):
            last = spread([known[target["text"]]]) if target["text"] in known else None
            rows.append(ratio_row(program, target["text"], spread([target["value"]]), last))
    return rows


def ratio_row(program: str, what: str, value: Spread, old: Spread | None) -> dict[str, Any]:
    """``change``: of the median, as a fraction. ``apart``: the quartiles do not overlap."""
    row = {"program": program, "ratio": what, "value": value.median, "low": value.low, "high": value.high}
    if old is None or old.median <= 0:
        return row | {"before": None, "change": None, "apart": None}
    apart = value.low > old.high or value.high < old.low
    return row | {"before": old.median, "change": value.median / old.median - 1, "apart": apart}


# The summary --------------------------------------------------------------------------------------------------------


def targets(program: str, now: Content, old: Content | None) -> list[dict[str, Any]]:
    """Return the targets of a result, with the values before."""
    known = {target["text"]: target["value"] for target in old["summary"]["targets"]} if old is not None else {}
    return [{"program": program, **target, "before": known.get(target["text"])} for target in now["summary"]["targets"]]


def program_row(program: str, now: Content | None, old: Content | None, seconds: float, error: str) -> dict[str, Any]:
    row: dict[str, Any] = {"program": program, "seconds": round(seconds, 1)}
    if now is None:
        return row | {"error": error or "it wrote no result"}
    row |= {"device": now["machine"]["device"], "flopscope": now["machine"]["flopscope"], "date": now["date"]}
    last = None if old is None else {"flopscope": old["machine"]["flopscope"], "date": old["date"]}
    return row | {"before": last}


def summarized(
    program: str, now: Content | None, candidates: Sequence[Content], seconds: float, error: str = ""
) -> Summary:
    """Return what one program adds to the summary."""
    old = None if now is None else before(now, candidates)
    return {
        "programs": [program_row(program, now, old, seconds, error)],
        "targets": [] if now is None else targets(program, now, old),
        "ratios": [] if now is None else ratios(program, now, old),
    }


def combined(parts: Iterable[Summary]) -> Summary:
    """Join parts of a summary; a program's rows are those of the last part that has it."""
    whole: Summary = {"programs": [], "targets": [], "ratios": []}
    for part in parts:
        new = {row["program"] for row in part["programs"]}
        for name, rows in whole.items():
            whole[name] = [row for row in rows if row["program"] not in new] + list(part[name])
    return whole


def read_summary(path: Path) -> Summary:
    """Return the summary of an earlier run; an empty one without such a file."""
    return combined([json.loads(path.read_text(encoding="utf-8"))] if path.exists() else [])


def text(summary: Summary) -> str:
    compared = [row for row in summary["ratios"] if row["change"] is not None]
    worse = sorted((row for row in compared if row["change"] > LIMIT), key=lambda row: -row["change"])
    better = [row for row in compared if row["change"] < -LIMIT]
    missed = [row for row in summary["targets"] if not row["met"]]
    lines = [
        *program_lines(summary),
        "",
        f"Targets: {len(summary['targets']) - len(missed)} met, {len(missed)} missed. Before: not judged.",
        *target_lines(summary["targets"]),
        "",
        f"Ratios within one run, over those of the version before: {len(compared)} of {len(summary['ratios'])} were "
        f"there before, {len(better)} fell and {len(worse)} rose by over {LIMIT:.0%}.",
        *(regression_text(row) for row in worse),
    ]
    return "\n".join(lines)


def program_lines(summary: Summary) -> list[str]:
    rows = []
    for row in summary["programs"]:
        took = f"{row['seconds']:.0f}"
        if "error" in row:
            rows.append([row["program"], took, "FAILED: " + row["error"].strip().splitlines()[-1], "", ""])
            continue
        mine = [one for one in summary["ratios"] if one["program"] == row["program"]]
        known = sum(one["change"] is not None for one in mine)
        last = row["before"]
        then = "not in the version before" if last is None else f"{last['flopscope']}, {last['date'][:10]}"
        rows.append([row["program"], took, row["device"], then, f"{known} of {len(mine)}"])
    return table_text(["program", "seconds", "device", "before", "ratios compared"], rows, left=1) if rows else []


def target_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = []
    for row in sorted(rows, key=lambda row: bool(row["met"])):
        what = f"{row['text']} ({row['worst']})" if "worst" in row else row["text"]
        old = "" if row["before"] is None else f"{row['before']:.4g}"
        value = amount(row["value"], row["unit"])
        cells.append([row["program"], what, limit_text(row), value, old, verdict(row)])
    return table_text(["program", "target", "limit", "value", "before", "verdict"], cells, left=2) if cells else []


def regression_text(row: Mapping[str, Any]) -> str:
    doubt = "" if row["apart"] else "; the quartiles overlap"
    values = f"{row['before']:.4g} -> {row['value']:.4g} (+{row['change']:.1%}{doubt})"
    return f"regression: {row['program']}: {row['ratio']}: {values}"
