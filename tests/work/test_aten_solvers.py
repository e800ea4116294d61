"""FLOPs and bytes of recurrent cells, Fourier transforms, factorisations and distances, by formulas derived here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from flopscope import _core

F32, C64 = "float", "c10::complex<float>"
SIZES = {F32: 4, C64: 8}


def work(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call: tensors are (dtype, shape), None is missing, scalars are written as by Kineto."""
    tensor = [isinstance(a, tuple) for a in arguments]
    return _core._work_of_torch(
        name,
        [list(a[1]) if t else [] for a, t in zip(arguments, tensor, strict=True)],
        [a[0] if t else "" if a is None else "Scalar" for a, t in zip(arguments, tensor, strict=True)],
        [[] for _ in arguments],
        ["" if t or a is None else a for a, t in zip(arguments, tensor, strict=True)],
    )


def check(result: dict[str, Any], flops: float, read: float, written: float) -> None:
    assert result["flops"] == pytest.approx(flops, rel=1e-12)
    assert (result["bytes_read"], result["bytes_written"]) == (read, written)


# Recurrent cells ------------------------------------------------------------------------------------------------------


def test_cells_count_each_function_of_each_gate() -> None:
    batch, hidden = 20, 64
    state, four, three = (F32, (batch, hidden)), (F32, (batch, 4 * hidden)), (F32, (batch, 3 * hidden))
    bias4, bias3, n = (F32, (4 * hidden,)), (F32, (3 * hidden,)), batch * hidden
    # i, f, g, o = function(a + b); c' = f c + i g; h' = o tanh(c')
    lstm = 4 * 2 + 3 + 2
    check(work("aten::_thnn_fused_lstm_cell", four, four, state, None, None), lstm * n, 4 * 9 * n, 4 * 6 * n)
    biased = work("aten::_thnn_fused_lstm_cell", four, four, state, bias4, bias4)
    check(biased, (lstm + 8) * n, 4 * (9 * n + 8 * hidden), 4 * 6 * n)
    # r, z = function(a + b); n = tanh(a + r b); h' = n + z (h - n)
    gru = 2 * 2 + 3 + 3
    check(work("aten::_thnn_fused_gru_cell", three, three, state, bias3, bias3), (gru + 6) * n,
          4 * (7 * n + 6 * hidden), 4 * 6 * n)  # fmt: skip
    gradients = work("aten::_thnn_fused_lstm_cell_backward_impl", state, None, state, state, four, "True")
    check(gradients, 23 * n, 4 * 7 * n, 4 * 5 * n)
    gradients = work("aten::_thnn_fused_gru_cell_backward", state, (F32, (batch, 5 * hidden)), "True")
    check(gradients, 16 * n, 4 * 6 * n, 4 * 7 * n)


def test_one_layer_of_one_direction_multiplies_both_matrices_each_step() -> None:
    steps, batch, width, hidden = 5, 3, 16, 32
    tensors = [(F32, s) for s in ((steps, batch, width), (4 * hidden, width), (4 * hidden, hidden), (4 * hidden,),
                                (4 * hidden,), (batch, hidden), (batch, hidden))]  # fmt: skip
    flops = 2 * steps * batch * 4 * hidden * (width + hidden)
    read = 4 * sum(math.prod(shape) for _, shape in tensors)
    check(work("aten::mkldnn_rnn_layer", *tensors, "False"), flops, read, 4 * (steps + 2) * batch * hidden)
    out, states = (F32, (steps, batch, hidden)), [(F32, (batch, hidden))] * 2
    gradients = work("aten::mkldnn_rnn_layer_backward", *tensors, out, *states, out, None, None)
    check(gradients, 2 * flops, read + 4 * (2 * steps + 2) * batch * hidden, read)


# Fourier transforms ---------------------------------------------------------------------------------------------------


def test_fourier_transforms_are_five_n_log_n() -> None:
    """5 n log2 n for n complex points, half of it for real points (benchFFT), which have n / 2 + 1 coefficients."""
    check(work("aten::_fft_c2c", (C64, (6, 64)), "[1]", "0", "True"), 6 * 5 * 64 * 6, 6 * 64 * 8, 6 * 64 * 8)
    plane = work("aten::_fft_c2c", (C64, (6, 32, 64)), "[1, -1]", "0", "True")
    check(plane, 6 * 5 * 32 * 64 * 11, 6 * 32 * 64 * 8, 6 * 32 * 64 * 8)
    check(work("aten::_fft_r2c", (F32, (6, 64)), "[1]", "0", "True"), 6 * 2.5 * 64 * 6, 6 * 64 * 4, 6 * 33 * 8)
    check(work("aten::_fft_r2c", (F32, (6, 64)), "[1]", "0", "False"), 6 * 2.5 * 64 * 6, 6 * 64 * 4, 6 * 64 * 8)
    check(work("aten::_fft_c2r", (C64, (6, 33)), "[1]", "2", "64"), 6 * 2.5 * 64 * 6, 6 * 33 * 8, 6 * 64 * 4)
    assert math.isnan(work("aten::_fft_c2c", (C64, (6, 64)), "[4]", "0", "True")["flops"])


