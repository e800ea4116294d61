"""Running a program as the command ``python`` does: a script, a folder or archive with a ``__main__``, or a module."""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
import threading
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

from flopscope.support.package import FOLDER

__all__ = ["PythonProgram", "exit_status", "show_exception", "wait_for_threads"]


class PythonProgram:
    """A program that runs in this process as ``python TARGET ARGUMENTS`` or ``python -m TARGET ARGUMENTS`` runs it.

    Raise OSError if the target is a file that cannot be read. A module is looked for when it runs.
    """

    def __init__(self, target: str, arguments: list[str], *, is_module: bool = False) -> None:
        self.target = target
        self.arguments = arguments
        self.is_module = is_module
        self._has_main = not is_module and pkgutil.get_importer(target) is not None  # a folder or an archive
        if not is_module and not self._has_main:
            with io.open_code(os.path.abspath(target)):
                pass
        self._replaced: ModuleType | None = None

    @property
    def name(self) -> str:
        """The name of the program in the names of files: that of the script or the last one of the module."""
        if self.is_module:
            parts = [part for part in self.target.split(".") if part not in ("", "__main__")]
            return parts[-1] if parts else "module"
        return os.path.splitext(os.path.basename(os.path.abspath(self.target)))[0]

    def run(self) -> BaseException | None:
        """Run the program's main thread to its end, and return the exception that ended it."""
        main = ModuleType("__main__")
        self._replaced = sys.modules["__main__"]  # keeps the globals of the command that runs it
        sys.modules["__main__"] = main
        try:
            if self.is_module:
                sys.argv = ["-m", *self.arguments]
                _set_first_path(os.getcwd())
                runpy._run_module_as_main(self.target)  # type: ignore[attr-defined]
            elif self._has_main:
                sys.argv = [self.target, *self.arguments]
                _set_first_path(os.path.join(os.getcwd(), self.target), always=True)
                runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
            else:
                sys.argv = [self.target, *self.arguments]
                _set_first_path(os.path.dirname(os.path.realpath(self.target)))
                self._run_script(main)
        except BaseException as problem:
            problem.__traceback__ = _without_our_frames(problem.__traceback__)
            return problem
        return None

    def _run_script(self, main: ModuleType) -> None:
        path = os.path.join(os.getcwd(), self.target)  # not normalised, as Python's own
        names = vars(main)
        names.update(
            __file__=path, __loader__=SourceFileLoader("__main__", path), __builtins__=builtins, __cached__=None
        )
        if sys.version_info < (3, 14):
            names["__annotations__"] = {}
        exec(_code_of(path), names)


def _code_of(path: str) -> CodeType:
    with io.open_code(path) as file:
        code: CodeType | None = pkgutil.read_code(file)
    if code is None:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    return code


def _set_first_path(folder: str, *, always: bool = False) -> None:
    """Replace the folder that Python put first in the search path, if it did."""
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if not safe:
        sys.path[:1] = [folder]
    elif always:
        sys.path.insert(0, folder)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(FOLDER + os.sep):
        trace = trace.tb_next
    return trace


# The end --------------------------------------------------------------------------------------------------------------


def exit_status(problem: BaseException | None) -> Any:
    """Return the argument of sys.exit() for a program that ended with an exception, and print what Python prints."""
    if problem is None:
        return 0
    if isinstance(problem, SystemExit):
        return _status_of_exit(problem)
    return show_exception(problem)


def _status_of_exit(problem: SystemExit) -> int:
    code = problem.code
    if code is None or isinstance(code, int):
        return code or 0
    _flush()
    print(code, file=sys.stderr)
    _flush()
    return 1


def show_exception(problem: BaseException) -> int:
    """Print an unhandled exception through sys.excepthook, as Python does, and return the exit status."""
    kind, trace = type(problem), problem.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = kind, problem, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = problem
    _flush()
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        print("sys.excepthook is missing", file=sys.stderr)
        sys.__excepthook__(kind, problem, trace)
        return 1
    try:
        sys.audit("sys.excepthook", hook, kind, problem, trace)
        hook(kind, problem, trace)
    except SystemExit as end:
        return _status_of_exit(end)
    except BaseException as second:
        second.__traceback__ = _without_our_frames(second.__traceback__)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(second), second, second.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(kind, problem, trace)
    _flush()
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None, closed, or a pipe whose reader has gone
            stream.flush()


def wait_for_threads() -> None:
    """Wait for the threads that keep a program running after the end of its main thread.

    The workers of executors are left out: the interpreter tells them to end after the program has ended.
    """
    pools = [sys.modules.get(f"concurrent.futures.{name}") for name in ("thread", "process")]
    managed = [getattr(pools[0], "_threads_queues", ()), getattr(pools[1], "_threads_wakeups", ())]
    me = threading.current_thread()
    while True:
        running = [
            thread
            for thread in threading.enumerate()
            if thread is not me and not thread.daemon and not any(thread in known for known in managed)
        ]
        if not running:
            return
        running[0].join()
