"""What the page has of the core's tables: its style sheet, the looks of bounds, its parts and categories."""

import re

import pytest
from helpers import ROOT
from helpers.report_pages import contrast

from flopscope import _core
from flopscope.show.looks import BOUNDS, sheet
from flopscope.show.page.page import STYLES

PAGE = ROOT / "flopscope" / "show" / "page" / "assets"


def test_every_part_bound_and_series_has_colours_and_a_class_once() -> None:
    text = sheet()
    parts = "ideal compute memory latency launch unmodelled communication copy host sync data compilation recording "
    parts += "edges other"
    bounds = "unknown compute memory launch latency inefficient other cache l2 l1 tensor fma fp64 alu issue"
    names = [f"part-{name}" for name in parts.split()] + [f"bound-{name}" for name in bounds.split()]
    names += [f"series-{number}" for number in range(1, 8)]
    for name in names:
        assert len(re.findall(rf"--{name}: #[0-9a-f]{{6}};", text)) == 2, name
        assert len(re.findall(rf"^\.{name} {{ background: ", text, re.M)) == 1, name
    assert re.search(r"^\.part-data { background: radial-gradient\(", text, re.M), "a hatch"
    used = "".join((PAGE / name).read_text(encoding="utf-8") for name in STYLES) + text
    assert {name for name in re.findall(r"var\(--((?:part|bound|series|idle)-[\w-]+)\)", used)} <= set(names)


def rgb(colour: str) -> list[int]:
    return [*bytes.fromhex(colour[1:])]


@pytest.mark.parametrize("dark", [False, True])
def test_the_ideal_is_told_from_what_stands_beside_it(dark: bool) -> None:
    colour = {name: part.dark if dark else part.light for name, part in _core.parts.items()}
    assert contrast(rgb(colour["ideal"]), rgb(colour["memory"])) >= 2
    assert all(contrast(rgb(bound.dark), rgb("#121518")) >= 3 for bound in _core.bounds.values())


def test_parts_that_follow_from_bounds_have_their_colour() -> None:
    for name, bound in _core.bounds.items():
        if bound.part == name:
            assert (bound.light, bound.dark) == (_core.parts[name].light, _core.parts[name].dark)
    assert {bound.part for bound in _core.bounds.values()} <= {"", *_core.parts}
    assert [name for name, bound in _core.bounds.items() if not bound.part] == ["inefficient"]


def test_texts_of_parts_are_of_a_device_or_of_none() -> None:
    assert list(_core.parts) == list(_core.bare_parts)
    for part in (*_core.parts.values(), *_core.bare_parts.values()):
        assert part.label and part.gloss and part.noun and part.meaning.endswith(".")
    assert all(len(part.gloss) <= 35 for rows in (_core.parts, _core.bare_parts) for part in rows.values())
    idle = set(_core.idle_parts) - {"communication"}  # which is work of a device
    assert {name for name, part in _core.parts.items() if part.change} == idle
    changes = {name for name, part in _core.bare_parts.items() if part.change}
    assert changes == {"host", "data", "compilation", "edges", "communication"}
    assert not any("device" in part.label + part.gloss + part.change for part in _core.bare_parts.values())


def test_each_bound_has_a_meaning_and_the_unknown_one_is_last() -> None:
    assert len(BOUNDS) == len(_core.bounds)
    assert list(BOUNDS)[-1] == "unknown" and all(bound.meaning for bound in _core.bounds.values())
