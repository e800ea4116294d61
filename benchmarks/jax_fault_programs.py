"""Programs of JAX with one known fault each, and the same programs with the fault mended; jax_faults.py measures them.

A row of FAULTS describes the change, names the advice rule that should find the fault, and holds a function that builds
the program: from `mended` to a function that runs one step and waits for it. Only JAX is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

Step = Callable[[], object]


@dataclass(frozen=True)
class Fault:
    what: str  # the fault, and what mends it
    rule: str  # advice that should name it
    build: Callable[[bool], Step]  # from `mended` to a function that runs one step
    devices: int = 1  # that it needs


FAULTS: dict[str, Fault] = {}


def fault(what: str, rule: str, devices: int = 1) -> Callable[[Callable[[bool], Step]], Callable[[bool], Step]]:
    """Add the decorated function to FAULTS under its name."""

    def add(build: Callable[[bool], Step]) -> Callable[[bool], Step]:
        FAULTS[build.__name__] = Fault(what, rule, build, devices)
        return build

    return add


def repeated(function: Callable[..., Any], state: Any, *rest: Any) -> Step:
    """Return a step that replaces the state by the function's result, and waits for it."""
    held = [state]

    def step() -> None:
        held[0] = function(held[0], *rest)
        jax.block_until_ready(held[0])

    return step


SIZE = 2048


@fault("a cache of 512 MB, in which a loop replaces rows, is not donated", "donate")
def donation(mended: bool) -> Step:
    def write_rows(cache: Any, row: Any) -> Any:
        return lax.fori_loop(0, 8, lambda i, cache: lax.dynamic_update_slice(cache, row, (i, 0)), cache)

    function = jax.jit(write_rows, donate_argnums=0 if mended else ())
    return repeated(function, jnp.zeros((32768, 4096)), jnp.ones((1, 4096)))


@fault("images are stored as NCHW, and XLA transposes them for cuDNN; mended, they are stored as NHWC", "transpose")
def transposed(mended: bool) -> Step:
    order = ("NHWC", "OHWI", "NHWC") if mended else ("NCHW", "OIHW", "NCHW")

    def mean_feature(images: Any, filters: Any) -> Any:
        features = lax.conv_general_dilated(images, filters, (1, 1), "SAME", dimension_numbers=order)
        return jnp.mean(features.astype(jnp.float32))

    function = jax.jit(mean_feature)
    images = jnp.full((256, 56, 56, 64) if mended else (256, 64, 56, 56), 0.01, jnp.bfloat16)
    filters = jnp.full((64, 3, 3, 64) if mended else (64, 64, 3, 3), 0.01, jnp.bfloat16)
    return lambda: function(images, filters).block_until_ready()


@fault("a loop swaps the arrays of its carry; mended, it takes two steps at once and swaps none", "carry")
def carried(mended: bool) -> Step:
    def update(array: Any, other: Any, i: Any) -> Any:
        return lax.dynamic_update_slice(array, other[:1] * 0.5, (i, 0))

    def swap(i: Any, carry: Any) -> Any:
        old, new = carry
        return new, update(old, new, i)

    def two(i: Any, carry: Any) -> Any:
        old, new = carry
        old = update(old, new, 2 * i)
        return old, update(new, old, 2 * i + 1)

    function = jax.jit(
        lambda state: lax.fori_loop(0, 16, two, state) if mended else lax.fori_loop(0, 32, swap, state),
        donate_argnums=0,
    )
    return repeated(function, (jnp.ones((4096, 4096)), jnp.ones((4096, 4096))))


