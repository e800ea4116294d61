"""FLOPs and bytes of calls: a row each in cases_*.py, with numbers by hand; and what these numbers stand on."""

from typing import Any

import cases_elements
import cases_experts
import cases_libraries
import cases_products
import cases_serving
import pytest
from helpers.work_cases import Case, F, differences, work

FAMILIES = (cases_elements, cases_products, cases_libraries, cases_experts, cases_serving)


@pytest.mark.parametrize("case", [case for family in FAMILIES for case in family.CASES], ids=lambda c: str(c.name))
def test_work_follows_from_the_arguments(case: Case) -> None:
    assert differences(case) == {}, case.source


@pytest.mark.parametrize(("name", "arguments", "counted"), cases_products.COUNTED)
def test_flops_match_hardware_counters(name: str, arguments: list[Any], counted: int) -> None:
    assert work(name, *arguments)["flops"] == pytest.approx(counted, rel=0.04)


def cholesky(n: int) -> int:
    """Count the multiplications, additions and divisions of the textbook's loops."""
    return sum(2 * j + (i > j) for i in range(n) for j in range(i + 1))


def lu(m: int, n: int) -> int:
    return sum((m - k - 1) * (1 + 2 * (n - k - 1)) for k in range(min(m, n)))


def qr(m: int, n: int) -> int:
    """Householder reflections: for each remaining column, a product with the reflector and a subtraction."""
    return sum(4 * (m - k) * (n - k) for k in range(min(m, n)))


@pytest.mark.parametrize(
    ("name", "shape", "exact"),
    [
        ("linalg_cholesky_ex", (400, 400), cholesky(400)),
        ("linalg_lu_factor_ex", (400, 400), lu(400, 400)),
        ("linalg_lu_factor_ex", (900, 400), lu(900, 400)),
        ("linalg_lu_factor_ex", (400, 900), lu(400, 900)),
        ("linalg_inv_ex", (400, 400), lu(400, 400) + 400**3 * 4 / 3),  # the rest of 2 n^3 solves for the identity
        ("geqrf", (400, 400), qr(400, 400)),
        ("geqrf", (900, 400), qr(900, 400)),
        ("geqrf", (400, 900), qr(400, 900)),
        ("linalg_qr", (900, 400), 2 * qr(900, 400)),  # forming Q, which has 400 columns, costs as much again
        ("linalg_qr", (400, 900), 2 * qr(400, 900)),
    ],
)
def test_factorisations_are_the_leading_terms_of_their_loops(name: str, shape: tuple[int, int], exact: float) -> None:
    found = work(f"aten::{name}", F(*shape), *([None] if name == "linalg_qr" else []))
    assert found["flops"] == pytest.approx(exact, rel=0.01)
    assert found["bytes_written"] == 4 * (shape[0] * shape[1] + (min(shape) ** 2 if name == "linalg_qr" else 0))
