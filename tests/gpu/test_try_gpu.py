"""flopscope try on a GPU: what is seen of a program, settings that only a GPU has, and CUDA graphs of torch.compile."""

from __future__ import annotations

from pathlib import Path

import pytest

import flopscope as fs
from flopscope.measuring.trying.processes import Processes, Program, spare_of
from flopscope.measuring.trying.seen import Seen
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.measuring.trying.turns import Turns

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU")

TRAINING = """
import torch
torch.set_float32_matmul_precision("highest")
torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
x = torch.randn(8192, 1024, device="cuda")  # enough that the GPU limits a step
while True:
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Processes:
    folder = tmp_path_factory.mktemp("try")
    (folder / "program.py").write_text(TRAINING)
    return Processes(Program(str(folder / "program.py")), folder)


@pytest.fixture(scope="module")
def seen(processes: Processes) -> Seen:
    record = processes.run("look", (), Seen(), 0, 0, 120)
    assert record.problem == "" and record.of == "losses"
    assert record.peak is not None and record.peak > 4 * 4 * 1024**2 * 4  # parameters, gradients, two moments
    return Seen(**record.seen)


def test_the_gpu_is_seen(seen: Seen) -> None:
    major, minor = torch.cuda.get_device_capability()
    assert seen.cuda and seen.capability == 10 * major + minor and seen.device == torch.cuda.get_device_name()
    assert not seen.tf32 and not seen.half
    assert not SWITCHES["fused_optimizer"].needs(seen) and SWITCHES["threads"].needs(seen)


def test_tf32_is_faster_and_keeps_the_losses(processes: Processes, seen: Seen) -> None:
    if SWITCHES["tf32_products"].needs(seen):
        pytest.skip("this GPU has no TF32")
    plain, changed = (processes.run("time", names, seen, 5, 100, 120) for names in ((), ("tf32_products",)))
    assert plain.seconds is not None and changed.seconds is not None
    assert changed.hits["tf32_products"] > 0 and changed.seconds < 0.9 * plain.seconds
    assert changed.values == pytest.approx(plain.values, rel=SWITCHES["tf32_products"].tolerance)
    assert plain.clock is None or plain.clock > 100


def test_runs_side_by_side_pass_the_door_and_are_timed_and_recorded(
    processes: Processes, seen: Seen, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(TRAINING)
    turns = Turns(3)
    runs, records = Processes(Program(str(program)), tmp_path, turns), []
    turns.side_by_side([lambda: records.append(runs.run("time", (), seen, 5, 20, 120)) for _ in range(3)])
    assert all(one.problem == "" and one.seconds is not None and one.warm == 5 for one in records)
    assert len(list(tmp_path.glob("passed-*"))) == (3 if spare_of(seen) else 0)
    path, why = runs.trace((5, 8), 120, seen)
    assert path is not None, why
    assert len(fs.load_trace(path).step_breakdown()) == 3


@pytest.mark.parametrize("name", ["compile_graphs", "autocast", "fused_optimizer", "expandable_segments"])
def test_a_switch_is_applied_and_keeps_the_losses(processes: Processes, seen: Seen, name: str, tmp_path: Path) -> None:
    if why := SWITCHES[name].needs(seen):
        pytest.skip(why)
    plain, changed = (processes.run("compare", names, seen, 5, 0, 120) for names in ((), (name,)))
    assert changed.problem == "" and changed.hits[name] > 0
    assert changed.values == pytest.approx(plain.values, rel=SWITCHES[name].tolerance)
