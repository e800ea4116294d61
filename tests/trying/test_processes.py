"""Runs of programs in fresh processes: what is timed, how they end, and that nothing of the user's is changed."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.run_programs import script

from flopscope.measuring.trying.inside import Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.trial import Processes, Program

STEPS = """
import atexit, pathlib, time
import flopscope as fs
atexit.register(lambda: pathlib.Path("at_exit").touch())
try:
    for step in range(40):
        time.sleep(0.02)
        pathlib.Path("steps").write_text(str(step + 1))
        fs.step()
finally:
    pathlib.Path("finally").touch()
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def run(text: str, warm: int | None = 0, steps: int = 0, limit: float = 60, **more: Any) -> Record:
    script(Path.cwd(), text)
    return Processes(Program("program.py", **more), files()).run("", Seen(), warm, steps, limit)


def look(text: str) -> Record:
    return run(text, warm=None)


def switched(text: str, switch: str, seen: Seen, warm: int, steps: int) -> Record:
    script(Path.cwd(), text)
    return Processes(Program("program.py"), files()).run(switch, seen, warm, steps)


def files() -> Path:
    """Return a new folder."""
    return Path(tempfile.mkdtemp(dir=Path.cwd().parent))


def test_steps_after_the_warm_ones_are_timed_and_nothing_runs_after_the_last() -> None:
    record = run(STEPS, warm=3, steps=10)
    assert record.steps == 13 and record.problem == "" and record.seconds is not None and 0.02 <= record.seconds < 0.2
    assert record.peak is not None and record.peak > 1e6 and Path("steps").read_text() == "13"
    assert not Path("finally").exists() and not Path("at_exit").exists()


def test_a_look_ends_after_some_steps_and_tells_when_they_ended() -> None:
    record = look(STEPS.replace("range(40)", "range(10 ** 9)"))
    assert len(record.marks) == record.steps >= 12 and record.whole is None
    assert all(after - before >= 0.02 for before, after in zip(record.marks, record.marks[1:], strict=False))
    assert record.seen["torch"] == "" and record.seen["cpus"] == len(os.sched_getaffinity(0))


def test_a_program_without_steps_is_timed_whole_and_one_that_ends_before_the_last_step_not() -> None:
    record = run("import time; time.sleep(0.3)")
    assert record.seconds is not None and 0.3 <= record.seconds < 3 and record.seconds == record.whole
    record = run(STEPS, warm=3, steps=1000)
    assert record.seconds is None and record.steps == 40 and record.whole is not None


def test_the_program_is_told_and_its_generators_begin_alike() -> None:
    text = """
        import os, random, sys
        import numpy
        print(os.environ["FLOPSCOPE_TRY"], __name__, sys.argv[1:], random.random(), numpy.random.rand(), hash("a"))
        open("said", "a").write(f"{os.environ['FLOPSCOPE_TRY']} {__name__} {sys.argv[1:]} "
                                f"{random.random()} {numpy.random.rand()} {hash('a')}\\n")
        """
    for _ in range(2):
        assert run(text, arguments=("--lr", "1")).problem == ""
    first, second = Path("said").read_text().splitlines()
    assert first == second and first.startswith("1 __main__ ['--lr', '1']")


FAILURES = {
    "raise ValueError('no data')": "ValueError: no data", "import sys; sys.exit(3)": "SystemExit: 3",
    "import sys; sys.exit(0)": "", "import sys; sys.exit()": "", "input('go on? ')": "EOFError",
    "import os; print('out of luck', flush=True); os._exit(4)": "it ended with status 4: out of luck",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "it was ended by SIGKILL", "x = = 1": "SyntaxError",
}  # fmt: skip


@pytest.mark.parametrize("text", FAILURES)
def test_a_failure_is_told(text: str) -> None:
    problem = run(text).problem
    assert FAILURES[text] in problem and bool(FAILURES[text]) == bool(problem)


def test_a_program_that_hangs_is_ended_with_what_it_started() -> None:
    begin = time.monotonic()
    record = run("""
        import pathlib, subprocess, sys, time
        waits = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(waits, start_new_session=True)
        pathlib.Path("child").write_text(str(child.pid))
        time.sleep(600)
        """, limit=3)  # fmt: skip
    assert record.problem == "it did not get to its last measured step within 3 s" and time.monotonic() - begin < 30
    child = Path(f"/proc/{Path('child').read_text()}/stat")
    end = time.monotonic() + 10
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":  # ended, and not waited for yet
        assert time.monotonic() < end
        time.sleep(0.05)


