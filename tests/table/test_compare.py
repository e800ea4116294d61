"""compare(): matching of rows, and the table of a comparison."""

import math
from typing import Any

import pytest
from helpers.tables import make_table

import flopscope as fs
from flopscope.answers.comparing import compare
from flopscope.results.comparison import Comparison
from flopscope.results.table import EventTable


def op(key: str, time: float, shapes: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"key": key, "self_cpu_time_total": time, "input_shapes": shapes or [], **more}


def pairs(result: Comparison) -> set[tuple[str | None, str | None]]:
    return {(row.a and row.a.key, row.b and row.b.key) for row in result}


def test_rows_match_by_name_without_namespace_but_with_underscore() -> None:
    a = make_table(op("flopscope::add", 2.0, count=2), op("flopscope::mul_", 1.0), op("mine::add", 1.0))
    b = make_table(op("aten::add", 8.0, count=4), op("aten::mul", 1.0), op("mine::add", 3.0))
    result = compare(a, b)
    assert pairs(result) == {
        ("flopscope::add", "aten::add"), ("mine::add", "mine::add"), ("flopscope::mul_", None), (None, "aten::mul")
    }  # fmt: skip
    add = next(row for row in result if row.name == "add")
    assert add.ratio == 2.0 / 8.0 and add.ratio_per_call == (2.0 / 2) / (8.0 / 4)
    assert [row.name for row in result.unmatched("a")] == ["mul_"] and math.isnan(result.unmatched("b")[0].ratio)
    text = compare(make_table(op("aten::add", 2.0)), make_table(op("aten::mul", 4.0), op("aten::sub", 1.0))).table()
    assert "Only in a: 1 name, 2.00us: add 2.00us" in text
    assert "Only in b: 2 names, 5.00us: mul 4.00us, sub 1.00us" in text


def test_rows_match_by_shape_and_scalars_are_ignored() -> None:
    a = make_table(op("flopscope::mul", 2.0, [[4, 4]]), op("flopscope::mul", 3.0, [[8, 8]]))
    b = make_table(op("aten::mul", 1.0, [[8, 8], []]), op("aten::mul", 1.0, [[9, 9], []]))
    result = compare(a, b)
    assert result.by == "shape" and [row.ratio for row in result if row.a and row.b] == [3.0]
    assert [row.input_shapes for row in result if row.a and row.b] == [[[8, 8]]]
    by_name = compare(a, b, by="name")
    assert [row.ratio for row in by_name] == [5.0 / 2.0] and len(by_name) == 1


def test_rows_with_one_name_are_summed_and_their_shares_weighted() -> None:
    a = make_table(
        op("aten::mm", 1.0, [[2]], flops=4.0, pct_roofline=90.0, bytes_total_moved=math.nan),
        op("aten::mm", 3.0, [[3]], flops=6.0, pct_roofline=50.0, bytes_total_moved=2.0),
        op("aten::mm", 6.0, [[4]]),
    )
    side = compare(a, a, by="name").rows[0].a
    assert side is not None and (side.count, side.time, side.flops, side.bytes) == (3, 10.0, 10.0, 2.0)
    assert side.pct_roofline == pytest.approx((90 * 1 + 50 * 3) / 4)


def test_device_times_are_preferred_to_host_times() -> None:
    a = make_table(op("aten::add", 2.0, self_device_time_total=10.0))
    result = compare(a, make_table(op("aten::add", 4.0)))
    assert result.on_device == (True, False) and result.rows[0].ratio == 10.0 / 4.0
    assert "a: own device times\nb: own CPU times\n" in result.table()


def test_kernels_are_compared_separately_from_ops() -> None:
    rows = [op("aten::add", 2.0, self_device_time_total=7.0)]
    rows += [{"key": "kernel", "device_type": "cuda", "self_device_time_total": 7.0}]
    rows += [{"key": "range", "device_type": "cuda", "self_device_time_total": 9.0, "is_user_annotation": True}]
    table = make_table(*rows)
    assert pairs(compare(table, table)) == {("aten::add", "aten::add")}
    assert pairs(compare(table, table, kind="kernel")) == {("kernel", "kernel")}
    assert repr(compare(table, table).total.a) == repr(compare(table, table).total.b)  # NaN is not equal to itself


def test_profiles_tables_and_frames_compare_alike() -> None:
    pandas = pytest.importorskip("pandas")
    x = fs.ones((8, 8))
    with fs.profile(record_shapes=True) as prof:
        fs.add(x, x)
        fs.matmul(x, x)
    table = prof.key_averages(group_by_input_shape=True)
    want = compare(table, table).to_dicts()
    assert {row["name"] for row in want} == {"add", "matmul"} and all(row["ratio"] == 1.0 for row in want)
    frame = table.to_pandas()
    assert compare(prof, frame).to_dicts() == compare(frame, table).to_dicts() == want
    compared = compare(prof, prof).to_pandas()
    assert compared["flops_a"].tolist() == [row["flops_a"] for row in want] and compared["time_a"].dtype == float
    assert list(compare(table[:0], table[:0]).to_pandas()) == [] and isinstance(compared, pandas.DataFrame)


