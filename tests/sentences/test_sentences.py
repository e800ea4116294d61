"""Sentences: each record of facts has one, which says one thing in the singular and several in the plural."""

from __future__ import annotations

import inspect
import math
from typing import get_args

import pytest

from flopscope.answers import facts
from flopscope.answers.advice import SENTENCES
from flopscope.answers.sentences import compute, host
from flopscope.answers.sentences.words import Said, form, listed, more_ops
from flopscope.answers.wait_rules import BLAMED

OF_NOTES = {facts.Cached, facts.FirstUse, facts.Paused, facts.FarOp}
"""Facts of notes, and of one op among those of FarFromRoof."""


def said(of: object) -> Said:
    return SENTENCES[type(of)](of)


def test_every_record_of_facts_has_a_sentence() -> None:
    records = {one for _, one in inspect.getmembers(facts, inspect.isclass) if one.__module__ == facts.__name__}
    assert set(SENTENCES) == records - OF_NOTES


def test_every_code_in_the_facts_has_its_text() -> None:
    assert set(get_args(facts.Such)) == set(compute.SUCH) == set(compute.REMEDIES)
    assert {*BLAMED.values(), "", "synchronize"} == set(host.REMEDIES)


@pytest.mark.parametrize(
    ("one", "several"),
    [
        (facts.Casts(1, "a step", 5, math.nan, "", "", False, False), "2 casts a step take 5.00us."),
        (facts.ChannelsLast(5, 1, "a step"), "2 convolutions a step convert between"),
        (facts.Reordered(1, "a step", 5, math.nan, "aten::clone"), "2 copies a step only reorder elements"),
        (facts.Allocations(1, 1, ("cudaMalloc",), 5, "a step", False), "2 calls a step of cudaMalloc take 5.00us"),
    ],
)
def test_one_thing_is_said_in_the_singular(one: facts.Casts, several: str) -> None:
    number, noun, *rest = several.split()
    single = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    assert said(one._replace(calls=2)).reason.startswith(several) and number == "2"
    verbs = {"take": "takes", "convert": "converts", "reorder": "reorders"}
    assert said(one).reason.startswith(" ".join(["1", single, *(verbs.get(word, word) for word in rest)]))


def test_products_of_two_kinds_run_and_one_runs() -> None:
    precision = facts.LowPrecision((("attention", 1, 5.0),), "a step", "", "bfloat16", False, math.nan)
    assert said(precision).reason.endswith("1 call of attention a step (5.00us) runs in float32.")
    both = precision._replace(parts=(("product", 1, 5.0), *precision.parts), unit="TF32", ratio=2)
    assert "1 product a step (5.00us) run in TF32; 1 call of attention a step (5.00us) run" in said(both).reason


def test_lists_and_verbs() -> None:
    assert [listed(["a", "b", "c"][:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert [form(count, "takes", "take") for count in (1, 2, 0.5)] == ["takes", "take", "take"]
    assert [more_ops(n) for n in (0, 1)] == ["", " The same holds for 1 more op."]
