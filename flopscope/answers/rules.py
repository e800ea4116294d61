"""The rules of the advice, in the order in which they claim time: particular causes first, the general ones last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from flopscope.answers import (
    collective_rules,
    compute_rules,
    counter_rules,
    host_rules,
    jax_rules,
    launch_rules,
    memory_rules,
    roof_rules,
    wait_rules,
)
from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding

RULES: Mapping[str, Callable[[Analysis], Iterator[Finding]]] = {
    "warmup": host_rules.warmup,
    "callback": jax_rules.callback,
    "data": host_rules.data,
    "copy": host_rules.copy,
    "memory": wait_rules.memory,
    "sync": wait_rules.sync,
    "optimizer": host_rules.optimizer,
    "straggler": collective_rules.straggler,
    "communication": collective_rules.communication,
    "donate": jax_rules.donate,
    "carry": jax_rules.carry,
    "precision": jax_rules.precision,
    "attention": compute_rules.attention,
    "tf32": compute_rules.tf32,
    "low_precision": compute_rules.low_precision,
    "align": compute_rules.align,
    "elements": memory_rules.elements,
    "growth": memory_rules.growth,
    "float64": memory_rules.float64,
    "cast": memory_rules.cast,
    "layout": memory_rules.layout,
    "traffic": counter_rules.traffic,
    "small": compute_rules.small,
    "far_from_roof": roof_rules.far_from_roof,
    "fuse": memory_rules.fuse,
    "launch": launch_rules.launch,
}
