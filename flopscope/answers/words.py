"""Words that sentences share: lists, verbs, and what ops cost."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple

from flopscope.support.units import percent_text, plural, short_time_text

PLAIN_WORD = re.compile(r"[a-z]+(?=[ ,']|$)")
FEW = 3
"""Names that a sentence on many of them shows."""
OP_WIDTH, KERNEL_WIDTH = 32, 60
"""Longest names of an op in an action, and of a kernel, as that of a template of C++."""


class Said(NamedTuple):
    """The sentence of a finding."""

    action: str
    """What to do, in a few words."""
    reason: str
    """Why, and how; what follows the action and a colon."""
    facts: Mapping[str, Any] = MappingProxyType({})
    """What the words are made from, by name."""


def facts_of(says: partial[Any]) -> dict[str, Any]:
    """Return the facts of a sentence by name: its arguments."""
    facts = signature(says.func).bind(*says.args, **says.keywords)
    facts.apply_defaults()
    return facts.arguments


def told(say: Callable[..., Said], *args: Any, **more: Any) -> Said:
    """Return a sentence that is made from facts, the arguments of a function."""
    says = partial(say, *args, **more)
    return says()._replace(facts=facts_of(says))


def shown_as_sentence(text: str) -> str:
    """Return text with a capital at its start, unless it starts with a name: "aten::mm", "torch.compile"."""
    return text[:1].upper() + text[1:] if PLAIN_WORD.match(text) else text


NO_GAIN = {
    "warmup": "the first use of code takes about {} of the time",
    "straggler": "waiting takes about {} of the time",
}
"""What the saving is, for rules whose advice does not itself shorten the program."""


def gain_text(rule: str, percent: float) -> str:
    """Return what following a piece of advice gains, in a few words: "about 26% less time"."""
    share = f"{percent:.0f}%" if percent >= 9.5 else percent_text(percent)
    return NO_GAIN.get(rule, "about {} less time").format(share)


def listed(names: Sequence[str]) -> str:
    """Return names as a list: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def first_of(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - FEW
    return ", ".join(names[:FEW]) + (f" and {more} more" if more > 0 else "")


def more_ops(count: int) -> str:
    """Return the sentence about the ops beside the one that is named; "" without any."""
    return f" The same holds for {plural(count, 'more op')}." if count > 0 else ""


def form(count: float, singular: str, several: str) -> str:
    """Return the form of a word, or of several, for so many things: form(2, "comes", "come") is "come"."""
    return singular if count == 1 else several


def cost_text(time: float, host: float) -> str:
    """Return what ops take, in µs: of the device and of the host that drives it, or of a CPU program (host: NaN)."""
    if math.isnan(host):
        return short_time_text(time)
    return f"{short_time_text(time)} of the device's time and about {short_time_text(host)} of the host's"
