"""Sentences say one thing in the singular and several in the plural."""

import math
from collections.abc import Callable
from typing import get_args

import pytest

from flopscope.answers import roof_rules, wait_rules
from flopscope.answers.compute_rules import say_low_precision
from flopscope.answers.memory_rules import say_cast, say_channels_last, say_reordered
from flopscope.answers.words import Said, form, listed, more_ops


def test_every_code_in_the_facts_has_its_text() -> None:
    assert set(get_args(roof_rules.Such)) == set(roof_rules.SUCH) == set(roof_rules.REMEDIES)
    assert {*wait_rules.BLAMED.values(), "", "checked", "synchronize"} == set(wait_rules.REMEDIES)


@pytest.mark.parametrize(
    ("say", "several"),
    [
        (lambda n: say_cast(n, "a step", 5, math.nan, "", "", False, False), "2 casts a step take 5.00us."),
        (lambda n: say_channels_last(5, n, "a step", False), "2 conversions a step between NCHW and NHWC in"),
        (lambda n: say_reordered(n, "a step", 5, math.nan, "x"), "2 copies a step only reorder elements"),
        (
            lambda n: wait_rules.say_memory(n, 1, ("cudaMalloc",), 5, "a step", False),
            "2 calls a step of cudaMalloc take 5.00us",
        ),
    ],
)
def test_one_thing_is_said_in_the_singular(say: Callable[[int], Said], several: str) -> None:
    _, noun, *rest = several.split()
    single = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    assert say(2).reason.startswith(several)
    verbs = {"take": "takes", "convert": "converts", "reorder": "reorders"}
    assert say(1).reason.startswith(" ".join(["1", single, *(verbs.get(word, word) for word in rest)]))


def test_products_of_two_kinds_run_and_one_runs() -> None:
    attention = ("attention", 1, 5.0)
    alone = say_low_precision([attention], "a step", "", "bfloat16", False, math.nan)
    assert alone.reason.endswith("1 call of attention a step (5.00us) runs in float32.")
    both = say_low_precision([("product", 1, 5.0), attention], "a step", "TF32", "bfloat16", False, 2)
    assert "1 product a step (5.00us) run in TF32; 1 call of attention a step (5.00us) run" in both.reason


def test_lists_and_verbs() -> None:
    assert [listed(["a", "b", "c"][:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert [form(count, "takes", "take") for count in (1, 2, 0.5)] == ["takes", "take", "take"]
    assert [more_ops(n) for n in (0, 1)] == ["", " The same holds for 1 more op."]
