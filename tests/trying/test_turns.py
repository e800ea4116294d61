"""Runs side by side: one at a time is timed while the others are stopped, and all of them end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.run_programs import script

import flopscope as fs
import flopscope.measuring.trying.processes
from flopscope.measuring.trying.gate import Gate, wait_at
from flopscope.measuring.trying.inside import Record
from flopscope.measuring.trying.processes import Processes, Program
from flopscope.measuring.trying.seen import Seen
from flopscope.measuring.trying.turns import Ended, Turns

WARM, STEPS = 3, 40  # of 5 ms
PROGRAM = """
import os, time
import flopscope as fs
with open(f"{os.getpid()}.steps", "w", buffering=1) as file:
    while True:
        time.sleep(0.005)
        file.write(f"{time.monotonic()}\\n")
        fs.step()
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def processes(turns: Turns) -> Processes:
    return Processes(Program("program.py"), Path(tempfile.mkdtemp(dir=Path.cwd())), turns)


def test_no_other_run_makes_a_step_while_one_is_timed() -> None:
    script(Path.cwd(), PROGRAM)
    turns, records = Turns(3), []
    runs = processes(turns)
    turns.side_by_side([lambda: records.append(runs.run("time", (), Seen(), WARM, STEPS, 60))] * 4)
    assert [(one.problem, one.steps) for one in records] == [("", WARM + STEPS)] * 4
    assert all(one.seconds is not None and 0.005 <= one.seconds < 0.1 for one in records)
    steps = [[float(line) for line in path.read_text().split()] for path in Path.cwd().glob("*.steps")]
    assert [len(one) for one in steps] == [WARM + STEPS] * 4
    for one in steps:
        begin, end = one[WARM], one[-1]
        others = [moment for other in steps if other is not one for moment in other]
        assert not [moment for moment in others if begin <= moment <= end]


RUNNER = """
import sys, time
from pathlib import Path
from flopscope.measuring.trying.gate import wait_at
door, folder = sys.argv[1], Path(sys.argv[2])
while not (folder / "enter").exists():
    (folder / "before").touch()
    time.sleep(0.005)
wait_at(door, folder / "passed")
(folder / "after").touch()
time.sleep(600)
"""


def comes(path: Path, seconds: float) -> bool:
    """Return whether a file is there within some seconds."""
    end = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return path.exists()


def comes_back(path: Path, seconds: float) -> bool:
    path.unlink(missing_ok=True)
    return comes(path, seconds)


def test_a_run_that_has_not_used_the_gpu_goes_on_while_another_is_timed_and_waits_at_the_door() -> None:
    turns, folder = Turns(2), Path.cwd()
    command = [sys.executable, "-c", RUNNER, turns.door, str(folder)]
    timed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with turns.run(lambda: subprocess.Popen(command, start_new_session=True), passed=folder / "passed") as process:
        try:
            assert comes_back(folder / "before", 30)
            with turns.timed(timed):
                assert not comes_back(folder / "before", 0.3), "without a CPU for it, it is stopped"
            with turns.timed(timed, spare=1):
                assert comes_back(folder / "before", 30), "it goes on"
                (folder / "enter").touch()
                assert comes(folder / "passed", 30) and not comes(folder / "after", 0.3), "and waits"
            assert comes(folder / "after", 30)
            with turns.timed(timed, spare=1):
                state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
                assert state == "T", "it may use the GPU now"
        finally:
            for one in (process, timed):
                one.kill()
                one.wait()


def test_runs_pass_the_door_before_cuda_is_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("the program below is to fail to initialize CUDA")
    monkeypatch.setattr(flopscope.measuring.trying.processes, "spare_of", lambda seen: 1)
    text = """
        import glob, torch
        before = glob.glob("*/passed-*")
        try:
            torch.cuda.init()
        except Exception:
            print(len(before), len(glob.glob("*/passed-*")))
        raise SystemExit(3)
        """
    script(Path.cwd(), text)
    record = processes(Turns(2)).run("compare", (), Seen(cuda=True), 0, 0, 60)
    assert record.problem == "SystemExit: 3"
    (log,) = Path.cwd().glob("*/log-*.txt")
    assert log.read_text().split() == ["0", "1"]


