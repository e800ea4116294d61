"""flopscope try on a GPU: what is seen of a program, settings that only a GPU has, and CUDA graphs of torch.compile."""

from pathlib import Path

import pytest

import flopscope as fs
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.measuring.trying.trial import Processes, Program

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
    record = processes.run("", Seen())
    assert record.problem == "" and record.of == "losses"
    assert record.peak is not None and record.peak > 4 * 4 * 1024**2 * 4  # parameters, gradients, two moments
    return Seen(**record.seen)


def test_the_gpu_is_seen(seen: Seen) -> None:
    assert seen.cuda and not seen.tf32 and not seen.half
    assert not SWITCHES["fused_optimizer"].why_not(seen) and SWITCHES["threads"].why_not(seen)


def test_tf32_is_faster_and_keeps_the_losses(processes: Processes, seen: Seen) -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no TF32")
    plain, changed = (processes.run(name, seen, 5, 100, 120) for name in ("", "tf32"))
    assert plain.seconds is not None and changed.seconds is not None
    assert changed.hits > 0 and changed.seconds < 0.9 * plain.seconds
    assert changed.values == pytest.approx(plain.values, rel=SWITCHES["tf32"].tolerance)


def test_steps_are_recorded(processes: Processes, seen: Seen) -> None:
    assert len(fs.load_trace(processes.trace((5, 8), 120)).step_breakdown()) == 3


@pytest.mark.parametrize("name", ["compile_graphs", "autocast", "fused_optimizer"])
def test_a_switch_is_applied_and_keeps_the_losses(processes: Processes, seen: Seen, name: str, tmp_path: Path) -> None:
    if why := SWITCHES[name].why_not(seen):
        pytest.skip(why)
    plain, changed = (processes.run(one, seen, 5, 10, 120) for one in ("", name))
    assert changed.problem == "" and changed.hits > 0
    assert changed.values == pytest.approx(plain.values, rel=SWITCHES[name].tolerance)
