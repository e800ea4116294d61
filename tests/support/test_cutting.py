"""Texts cut to a width, shapes and kernel names as tables print them, and suggestions for misspelt names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopscope.results.categories import short_names
from flopscope.show.columns import shapes_text
from flopscope.support.columns import cut_apart, cut_middle
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import prefixed_text

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
    assert short_names([sin, "Memset (Device)"]) == {
        sin: "sin_kernel<BFloat16, (int)4>",
        "Memset (Device)": "Memset (Device)",
    }
    assert short_names(["void f(int)", "void f(long)"]) == {
        "void f(int)": "void f(int)",
        "void f(long)": "void f(long)",
    }


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
    assert [prefixed_text(value) for value in values] == ["0", "999", "1.00 k", "42.0 G", "156 T", "--"]


def test_alike_names_are_suggested() -> None:
    assert did_you_mean("sigmod", ["sin", "sigmoid"]) == "; did you mean 'sigmoid'?"
    assert did_you_mean("COUTN", ["count"]) == "; did you mean 'count'?" and did_you_mean("x", ["count"]) == ""
