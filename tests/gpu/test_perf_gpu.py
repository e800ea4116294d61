"""The perf fixture on a real GPU: the kernels of one call, and its waits for the device."""

import pytest

import flopscope as fs
from flopscope.measuring.perf.check import look


@pytest.fixture
def x() -> fs.Tensor:
    return fs.full((1024, 1024), 0.5, device="cuda")


def test_each_kernel_of_a_call_is_counted(x: fs.Tensor) -> None:
    fs.synchronize("cuda")
    assert len(look(fs.sin, (x,)).kernels) == 1
    assert len(look(lambda: [fs.sin(x) for _ in range(3)], ()).kernels) == 3
    assert look(lambda: None, ()).kernels == []


def test_the_launch_of_a_call_is_known(x: fs.Tensor) -> None:
    launch = fs.measure(fs.sin, x, max_time=0.05).launch
    assert launch.registers > 8 and launch.theoretical_occupancy > 25 and "sin" in launch.kernel


def test_only_waiting_counts_as_synchronization(x: fs.Tensor) -> None:
    fs.sin(x)
    assert look(fs.sin, (x,)).waits == []
    assert look(lambda: fs.sin(x).numpy(), ()).waits != []
    assert look(lambda: fs.synchronize("cuda"), ()).waits != []


def test_kernels_of_torch_are_counted() -> None:
    torch = pytest.importorskip("torch")
    t = torch.ones((1024, 1024), device="cuda")
    fused = look(torch.add, (t, t))
    assert len(fused.kernels) == 1 and fused.waits == []
    assert len(look(lambda: (t * 2 + 1).sin(), ()).kernels) == 3
    assert look(lambda: t.sum().item(), ()).waits != []