def test_wrong_arguments_are_reported() -> None:
    table = make_table(op("aten::add", 2.0))
    for wrong, message in (
        ({"by": "size"}, "by must be .* got 'size'"),
        ({"kind": "gpu"}, "kind must be .* got 'gpu'"),
        ({"by": "shape", "names": ("old", "new")}, "old has no input shapes; record them"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(table, table, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"b must be a profile, a trace, its key_averages.* not 3"):
        compare(table, 3)  # type: ignore[arg-type]
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"a is not a DataFrame of key_averages.*it has no columns .*flops"):
        compare(pandas.DataFrame({"key": ["x"], "count": [1]}), table)


# The views ------------------------------------------------------------------------------------------------------------


def long_tables() -> tuple[EventTable, EventTable]:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>"
    rows = [
        op(f"{name}{i}", 1e6 / (i + 1), [[1024, 4096, 16], [4096, 4096]], flops=3e12 * i, bytes_total_moved=2.0**i,
           pct_roofline=99.9, count=10**i)
        for i in range(9)
    ]  # fmt: skip
    return make_table(*rows), make_table(*[{**row, "count": 7, "flops": 1.0, "bytes_total_moved": 3.0} for row in rows])


def test_text_fits_and_contains_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    result = compare(*long_tables(), names=("before", "after"))
    for width in (40, 70, 100, 160):
        lines = result.table(-1, width=width).splitlines()
        assert max(map(len, lines)) <= width and lines[0] == "a: own CPU times of before"
    assert max(map(len, result.table().splitlines())) == 100
    table = make_table(*[op(f"aten::op{i}", 9.0 - i) for i in range(9)])
    cut = compare(table, table).table(row_limit=2)
    assert "2 of 9 rows." in cut and sum("1.00x" in line for line in cut.splitlines()) == 3  # and the total
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, result.table().splitlines())) == 80


def test_wide_tables_show_names_and_work_in_full() -> None:
    name = "aten::" + "long_" * 40
    table = make_table(op(name, 2.0, flops=1e6, bytes_total_moved=2048.0))
    other = make_table(op(name, 2.0, flops=2e6, bytes_total_moved=2048.0))
    text = compare(table, other).table(wide=True)
    assert name.removeprefix("aten::") in text and "FLOPs a" in text and "1.0 M" in text and "2.0 M" in text
    narrow = compare(table, other).table()
    assert "…" in narrow and "FLOPs a" not in narrow


def test_rows_without_time_are_left_out() -> None:
    rows = [op("aten::mm", 2.0, self_device_time_total=9.0), op("aten::view", 5.0), op("cudaLaunchKernel", 4.0)]
    table = make_table(*rows)
    assert [change.name for change in compare(table, table).changes] == ["mm"]
    host = make_table(op("aten::mm", 2.0), op("aten::view", 5.0))
    assert {change.name for change in compare(host, host).changes} == {"mm", "view"}
    empty, table = make_table(), make_table(op("add", 2.0))
    assert "2.00us  +2.00us" in compare(empty, table).table() and "-2.00us" in compare(table, empty).table()
    assert compare(empty, empty).total_change.cause == "same"


def test_html_escapes_names_and_shares_above_the_roofline_are_explained() -> None:
    table = make_table(op("<script>alert('\"&</script>", 2.0))
    page = compare(table, table, names=("<b>", "b"))._repr_html_()
    assert "&lt;script&gt;alert(&#x27;&quot;&amp;&lt;/script&gt;" in page
    assert "<script>" not in page and "<b>" not in page
    fast, slow = (make_table(op("aten::add", 2.0, pct_roofline=share)) for share in (104.0, 100.0))
    text = compare(fast, slow).table(wide=True)
    assert "104.0%*" in text and "*: faster than" in text and "*" not in compare(slow, slow).table(wide=True)


# What changed ---------------------------------------------------------------------------------------------------------


def rated(key: str, count: int, time: float, flops: float, share: float, **more: Any) -> dict[str, Any]:
    return op(key, time, count=count, flops=flops, bytes_total_moved=4.0, pct_roofline=share, **more)


