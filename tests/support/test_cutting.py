"""Texts cut to a width; numbers, shapes and names of kernels as tables print them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopscope.results.categories import short_names
from flopscope.show.columns import shapes_text
from flopscope.support import units
from flopscope.support.columns import cut_apart, cut_middle

LONG = ["kernel<64, 64, float>" + "x" * 40 + tail + "y" * 40 for tail in ("a", "b", "ac", "bd")]


@given(st.lists(st.text("ab<>", max_size=60), unique=True), st.integers(8, 40))
def test_cut_texts_fit_and_short_ones_are_unchanged(texts: list[str], width: int) -> None:
    cut = cut_apart(texts, width)
    assert all(len(short) <= width for short in cut.values())
    assert all(cut[text] == text for text in texts if len(text) <= width and list(cut.values()).count(text) == 1)


def test_what_tells_texts_apart_is_not_cut() -> None:
    cut = cut_apart(LONG, 20)
    assert len(set(cut.values())) == len(LONG) and all("…" in short for short in cut.values())
    assert cut_middle("abcdefghij", 5) == "ab…ij" and cut_middle("abc", 5) == "abc"


def test_kernel_names_lose_arguments_and_namespaces() -> None:
    sin = "void at::native::(anonymous namespace)::sin_kernel<c10::BFloat16, (int)4>(at::TensorIterator&, long)"
    shorter = {sin: "sin_kernel<BFloat16, (int)4>", "Memset (Device)": "Memset (Device)"}
    assert short_names([*shorter]) == shorter
    assert [*short_names(["void f(int)", "void f(long)"]).values()] == ["void f(int)", "void f(long)"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "__main__::saxpy[abi:v1][abi:cw51cXTLSUwv1sDUaKthqaNgoKmj_3d](float, Array<float, 1, C, mutable, aligned>)",
            "saxpy",
        ),
        (
            "void cub::CUB_300102_SM_750_900::detail::radix_sort::DeviceRadixSortOnesweepKernel<"
            "cub::CUB_300102_SM_750_900::detail::radix::policy_hub<int, unsigned long>::Policy1000>(unsigned long*)",
            "DeviceRadixSortOnesweepKernel<policy_hub<int, unsigned long>::Policy1000>",
        ),
        ("void thrust::cuda_cub::core::_kernel_agent<cuda::std::__4::plus<void>>(int*)", "_kernel_agent<plus<void>>"),
    ],
)
def test_names_of_numba_and_cub_are_short(name: str, short: str) -> None:
    assert short_names([name]) == {name: short}


def test_shapes_are_short() -> None:
    assert shapes_text([[64, 32], [32, 16]]) == "64x32 32x16"
    assert shapes_text([[8], [], [], [], [[2, 3], [2, 3], []]]) == "8 (2x3 2x3)"
    assert shapes_text([[[4]] * 3, [4], [4], [4, 1]]) == "(3 × 4) 4 4 4x1"
    assert shapes_text([]) == shapes_text([[], []]) == ""


def test_rates_have_three_digits_and_a_prefix() -> None:
    values = (0.0, 999.4, 999.6, 4.2e10, 1.561e14, float("nan"))
    assert [units.prefixed_text(value) for value in values] == ["0", "999", "1.00 k", "42.0 G", "156 T", "--"]


def test_quantities_have_the_largest_prefix_that_they_reach() -> None:
    values = (0.0, 999.0, 1e3, 4.652e12, 2.5e15, math.nan)
    texts = ["0 B", "999 B", "1 kB", "4.652 TB", "2,500 TB", "nan B"]
    assert [units.si_text(value, "B") for value in values] == texts
    assert units.si_text(5e5, "FLOP/s", prefixes="TG") == "0.0005 GFLOP/s"


def test_times_have_three_digits_and_their_most_readable_unit() -> None:
    short = {0.0: "0", 0.25: "0.25us", 9.994: "9.99us", 9.996: "10.0us", 99.96: "100us", 999.4: "999us",
             999.6: "1.00ms", 12_345.0: "12.3ms", 2_500_000.0: "2.50s", -3.0: "-3.00us"}  # fmt: skip
    assert {us: units.short_time_text(us) for us in short} == short
    assert [units.long_time_text(us) for us in (0.25, 999.5, 4560, 2e6)] == ["250 ns", "999.5 µs", "4.56 ms", "2 s"]
    names = ("short_time_text", "long_time_text", "percent_text", "flop_rate_text")
    assert [getattr(units, name)(math.nan) for name in names] == ["--"] * 4
