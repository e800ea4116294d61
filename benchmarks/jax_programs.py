"""What recording costs programs of JAX under fs.profile(), with command buffers on, and what it knows of them.

The programs are a training step of a GPT, with its layers in a lax.scan or not, and a loop that decodes. For each: the
time of a step, the share of the kernels' time that belongs to an instruction, the FLOPs of its products beside a count
by hand, and what profiling adds to a step.

    python benchmarks/jax_programs.py --device cuda [--out FOLDER]
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
from harness import Report, arguments, interleave, ratio, spread
from jax import lax

import flopscope as fs

STEPS, ROUNDS, SECONDS = 10, 9, 3.0
TIED, OVERHEAD = 0.98, 5.0
BF16, F32 = jnp.bfloat16, jnp.float32


class Program(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    product_flops: float


def full(*shape: int, dtype: Any = BF16) -> Any:
    """Return an array of small numbers that are not all equal."""
    return (jnp.arange(shape[-1], dtype=F32) % 7 - 3).astype(dtype) * jnp.full(shape, 0.01, dtype)


def norm(x: Any) -> Any:
    wide = x.astype(F32)
    return (wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def block(x: Any, weights: dict[str, Any], heads: int) -> Any:
    batch, tokens, width = x.shape
    with jax.named_scope("attention"):
        q, k, v = (part.reshape(batch, tokens, heads, -1) for part in jnp.split(norm(x) @ weights["qkv"], 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=F32) * (width // heads) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(x.dtype), v)
        x = x + mixed.reshape(batch, tokens, width) @ weights["o"]
    with jax.named_scope("mlp"):
        return x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]


def language_model(size: float, *, scanned: bool) -> Program:
    """Return a training step of a GPT of four layers, plain or with its layers in a lax.scan."""
    layers, batch, tokens, heads = 4, 4, int(512 * size), 16
    width, vocabulary = int(1024 * size), int(32000 * size)
    sizes = {"qkv": (width, 3 * width), "o": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {
        "layers": {name: full(layers, *shape) for name, shape in sizes.items()},
        "embedding": full(vocabulary, width),
    }

    def loss(weights: Any, ids: Any) -> Any:
        x = weights["embedding"][ids[:, :-1]]
        if scanned:
            x, _ = lax.scan(lambda x, layer: (block(x, layer, heads), None), x, weights["layers"])
        else:
            for i in range(layers):
                x = block(x, {name: each[i] for name, each in weights["layers"].items()}, heads)
        logits = jnp.einsum("btc,vc->btv", norm(x), weights["embedding"], preferred_element_type=F32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1))

    def step(weights: Any, ids: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, ids)
        return jax.tree.map(lambda a, b: a - (1e-3 * b).astype(a.dtype), weights, gradients), value

    ids = (jnp.arange(batch * (tokens + 1)) * 7 % vocabulary).reshape(batch, tokens + 1)
    rows = batch * tokens
    each = 2 * rows * width * 12 * width + 2 * 2 * rows * tokens * width
    forward = layers * each + 2 * rows * width * vocabulary
    return Program(step, (weights, ids), 3 * forward)


def decode(size: float) -> Program:
    """Return a loop that decodes sixteen tokens with a cache of keys and values."""
    layers, batch, heads, steps = 4, 8, 16, 16
    width, tokens, vocabulary = int(1024 * size), int(256 * size), int(8192 * size)
    sizes = {"qkv": (width, 3 * width), "o": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {name: full(layers, *shape) for name, shape in sizes.items()}
    ends = full(vocabulary, width), full(width, vocabulary)
    cache = tuple(jnp.zeros((layers, batch, tokens, heads, width // heads), BF16) for _ in range(2))

    def token(weights: Any, ends: Any, cache: Any, ids: Any, position: Any) -> Any:
        def layer(x: Any, inputs: Any) -> Any:
            now, keys, values = inputs
            with jax.named_scope("attention"):
                parts = jnp.split((norm(x) @ now["qkv"]).reshape(batch, 3, heads, width // heads), 3, 1)
                q, key, value = parts
                keys = lax.dynamic_update_slice(keys, key, (0, position, 0, 0))
                values = lax.dynamic_update_slice(values, value, (0, position, 0, 0))
                scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys, preferred_element_type=F32)
                scores = jnp.where(jnp.arange(tokens) <= position, scores, -1e9)
                mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(BF16), values)
                x = x + mixed.reshape(batch, width) @ now["o"]
            with jax.named_scope("mlp"):
                return x + jax.nn.gelu(norm(x) @ now["up"]) @ now["down"], (keys, values)

        x, cache = lax.scan(layer, ends[0][ids], (weights, *cache))
        return jnp.argmax(x @ ends[1], -1), cache

    def generate(weights: Any, ends: Any, cache: Any, ids: Any) -> Any:
        return lax.fori_loop(0, steps, lambda i, state: token(weights, ends, state[1], state[0], i), (ids, cache))

    each = 2 * batch * width * 12 * width + 2 * 2 * batch * tokens * width
    flops = steps * (layers * each + 2 * batch * width * vocabulary)
    return Program(generate, (weights, ends, cache, jnp.zeros(batch, int)), flops)


PROGRAMS: dict[str, Callable[[float], Program]] = {
    "gpt": lambda size: language_model(size, scanned=False),
    "gpt_scan": lambda size: language_model(size, scanned=True),
    "decode": decode,
}


def main() -> None:
    options = arguments(__doc__ or "", ("cuda", "cpu"))
    columns = ["program", "step, ms", "low", "high", "tied", "products", "recording adds, %"]
    report = Report("jax_programs", columns, options.out, options.device)
    for name, build in PROGRAMS.items():
        measure(name, build(1.0 if options.device == "cuda" else 0.0625), report)
        report.done()
    report.note("tied: share of the kernels' time that belongs to instructions; products: FLOPs over those by hand")
    report.finish()


def measure(name: str, program: Program, report: Report) -> None:
    step = jax.jit(program.function).lower(*program.arguments).compile()
    run(step, program.arguments)
    by_hand = fs.work_of_hlo(step.as_text()).product_flops.sum() / program.product_flops
    with fs.profile(record_shapes=True) as prof:
        run(step, program.arguments)
    tied = prof.hlo["tied_ns"] / prof.hlo["kernel_ns"] if prof.hlo else math.nan
    cases = {"plain": lambda: run(step, program.arguments), "profiled": lambda: profiled(step, program.arguments)}
    samples = interleave(cases, ROUNDS, 1, SECONDS)
    report.keep(name, samples, ours="profiled", hlo=dict(prof.hlo or {}))
    added = 100 * (ratio(samples["profiled"], samples["plain"]).median - 1)
    report.row(name, *spread(samples["plain"]).cells(3, 1e3), f"{tied:.4f}", f"{by_hand:.4f}", f"{added:+.1f}")
    if prof.hlo:
        report.target(f"{name}: share of the kernels' time that is tied", tied, TIED, "", least=True)
    report.target(f"{name}: products differ from the count by hand", 100 * abs(by_hand - 1), 0.1, "%")
    if name == "gpt":
        report.target("gpt: profiling adds to a step", added, OVERHEAD, "%")


def run(function: Callable[..., Any], given: Any) -> float:
    """Return the seconds of a step, of several that run back to back."""
    start = time.perf_counter()
    for _ in range(STEPS):
        result = function(*given)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / STEPS


def profiled(function: Callable[..., Any], given: Any) -> float:
    with fs.profile():
        return run(function, given)


if __name__ == "__main__":
    main()