def cause(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    steps = {"key": "ProfilerStep*", "is_user_annotation": True, "count": 2}
    change = compare(make_table(a, steps), make_table(b, {**steps, "count": 4})).changes[0]
    return change.cause, change.why


def test_the_cause_of_a_change_is_calls_work_or_rate() -> None:
    def after(count: int, time: float, flops: float, share: float, unit: str = "fp32") -> tuple[str, str]:
        return cause(before, rated("aten::mm", count, time, flops, share, unit=unit))

    before = rated("aten::mm", 4, 100.0, 4e6, 50.0, unit="fp32")  # 2 calls, 50 µs, 2 MFLOPs a step
    assert after(8, 200.0, 8e6, 50.0)[0] == "same" and after(4, 100.0, 4e6, 50.0) == ("calls", "2 → 1 call")
    assert after(8, 400.0, 16e6, 50.0) == ("work", "1.0 MFLOPs → 2.0 MFLOPs a call")
    assert after(8, 100.0, 8e6, 100.0) == ("rate", "50.0% → 100.0% of roofline")
    assert after(8, 50.0, 8e6, 50.0, "tf32_tensor") == ("rate", "fp32 → tf32_tensor, 50.0% → 50.0% of roofline")
    unknown = op("aten::sort", 100.0, count=4)
    assert cause(unknown, op("aten::sort", 400.0, count=8)) == ("time", "25.0us → 50.0us a call")


def test_times_are_those_of_a_step_if_both_runs_have_steps_or_of_a_call_if_they_differ_in_length() -> None:
    steps = {"key": "ProfilerStep*", "is_user_annotation": True}
    a = make_table(op("aten::mm", 100.0, count=10), {**steps, "count": 5})
    result = compare(a, make_table(op("aten::mm", 100.0, count=20), {**steps, "count": 10}))
    change = result.changes[0]
    assert result.per == "step" and (change.time_a, change.time_b, change.calls_a, change.calls_b) == (20, 10, 2, 2)
    assert change.difference == -10 and "Times and calls are those of a step." in result.table()
    a = make_table(op("aten::mm", 100.0, count=10), op("aten::add", 10.0, count=10))
    result = compare(a, make_table(op("aten::mm", 400.0, count=20), op("aten::add", 20.0, count=20)))
    mm = result.changes[0]
    assert result.per == "call" and (mm.name, mm.time_a, mm.time_b, mm.difference) == ("mm", 10, 20, 100)
    assert "differ in length" in result.verdict[0] and "total" not in result.table() and math.isnan(result.slowdown_pct)
    assert compare(a, a).per == "run"


def test_changes_come_by_the_difference_and_rows_of_one_run_last() -> None:
    a = make_table(op("aten::mm", 100.0), op("aten::add", 10.0), op("aten::exp", 5.0), op("aten::sort", 900.0))
    b = make_table(op("aten::mm", 101.0), op("aten::add", 20.0), op("aten::exp", 1.0), op("aten::topk", 500.0))
    names = [change.name for change in compare(a, b).changes]
    assert names == ["add", "exp", "mm", "sort", "topk"]


def test_shapes_are_shown_below_their_name_where_they_differ() -> None:
    a = make_table(op("aten::mm", 90.0, [[64, 32], [32, 50]]), op("aten::mm", 10.0, [[8, 8], [8, 8]]))
    b = make_table(op("aten::mm", 20.0, [[64, 32], [32, 64]]), op("aten::mm", 10.0, [[8, 8], [8, 8]]))
    text = compare(a, b).table()
    assert "  [[64, 32], [32, 50→64]]" in text and "[[8, 8], [8, 8]]" not in text
    assert "  [[8, 8], [8, 8]]" in compare(a, b, by="shape").table() and "[[" not in compare(a, b, by="name").table()
    assert "sizes 50 → 64" in compare(a, b).verdict[1]
    alike = make_table(op("aten::mm", 20.0, [[64, 32], [32, 50], [64, 50]]))  # mm.out lists its output
    parts = compare(make_table(op("aten::mm", 90.0, [[64, 32], [32, 50]])), alike).changes[0].parts
    assert not any(part.differs for part in parts)


def test_sentences_of_tables_name_the_times_of_their_ops() -> None:
    result = compare(make_table(op("aten::mm", 300.0)), make_table(op("aten::mm", 100.0)))
    assert result.verdict[0] == "The ops of the run take 300us in a and 100us in b: b is 3.00x as fast."
    assert result.verdict[2] == "The largest remaining part of b: aten::mm, 100us in 1 call (100.0% of the time)."
    same = compare(make_table(op("aten::mm", 300.0)), make_table(op("aten::mm", 300.0)))
    assert same.verdict[1].startswith("No op, kernel or cause of idle time changed")


@pytest.mark.parametrize("swapped", [False, True])
def test_work_that_one_run_does_not_know_is_compared_by_what_both_know(swapped: bool) -> None:
    pandas = pytest.importorskip("pandas")
    row = {"key": "op", "count": 2, "self_cpu_time_total": 10.0, "self_device_time_total": 0.0, "flops": 64.0}
    row |= {"bytes_total_moved": 2.0 * 2**20, "pct_roofline": 50.0, "roofline_time": 5.0, "headroom": 5.0}
    twice = row | {"self_cpu_time_total": 20.0, "bytes_total_moved": 4.0 * 2**20}
    twice |= dict.fromkeys(("flops", "pct_roofline"), math.nan)
    runs = [pandas.DataFrame([row]), pandas.DataFrame([twice])]
    (change,) = compare(*(reversed(runs) if swapped else runs)).changes
    assert change.cause == "work"
    assert change.why == ("2.0 MiB → 1.0 MiB a call" if swapped else "1.0 MiB → 2.0 MiB a call")
