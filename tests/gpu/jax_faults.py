"""Programs of JAX with one known fault each, and the same programs with the fault mended.

The functions build a program: from `mended` to a function that runs one step and waits for it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import flopscope as fs

Step = Callable[[], object]
SIZE, STEPS = 2048, 4


def donate(mended: bool) -> Step:
    """A cache of 512 MB, in which a loop replaces rows, is not donated."""

    def write_rows(cache: Any, row: Any) -> Any:
        return lax.fori_loop(0, 8, lambda i, cache: lax.dynamic_update_slice(cache, row, (i, 0)), cache)

    function = jax.jit(write_rows, donate_argnums=0 if mended else ())
    held, row = [jnp.zeros((32768, 4096))], jnp.ones((1, 4096))

    def step() -> None:
        held[0] = function(held[0], row)
        jax.block_until_ready(held[0])

    return step


def callback(mended: bool) -> Step:
    """A callback checks the loss in the jitted step; mended, the step returns it."""

    def update(weights: Any, x: Any) -> tuple[Any, Any]:
        loss, gradient = jax.value_and_grad(lambda weights: jnp.mean((x @ weights) ** 2))(weights)
        if not mended:
            loss = jax.pure_callback(lambda value: np.asarray(value), jax.ShapeDtypeStruct((), jnp.float32), loss)
        return weights - 1e-3 * gradient * (1 + 0 * loss), loss

    function = jax.jit(update)
    held, x = [jnp.full((SIZE, SIZE), 0.01)], jnp.full((SIZE, SIZE), 0.01)

    def step() -> None:
        for _ in range(4):
            held[0], loss = function(held[0], x)
        loss.block_until_ready()

    return step


def warmup(mended: bool) -> Step:
    """Each step has another number of rows, and is compiled again; mended, rows are padded."""
    weight = jnp.full((512, 512), 0.01)
    function = jax.jit(lambda x: jnp.tanh(x @ weight).sum())
    rows = [256]

    def step() -> None:
        rows[0] += 1
        function(np.ones((512 if mended else rows[0], 512), np.float32)).block_until_ready()

    return step


def profiled(build: Callable[[bool], Step], mended: bool) -> fs.profile:
    """Return a profile of some steps, after a first one."""
    step = build(mended)
    step()
    with fs.profile(schedule=fs.schedule(wait=0, warmup=1, active=STEPS, repeat=1), record_shapes=True) as prof:
        for _ in range(STEPS + 1):
            step()
            prof.step()
    return prof


def saved(prof: fs.profile, build: Callable[[bool], Step]) -> float:
    """Return what the rule that has the fault's name estimates to save a step."""
    return sum(row.saving_us for row in prof.advice() if row.rule == build.__name__)
