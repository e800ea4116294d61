"""Programs of JAX whose compiled HLO the reader and the cost model are tested with. Needs JAX, its CPU build.

As a program, writes their texts: ``python tests/helpers/hlo_programs.py tests/data/hlo``. Names after the folder choose
others than those that are recorded; they are written as lowered, too. JAX starts threads, so that tests run this as a
program of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

ROOT = Path(__file__).resolve().parent.parent.parent
SQUARE = jnp.ones((32, 32))
IMAGES, FILTERS = jnp.ones((8, 16, 16, 4)), jnp.ones((3, 3, 4, 8))


def convolution(images: Any, filters: Any, **options: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(images, filters, (2, 2), "SAME", dimension_numbers=layout, **options)


def squares(filters: Any) -> Any:
    return (convolution(IMAGES, filters, rhs_dilation=(2, 2)) ** 2).sum()


def maxima(images: Any) -> Any:
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def scanned(x: Any) -> Any:
    return lax.scan(lambda carry, y: (jnp.tanh(carry @ SQUARE + y), carry.sum()), x, jnp.ones((7, 32, 32)))


def scoped(x: Any) -> Any:
    with jax.named_scope('a "quoted" scope'):
        return jnp.sin(x)


def unbounded(x: Any) -> Any:
    return lax.while_loop(lambda carry: carry.sum() < 3e5, lambda carry: carry @ SQUARE, x)


def called_back(x: Any) -> Any:
    return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((32, 32), jnp.float32), x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "argmax": (lambda x: jnp.argmax(x, 1), (SQUARE,)),
    "batched_product": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (jnp.ones((4, 8, 16)), jnp.ones((4, 16, 32)))),
    "bits": (lambda key: jax.random.normal(key, (64, 64)), (jax.random.key(0, impl="rbg"),)),
    "callback": (called_back, (SQUARE,)),
    "cholesky": (jnp.linalg.cholesky, (SQUARE,)),
    "complex": (lambda x: jnp.exp(1j * x), (SQUARE,)),
    "conditional": (lambda i, x: lax.switch(i, [lambda y: y @ SQUARE, jnp.sin, jnp.cos], x), (1, SQUARE)),
    "convolution": (convolution, (IMAGES, FILTERS)),
    "convolution_gradient": (jax.grad(squares), (FILTERS,)),
    "cumulative": (jnp.cumsum, (SQUARE,)),
    "empty": (lambda x: x[:0], (SQUARE,)),
    "float8": (lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32), (SQUARE,)),
    "fourier": (jnp.fft.rfft2, (SQUARE,)),
    "gather": (lambda x, i: x[i], (SQUARE, jnp.array([1, 2, 3]))),
    "loop": (lambda x: lax.fori_loop(0, 10, lambda _, carry: jnp.tanh(carry @ SQUARE), x), (SQUARE,)),
    "pad": (lambda x: lax.pad(x, 0.0, ((1, 2, 1), (0, -1, 0))), (SQUARE,)),
    "pool": (maxima, (IMAGES,)),
    "pool_gradient": (jax.grad(lambda x: maxima(x).sum()), (IMAGES,)),
    "scan": (scanned, (SQUARE,)),
    "scan_gradient": (jax.grad(lambda x: scanned(x)[1].sum()), (SQUARE,)),
    "scatter": (lambda x, i: x.at[i].add(1.0), (SQUARE, jnp.array([1, 2, 3]))),
    "scope": (scoped, (SQUARE,)),
    "slice": (lambda x: x[1:9:2, 3:] * 2, (SQUARE,)),
    "solve": (lambda x: jax.scipy.linalg.solve_triangular(x, x), (SQUARE,)),
    "sort": (lambda x: jnp.sort(x, axis=0), (SQUARE,)),
    "svd": (jnp.linalg.svd, (SQUARE,)),
    "top": (lambda x: lax.top_k(x, 4), (SQUARE,)),
    "unbounded": (unbounded, (SQUARE,)),
    "update": (lambda x, i: lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, i)), (SQUARE, 3)),
}
# Those in tests/data/hlo.
RECORDED = [
    "batched_product", "callback", "conditional", "convolution", "convolution_gradient", "float8", "fourier", "gather",
    "pad", "pool_gradient", "scan", "scatter", "scope", "sort", "unbounded", "update",
]  # fmt: skip


def texts(name: str) -> dict[str, str]:
    """Return what a program becomes on this machine: compiled, and lowered before that."""
    function, arguments = PROGRAMS[name]
    lowered = jax.jit(function).lower(*arguments)
    return {name: lowered.compile().as_text(), f"{name}_lowered": lowered.as_text("hlo", debug_info=True)}


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    for name in names or RECORDED:
        for stem, text in texts(name).items():
            if names or stem == name:
                (Path(folder) / f"{stem}.hlo").write_text(text.replace(f"{ROOT}/", ""), encoding="utf-8")
