"""Programs that JAX's CPU build compiles here: how their text is read, and their work, against formulas."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.hlo_texts import check_same

import flopscope as fs

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


def shape(*sizes: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


def work(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the rows of a program, whose text is read as its protobuf is."""
    compiled = jax.jit(function, **options).lower(*arguments).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    check_same(compiled.as_text(), module.as_serialized_hlo_module_proto())
    return fs.work_of_hlo(compiled.as_text())


def convolution(**options: Any) -> Callable[..., Any]:
    options = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **options}
    return lambda x, w: lax.conv_general_dilated(x, w, **options)


VALID = convolution(padding="VALID")
# convolution, side of the images, filters, outputs along a side, input features of a group
CONVOLUTIONS = {
    "same": (convolution(), 32, (3, 3, 16, 24), 32, 16),
    "valid": (VALID, 32, (3, 3, 16, 24), 30, 16),
    "strided": (convolution(window_strides=(2, 2)), 32, (3, 3, 16, 24), 16, 16),
    "strided by 3": (convolution(window_strides=(3, 3), padding="VALID"), 33, (3, 3, 16, 24), 11, 16),
    "pointwise": (convolution(window_strides=(2, 2)), 32, (1, 1, 16, 24), 16, 16),
    "groups": (convolution(feature_group_count=4), 32, (3, 3, 4, 24), 32, 4),
    "dilated": (convolution(rhs_dilation=(2, 2)), 32, (3, 3, 16, 24), 32, 16),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_and_each_of_its_gradients_count_the_same(name: str) -> None:
    forward, side, filters, outputs, features = CONVOLUTIONS[name]
    arguments = shape(4, side, side, 16), shape(*filters)
    result = jax.eval_shape(forward, *arguments)
    assert result.shape == (4, outputs, outputs, 24)
    flops = 2 * math.prod(result.shape) * filters[0] * filters[1] * features

    def all_three(x: Any, w: Any, g: Any) -> Any:
        out, gradients = jax.vjp(forward, x, w)
        return out, gradients(g)

    products = work(all_three, *arguments, result)["product_flops"]
    assert list(products[products > 0]) == pytest.approx([flops] * 3)


def dense(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.relu(x @ w + b)


def loss(weights: Any, x: Any, y: Any) -> Any:
    return ((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2).sum()


def train(weights: Any, x: Any, y: Any) -> Any:
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x, y))


def transposed(x: Any, w: Any) -> Any:
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


SQUARE, STEPS, IDS = shape(64, 64), shape(6, 64, 64), shape(10, dtype="int32")
HEADS = shape(2, 64, 4, 32)
# function, arguments, FLOPs of products
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "matrices": (lambda a, b: a @ b, (shape(64, 128), shape(128, 32)), 2 * 64 * 128 * 32),
    "batch": (lambda a, b: jnp.einsum("bik,bjk->bij", a, b), (shape(8, 64, 128), shape(8, 32, 128)),
              2 * 8 * 64 * 128 * 32),
    "complex": (lambda a: a @ a, (shape(64, 64, dtype="complex64"),), 8 * 64**3),
    "scan": (lambda x, w: lax.scan(lambda c, wi: (jnp.tanh(c @ wi), None), x, w)[0], (SQUARE, STEPS), 6 * 2 * 64**3),
    "loop": (lambda x: lax.fori_loop(0, 9, lambda i, c: c @ c, x), (SQUARE,), 9 * 2 * 64**3),
    "map": (lambda x: lax.map(lambda r: (r @ r.T).sum(), x), (STEPS,), 6 * 2 * 64**3),
    "attention": (jax.nn.dot_product_attention, (HEADS, HEADS, HEADS), 2 * 2 * 2 * 4 * 64 * 64 * 32),
    # as torch.nn.functional.conv_transpose2d: each input and tap
    **{f"transposed, {taps} taps": (transposed, (shape(4, 16, 16, 8), shape(taps, taps, 8, 24)),
                                    2 * 4 * 16 * 16 * 8 * taps * taps * 24) for taps in (2, 3, 4)},
    # forward both layers; backward the weights of both, and what reaches the first
    "training": (train, ((shape(48, 96), shape(96, 24)), shape(64, 48), shape(64, 24)),
                 2 * 64 * 96 * (2 * 48 + 3 * 24)),
    # function, arguments, FLOPs
    "sum": (lambda x: x.sum(1), (shape(64, 1000),), 64 * 1000),
    "argmax": (lambda x: x.argmax(1), (shape(64, 1000),), 0),
    "integers": (lambda x: (x + x) * x, (shape(64, 64, dtype="int32"),), 0),
    "sort": (lambda x: jnp.sort(x, 1), (shape(64, 1000),), 0),
    "largest": (lambda x: lax.top_k(x, 5), (shape(64, 1000),), 0),
    "fft": (jnp.fft.fft, (shape(64, 1024, dtype="complex64"),), 5 * 64 * 1024 * 10),
    "rfft": (jnp.fft.rfft, (shape(64, 1024),), 2.5 * 64 * 1024 * 10),
    "irfft": (jnp.fft.irfft, (shape(64, 513, dtype="complex64"),), 2.5 * 64 * 1024 * 10),
    "scatter-add": (lambda x, i, u: x.at[i].add(u), (shape(99, 64), IDS, shape(10, 64)), 640),
    "solve": (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), (SQUARE, shape(64, 8)), 64 * 64 * 8),
}  # fmt: skip
OTHERS = ("sum", "argmax", "integers", "sort", "largest", "fft", "rfft", "irfft", "scatter-add", "solve")


