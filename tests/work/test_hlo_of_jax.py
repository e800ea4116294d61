"""The work of programs that JAX's CPU build compiled, against formulas of what they compute."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flopscope as fs

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


def shape(*sizes: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


def work(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return fs.work_of_hlo(jax.jit(function, **options).lower(*arguments).compile().as_text())


def layer(b: Any, **options: Any) -> Callable[..., Any]:
    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **{**b, **options})

    return convolve


SAME = {"window_strides": (1, 1), "padding": "SAME"}
# images, filters, options, outputs along a side, input features of a group
CONVOLUTIONS = {
    "same": ((4, 32, 32, 16), (3, 3, 16, 24), SAME, 32, 16),
    "valid": ((4, 32, 32, 16), (3, 3, 16, 24), {**SAME, "padding": "VALID"}, 30, 16),
    "strided": ((4, 32, 32, 16), (3, 3, 16, 24), {**SAME, "window_strides": (2, 2)}, 16, 16),
    "strided by 3": ((4, 33, 33, 16), (3, 3, 16, 24), {"window_strides": (3, 3), "padding": "VALID"}, 11, 16),
    "pointwise": ((4, 32, 32, 16), (1, 1, 16, 24), {**SAME, "window_strides": (2, 2)}, 16, 16),
    "groups": ((4, 32, 32, 16), (3, 3, 4, 24), {**SAME, "feature_group_count": 4}, 32, 4),
    "dilated": ((4, 32, 32, 16), (3, 3, 16, 24), {**SAME, "rhs_dilation": (2, 2)}, 32, 16),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_and_each_of_its_gradients_count_the_same(name: str) -> None:
    images, filters, options, side, features = CONVOLUTIONS[name]
    forward = layer(options)
    arguments = shape(*images), shape(*filters)
    result = jax.eval_shape(forward, *arguments)
    assert result.shape == (4, side, side, 24)
    flops = 2 * math.prod(result.shape) * filters[0] * filters[1] * features

    def of_images(x: Any, w: Any, g: Any) -> Any:
        return jax.vjp(lambda x: forward(x, w), x)[1](g)

    def of_filters(x: Any, w: Any, g: Any) -> Any:
        return jax.vjp(lambda w: forward(x, w), w)[1](g)

    assert work(forward, *arguments)["product_flops"].sum() == pytest.approx(flops)
    assert work(of_images, *arguments, result)["product_flops"].sum() == pytest.approx(flops)
    assert work(of_filters, *arguments, result)["product_flops"].sum() == pytest.approx(flops)


@pytest.mark.parametrize("taps", [2, 3, 4])
def test_a_transposed_convolution_counts_each_input_and_tap(taps: int) -> None:
    """As torch.nn.functional.conv_transpose2d."""
    frame = work(
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        shape(4, 16, 16, 8),
        shape(taps, taps, 8, 24),
    )
    assert frame["product_flops"].sum() == pytest.approx(2 * 4 * 16 * 16 * 8 * taps * taps * 24)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "matrices": (lambda a, b: a @ b, (shape(64, 128), shape(128, 32)), 2 * 64 * 128 * 32),
    "batch": (
        lambda a, b: jnp.einsum("bik,bjk->bij", a, b),
        (shape(8, 64, 128), shape(8, 32, 128)),
        2 * 8 * 64 * 128 * 32,
    ),
    "complex": (lambda a: a @ a, (shape(64, 64, dtype="complex64"),), 8 * 64**3),
    "scan": (
        lambda x, w: lax.scan(lambda c, wi: (jnp.tanh(c @ wi), None), x, w)[0],
        (shape(64, 64), shape(6, 64, 64)),
        6 * 2 * 64**3,
    ),
    "loop": (lambda x: lax.fori_loop(0, 9, lambda i, c: c @ c, x), (shape(64, 64),), 9 * 2 * 64**3),
    "map": (lambda x: lax.map(lambda r: (r @ r.T).sum(), x), (shape(6, 64, 64),), 6 * 2 * 64**3),
    "attention": (
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v),
        (shape(2, 64, 4, 32), shape(2, 64, 4, 32), shape(2, 64, 4, 32)),
        2 * 2 * 2 * 4 * 64 * 64 * 32,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_count_two_flops_a_multiply_add(name: str) -> None:
    function, arguments, flops = PRODUCTS[name]
    frame = work(function, *arguments)
    assert frame["product_flops"].sum() == flops
    assert frame["flops"].sum() >= flops


def test_a_training_step_has_the_products_of_its_layers() -> None:
    rows, width, hidden, outputs = 64, 48, 96, 24

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return ((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2).sum()

    def step(weights: Any, x: Any, y: Any) -> Any:
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x, y))

    frame = work(step, (shape(width, hidden), shape(hidden, outputs)), shape(rows, width), shape(rows, outputs))
    # Forward both layers; backward the weights of both, and what reaches the first.
    assert frame["product_flops"].sum() == 2 * rows * hidden * (2 * width + 3 * outputs)


ELEMENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "sum": (lambda x: x.sum(1), (shape(64, 1000),), 64 * 1000),
    "argmax": (lambda x: x.argmax(1), (shape(64, 1000),), 0),
    "integers": (lambda x: (x + x) * x, (shape(64, 64, dtype="int32"),), 0),
    "sort": (lambda x: jnp.sort(x, 1), (shape(64, 1000),), 0),
    "largest": (lambda x: lax.top_k(x, 5), (shape(64, 1000),), 0),
    "fft": (jnp.fft.fft, (shape(64, 1024, dtype="complex64"),), 5 * 64 * 1024 * 10),
    "rfft": (jnp.fft.rfft, (shape(64, 1024),), 2.5 * 64 * 1024 * 10),
    "irfft": (jnp.fft.irfft, (shape(64, 513, dtype="complex64"),), 2.5 * 64 * 1024 * 10),
    "scatter-add": (lambda x, i, u: x.at[i].add(u), (shape(99, 64), shape(10, dtype="int32"), shape(10, 64)), 640),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_other_programs_have_flops_by_hand(name: str) -> None:
    function, arguments, flops = ELEMENTS[name]
    assert work(function, *arguments)["flops"].sum() == pytest.approx(flops)


def test_factorizations_are_within_their_programs() -> None:
    n = 64
    frame = work(jnp.linalg.cholesky, shape(4, n, n))
    assert frame["flops"].max() == pytest.approx(4 * n**3 / 3)
    frame = work(jax.scipy.linalg.lu_factor, shape(n, n))
    assert frame["flops"].max() == pytest.approx(n**3 * 2 / 3)
    frame = work(lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), shape(n, n), shape(n, 8))
    assert frame["flops"].sum() == n * n * 8


def test_an_update_of_a_donated_array_moves_a_row() -> None:
    frame = work(lambda x: x.at[3].multiply(2.0), shape(1000, 64), donate_argnums=0)
    assert frame["bytes_read"].sum() + frame["bytes_written"].sum() < 10 * 256
    kept = work(lambda x: x.at[3].multiply(2.0), shape(1000, 64))
    assert kept["bytes_written"].sum() >= 1000 * 256  # without donation the array is copied


def test_rows_that_are_gathered_are_read_alone() -> None:
    frame = work(lambda x, i: x[i] * 2, shape(1000, 64), shape(10, dtype="int32"))
    assert frame["bytes_read"].sum() < 2 * 10 * 64 * 4 and frame["flops"].sum() == 640


def test_a_loop_without_a_count_is_unknown() -> None:
    frame = work(lambda x: lax.while_loop(lambda c: c.sum() < 1e6, lambda c: c @ c, x), shape(64, 64))
    assert np.isnan(frame["calls"]).any() and np.isnan(frame["flops"].sum(skipna=False))


AS_XLA: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{name: PRODUCTS[name][:2] for name in ("matrices", "batch")},
    "valid convolution": (layer(CONVOLUTIONS["valid"][2]), tuple(shape(*of) for of in CONVOLUTIONS["valid"][:2])),
    "layer": (lambda x, w, b: jax.nn.relu(x @ w + b), (shape(64, 128), shape(128, 256), shape(256))),
    "softmax": (lambda x: jax.nn.softmax(x, -1), (shape(64, 1000),)),
    "normalisation": (lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), (shape(64, 1000),)),
}


@pytest.mark.parametrize("name", AS_XLA)
def test_work_is_that_of_xla_where_its_own_analysis_is_right(name: str) -> None:
    """It is of programs without library calls, loops, gathers and padding. A sum of n elements is n - 1 FLOPs there."""
    function, arguments = AS_XLA[name]
    compiled = jax.jit(function).lower(*arguments).compile()
    frame, analysis = fs.work_of_hlo(compiled.as_text()), compiled.cost_analysis()
    flops = analysis["flops"] + analysis.get("transcendentals", 0)
    assert frame["flops"].sum() == pytest.approx(flops, rel=0.002)
    assert frame["bytes_read"].sum() + frame["bytes_written"].sum() == analysis["bytes accessed"]
