"""record_function(): ranges, how they nest, and what happens when they do not."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from test_profile import counts, rows_of, table_of

import flopscope as fs


@pytest.fixture
def x() -> fs.Tensor:
    return fs.ones((8, 8))


def test_a_range_is_a_user_annotation_without_work(x: fs.Tensor) -> None:
    with fs.profile() as prof, fs.record_function("part"):
        fs.sin(x)
    row = rows_of(prof)["part"]
    assert row.is_user_annotation and not rows_of(prof)["flopscope::sin"].is_user_annotation
    assert math.isnan(row.flops) and math.isnan(row.bytes_total_moved) and row.flops_total == 64


def test_a_decorated_function_is_a_range_each_time(x: fs.Tensor) -> None:
    @fs.record_function("step")
    def step(n: int, *, by: int = 1) -> int:
        """Doc."""
        fs.sin(x)
        return n if n <= 0 else step(n - by)

    assert (step.__name__, step.__doc__) == ("step", "Doc.")
    assert step(0) == 0
    with fs.profile() as prof:
        assert step(3) == 0 and step(4, by=4) == 0
    rows = rows_of(prof)
    assert rows["step"].count == 6 and rows["flopscope::sin"].count == 6
    # calls lie in each other: the outermost two enclose all 6 sines, those within 3 + 2 + 1 and 1 of them again
    assert rows["step"].flops_total == 64 * (4 + 3 + 2 + 1 + 2 + 1)


def test_one_range_object_may_be_entered_again_and_again(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    with fs.profile() as prof:
        with part as same:
            assert same is part
            with part:
                fs.sin(x)
        with part:
            pass
    assert counts(prof) == {"part": 3, "flopscope::sin": 1} and rows_of(prof)["part"].flops_total == 2 * 64


def test_one_range_object_may_be_entered_by_threads_at_once(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with part:
            entered.set()
            left.wait(60)
            fs.sin(x)

    with fs.profile() as prof:
        thread = threading.Thread(target=second)
        with part:
            thread.start()
            entered.wait(60)
        left.set()
        thread.join()
    rows = rows_of(prof)
    assert rows["part"].count == 2 and rows["part"].flops_total == 64 and not rows["flopscope::sin"].top_level


def test_ranges_outside_a_profile_do_nothing(x: fs.Tensor) -> None:
    with fs.record_function("before"), fs.profile() as prof:
        fs.sin(x)
    late = fs.record_function("late")
    with fs.profile() as second:
        late.__enter__()
        fs.sin(x)
    late.__exit__(None, None, None)
    with fs.record_function("after"):
        pass
    assert counts(prof) == {"flopscope::sin": 1} and counts(second) == {"late": 1, "flopscope::sin": 1}


def test_a_range_left_open_ends_with_the_profile(x: fs.Tensor) -> None:
    prof = fs.profile()
    prof.start()
    with fs.record_function("open"):
        fs.sin(x)
        prof.stop()
        rows = rows_of(prof)
        assert rows["open"].count == 1 and rows["open"].cpu_time_total >= rows["flopscope::sin"].cpu_time_total
        assert table_of(prof).open_events == 0
        fs.cos(x)
        with fs.profile() as other, fs.record_function("inside"):
            fs.exp(x)
    assert rows_of(prof)["open"].cpu_time_total == rows["open"].cpu_time_total, "leaving it later changes nothing"
    assert counts(prof) == {"open": 1, "flopscope::sin": 1}
    assert counts(other) == {"inside": 1, "flopscope::exp": 1}
    assert [row.key for row in table_of(other) if row.top_level] == ["inside"]


def test_ranges_that_do_not_nest_end_what_they_enclose(x: fs.Tensor) -> None:
    outer, inner = fs.record_function("outer"), fs.record_function("inner")
    with fs.profile() as prof:
        outer.__enter__()
        inner.__enter__()
        fs.sin(x)
        outer.__exit__(None, None, None)
        fs.cos(x)
        inner.__exit__(None, None, None)
        fs.exp(x)
    assert counts(prof) == {"outer": 1, "inner": 1, "flopscope::sin": 1, "flopscope::cos": 1, "flopscope::exp": 1}
    assert {row.key for row in table_of(prof) if row.top_level} >= {"outer", "flopscope::exp"}
    for row in table_of(prof):
        assert 0 <= row.self_cpu_time_total <= row.cpu_time_total


def test_a_generator_may_hold_a_range_open(x: fs.Tensor) -> None:
    def batches() -> Iterator[int]:
        for i in range(3):
            with fs.record_function(f"batch {i}"):
                yield i

    with fs.profile() as prof:
        for _ in batches():
            fs.sin(x)
        left = batches()
        next(left)
        left.close()
        fs.cos(x)
    rows = rows_of(prof)
    assert [rows[f"batch {i}"].count for i in range(3)] == [2, 1, 1]
    assert all(rows[f"batch {i}"].flops_total == 64 for i in range(3)) and rows["flopscope::cos"].top_level


def test_a_range_begun_on_one_thread_may_end_on_another(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    with fs.profile() as prof:
        part.__enter__()
        thread = threading.Thread(target=part.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        fs.sin(x)
    assert counts(prof) == {"part": 1, "flopscope::sin": 1} and table_of(prof).open_events == 0


@pytest.mark.parametrize("name", ["", "a" * 5000, "µs → 🚀", "aten::add", "flopscope::sin", "new\nline", "%s%n"])
def test_ranges_have_any_name(name: str, x: fs.Tensor) -> None:
    with fs.profile() as prof, fs.record_function(name):
        fs.cos(x)
    row = next(row for row in table_of(prof) if row.is_user_annotation)
    assert row.key == name and row.count == 1
    assert table_of(prof).table() and math.isnan(row.flops), "a range has no work, whatever its name"


@pytest.mark.parametrize("name", [None, 3, b"bytes", ["x"]])
def test_a_range_needs_a_string(name: Any) -> None:
    with pytest.raises(TypeError, match="string"):
        fs.record_function(name)


@pytest.mark.parametrize("name", ["lone \udc80 surrogate", "nul \0 inside"])
def test_a_name_that_cannot_be_kept_whole_is_refused_or_kept(name: str, x: fs.Tensor) -> None:
    with fs.profile() as prof:
        try:
            with fs.record_function(name):
                fs.sin(x)
        except ValueError:
            kept = {"flopscope::sin"}
        else:
            kept = {name, "flopscope::sin"}
        fs.sin(x)
    assert set(counts(prof)) == kept


def test_exceptions_pass_through_and_end_what_they_leave(x: fs.Tensor) -> None:
    prof = fs.profile()
    with pytest.raises(ZeroDivisionError), prof, fs.record_function("fails"):
        fs.sin(x)
        raise ZeroDivisionError
    assert counts(prof) == {"fails": 1, "flopscope::sin": 1} and table_of(prof).open_events == 0
    with fs.profile() as after:
        fs.sin(x)
    assert counts(after) == {"flopscope::sin": 1}
