"""check(): arrays in nested arguments, and of complex numbers."""

from typing import Any

import pytest
from helpers.checked import BRIEF, JUDGED, x

import flopscope as fs

torch: Any = pytest.importorskip("torch")


def test_complex_numbers_are_rounded_and_varied() -> None:
    a = torch.view_as_complex(x(16, 48, 2))
    transform = torch.exp(-2j * torch.pi * torch.outer(torch.arange(48), torch.arange(48)).double() / 48)
    assert fs.check(torch.fft.fft, lambda a: a @ transform.to(a.dtype), a, **BRIEF).verdict in JUDGED
    assert fs.check(lambda a: torch.fft.fft(a.real + 0j), torch.fft.fft, a, **BRIEF).verdict == "wrong"
    known: list[Any] = []
    assert (
        fs.check(lambda a: (known or known.append(a + 1) or known)[0], lambda a: a + 1, a, **BRIEF).verdict == "wrong"
    )


def test_arrays_in_tuples_lists_and_dicts_are_varied() -> None:
    def sums(pairs: list[tuple[Any, Any]], more: dict[str, Any], scale: float) -> list[Any]:
        return [scale * (a + b) + more["c"] for a, b in pairs]

    def once(pairs: list[tuple[Any, Any]], more: dict[str, Any], scale: float) -> list[Any]:
        kept[:] = kept or [sums(pairs, more, scale)]
        return kept[0]

    def changes(pairs: list[tuple[Any, Any]], more: dict[str, Any], scale: float) -> list[Any]:
        found = sums(pairs, more, scale)
        more["c"].zero_()
        return found

    kept: list[Any] = []
    arguments = [(x(), x()), (x(), x())], {"c": x(), "n": 7}, 0.5
    assert fs.check(sums, sums, *arguments, **BRIEF).verdict in JUDGED
    assert fs.check(once, sums, *arguments, **BRIEF).verdict == "wrong"
    assert "it changes its argument 1['c'], which sums does not" in str(fs.check(changes, sums, *arguments, **BRIEF))
