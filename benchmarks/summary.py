"""What is kept of the results of the benchmarks, and what changed since those that were kept before.

A ratio is our time over a peer's in one run: of the samples of a case that a program kept as ``ours`` and those that it
did not. Targets in "x" are ratios too. Times of different runs are shown, never compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import Spread, amount, limit_text, ratio, spread, table_text, verdict

TIMES = {"s", "ms", "us", "ns"}
RATIOS = {"x", "×"}  # units of targets
IDENTIFYING = ("dtype", "form", "shape", "time")  # the facts that tell the cases of one name apart
MACHINE = ("device", "cpu", "cpus", "flopscope", "python", "torch")
LIMIT = 0.05  # change of a ratio that is told

Kept = dict[str, dict[str, Any]]
"""By program: date, machine, table, targets and ratios; or the error."""


def read(path: Path) -> Kept:
    """Return the results of a machine; none without the file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def kept_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a program's result: all but the raw samples, of which the ratios are."""
    facts = {fact: result["machine"].get(fact) for fact in MACHINE}
    table = {part: result[part] for part in ("columns", "rows", "notes", "targets")}
    return {"date": result["date"], "machine": facts, **table, "ratios": dict(ratios_of(result))}


def ratios_of(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the name of each ratio and its median over the rounds, or the value of a target in "x"."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for sample in result["samples"]:
        if sample["unit"] in TIMES and sample["values"]:
            cases.setdefault(_label(sample), []).append(sample)
    for case, samples in cases.items():
        mine = [sample for sample in samples if sample.get("ours")]
        for ours in mine:
            for peer in samples:
                if peer not in mine:
                    name = f"{case}: {ours['who']} / {peer['who']}"
                    yield name, _rounded(_over(ours["values"], peer["values"]).median)
    for target in result["targets"]:
        if target["unit"] in RATIOS and not target.get("least"):
            yield target["text"], _rounded(target["value"])


def _label(sample: Mapping[str, Any]) -> str:
    facts = (sample[fact] for fact in IDENTIFYING if fact in sample)
    return " ".join([sample["case"], *("x".join(map(str, one)) if isinstance(one, list) else one for one in facts)])


def _over(ours: list[float], theirs: list[float]) -> Spread:
    """Return the spread by round, or of medians if the numbers of rounds differ."""
    if len(ours) == len(theirs):
        return ratio(ours, theirs)
    return spread([spread(ours).median / spread(theirs).median])


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def before(name: str, now: Mapping[str, Any], candidates: list[Kept]) -> dict[str, Any] | None:
    """Return the newest of the results before that were measured on the same kind of machine."""
    same = [kept[name] for kept in candidates if "machine" in kept.get(name, {})]
    facts = ("device", "cpus")
    same = [one for one in same if all(one["machine"].get(fact) == now["machine"][fact] for fact in facts)]
    return max(same, key=lambda one: one["date"], default=None)


def text(kept: Kept, candidates: list[Kept]) -> str:
    """Return the programs, the targets, and the ratios that rose."""
    good = {name: one for name, one in kept.items() if "error" not in one}
    old = {name: before(name, one, candidates) for name, one in good.items()}
    lines = [f"{name} FAILED: {one['error'].strip().splitlines()[-1]}" for name, one in kept.items() if "error" in one]
    rows = [row for name, one in good.items() for row in _target_rows(name, one, old[name])]
    if rows:
        columns = ["program", "target", "limit", "value", "before", "verdict"]
        lines += table_text(columns, sorted(rows, key=lambda row: row[-1] == "met"), left=2)
    changes = [change for name, one in good.items() for change in _changes(name, one, old[name])]
    worse = sorted((one for one in changes if one[0] > LIMIT), reverse=True)
    better = sum(change < -LIMIT for change, _ in changes)
    total = sum(len(one["ratios"]) for one in good.values())
    lines.append(
        f"Ratios within one run, over those of the version before: {len(changes)} of {total} were there before, "
        f"{better} fell and {len(worse)} rose by over {LIMIT:.0%}."
    )
    return "\n".join([*lines, *(line for _, line in worse)])


def _target_rows(name: str, now: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[list[str]]:
    known = {} if old is None else {target["text"]: target["value"] for target in old["targets"]}
    for target in now["targets"]:
        what = f"{target['text']} ({target['worst']})" if "worst" in target else target["text"]
        last = f"{known[target['text']]:.4g}" if target["text"] in known else ""
        yield [name, what, limit_text(target), amount(target["value"], target["unit"]), last, verdict(target)]


def _changes(name: str, now: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[tuple[float, str]]:
    """Yield the change of each ratio that was there before, as a fraction, and its line."""
    for what, value in now["ratios"].items():
        last = (old or {}).get("ratios", {}).get(what, 0)
        if last > 0:
            change = value / last - 1
            yield change, f"regression: {name}: {what}: {last:.4g} -> {value:.4g} (+{change:.1%})"
