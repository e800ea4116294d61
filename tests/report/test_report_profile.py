"""What a page shares between its sections is what the profile's methods return, each from a pass of its own."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from helpers import DATA

import flopscope as fs
from flopscope.results.table import EventTable
from flopscope.show.page import profile as profile_module
from flopscope.show.page.profile import Profile

TRACES = sorted((DATA / "traces").glob("*.json.gz"))


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name.split(".")[0])
def trace(request: pytest.FixtureRequest) -> fs.Trace:
    path: Path = request.param
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fs.load_trace(path)


def same(a: EventTable, b: EventTable) -> bool:
    return a.to_pandas().equals(b.to_pandas()) and a.parts["kernels"] == b.parts["kernels"]


def test_the_rows_of_a_page_are_those_of_the_profile(trace: fs.Trace) -> None:
    source = Profile(trace, blocks=1000)
    assert same(source.names, trace.key_averages(kernels=True))
    if source.has_shape_rows:
        assert same(source.rows, trace.key_averages(group_by=("name", "shape"), kernels=True))


def test_the_advice_of_a_page_is_that_of_the_profile(trace: fs.Trace) -> None:
    assert list(Profile(trace, blocks=1000).advice) == list(trace.advice())


def test_rows_of_the_core_lead_to_the_names_of_a_page_without_shapes(
    trace: fs.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_module, "MOST_ROWS", 0)
    source = Profile(trace, blocks=1000)
    own, row_of = source.shaped.columns, source.row_of
    assert row_of is not None and len(row_of) == len(own["key"])
    for name in ("key", "device_type", "is_user_annotation"):
        assert [source.rows.columns[name][row] for row in row_of.tolist()] == list(own[name])
