"""Running a program as the command ``python`` does: a script, a folder or archive with a ``__main__``, a module, code
of the command line, or the standard input."""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
import textwrap
import threading
from contextlib import suppress
from importlib.machinery import BuiltinImporter, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from flopscope.support.own_path import LOADED_BEFORE, STARTS_WITH_FOLDER
from flopscope.support.package import FOLDER


class PythonProgram:
    """A program that runs in this process as ``python TARGET ARGUMENTS`` runs it, ``option`` ("-m" or "-c") before it.

    Without an option, the target "-" is the standard input. ``name`` is for the names of files, ``title`` for people.
    ``problem`` is the exception that ended the program.
    Raise OSError if the target is a file that cannot be read. A module is looked for when it runs.
    """

    def __init__(self, target: str, arguments: list[str], option: str = "") -> None:
        self.target = target
        self.arguments = arguments
        self.argv = [option or target, *arguments]
        self.problem: BaseException | None = None
        self._replaced: ModuleType | None = None
        if option == "-m":
            parts = [part for part in target.split(".") if part not in ("", "__main__")]
            self._run, self.name, self.title = self._run_module, parts[-1] if parts else "module", target
        elif option == "-c":
            self._run, self.name, self.title = self._run_code, "command", "python -c"
        elif target == "-":
            self._run, self.name, self.title = self._run_input, "stdin", "python -"
        else:
            path = os.path.abspath(target)
            self.title = os.path.basename(path)
            self.name = os.path.splitext(self.title)[0]
            is_container = pkgutil.get_importer(target) is not None
            self._run = self._run_container if is_container else self._run_script
            if not is_container:
                with io.open_code(path):
                    pass

    def run(self) -> BaseException | None:
        """Run the program's main thread to its end, and return the exception that ended it. Its trace function ends
        with it: that may raise in any function of Python."""
        main = ModuleType("__main__")
        self._replaced = sys.modules["__main__"]  # keeps the globals of the command that runs it
        sys.modules["__main__"] = main
        sys.argv = list(self.argv)
        now, before = vars(builtins), dict(vars(builtins))
        try:
            try:
                self._run(vars(main))
            finally:  # what follows needs those that the program has set to None
                for name in before:  # without a frame, which the program may trace
                    now[name] = before[name] if now.get(name) is None else now[name]
        except BaseException as ended:
            self.problem = ended
        sys.settrace(None)
        return self.problem

    def _run_module(self, names: dict[str, Any]) -> None:
        _set_first_path(os.getcwd())
        runpy._run_module_as_main(self.target)  # type: ignore[attr-defined]

    def _run_container(self, names: dict[str, Any]) -> None:
        """Run the ``__main__`` of a folder or an archive."""
        _set_first_path(os.path.join(os.getcwd(), self.target), always=True)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]

    def _run_script(self, names: dict[str, Any]) -> None:
        _set_first_path(os.path.dirname(os.path.realpath(self.target)))
        path = os.path.join(os.getcwd(), self.target)  # not normalised, as Python's own
        _fill(names, SourceFileLoader("__main__", path), path)
        with io.open_code(path) as file:
            code: CodeType | None = pkgutil.read_code(file)
        if code is None:
            with io.open_code(path) as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, names)

    def _run_code(self, names: dict[str, Any]) -> None:
        _set_first_path("")
        _fill(names, BuiltinImporter)
        text = (self.target if sys.version_info < (3, 14) else textwrap.dedent(self.target)) + "\n"
        code = compile(text, "<string>", "exec", dont_inherit=True)
        if sys.version_info >= (3, 13):  # tracebacks show its lines; Python's way to do so is not public
            import linecache

            with suppress(AttributeError, TypeError):
                key = code if hasattr(linecache, "_interactive_cache") else code.co_filename
                linecache._register_code(key, text, code.co_filename)  # type: ignore[attr-defined]
        exec(code, names)

    def _run_input(self, names: dict[str, Any]) -> None:
        _set_first_path("")
        _fill(names, BuiltinImporter, "<stdin>")
        source = b"" if sys.stdin is None else sys.stdin.buffer.read()
        exec(compile(source, "<stdin>", "exec", dont_inherit=True), names)


def _fill(names: dict[str, Any], loader: object, file: str | None = None) -> None:
    """Set the names that Python gives to ``__main__``."""
    names.update(__loader__=loader, __builtins__=builtins)
    if file is not None:
        names.update(__file__=file, __cached__=None)
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}


def _set_first_path(folder: str, *, always: bool = False) -> None:
    """Replace the folder that Python put first in the search path, if it did."""
    if STARTS_WITH_FOLDER or always:
        sys.path[: int(STARTS_WITH_FOLDER)] = [folder]
        _set_aside(folder)


def _set_aside(folder: str) -> None:
    """Remove from sys.modules those of Python's library that ``folder`` has files of the same name for.

    flopscope has imported them, and the program would not have: it shall find its own. Modules that Python itself
    imports at its start stay, as do those that no file can replace.
    """
    loaded = {name: module for name, module in sys.modules.items() if name not in LOADED_BEFORE and name != "flopscope"}
    for name in {name for name in loaded if "." not in name}:
        spec = None if loaded[name].__spec__ is None else PathFinder.find_spec(name, [folder])
        if spec is None or not spec.has_location or not loaded[name].__spec__.has_location:  # type: ignore[union-attr]
            continue
        if spec.origin != loaded[name].__spec__.origin:  # type: ignore[union-attr]
            for part in loaded:
                if part.partition(".")[0] == name:
                    del sys.modules[part]


# The end --------------------------------------------------------------------------------------------------------------


def exit_status(problem: BaseException | None) -> Any:
    """Return the argument of sys.exit() for a program that ended with an exception, and print what Python prints."""
    if problem is None:
        return 0
    return _status_of_exit(problem) if isinstance(problem, SystemExit) else show_exception(problem)


def _status_of_exit(problem: SystemExit) -> int:
    code = problem.code
    if code is None or isinstance(code, int):
        return code or 0
    _flush()
    with suppress(Exception):
        if sys.stderr is None:  # the descriptor is still there
            os.write(2, f"{code}\n".encode(errors="backslashreplace"))
        else:
            sys.stderr.write(f"{code}\n")
    _flush()
    return 1


def show_exception(problem: BaseException) -> int:
    """Print an unhandled exception through sys.excepthook, as Python does, and return the exit status."""
    kind, trace = type(problem), problem.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(FOLDER + os.sep):
        trace = trace.tb_next  # without our frames
    problem.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = kind, problem, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = problem
    _flush()
    hook: Any = getattr(sys, "excepthook", None)
    try:
        sys.audit("sys.excepthook", hook, kind, problem, trace)
        hook(kind, problem, trace)
    except SystemExit as end:
        return _status_of_exit(end)
    except BaseException:  # it is missing, or fails
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
        others = (one for one in threading.enumerate() if one is not me and not one.daemon)
        thread = next((one for one in others if not any(one in known for known in managed)), None)
        if thread is None:
            return
        thread.join()
