"""Well-made programs of JAX, without a library of layers, their products counted by hand; jax_programs.py runs them.

A row of PROGRAMS holds a function that builds the program: from a size (1: as on the GPU; less: for tests) to its
function, its arguments, and the FLOPs of the products and convolutions of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

BF16, F32 = jnp.bfloat16, jnp.float32


class Program(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    product_flops: float


def full(*shape: int, dtype: Any = BF16) -> Any:
    """Return an array of small numbers that are not all equal."""
    return (jnp.arange(shape[-1], dtype=F32) % 7 - 3).astype(dtype) * jnp.full(shape, 0.01, dtype)


# Transformers ---------------------------------------------------------------------------------------------------------


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


def fused_attention(size: float) -> Program:
    """Return causal attention by cuDNN, with its gradients."""
    batch, tokens, heads, width = 4, int(2048 * size), 16, 64
    q = full(batch, tokens, heads, width)

    def loss(q: Any, k: Any, v: Any) -> Any:
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        return mixed.astype(F32).sum()

    pairs = tokens * (tokens + 1) / 2
    return Program(jax.grad(loss, argnums=(0, 1, 2)), (q, q, q), (2 + 5) * 2 * batch * heads * width * pairs)


# Others ---------------------------------------------------------------------------------------------------------------


def convnet(size: float) -> Program:
    """Return a training step of four convolutions of 3 × 3, the second and the fourth with a stride of 2."""
    batch, side, channels = int(64 * size) or 1, int(56 * size), int(128 * size)
    strides = (1, 2, 1, 2)
    filters = [full(3, 3, channels, channels) for _ in strides]

    def loss(filters: Any, x: Any) -> Any:
        for one, stride in zip(filters, strides, strict=True):
            x = lax.conv_general_dilated(x, one, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        return jnp.mean(x.astype(F32) ** 2)

    def step(filters: Any, x: Any) -> Any:
        return [one - 1e-3 * by for one, by in zip(filters, jax.grad(loss)(filters, x), strict=True)]

    flops, outputs = 0.0, side
    for place, stride in enumerate(strides):
        outputs = -(-outputs // stride)
        forward = 2 * batch * outputs**2 * channels * 9 * channels
        flops += forward * (3 if place else 2)  # the first layer needs no gradient of its input
    return Program(step, (filters, full(batch, side, side, channels)), flops)


def pallas_kernel(size: float) -> Program:
    """Return a kernel written with Pallas between two functions of XLA."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    side, tile = int(8192 * size), 64

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = x[...] * 2 + y[...]

    def function(x: Any) -> Any:
        part = pallas.BlockSpec((tile, tile), lambda i, j: (i, j))
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        specs = {"in_specs": [part, part], "out_specs": part, "grid": (side // tile, side // tile)}
        options = triton.CompilerParams(num_warps=4)
        add = pallas.pallas_call(kernel, out_shape=shape, name="scaled_add", compiler_params=options, **specs)
        return jnp.tanh(add(x, jnp.sin(x)))

    return Program(function, (full(side, side, dtype=F32),), 0.0)


PROGRAMS: dict[str, Callable[[float], Program]] = {
    "gpt": lambda size: language_model(size, scanned=False),
    "gpt_scan": lambda size: language_model(size, scanned=True),
    "convnet": convnet,
    "decode": decode,
    "attention": fused_attention,
    "pallas": pallas_kernel,
}
