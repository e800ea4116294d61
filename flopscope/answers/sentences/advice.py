"""Pieces of advice: findings with their sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flopscope.answers import facts
from flopscope.answers.advice import Judged
from flopscope.answers.sentences import bytes, collectives, compute, host, jax
from flopscope.answers.sentences.words import Said, shown_as_sentence


class Advice(NamedTuple):
    """One piece of advice."""

    rule: str
    """The rule that applies; each has a section in docs/answers.md."""
    saving_us: float
    """Estimated gain in wall time: µs per step, or of the profile if it has no steps."""
    saving_pct: float
    """The same in percent of the step as it would be without recording."""
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
    def reason(self) -> str:
        """``what`` without the action: why, and how."""
        return shown_as_sentence(self.what.removeprefix(f"{self.action}: "))


SENTENCES: Mapping[type, Callable[[Any], Said]] = {
    facts.Attention: compute.attention,
    facts.MathPath: compute.math_path,
    facts.Tf32: compute.tf32,
    facts.LowPrecision: compute.low_precision,
    facts.Padded: compute.padded,
    facts.Small: compute.small,
    facts.FarFromRoof: compute.far_from_roof,
    facts.Casts: bytes.casts,
    facts.ChannelsLast: bytes.channels_last,
    facts.Reordered: bytes.reordered,
    facts.Chains: bytes.chains,
    facts.Traffic: bytes.traffic,
    facts.PaddedTiles: bytes.padded_tiles,
    facts.StarvedTensorCores: bytes.starved_tensor_cores,
    facts.Warmup: host.warmup,
    facts.DataWait: host.data_wait,
    facts.Copies: host.copies,
    facts.Allocations: host.allocations,
    facts.Waits: host.waits,
    facts.OptimizerOps: host.optimizer_ops,
    facts.Launches: host.launches,
    facts.HostWork: host.host_work,
    facts.WaitsForRanks: collectives.waits_for_ranks,
    facts.ExposedTransfers: collectives.exposed_transfers,
    facts.Undonated: jax.undonated,
    facts.Transposed: jax.transposed,
    facts.CopiedCarry: jax.copied_carry,
    facts.Callbacks: jax.callbacks,
    facts.Precise: jax.precise,
    facts.Widened: jax.widened,
}
"""The sentence of each record of facts, which is made from its fields alone."""


def worded(found: Judged) -> Advice:
    """Return a finding with its sentence."""
    action, reason = SENTENCES[type(found.facts)](found.facts)
    numbers = found.rule, found.saving_us, found.saving_pct
    plain = {name: _plain(value) for name, value in found.facts._asdict().items()}
    return Advice(*numbers, action, f"{action}: {reason}", found.evidence, found.where, plain)


def _plain(value: Any) -> Any:
    """Return a fact as a value that JSON can hold: lists for tuples, None for NaN."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return None if value != value else value
