"""sweep(): its sizes and operands, and the table of its results."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import fake_sweep

import flopscope as fs
from flopscope.measuring import sweep as module
from flopscope.measuring.stage import name_of
from flopscope.measuring.sweep import Sweep, sweep
from flopscope.support import device


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> fake_sweep.Clock:
    stand_in = fake_sweep.Clock(fake_sweep.stairs)
    monkeypatch.setattr(module, "measure", stand_in.measure)
    monkeypatch.setattr(device, "cached_peaks", lambda there: fake_sweep.MEASURED)
    return stand_in


# Operands -------------------------------------------------------------------------------------------------------------


def test_a_number_means_elements_or_a_square_matrix_and_a_shape_is_for_all_operands_or_each() -> None:
    assert [p.shape for p in sweep("add", [3, 8]).points] == ["3", "8"]
    assert [p.shape for p in sweep(fs.matmul, [3]).points] == ["3 x 3"]
    assert [p.elements for p in sweep(fs.softmax, [3]).points] == [9]
    points = sweep(fs.matmul, [(4, 4), ((2, 5), (5, 3))]).points
    assert [p.shape for p in points] == ["4 x 4", "2 x 5, 5 x 3"] and [p.elements for p in points] == [16, 10]


def test_the_working_set_counts_shared_memory_once() -> None:
    assert sweep("add", [100]).points[0].working_set_bytes == 3 * 400
    assert sweep("add_", [100]).points[0].working_set_bytes == 2 * 400
    x = np.ones(50)
    assert sweep(np.add, [50], "float64", make=lambda n, dtype: (x, x)).points[0].working_set_bytes == 2 * 400


def test_make_creates_operands_for_a_size_and_a_dtype(clock: fake_sweep.Clock) -> None:
    calls: list[tuple[Any, str]] = []

    def make(size: Any, dtype: str) -> tuple[Any, ...]:
        calls.append((size, dtype))
        return np.ones(size, dtype), np.ones(size, dtype)

    result = sweep(np.multiply, [(2, 3), 4], ["float32", "int16"], make=make, flops=lambda n, d: 17.0, bytes=5)
    assert calls == [((2, 3), "float32"), (4, "float32"), ((2, 3), "int16"), (4, "int16")]
    assert len(result) == 4 and all(asked["flops"] == 17 and asked["bytes"] == 5 for asked in clock.asked)
    assert [p.shape for p in result.points][:2] == ["2 x 3", "4"]


def test_options_reach_measure(clock: fake_sweep.Clock) -> None:
    sweep("add", [8], cache="cold", max_time=0.7, peaks="datasheet", spread=0.1, unit=lambda n, d: "fp32", flops=1)
    expected = {"cache": "cold", "max_time": 0.7, "peaks": "datasheet", "spread": 0.1, "unit": "fp32", "flops": 1}
    assert {name: clock.asked[0][name] for name in expected} == expected and clock.asked[0]["graph"] is False


# Sizes ----------------------------------------------------------------------------------------------------------------


def elements(result: Sweep) -> list[float]:
    return [point.elements for point in result.points]


def test_default_sizes_exceed_the_last_level_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    here = device.find_device("cpu")
    monkeypatch.setattr(module, "find_device", lambda name: replace(here, properties={"cache_bytes": 1 << 20}))
    result = sweep("add", None, "float32")
    assert elements(result) == [256 * 4**k for k in range(7)]  # 2^20 elements, 12 MiB: the next size is 48 MiB
    assert elements(sweep("add", None, ["float32", "float64"]))[:6] == [256 * 4**k for k in range(6)]
    assert [p.size for p in sweep("transpose_copy", None).points] == [16 * 2**k for k in range(7)]


def test_default_sizes_of_products_are_limited_and_fit_in_a_quarter_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGEST_PRODUCT", {"cpu": 64, "cuda": 64})
    assert [p.size for p in sweep("matmul").points] == [16, 32, 64]
    monkeypatch.setattr(module, "free_bytes", lambda there: 4 * 50_000)
    assert elements(sweep("neg")) == [256, 1024, 4096]  # 8 bytes an element


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "there is no op 'nothing'"), (("add", []), "sizes is empty"),
        (("add", [0]), "sizes: each must be .*, not 0$"), (("add", [2.5]), "sizes: each must be .*, not 2.5$"),
        (("add", [((2,), (-1,))]), r"sizes: each must be .*, not -1$"),
        (("add", [()]), r"sizes: each must be .*, not \(\)$"), (("add", [4], []), "dtypes is empty"),
        ((abs, [4]), "is no op: pass make=…"),
        ((fs.matmul, [((2, 2), (2, 2), (2, 2))]), r"takes 2 tensors \(a, b\), not 3"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(*arguments)


# Unsupported dtypes and errors ----------------------------------------------------------------------------------------


def test_an_unsupported_dtype_is_a_row_with_a_note() -> None:
    result = sweep("add", [4, 8], ["float32", "int32"])
    assert len(result) == 2 and len(result.points) == 4
    rejected = result.points[2]
    assert rejected.measurement is None and "the dtype must be float64" in rejected.note
    frame = result.to_pandas()
    assert frame["median"].isna().tolist() == [False, False, True, True]
    assert frame["note"].tolist()[:2] == ["", ""] and frame["bound"].tolist()[2] == "unknown"
    text = str(result)
    assert "no time" in text and "(and 1 more sizes)" in text and "the dtype must be float64" in " ".join(text.split())


def test_the_first_error_propagates_if_nothing_can_be_measured() -> None:
    with pytest.raises(TypeError, match="the dtype must be float64"):
        sweep("sin", [4], "int32")

    def broken(x: Any) -> None:
        raise RuntimeError("out of memory at once")

    with pytest.raises(RuntimeError, match="out of memory at once"):
        sweep(broken, [4, 8], make=lambda n, dtype: n)


def test_other_exceptions_propagate() -> None:
    with pytest.raises(KeyError, match="a fault of the program"):
        sweep(lambda x: {}["a fault of the program"], [4], make=lambda n, dtype: n)


# The result -----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_a_sequence_of_measurements() -> None:
    result = sweep("add", [64, 4096], ["float32", "float64"])
    assert len(result) == 4 and result[0] is next(iter(result)) and result[-1] is list(result)[-1]
    assert [m.bytes_total_moved for m in result] == [3 * 4 * 64, 3 * 4 * 4096, 3 * 8 * 64, 3 * 8 * 4096]


def test_the_frame_has_the_numbers_of_the_measurements() -> None:
    result = sweep("add", [64, 1 << 20], ["float32"])
    frame = result.to_pandas()
    assert frame["size"].tolist() == [64, 1 << 20] and frame["op"].tolist() == ["add"] * 2
    large = frame.iloc[1]
    moved = 3 * 4 * (1 << 20)
    us = moved / 90e3  # stairs()
    assert large["median"] == pytest.approx(us) == large["min"]
    assert (large["ci_low"], large["ci_high"]) == pytest.approx((0.99 * us, 1.01 * us))
    assert large["gbytes_per_s"] == pytest.approx(90) and large["pct_roofline"] == pytest.approx(90)
    assert large["arithmetic_intensity"] == pytest.approx(1 / 12) and large["working_set_bytes"] == moved
    assert large["bound"] == "memory" and large["n"] == 12 and large["device"] == "cpu"
    assert list(frame) == list(result.to_dicts()[0])


def test_on_a_cpu_a_call_as_short_as_for_one_element_is_launch_bound() -> None:
    result = sweep("add", [64, 1 << 16, 1 << 20])
    assert [m.bound for m in result] == ["launch", "cache", "memory"]  # 1, 2.6 and 140 µs
    other = sweep(np.add, [64], make=lambda n, dtype: (np.ones(n, dtype),) * 2)
    assert other[0].bound == "memory"  # as measure() says


def test_the_text_fits_a_terminal_and_shows_units_and_bounds() -> None:
    result = sweep("add", [64, 1 << 16, 1 << 20], ["float32", "int32", "float64"])
    lines = str(result).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith("add on cpu, ") and lines[2].split()[:3] == ["dtype", "shape", "working"]
    large = next(line for line in lines if "1048576" in line)
    assert large.split()[-2:] == ["90.0%", "memory"] and "12.0 MiB" in large and "139.810us" in large
    assert "* more than the memory bandwidth" in str(result)


def test_the_html_is_escaped() -> None:
    def make(size: Any, dtype: str) -> Any:
        if dtype == "<i>":
            raise ValueError("<b>bold</b> & co")
        return np.ones(size, "float32")

    result = sweep(np.negative, [4], ["<u>", "<i>"], make=make)._repr_html_()
    assert "<b>" not in result and "&lt;b&gt;bold&lt;/b&gt; &amp; co" in result and "<td>&lt;u&gt;</td>" in result


def test_a_long_sweep_shows_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(module, "progress_bar", lambda *how: seen.append(how) or nullcontext(bool))
    sweep("add", [4, 8], max_time=1.5)
    sweep("add", [4, 8], max_time=0.7)
    sweep("add", [4, 8], max_time=1.5, progress=False)
    assert seen == [("sweep of add", 2, wanted) for wanted in (True, False, False)]


# The arguments of ops -------------------------------------------------------------------------------------------------


def test_operands_have_the_dtype_and_the_device() -> None:
    call, args = module.call_of_op("addmm", [(4, 4)], "float64", "cpu")
    assert [(x.shape, x.dtype, x.device) for x in args] == [((4, 4), "float64", "cpu")] * 3 and call is fs.addmm
    assert module.call_of_op("neg", [(3,)], "int8", "cpu")[1][0].numpy().tolist() == [1, 1, 1]
    call, args = module.call_of_op("full", [(2, 3)], "float16", "cpu")
    assert call(*args).shape == (2, 3) and call(*args).dtype == "float16" and name_of(call) == "full"
    assert module.tensor_arguments("zeros") == [] and module.tensor_arguments("uniform_") == ["x"]
