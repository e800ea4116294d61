"""Launches of Triton, with a fake of its versions: tests/gpu/test_triton_gpu.py has the real one."""

import math
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import fake_triton
from helpers.fake_triton import ADD_IR, DOUBLE_IR, TENSOR_PTX, JITFunction, Tensor
from helpers.hand_traces import Program, rewritten

import flopscope as fs
from flopscope.record.triton_launches import LAUNCHES

VERSIONS = ["3.3", "3.4", "3.6"]
PTX = {"ptx": "\tfma.rn.f32 %f1;\n"}


@pytest.fixture(params=VERSIONS)
def owner(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A fake Triton of each kind of hooks; yields what has them."""
    with fake_triton.imported(request.param) as found:
        yield found


@pytest.fixture
def chains() -> Iterator[Any]:
    """A fake Triton whose hooks are chains."""
    with fake_triton.imported("3.6") as found:
        yield found


def add_kernel(**more: Any) -> JITFunction:
    return JITFunction("add_kernel", {"ttir": ADD_IR, **PTX}, **more)


def product(metadata: dict[str, Any], ptx: str = TENSOR_PTX) -> JITFunction:
    return JITFunction("mm_kernel", {"ptx": ptx}, lambda grid, kernel, arguments: dict(metadata))


def row_of(prof: Any, key: str) -> Any:
    (row,) = [row for row in prof.key_averages(peaks="none") if row.key == key]
    return row


def recorded(launch: Any) -> Any:
    with fs.profile() as prof:
        launch()
    return prof


def test_the_stated_work_of_a_launch(owner: Any) -> None:
    kernel = product({"name": "mm [M=4]", "flops16": 2 * 4 * 5 * 6, "bytes": 148})
    row = row_of(recorded(lambda: [kernel[1,](Tensor(4, 6), 5) for _ in range(3)]), "mm [M=4]")
    assert (row.count, row.flops, row.bytes_total_moved) == (3, 720, 444)
    assert (row.flops_source, row.bytes_source, row.unit) == ("stated", "stated", "fp16_tensor")


@pytest.mark.parametrize(
    "stated, flops, unit",
    [
        ({"flops16": 8}, 8, "fp16_tensor"),
        ({"flops": 8}, 8, None),
        ({"flops32": 8.0}, 8, "fp32"),  # the kernel has no instruction of a tensor core for float32
        ({"flops8": 8}, 8, None),  # nor any for 8 bits
        ({"flops16": 8, "flops32": 0}, 8, "fp16_tensor"),
        ({"flops16": 8, "flops32": 2}, 10, None),
        ({"bytes": 8}, math.nan, None),
        ({"flops16": Tensor(1), "bytes": 8}, math.nan, None),  # to read a tensor may wait for the device
        ({"flops16": 8, "flops32": Tensor(1), "bytes": 8}, math.nan, None),
    ],
)
def test_units_of_work_follow_its_width(chains: Any, stated: dict[str, Any], flops: float, unit: str | None) -> None:
    kernel = product(stated)
    row = row_of(recorded(lambda: kernel[1,]()), "triton::mm_kernel")
    assert row.flops == pytest.approx(flops, nan_ok=True) and row.unit == unit
    assert row.bytes_total_moved == pytest.approx(stated.get("bytes", math.nan), nan_ok=True)


@pytest.mark.parametrize(
    "arguments, moved",
    [
        ((Tensor(10), Tensor(10), Tensor(10)), 120),
        ((Tensor(10, item=2), Tensor(10), Tensor(10, item=1)), 70),
        ((Tensor(10, address=64), Tensor(10, address=64), Tensor(10)), 80),  # one tensor twice
        ((Tensor(10, address=64), Tensor(10), Tensor(10, address=64)), 120),  # read and written
        ((Tensor(4, 10, stride=(0, 1)), Tensor(10), Tensor(4, 10)), 40 + 40 + 160),  # repeated by its stride
        (((Tensor(10), Tensor(10)), Tensor(10)), 120),  # a tuple
        ((Tensor(0), Tensor(0), Tensor(0)), 0),
        ((SimpleNamespace(base=Tensor(10)), Tensor(10), Tensor(10)), 120),  # a descriptor of a tensor
    ],
)
def test_the_tensors_of_a_launch_limit_its_bytes(owner: Any, arguments: tuple[Any, ...], moved: int) -> None:
    kernel = add_kernel()
    row = row_of(recorded(lambda: [kernel[1,](*arguments, 10, None, BLOCK=64) for _ in range(2)]), "triton::add_kernel")
    assert row.bytes_total_moved == 2 * moved and math.isnan(row.flops)
    assert (row.flops_source, row.bytes_source) == (None, "estimated")


def test_a_kernel_that_reads_and_writes_a_tensor_moves_it_twice(chains: Any) -> None:
    kernel = JITFunction("double", {"ttir": DOUBLE_IR, **PTX})
    assert row_of(recorded(lambda: kernel[1,](Tensor(10))), "triton::double").bytes_total_moved == 80


class Pointer:
    """Memory of unknown size."""

    def data_ptr(self) -> int:
        return 64


@pytest.mark.parametrize(
    "arguments",
    [
        (Tensor(10), Tensor(10)),  # fewer tensors than the kernel has pointers
        (Tensor(10), Tensor(10), Tensor(10), Tensor(10)),
        (Pointer(), Tensor(10), Tensor(10)),
    ],
)
def test_without_all_sizes_nothing_is_told(owner: Any, arguments: tuple[Any, ...]) -> None:
    kernel = add_kernel()
    prof = recorded(lambda: (kernel[1,](*arguments), fs.add(fs.ones(3), 1)))
    assert "triton::add_kernel" not in {row.key for row in prof.key_averages(peaks="none")}


def test_a_kernel_without_code_or_of_other_launchers_is_not_told(chains: Any) -> None:
    blank, generated = JITFunction("blank", {}), add_kernel().kernel

    def launch() -> None:
        blank[1,](Tensor(10))
        enter, leave = chains.launch_enter_hook, chains.launch_exit_hook
        metadata = fake_triton.LazyDict({"name": "triton_poi_fused_0", "function": 7, "stream": 0})
        generated.run(metadata, enter, leave, Tensor(10))  # as code of Inductor does
        fs.add(fs.ones(3), 1)

    assert {row.key for row in recorded(launch).key_averages(peaks="none")} == {"flopscope::add", "flopscope::ones"}


def test_hooks_are_set_while_a_profile_runs_alone(owner: Any) -> None:
    before = dict(vars(owner)), owner.launch_enter_hook, owner.launch_exit_hook
    with fs.profile():
        assert owner.launch_enter_hook is not before[1] and owner.launch_exit_hook is not before[2]
    assert (dict(vars(owner)), owner.launch_enter_hook, owner.launch_exit_hook) == before
    add_kernel()[1,](Tensor(10), Tensor(10), Tensor(10))


def test_hooks_of_others_are_called_around_ours(chains: Any) -> None:
    called: list[str] = []
    kernel = add_kernel(run=lambda: called.append("run"))
    enter, leave = chains.launch_enter_hook, chains.launch_exit_hook

    def launch() -> None:
        called.clear()
        kernel[1,](Tensor(10), Tensor(10), Tensor(10))

    def entered(metadata: Any) -> None:
        called.append(f"enter {metadata.get()['name']}")

    enter.add(entered)
    with fs.profile() as prof:
        launch()
        assert called == ["enter add_kernel", "run"]
        late = lambda metadata: called.append("late")  # noqa: E731
        chains.launch_exit_hook.add(late)  # by another profiler that begins
        launch()
        assert called == ["enter add_kernel", "run", "late"]
    launch()
    assert called == ["enter add_kernel", "run", "late"] and leave.calls == [late]
    assert row_of(prof, "triton::add_kernel").count == 2


def test_the_chain_stays_empty_for_who_looks(chains: Any) -> None:
    kind = type(chains.launch_enter_hook)
    with fs.profile():
        assert isinstance(chains.launch_enter_hook, kind) and chains.launch_enter_hook.calls == []


@pytest.mark.parametrize("version", ["3.3", "3.4"])
def test_a_single_hook_of_another_is_called(version: str) -> None:
    called: list[str] = []
    with fake_triton.imported(version) as owner:
        owner.launch_enter_hook = hook = lambda metadata: called.append(metadata.data["name"])
        kernel = add_kernel()
        prof = recorded(lambda: kernel[1,](Tensor(10), Tensor(10), Tensor(10)))
        assert called == ["add_kernel"] and row_of(prof, "triton::add_kernel").count == 1
        assert owner.launch_enter_hook is hook


@pytest.mark.parametrize(
    "metadata, why",
    [
        (lambda grid, kernel, arguments: 1 // 0, "ZeroDivisionError"),
        (lambda grid, kernel, arguments: {"flops16": "many"}, "flops16 of its launch_metadata must be a number"),
        (lambda grid, kernel, arguments: {"bytes": -1}, "bytes of its launch_metadata must be finite and at least 0"),
        (lambda grid, kernel, arguments: 7, "TypeError"),
    ],
)
def test_wrong_metadata_warns_once_and_the_launch_goes_on(owner: Any, metadata: Any, why: str) -> None:
    ran: list[int] = []
    kernel = add_kernel(launch_metadata=metadata, run=lambda: ran.append(1))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        prof = recorded(lambda: [kernel[1,](Tensor(10), Tensor(10), Tensor(10)) for _ in range(3)])
    assert len(ran) == 3 and len(found) == 1
    assert "launches of add_kernel is unknown" in str(found[0].message) and why in str(found[0].message)
    assert len(prof) == 0


def test_metadata_that_states_only_a_name_leaves_the_limit(chains: Any) -> None:
    kernel = add_kernel(launch_metadata=lambda grid, kernel, arguments: {"name": "add [n=10]"})
    row = row_of(recorded(lambda: kernel[1,](Tensor(10), Tensor(10), Tensor(10))), "add [n=10]")
    assert row.bytes_total_moved == 120 and row.bytes_source == "estimated"


def test_a_launch_that_fails_ends_before_the_next(chains: Any) -> None:
    def fail() -> None:
        raise RuntimeError("no such kernel image")

    kernel, bad = add_kernel(), add_kernel(run=fail)

    def launch() -> None:
        with pytest.raises(RuntimeError, match="kernel image"):
            bad[1,](Tensor(10), Tensor(10), Tensor(10))
        kernel[1,](Tensor(10), Tensor(10), Tensor(10))

    events = recorded(launch).events()
    assert [event.name for event in events] == ["triton::add_kernel"] * 2
    assert all(event.cpu_parent is None for event in events)


def test_an_interrupt_reaches_the_program(chains: Any) -> None:
    def stop(grid: Any, kernel: Any, arguments: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    kernel = add_kernel(launch_metadata=stop)
    with pytest.raises(KeyboardInterrupt), fs.profile():
        kernel[1,](Tensor(10), Tensor(10), Tensor(10))


def test_triton_may_be_imported_while_a_profile_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)  # the real one, which torch imports where it is installed
    with fs.profile() as prof, fake_triton.imported("3.6") as owner:
        LAUNCHES._install()  # as after an import, which a fake has none of
        add_kernel()[1,](Tensor(10), Tensor(10), Tensor(10))
        assert "launch_enter_hook" in vars(owner)
    assert row_of(prof, "triton::add_kernel").count == 1 and "launch_enter_hook" not in vars(owner)


def test_threads_have_launches_of_their_own(chains: Any) -> None:
    barrier = threading.Barrier(4)
    kernel = add_kernel(run=lambda: barrier.wait(20))

    def work(_: int) -> None:
        for _ in range(25):
            kernel[1,](Tensor(10), Tensor(10), Tensor(10))

    with fs.profile() as prof, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    row = row_of(prof, "triton::add_kernel")
    assert (row.count, row.bytes_total_moved) == (100, 12000)
    assert all(event.cpu_parent is None for event in prof.events())


@pytest.mark.parametrize("name", ["triton::mm_kernel", "mm [M=4]"])
@pytest.mark.parametrize("work", ["[flops=8 bytes=9]", "[bytes<=9]"])
def test_a_rule_for_the_kernel_takes_precedence(name: str, work: str) -> None:
    program = Program()
    for start in (0, 100):
        program.run(f"{name} {work}", start, start + 30, 2, kernel="mm_kernel")
    trace = program.load()
    fs.register_work("mm_kernel", lambda call: (100, 200, 300))
    try:
        row = row_of(trace, name)
        assert (row.flops, row.bytes_total_moved, row.bytes_source) == (200, 1000, "model")
    finally:
        fs.register_work("mm_kernel", None)
    assert row_of(trace, name).bytes_total_moved == 18


def test_the_work_of_launches_is_in_traces(chains: Any, tmp_path: Any) -> None:
    kernel, other = product({"flops16": 8, "bytes": 9}), add_kernel()
    prof = recorded(lambda: (kernel[1,](), other[1,](Tensor(10), Tensor(10), Tensor(10))))
    trace = rewritten(prof, tmp_path)
    for key in ("triton::mm_kernel", "triton::add_kernel"):
        ours, theirs = row_of(prof, key), row_of(trace, key)
        for name in ("flops", "bytes_total_moved"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), nan_ok=True)
        for name in ("unit", "flops_source", "bytes_source"):
            assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("record_shapes", [False, True])
def test_profiles_of_torch_record_launches(chains: Any, record_shapes: bool, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    from flopscope.torch import profile

    kernel, other = product({"flops16": 8, "bytes": 9}), add_kernel()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with profile(activities=activities, record_shapes=record_shapes) as prof:
        torch.ones(3)
        for _ in range(2):
            kernel[1,]()
        other[1,](torch.ones(10), torch.ones(10).expand(4, 10), torch.ones(4, 10))
    assert "launch_enter_hook" not in vars(chains)
    for read in (prof, rewritten(prof, tmp_path)):
        row = row_of(read, "triton::mm_kernel")
        assert (row.count, row.flops, row.bytes_total_moved) == (2, 16, 18)
        assert (row.unit, row.flops_source, row.bytes_source) == ("fp16_tensor", "stated", "stated")
        assert row_of(read, "triton::add_kernel").bytes_total_moved == 40 + 40 + 160
    kernel[1,]()