@pytest.mark.parametrize("name", PRODUCTS)
def test_programs_count_as_by_hand(name: str) -> None:
    function, arguments, flops = PRODUCTS[name]
    frame = work(function, *arguments)
    assert frame["flops" if name in OTHERS else "product_flops"].sum() == pytest.approx(flops)
    assert frame["flops"].sum() >= frame["product_flops"].sum()


@pytest.mark.parametrize(
    ("function", "batch", "flops"),
    [(jnp.linalg.cholesky, (4,), 4 * 64**3 / 3), (jax.scipy.linalg.lu_factor, (), 64**3 * 2 / 3)],
)
def test_factorizations_are_within_their_programs(function: Any, batch: tuple[int, ...], flops: float) -> None:
    assert work(function, shape(*batch, 64, 64))["flops"].max() == pytest.approx(flops)


def test_updates_of_donated_arrays_and_gathers_move_rows() -> None:
    frame = work(lambda x: x.at[3].multiply(2.0), shape(1000, 64), donate_argnums=0)
    assert frame["bytes_read"].sum() + frame["bytes_written"].sum() < 10 * 256
    kept = work(lambda x: x.at[3].multiply(2.0), shape(1000, 64))
    assert kept["bytes_written"].sum() >= 1000 * 256  # without donation the array is copied
    gathered = work(lambda x, i: x[i] * 2, shape(1000, 64), IDS)
    assert gathered["bytes_read"].sum() < 2 * 10 * 64 * 4 and gathered["flops"].sum() == 640


def test_a_loop_without_a_count_is_unknown() -> None:
    frame = work(lambda x: lax.while_loop(lambda c: c.sum() < 1e6, lambda c: c @ c, x), SQUARE)
    assert np.isnan(frame["calls"]).any() and np.isnan(frame["flops"].sum(skipna=False))


@pytest.mark.parametrize(
    "call",
    [
        PRODUCTS["matrices"][:2],
        PRODUCTS["batch"][:2],
        (VALID, (shape(4, 32, 32, 16), shape(3, 3, 16, 24))),
        (dense, (shape(64, 128), shape(128, 256), shape(256))),
        (lambda x: jax.nn.softmax(x, -1), (shape(64, 1000),)),
        (lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), (shape(64, 1000),)),
    ],
    ids=["matrices", "batch", "convolution", "layer", "softmax", "normalisation"],
)
def test_work_is_that_of_xla_where_its_own_analysis_is_right(call: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
    """It is of programs without library calls, loops, gathers and padding. A sum of n elements is n - 1 FLOPs there."""
    compiled = jax.jit(call[0]).lower(*call[1]).compile()
    frame, analysis = fs.work_of_hlo(compiled.as_text()), compiled.cost_analysis()
    flops = analysis["flops"] + analysis.get("transcendentals", 0)
    assert frame["flops"].sum() == pytest.approx(flops, rel=0.002)
    assert frame["bytes_read"].sum() + frame["bytes_written"].sum() == analysis["bytes accessed"]


@pytest.mark.parametrize(
    "function",
    [
        lambda i, x: lax.switch(i, [lambda y: y @ y, jnp.sin, jnp.cos], x),
        lambda i, x: jax.pure_callback(lambda y: y, SQUARE, x * i),
        lambda i, x: lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, i)),
        lambda i, x: lax.pad(x.astype(jnp.float8_e4m3fn).astype(jnp.float32), 0.0, ((1, 2, 1), (0, -1, 0)))[1:9:2, 3:],
        lambda i, x: jax.grad(lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (3, 3), (2, 2), "SAME").sum())(x),
        lambda i, x: (jnp.exp(1j * x), jnp.cumsum(x), x[:0], jnp.linalg.svd(x)),
        lambda i, x: jax.random.normal(jax.random.key(i, impl="rbg"), (64, 64)) + x,
    ],
    ids=["switch", "callback", "update", "pad and slice", "pool", "several", "bits"],
)
def test_other_programs_are_read_alike(function: Callable[..., Any]) -> None:
    with jax.named_scope('a "quoted" scope'):
        assert len(work(function, shape(dtype="int32"), SQUARE)) > 0
