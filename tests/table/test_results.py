"""Results: the methods that a profile and a recorded trace have in common."""

import pytest
from helpers.tables import make_table

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
    rows = {row.key: row for row in table.by_category()}
    assert list(rows) == ["matrix product", "pointwise", "(no op)"]
    product = rows["matrix product"]
    assert (product.count, product.self_cpu_time_total, product.self_device_time_total) == (3, 5.0, 50.0)
    assert product.flops == 9e6 and product.arithmetic_intensity == 3.0
    assert product.tflops_per_s == pytest.approx(9e6 / 50e-6 / 1e12)
    assert product.gbytes_per_s == pytest.approx(3e6 / 50e-6 / 1e9)
    assert product.pct_roofline == pytest.approx((50 * 40 + 100 * 10) / 50)
    assert rows["(no op)"].self_device_time_total == 25.0
    assert rows["pointwise"].flops != rows["pointwise"].flops  # unknown
    assert table.by_category().self_device_time_total == table.self_device_time_total
