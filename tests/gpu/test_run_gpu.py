"""flopscope run of programs that use a GPU without torch: a part is recorded, and the steps of JAX are timed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.run_programs import run, script

JAX = """
import time, jax, jax.numpy as jnp
assert jax.default_backend() == "gpu"
@jax.jit
def train(x):
    for _ in range(20):
        x = jnp.tanh(x @ x)
    return x
x, times, begin = jnp.ones((1024, 1024)), [], time.monotonic()
while time.monotonic() < begin + 8 or len(times) < 1000:
    x = train(x).block_until_ready()
    times.append(time.monotonic())
print(1e6 * sorted(b - a for a, b in zip(times, times[1:]))[len(times) // 2])
"""
CUPY = """
import time, cupy
x, begin = cupy.ones((256, 256), "f"), time.monotonic()
while time.monotonic() < begin + 12:
    y = cupy.sin(x) @ x
    y *= 2
    x = cupy.tanh(y / y.max())
print(0)
"""


def ran(folder: Path, code: str, needs: str) -> tuple[dict[str, Any], str, float]:
    """Return what the JSON says of the recording, the summary's text, and what the program prints."""
    pytest.importorskip(needs)
    more = {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    more["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = run(folder, "--no-report", "--json", "s.json", script(folder, code), **more)
    if "assert jax.default_backend()" in result.stderr:
        pytest.skip("this JAX has no GPU")
    assert result.returncode == 0, result.stderr
    facts = json.loads((folder / "s.json").read_text(encoding="utf-8"))["recording"]
    return facts, " ".join(result.stderr.split()), float(result.stdout)


def test_the_steps_of_jax_are_timed(tmp_path: Path) -> None:
    facts, text, own = ran(tmp_path, JAX, "jax")
    assert (facts["step"], facts["step_of"]) == ("jax", "train") and facts["bare_steps"] > 200
    assert facts["bare_step_us"] == pytest.approx(own, rel=0.05) and facts["recorded_step_us"] > 0.9 * own
    assert "flopscope run --whole records all" in text and "XLA compiled for" in text


def test_of_cupy_a_part_is_recorded(tmp_path: Path) -> None:
    facts, text, _ = ran(tmp_path, CUPY, "cupy")
    assert facts["step"] == "repetition" and facts["recorded_steps"] > 1000 and facts["bare_step_us"] is None
    assert "What one takes that nothing records is unknown." in text and "flopscope run --whole records all" in text
