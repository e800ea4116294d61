"""Advice: what to change first, with an estimate of what each change gains, and the evidence for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flopscope.answers import (
    collective_rules,
    compute_rules,
    counted,
    fuse_rules,
    host_rules,
    jax_rules,
    launch_rules,
    memory_rules,
    roof_rules,
    wait_rules,
)
from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding
from flopscope.answers.pieces import Gap, Op
from flopscope.answers.replays import Replayed
from flopscope.answers.words import shown_as_sentence

FAMILIES = (host_rules, jax_rules, wait_rules, collective_rules, compute_rules, memory_rules)
_GENERAL = (counted, roof_rules, fuse_rules, launch_rules)
RULES = {rule.__name__: rule for family in (*FAMILIES, *_GENERAL) for rule in family.RULES}
"""By name, particular causes first."""
LEAST_SHARE = 0.01
"""Share of the step below which a saving is not reported."""


class Advice(NamedTuple):
    """One piece of advice."""

    rule: str
    """The rule that applies; each has a section in docs/answers.md."""
    saving_us: float
    """Estimated gain in wall time: µs per step, or of the profile if it has no steps."""
    saving_alone_us: float
    """The same of this change alone; ``saving_us`` is what it gains after those that stand before it."""
    saving_pct: float
    """The same in percent of the step as it would be without recording."""
    up_to: bool
    """Whether it may be less: it rests on the host's time, of which recording took an estimated part."""
    action: str
    """What to change, in a few words."""
    what: str
    """What to change, and why: the action, a colon, and the reason."""
    evidence: list[dict[str, Any]]
    """The rows it rests on: op, shapes, dtypes, time (µs per step) and calls (per step); "row", the id of the row in
    the table grouped by shape, and "event", the id of one of its events, both None where it rests on no single row."""
    where: str | None
    """Module or source line, where one was recorded."""
    facts: dict[str, Any]
    """What ``what`` is made from: numbers, names and flags, of values that JSON can hold."""

    @property
    def saves(self) -> str:
        """How sure ``saving_us`` is, in words that stand before it."""
        return f"saves {'up to' if self.up_to else 'about'}"

    @property
    def reason(self) -> str:
        """``what`` without the action: why, and how."""
        return shown_as_sentence(self.what.removeprefix(f"{self.action}: "))


class Pools:
    """The time that advice may still claim: of each op, of each idle time, and of all together."""

    def __init__(self, analysis: Analysis) -> None:
        self.times = {id(op): op.time for op in (*analysis.ops, *analysis.tried)}
        self.times |= {id(gap): analysis.gap_unobserved(gap) for gap in analysis.gaps}
        self.left = analysis.unobserved

    def granted(self, finding: Finding) -> list[tuple[Op | Gap, float]]:
        """Return what is left of each op and gap for the finding to claim."""
        return [(source, min(wanted, self.times[id(source)])) for source, wanted in finding.claims]

    def take(self, saving: float, claims: Sequence[tuple[Op | Gap, float]]) -> None:
        for source, granted in claims:
            self.times[id(source)] -= granted
        self.left -= saving


def advised(analysis: Analysis) -> Iterator[Advice]:
    """Apply the rules. First comes the change that gains most alone, then the one that gains most after it, and so on.

    A change gains no more than the time that it claims and that no earlier one has, and no more than a replay of the
    steps with it says, alone and after the earlier ones. Of a profile whose whole time is the recording's own, nothing
    is known that a change would gain.
    """
    if not analysis.unobserved > 0:
        return
    replayed, pools, least = Replayed(analysis), Pools(analysis), LEAST_SHARE * analysis.unobserved

    def offer(finding: Finding) -> float:
        claims = pools.granted(finding)
        claimed = min(sum(time for _, time in claims), pools.left)
        return min(claimed, replayed.gain(finding, claims) * analysis.unobserved) if claimed >= least else 0.0

    found = [(rule, one, offer(one)) for rule, finds in RULES.items() for one in finds(analysis)]
    found = [(rule, one, alone) for rule, one, alone in found if alone >= least]
    # Who waits for others at work waits the longer for being faster.
    if pacing := [one for one in found if one[1].sets_pace]:
        found = pacing
    after = {id(one) for _, one, _ in found if any(rule == one.needs for rule, *_ in found)}  # alone, they gain nothing
    # Each change is judged anew after those that were taken: some make others worthless, and some make them possible.
    while found:
        known = {rule for rule, *_ in found}
        offers = [(offer(one[1]), one) for one in found if one[1].needs not in known]
        saving, best = max(offers, key=lambda pair: pair[0])
        found.remove(best)
        rule, finding, alone = best
        saving, alone = (saving, 0.0) if id(finding) in after else (min(saving, alone), alone)
        if saving < least:
            continue
        claims = pools.granted(finding)
        pools.take(saving, claims)
        replayed.gain(finding, claims, take=True)
        action, reason, given = finding.says
        facts = {name: _plain(value) for name, value in given.items()}
        share, what, evidence = 100 * saving / analysis.unobserved, f"{action}: {reason}", []
        for one in finding.evidence:  # with the ids of its rows and events, None where it has none
            event = one["event"] if one["event"] >= 0 else None
            evidence.append({**one, "row": analysis.row_id(one["row"]), "event": event})
        by_host = finding.removed or any(isinstance(source, Gap) for source, _ in claims)
        up_to = bool(by_host) and analysis.bare is None and analysis.is_delayed
        yield Advice(rule, saving, alone, share, up_to, action, what, evidence, finding.where, facts)


def _plain(value: Any) -> Any:
    """Return a fact as a value that JSON can hold: lists for tuples, None for NaN."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return None if value != value else value
