"""An interrupt at any line of start or stop: whatever state it leaves, another profile can start."""

import itertools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from helpers.processes import ended

import flopscope as fs
from flopscope.measuring import look
from flopscope.record.profile import running
from flopscope.support import capture
from flopscope.support.capture import ProfilerActivity

FOLDER = os.path.dirname(fs.__file__)


class Interrupter:
    """A trace function that raises KeyboardInterrupt before the n-th line or call of flopscope's code."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""
        self.exception: KeyboardInterrupt | None = None
        """Kept with its frames, as an interactive session does until the next error."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event in ("call", "line"):
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_qualname if sys.version_info >= (3, 11) else ''}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self

    def run(self, program: Callable[[], object]) -> bool:
        """Run a program and return whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            program()
        except KeyboardInterrupt as interrupt:
            self.exception = interrupt
            return True
        finally:
            sys.settrace(before)
        return False


def assert_another_can_start(where: str) -> None:
    x = fs.ones((2,))
    try:
        with fs.profile() as prof:
            fs.sin(x)
    except RuntimeError as problem:
        raise AssertionError(f"after an interrupt at {where}: {problem}") from problem
    assert [row.key for row in prof.key_averages(peaks="none")] == ["flopscope::sin"], where
    assert running() is None, where


def interrupt_everywhere(program: Callable[[], object], check: Callable[[str], object]) -> int:
    """Run a program repeatedly, interrupted one line later each time; return the number of interrupts."""
    for at in itertools.count(1):
        interrupter = Interrupter(at)
        if not interrupter.run(program) and interrupter.left > 0:  # exceptions in __del__ do not propagate
            return at - 1
        if running() is not None:  # at the end of the block, before it had any effect
            interrupter.exception = None
        check(interrupter.where)
    raise AssertionError


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "memory and stacks": {"profile_memory": True, "with_stack": True},
    "cpu": {"activities": [ProfilerActivity.CPU]},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_interrupt_of_start_or_stop_leaves_a_profile_that_stop_can_end(options: dict[str, Any]) -> None:
    x = fs.ones((2,))
    started: list[fs.profile] = []

    def program() -> None:
        started[:] = [fs.profile(**options)]
        started[0].start()
        fs.cos(x)
        started[0].stop()

    def check(where: str) -> None:
        if started and running() is started[0]:
            started[0].stop()  # the interrupt came before start() or stop() had any effect
            started[0].key_averages(peaks="none")
        assert_another_can_start(where)

    assert interrupt_everywhere(program, check) > 50


STEPPED = {"schedule": fs.schedule(wait=1, warmup=1, active=2, repeat=2), "on_trace_ready": len}
BLOCKS = {**{name: (options, 0, 50) for name, options in OPTIONS.items()}, "steps": (STEPPED, 7, 300)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("options", "steps", "least"), BLOCKS.values(), ids=BLOCKS)
def test_an_interrupt_of_block_or_step_leaves_no_profile_open(options: dict[str, Any], steps: int, least: int) -> None:
    x = fs.ones((2,))

    def program() -> None:
        with fs.profile(**options) as prof:
            fs.cos(x)
            for _ in range(steps):
                prof.step()
                fs.cos(x)

    assert interrupt_everywhere(program, assert_another_can_start) > least


def test_an_unreferenced_profile_ends() -> None:
    fs.profile().start()
    assert_another_can_start("nowhere")


@pytest.mark.filterwarnings("ignore")
def test_an_interrupted_measurement_leaves_nothing_recording() -> None:
    x = fs.ones((2,))

    def look_once() -> None:
        look.call_under_profiler(lambda: fs.cos(x), False, "auto")

    assert interrupt_everywhere(look_once, assert_another_can_start) > 20
    assert interrupt_everywhere(lambda: capture.shortest_kernel("cpu", 3), assert_another_can_start) > 10


@pytest.mark.parametrize("use", ["x.numpy()", "x @ x", "fs.from_numpy(3)"])
@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "SystemExit", "ImportError"])
def test_an_interrupt_of_the_import_of_numpy_propagates(use: str, kind: str) -> None:
    program = f"""
        import sys
        import flopscope as fs
        fs.set_default_device("cpu")
        x = fs.ones((2, 2))

        class Finder:
            def find_spec(self, name, *_):
                if name.startswith("numpy"):
                    raise {kind}("stopped")

        sys.meta_path.insert(0, Finder())
        for name in [name for name in sys.modules if name.split(".")[0] == "numpy"]:
            del sys.modules[name]
        try:
            {use}
        except {kind} as problem:
            assert str(problem) == "stopped", problem
            print("raised", flush=True)
    """
    done = ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "raised\n", "")