def test_runs_may_go_on_beside_a_program_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flopscope.measuring.trying.processes.os, "sched_getaffinity", lambda pid: range(16))
    assert flopscope.measuring.trying.processes.spare_of(Seen(cuda=True)) == 7
    assert (
        flopscope.measuring.trying.processes.spare_of(Seen())
        == flopscope.measuring.trying.processes.spare_of(Seen(jax=True))
        == 0
    )
    monkeypatch.setattr(flopscope.measuring.trying.processes.os, "sched_getaffinity", lambda pid: range(1))
    assert flopscope.measuring.trying.processes.spare_of(Seen(cuda=True)) == 0


def test_a_run_that_is_recorded_waits_for_its_turn_too() -> None:
    script(Path.cwd(), PROGRAM.replace("time.sleep(0.005)", "fs.neg(fs.ones((8, 8), device='cpu'))"))
    turns, found = Turns(2), []
    runs = processes(turns)
    with turns._still:  # another is timed
        thread = threading.Thread(target=lambda: found.append(runs.trace((3, 6), 60, Seen())))
        thread.start()
        time.sleep(0.1)
        assert runs.count == 0, "none begins"
    thread.join(60)
    assert found[0][0] is not None and len(fs.load_trace(found[0][0]).step_breakdown()) == 3


def test_a_look_waits_for_its_turn_and_tells_times_without_the_wait() -> None:
    script(Path.cwd(), PROGRAM)
    turns = Turns(2)
    runs, records = processes(turns), []
    turns.side_by_side([lambda: records.append(runs.run("look", (), Seen(), 0, 0, 60))] * 2)
    for record in records:
        assert record.problem == "" and record.steps == len(record.marks) >= 12
        assert max(b - a for a, b in zip(record.marks, record.marks[1:], strict=False)) < 0.5


def test_all_runs_can_be_ended() -> None:
    script(Path.cwd(), "import time\ntime.sleep(600)")
    turns = Turns(2)
    runs, begin = processes(turns), time.monotonic()
    problems: list[BaseException | Record] = []

    def run() -> None:
        try:
            problems.append(runs.run("time", (), Seen(), 1, 1, 600))
        except Ended as ended:
            problems.append(ended)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for one in threads:
        one.start()
    while runs.count < 2:
        time.sleep(0.01)
    turns.end()
    for one in threads:
        one.join()
    assert [type(one) for one in problems] == [Ended] * 3 and time.monotonic() - begin < 60
    assert runs.count == 2, "no further one begins"


def test_an_interruption_in_one_call_ends_the_others() -> None:
    turns = Turns(2)

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turns.side_by_side([interrupted, lambda: None])
    with pytest.raises(Ended), turns.run(lambda: subprocess.Popen([sys.executable, "-c", ""])):
        pass


def test_a_gate_opens_when_its_owner_ends(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    code = "import time; from pathlib import Path; from flopscope.measuring.trying.gate import Gate; "
    code += f"Gate(Path({str(path)!r})); "
    owner = subprocess.Popen([sys.executable, "-c", f"{code} print('locked', flush=True); time.sleep(600)"], stdout=-1)
    assert owner.stdout is not None and owner.stdout.readline() == b"locked\n"
    passed = threading.Event()
    waiting = threading.Thread(target=lambda: (wait_at(str(path)), passed.set()), daemon=True)
    waiting.start()
    assert not passed.wait(0.3) and Path(f"{path}.ready").exists()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert passed.wait(10)


def test_a_gate_opens(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    waiting = threading.Thread(target=wait_at, args=(str(gate.path),), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive() and gate.ready.exists()
    gate.open()
    waiting.join(10)
    assert not waiting.is_alive()