# Linear algebra -------------------------------------------------------------------------------------------------------


def cholesky(n: int) -> int:
    """Count the multiplications, additions and divisions of the textbook's loops."""
    return sum(2 * j + (i > j) for i in range(n) for j in range(i + 1))


def lu(m: int, n: int) -> int:
    return sum((m - k - 1) * (1 + 2 * (n - k - 1)) for k in range(min(m, n)))


def qr(m: int, n: int) -> int:
    """Householder reflections: for each remaining column, a product with the reflector and a subtraction."""
    return sum(4 * (m - k) * (n - k) for k in range(min(m, n)))


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("linalg_cholesky_ex", cholesky(400)),
        ("linalg_lu_factor_ex", lu(400, 400)),
        ("linalg_inv_ex", lu(400, 400) + 400**3 * 4 / 3),  # the rest of 2 n^3 solves for the identity
        ("geqrf", qr(400, 400)),
    ],
)
def test_factorisations_are_the_leading_terms_of_their_loops(name: str, exact: float) -> None:
    n, batch = 400, 3
    result = work(f"aten::{name}", (F32, (batch, n, n)))
    assert result["flops"] == pytest.approx(batch * exact, rel=0.01)
    assert result["bytes_read"] == result["bytes_written"] == batch * n * n * 4


@pytest.mark.parametrize("shape", [(900, 400), (400, 900)])
def test_tall_and_wide_matrices_match_their_loops(shape: tuple[int, int]) -> None:
    m, n = shape
    assert work("aten::linalg_lu_factor_ex", (F32, shape))["flops"] == pytest.approx(lu(m, n), rel=0.01)
    assert work("aten::geqrf", (F32, shape))["flops"] == pytest.approx(qr(m, n), rel=0.01)
    # Forming Q, which has min(m, n) columns, costs as much again.
    both = work("aten::linalg_qr", (F32, shape), None)
    assert both["flops"] == pytest.approx(2 * qr(m, n), rel=0.01)
    assert both["bytes_written"] == 4 * (m * n + min(shape) ** 2)


def test_solves_cost_two_triangles_for_each_right_hand_side() -> None:
    n, k, batch = 50, 7, 3
    a, b, pivots = (F32, (batch, n, n)), (F32, (batch, n, k)), ("int", (batch, n))
    triangle, read, written = batch * n * n * k, 4 * batch * (n * n + n * k), 4 * batch * n * k
    check(work("aten::linalg_solve_triangular", a, b, "True", "True", "False"), triangle, read, written)
    check(work("aten::triangular_solve", b, a, "True", "False", "False"), triangle, read, written)
    check(work("aten::linalg_lu_solve", a, pivots, b, "True", "False"), 2 * triangle, read, written)
    check(work("aten::_cholesky_solve_helper", b, a, "False"), 2 * triangle, read, written)
    assert math.isnan(work("aten::linalg_lu_solve", a, pivots)["flops"])
    twice = work("aten::linalg_lu_solve", (C64, a[1]), pivots, (C64, b[1]), "True", "False")
    assert twice["flops"] == 8 * triangle  # a complex multiply-add is four


def test_iterations_have_bytes_and_no_flops() -> None:
    a = (F32, (3, 60, 40))
    for full, vectors, written in (
        ("False", "True", 60 * 40 + 40 + 40 * 40),
        ("True", "True", 60 * 60 + 40 + 40 * 40),
        ("False", "False", 40),
    ):
        result = work("aten::_linalg_svd", a, full, vectors, None)
        assert math.isnan(result["flops"])
        assert (result["bytes_read"], result["bytes_written"]) == (3 * 60 * 40 * 4, 3 * written * 4)
    square = (F32, (3, 40, 40))
    assert work("aten::_linalg_eigh", square, None, "True")["bytes_written"] == 3 * (40 + 40 * 40) * 4
    assert work("aten::_linalg_eigh", square, None, "False")["bytes_written"] == 3 * 40 * 4
    assert work("aten::linalg_eig", square)["bytes_written"] == 3 * (40 + 40 * 40) * 8  # complex


def test_distances_cost_three_flops_for_each_element_of_each_pair() -> None:
    a, b = np.zeros((2, 30, 8)), np.zeros((2, 20, 8))
    pairs = (a[:, :, None] - b[:, None]).size
    read = 4 * (a.size + b.size)
    check(work("aten::_cdist_forward", (F32, a.shape), (F32, b.shape), "1.", None), 3 * pairs, read, 4 * pairs / 8)
    check(work("aten::_pdist_forward", (F32, (30, 8)), "2."), 3 * 8 * 435, 4 * 240, 4 * 435)  # 435 pairs of 30 rows