@fault("a callback checks the loss in the jitted step; mended, the step returns it", "callback")
def called_back(mended: bool) -> Step:
    seen: list[float] = []

    def update(weights: Any, x: Any) -> tuple[Any, Any]:
        loss, gradient = jax.value_and_grad(lambda weights: jnp.mean((x @ weights) ** 2))(weights)
        if not mended:
            loss = jax.pure_callback(lambda value: np.asarray(value), jax.ShapeDtypeStruct((), jnp.float32), loss)
        return weights - 1e-3 * gradient * (1 + 0 * loss), loss

    function = jax.jit(update)
    held = [jnp.full((SIZE, SIZE), 0.01)]
    x = jnp.full((SIZE, SIZE), 0.01)

    def step() -> None:
        for _ in range(4):
            held[0], loss = function(held[0], x)
        seen.append(float(loss))

    return step


@fault("products of float32 at the highest precision; mended, at the default one", "precision")
def highest(mended: bool) -> Step:
    def layers(x: Any, weights: Any) -> Any:
        for one in weights:
            x = jnp.tanh(jnp.matmul(x, one, precision=None if mended else "highest"))
        return x

    return repeated(jax.jit(layers), jnp.full((SIZE, SIZE), 0.01), [jnp.full((SIZE, SIZE), 0.01)] * 4)


@fault(
    "factors of bfloat16 are converted for sums in float32; mended, preferred_element_type asks for these", "precision"
)
def widened(mended: bool) -> Step:
    def product(x: Any, weight: Any) -> Any:
        if mended:
            return jnp.matmul(x, weight, preferred_element_type=jnp.float32)
        return jnp.matmul(x.astype(jnp.float32), weight.astype(jnp.float32))

    def layers(x: Any, weights: Any) -> Any:
        for one in weights:
            x = jnp.tanh(product(x, one)).astype(jnp.bfloat16)
        return x

    narrow = jnp.full((2 * SIZE, 2 * SIZE), 0.01, jnp.bfloat16)
    return repeated(jax.jit(layers), narrow, [narrow] * 4)


@fault("each step has another number of rows, and is compiled again; mended, rows are padded", "warmup")
def recompiled(mended: bool) -> Step:
    weight = jnp.full((512, 512), 0.01)
    function = jax.jit(lambda x: jnp.tanh(x @ weight).sum())
    rows = [256]

    def step() -> None:
        rows[0] += 1
        x = np.ones((512 if mended else rows[0], 512), np.float32)
        function(x).block_until_ready()

    return step


@fault("a scan of small steps launches each kernel; mended, it is unrolled", "launch")
def small_steps(mended: bool) -> Step:
    def body(carry: Any, x: Any) -> Any:
        return jnp.tanh(0.9 * carry + x), None

    function = jax.jit(lambda carry, xs: lax.scan(body, carry, xs, unroll=16 if mended else 1)[0])
    return repeated(function, jnp.zeros(4096), jnp.ones((1024, 4096)))


@fault(
    "two experts wait for their tokens, and these for the results; mended, in four parts", "communication", devices=2
)
def exchanged(mended: bool) -> Step:
    mesh = Mesh(np.array(jax.devices()[:2]), ("expert",))
    rows = Spec("expert")

    def expert(weight: Any, x: Any) -> Any:
        received = lax.all_to_all(x, "expert", 0, 0, tiled=True)
        return lax.all_to_all(jnp.tanh(received @ weight), "expert", 0, 0, tiled=True)

    def layer(weight: Any, x: Any) -> Any:
        results = []
        for part in jnp.split(x, 4 if mended else 1):
            # Without the barrier, XLA merges the products, as they have a factor in common.
            results.append(expert(*lax.optimization_barrier((weight, part))))
        return jnp.concatenate(results)

    function = jax.jit(jax.shard_map(layer, mesh=mesh, in_specs=(rows, rows), out_specs=rows))
    sharding = NamedSharding(mesh, rows)
    weights = jax.device_put(jnp.full((2 * 2 * SIZE, 2 * SIZE), 0.01, jnp.bfloat16), sharding)
    x = jax.device_put(jnp.full((2 * 8 * SIZE, 2 * SIZE), 0.01, jnp.bfloat16), sharding)
    return lambda: function(weights, x).block_until_ready()
