"""Profiles of JAX on a GPU: compilations apart from the program, instructions of its modules, advice. Each program runs
in a process of its own, and prints what it found as JSON."""

import json
import os
from typing import Any

import pytest
from helpers import ROOT
from helpers.processes import output_of

pytest.importorskip("jax")

HEAD = """
import json, sys
sys.path[:0] = ["benchmarks", "tests/gpu"]
import jax, jax.numpy as jnp, numpy as np
import flopscope as fs
if jax.default_backend() != "gpu":
    print(json.dumps(None))
    raise SystemExit
def rows_of(prof):
    return {row.key: (row.count, row.flops, row.self_device_time_total) for row in prof.key_averages()
            if row.device_type == "cpu" and row.self_device_time_total > 0}
"""


def run(code: str) -> Any:
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found = json.loads(output_of(HEAD + code, cwd=ROOT, env=environment).splitlines()[-1])
    if found is None:
        pytest.skip("this JAX has no GPU")
    return found


def test_kernels_of_the_autotuner_belong_to_the_compilation() -> None:
    rows, hlo, parts, alive, flops = run("""
x, w = jnp.ones((512, 768), jnp.bfloat16), jnp.ones((768, 1024), jnp.bfloat16)
def layer(x, w):
    return jnp.tanh(x @ w).astype(jnp.float32).sum(0)
f = jax.jit(layer)
with fs.profile() as prof:
    for _ in range(5):
        f(x, w).block_until_ready()
    f = None
    jax.clear_caches()
alive = len(jax.devices()[0].client.live_executables())
flops = sum(row.flops for row in prof.key_averages() if row.category == "matrix product" and row.flops > 0)
parts = prof.accounting().iloc[-1][["compilation", "total"]].tolist()
print(json.dumps([rows_of(prof), prof.hlo, parts, alive, flops]))
""")
    compiled = [name for name in rows if name.endswith("(XLA compilation)")]
    assert len(compiled) == 1 and "layer" in compiled[0] and rows[compiled[0]][2] > 0
    assert flops == 5 * 2 * 512 * 768 * 1024
    assert 5 <= hlo["works"] <= 60 and hlo["executions"] == 5 and hlo["tied_ns"] == hlo["kernel_ns"]
    assert hlo["guessed"] == 0
    assert parts[0] > 0.3 * parts[1]
    assert alive == 0


@pytest.mark.parametrize("buffers", [True, False])
def test_products_are_those_by_hand_with_and_without_command_buffers(
    buffers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not buffers:
        monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
    hlo, flops, by_hand, modules, lines = run("""
import jax_programs
p = jax_programs.language_model(0.5, scanned=True)
f = jax.jit(p.function)
jax.block_until_ready(f(*p.arguments))
with fs.profile(schedule=fs.schedule(wait=0, warmup=1, active=3, repeat=1)) as prof:
    for _ in range(4):
        jax.block_until_ready(f(*p.arguments))
        prof.step()
flops = sum(row.flops for row in prof.key_averages() if row.category == "matrix product" and row.flops > 0)
modules = [row.module for row in prof.key_averages(group_by="module")]
lines = [row.line for row in prof.key_averages(group_by="line")]
print(json.dumps([prof.hlo, flops, 3 * p.product_flops, modules, lines]))
""")
    assert hlo["tied_ns"] >= 0.98 * hlo["kernel_ns"] and hlo["executions"] == 3
    assert flops == pytest.approx(by_hand, rel=0.02)
    assert any(module.endswith("/attention") for module in modules)
    assert any("jax_programs.py" in line for line in lines if line)


def test_the_advice_names_a_copied_argument_and_a_callback() -> None:
    for fault in ("donate", "callback"):
        before, after = run(f"""
from jax_faults import {fault} as fault, profiled, saved
print(json.dumps([saved(profiled(fault, mended), fault) for mended in (False, True)]))
""")
        assert before > 0 and after <= 0.25 * before


def test_recompilation_in_steps_is_counted() -> None:
    rows, said = run("""
from jax_faults import profiled, warmup
prof = profiled(warmup, False)
compiled = sum(row.count for row in prof.key_averages() if row.key.endswith("<lambda>) (XLA compilation)"))
print(json.dumps([compiled, [row.what for row in prof.advice() if row.rule == "warmup"]]))
""")
    assert rows >= 4
    assert any("XLA compiled in" in text for text in said)