def test_of_several_ranks_the_first_is_timed() -> None:
    env = shutil.which("env")
    assert env is not None
    first = run(STEPS, warm=2, steps=3, launcher=(env, "RANK=0", "WORLD_SIZE=2"))
    assert first.steps == 5 and first.problem == ""
    other = run(STEPS, warm=2, steps=3, launcher=(env, "RANK=1", "WORLD_SIZE=2"))
    assert other.problem and Path("steps").read_text() == "5"


def test_code_and_modules_are_programs_too() -> None:
    Path("mine.py").write_text("import sys; assert sys.argv[1:] == ['-x']")
    for program in (
        Program("mine", ("-x",), "-m"),
        Program("import sys; assert sys.argv == ['-c', '-x']", ("-x",), "-c"),
    ):
        assert Processes(program, files()).run("", Seen(), 0).problem == ""


def test_the_trace_of_some_steps_is_recorded_and_the_program_stopped() -> None:
    script(Path.cwd(), STEPS.replace("time.sleep(0.02)", "fs.neg(fs.ones((8, 8), device='cpu'))"))
    path = Processes(Program("program.py"), files()).trace((3, 6), 60)
    assert Path("steps").read_text() == "6"
    import flopscope as fs

    assert len(fs.load_trace(path).step_breakdown()) == 3


# torch ----------------------------------------------------------------------------------------------------------------

TRAINING = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(60):
    optimizer.zero_grad(set_to_none=False)
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
"""


def test_a_look_sees_what_the_program_uses_and_a_switch_is_applied_as_torch_is_imported() -> None:
    pytest.importorskip("torch")
    seen_first = look(TRAINING)
    seen = Seen(**seen_first.seen)
    assert seen.trains and seen.zeroed and seen.gradients and seen.modules == 1 and not seen.half
    assert not seen.cuda and not seen.convolutions and seen.draws
    assert seen_first.of == "losses" and len(seen_first.values) == 8
    for name, hits in {"fused_optimizer": 1, "zero_grad": 25}.items():
        record = switched(TRAINING, name, seen, 5, 20)
        assert record.problem == "" and record.hits >= hits
        assert record.values == pytest.approx(seen_first.values, rel=1e-4), "generators without seeds begin alike"


CAPTURED = """
import torch
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight])
torch.cuda.is_initialized = torch.cuda.is_current_stream_capturing = lambda: step < 3
for step in range(60):
    weight.square().sum().backward()
    optimizer.step()
"""


def test_what_is_captured_into_a_graph_is_no_step() -> None:
    pytest.importorskip("torch")
    record = run(CAPTURED, warm=1, steps=1000)
    assert record.problem == "" and record.whole is not None and record.steps == 57


def test_what_a_program_sets_itself_is_set_again_also_if_it_calls_no_module() -> None:
    pytest.importorskip("torch")
    text = """
    import torch
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight])
    while True:
        weight.sum().backward()
        optimizer.step()
    """
    assert switched(text, "threads", Seen(torch="2", cpus=2), 3, 5).hits > 0


def test_a_program_without_a_loss_is_compared_by_what_its_modules_return() -> None:
    pytest.importorskip("torch")
    text = """
        import torch, flopscope as fs
        model = torch.nn.Conv2d(3, 4, 3, dtype=torch.bfloat16)
        for step in range(20):
            model(torch.ones(2, 3, 8, 8, dtype=torch.bfloat16))
            fs.step()
        """
    record = look(text)
    seen = Seen(**record.seen)
    assert record.of == "outputs" and len(record.values) == 8
    assert seen.half and seen.convolutions and not seen.trains and not seen.draws


def test_batches_that_workers_had_ready_are_no_part_of_the_measured_steps() -> None:
    pytest.importorskip("torch")
    text = """
        import time, torch, flopscope as fs
        class Slow(torch.utils.data.Dataset):
            def __len__(self): return 1 << 20
            def __getitem__(self, index):
                time.sleep(0.05)
                return index
        for batch in torch.utils.data.DataLoader(Slow(), num_workers=2, prefetch_factor=4):
            fs.step()
            if batch.item() == 2:
                time.sleep(1)  # the workers get ahead
        """
    record = run(text, warm=3, steps=10)
    assert record.problem == "" and (record.warm, record.steps) == (3 + 2 * 4, 3 + 2 * 4 + 10)
    assert record.seconds is not None and record.seconds > 0.02, "two workers that need 50 ms each"


def test_ranks_of_torchrun_end_together(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("no torchrun")
    text = """
        import torch, torch.distributed as dist, flopscope as fs
        dist.init_process_group("gloo")
        x = torch.ones(4)
        for step in range(10 ** 9):
            dist.all_reduce(x)
            fs.step()
        """
    launcher = (str(torchrun), "--standalone", "--nproc-per-node", "2")
    record = run(text, warm=3, steps=20, launcher=launcher, limit=120)
    assert record.problem == "" and record.steps == 23 and record.seconds is not None
