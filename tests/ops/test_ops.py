"""Every op on the CPU against NumPy in float64."""

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import TESTS
from helpers.op_cases import OpCases
from helpers.ops_reference import BINARY, REDUCTIONS, UNARY, with_threads

import flopscope as fs


class TestOnTheCpu(OpCases):
    pass


def test_every_op_has_a_result_test() -> None:
    named = set(UNARY) | set(BINARY) | set(REDUCTIONS)
    named |= {name + "_" for name in {*UNARY, *BINARY}}
    files = [TESTS / "helpers" / f"{name}_cases.py" for name in ("op", "reduction")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [op for op in fs._core.ops if op not in named and f"fs.{op}" not in text] == []


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

    def compute() -> tuple[object, ...]:
        fs.manual_seed(3)
        drawn = fs.randn((100_001,), device="cpu")
        return fs.sum(x).item(), fs.softmax(x).numpy().tobytes(), drawn.numpy().tobytes()

    results = with_threads(compute, 1, 2, 5)
    assert results[0] == results[1] == results[2]
