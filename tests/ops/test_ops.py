"""Every op on the CPU against NumPy in float64."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import TESTS
from helpers.op_cases import OpCases
from helpers.ops_reference import BINARY, REDUCTIONS, UNARY, Lab

import flopscope as fs


@pytest.fixture
def lab() -> Lab:
    return Lab("cpu")


class TestOnTheCpu(OpCases):
    pass


def test_every_op_has_a_result_test() -> None:
    named = set(UNARY) | set(BINARY) | set(REDUCTIONS)
    named |= {name + "_" for name in {*UNARY, *BINARY}}
    files = [TESTS / "helpers" / f"{name}_cases.py" for name in ("op", "reduction")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [op for op in fs._core.ops if op not in named and f"fs.{op}" not in text] == []


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_all_instruction_sets_agree_with_numpy(isa: str) -> None:
    code = """
import sys, numpy as np, flopscope as fs
sys.path.insert(0, sys.argv[1])
from helpers.ops_reference import BINARY, REDUCTIONS, UNARY, POSITIVE, Lab, softmax, layer_norm
lab = Lab("cpu")
for dtype in ("float64", "float32", "float16", "bfloat16"):
    for name, want in UNARY.items():
        if name == "gelu": continue
        x, v = lab.uniform((1003,), dtype, 0.05 if name in POSITIVE else -3.0, 3.0)
        lab.check(getattr(fs, name)(x), want(v), dtype, 8)
    for name, want in BINARY.items():
        (a, va), (b, vb) = (lab.uniform((1003,), dtype, 0.1, 2.5) for _ in range(2))
        lab.check(getattr(fs, name)(a, b), want(va, vb), dtype, 4)
    x, v = lab.uniform((7, 1003), dtype, 0.1, 1.0)
    for name, want in REDUCTIONS.items():
        lab.check(getattr(fs, name)(x, -1), want(v, axis=-1), dtype, 4)
    assert (np.asarray(fs.argmax(x, -1)) == np.argmax(v, -1)).all()
    np.testing.assert_allclose(np.asarray(fs.cumsum(x).to("float64")), np.cumsum(v, -1), rtol=2e-2)
    np.testing.assert_allclose(np.asarray(fs.softmax(x).to("float64")), softmax(v), rtol=2e-2)
    np.testing.assert_allclose(np.asarray(fs.layer_norm(x).to("float64")), layer_norm(v), rtol=3e-2, atol=3e-2)
print(fs._core.cpu_properties()["isa"])
"""
    environment = {**os.environ, "FLOPSCOPE_ISA": isa}
    done = subprocess.run([sys.executable, "-c", code, str(TESTS)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() != isa:
        pytest.skip(f"this processor runs {done.stdout.strip()} at most")


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("program", ["ops_precision", "ops_layouts"])
def test_all_instruction_sets_are_right_to_the_last_bits_and_on_any_layout(program: str, isa: str) -> None:
    command = [sys.executable, "-m", f"helpers.{program}"]
    environment = {**os.environ, "FLOPSCOPE_ISA": isa}
    done = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() != isa:
        pytest.skip(f"this processor runs {done.stdout.strip()} at most")


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = fs.from_numpy(np.random.default_rng(1).random((1000, 3001), dtype=np.float32))
    before = fs.num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            fs.set_num_threads(threads)
            fs.manual_seed(3)
            drawn = fs.randn((100_001,), device="cpu")
            results.append((fs.sum(x).item(), fs.softmax(x).numpy().tobytes(), drawn.numpy().tobytes()))
    finally:
        fs.set_num_threads(before)
    assert results[0] == results[1] == results[2]
