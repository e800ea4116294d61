"""Results: the methods that a profile and a recorded trace have in common."""

import pytest
from helpers.tables import make_table

from flopscope.results.categories import by_category
from flopscope.results.ranks import join_ranks

# Ranks ----------------------------------------------------------------------------------------------------------------


def test_ranks_of_a_row_are_adjacent_and_sorted_by_their_maximum() -> None:
    a = {"key": "a", "cpu_time_total": 9.0, "self_cpu_time_total": 1.0}
    b = {"key": "b", "cpu_time_total": 5.0, "self_cpu_time_total": 4.0}
    tables = {
        1: make_table(a, {"key": "b", "cpu_time_total": 3.0}),
        0: make_table(b, {"key": "a", "cpu_time_total": 2.0}),
    }
    joined = join_ranks(tables, "cpu_time_total")
    assert [(row.key, row.rank, row.cpu_time_total) for row in joined] == [
        ("a", 0, 2.0), ("a", 1, 9.0), ("b", 0, 5.0), ("b", 1, 3.0)
    ]  # fmt: skip
    assert joined.self_cpu_time_total == 5.0
    assert [row.key for row in join_ranks(tables, "cpu_time_total", limit=1)] == ["a", "a"]
    assert [row.key for row in join_ranks(tables)] == ["a", "a", "b", "b"]
    assert "  Rank  " in joined.table() and ">Rank</th>" in joined._repr_html_()
    assert next(iter(joined.to_dicts()[0])) == "rank" and joined[1:].ranks == [1, 0, 1]
    assert tables[0][0].rank is None and "Rank" not in tables[0].table()


def test_coverage_of_ranks_is_weighted_by_their_time() -> None:
    known = {"bytes": 1.0, "flops": 0.5, "unmodelled": [("x", 1.0)]}
    less = {"bytes": 0.5, "flops": float("nan"), "unmodelled": [("y", 5.0), ("x", 2.0)]}
    tables = {0: make_table({"key": "k"}, coverage=known, self_cpu_time_total=30.0)}
    tables[1] = make_table({"key": "k"}, coverage=less, self_cpu_time_total=10.0)
    covered = join_ranks(tables).coverage()
    assert covered["bytes"] == pytest.approx((30 * 1.0 + 10 * 0.5) / 40) and covered["flops"] == 0.5
    assert covered["unmodelled"] == [("y", 5.0), ("x", 3.0)] and "estimated" not in covered
    known["estimated"], less["estimated"] = [("z", 1.0)], [("v", 4.0), ("z", 2.0)]
    tables = {rank: make_table({"key": "k"}, coverage=c) for rank, c in enumerate((known, less))}
    assert join_ranks(tables).coverage()["estimated"] == [("v", 4.0), ("z", 3.0)]


def test_one_rank_without_gpu_activity_is_reported() -> None:
    tables = {rank: make_table({"key": "k"}, device_unseen=rank == 1) for rank in (0, 1)}
    assert join_ranks(tables).device_unseen and "no activity of it" in join_ranks(tables).table()
    assert not join_ranks({0: tables[0]}).device_unseen


# Categories -----------------------------------------------------------------------------------------------------------


def test_categories_sum_host_rows_and_device_work_without_an_op() -> None:
    common = {"timing_source": "trace"}
    table = make_table(
        {"key": "aten::mm", "count": 2, "self_cpu_time_total": 3.0, "self_device_time_total": 40.0,
         "device_busy_time": 40.0, "flops": 8e6, "bytes_total_moved": 2e6, "pct_roofline": 50.0, **common},
        {"key": "aten::bmm", "count": 1, "self_cpu_time_total": 2.0, "self_device_time_total": 10.0,
         "device_busy_time": 10.0, "flops": 1e6, "bytes_total_moved": 1e6, "pct_roofline": 100.0, **common},
        {"key": "aten::relu", "count": 5, "self_cpu_time_total": 1.0},
        {"key": "a kernel", "device_type": "cuda", "self_device_time_total": 50.0},
        {"key": "a replayed kernel", "device_type": "cuda", "self_device_time_total": 25.0},
    )  # fmt: skip
    rows = {row.key: row for row in by_category(table)}
    assert list(rows) == ["matrix product", "pointwise", "(no op)"]
    product = rows["matrix product"]
    assert (product.count, product.self_cpu_time_total, product.self_device_time_total) == (3, 5.0, 50.0)
    assert product.flops == 9e6 and product.arithmetic_intensity == 3.0
    assert product.tflops_per_s == pytest.approx(9e6 / 50e-6 / 1e12)
    assert product.gbytes_per_s == pytest.approx(3e6 / 50e-6 / 1e9)
    assert product.pct_roofline == pytest.approx((50 * 40 + 100 * 10) / 50)
    assert rows["(no op)"].self_device_time_total == 25.0
    assert rows["pointwise"].flops != rows["pointwise"].flops  # unknown
    assert by_category(table).self_device_time_total == table.self_device_time_total
