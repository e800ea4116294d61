"""The state of the interpreter at the start of ``flopscope run``, which is restored while it works after the program.

A program may leave anything behind: modules of its own under names of Python's library, an empty search path, patched
functions, low limits, a foreign locale. None of it reaches the results, and all of it is back when the program's exit
functions run.
"""

from __future__ import annotations

import _locale
import builtins
import errno
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from signal import raise_signal
from types import FrameType, ModuleType
from typing import Any

from flopscope.support.own_path import LOADED_BEFORE, STARTS_WITH_FOLDER

_ABSENT: Any = object()
_OURS = "flopscope"
_TIMERS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
_MOST_FRAMES = 2**31 - 1

# Attributes that are put back, with the function that copies them.
_ATTRIBUTES: tuple[tuple[ModuleType, str, Callable[[Any], Any]], ...] = (
    (sys, "path", list),
    (sys, "meta_path", list),
    (sys, "path_hooks", list),
    (sys, "path_importer_cache", dict),
    (os, "environ", dict),
    (tempfile, "tempdir", lambda folder: folder),
)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _stack_size() -> int:
    size = threading.stack_size()  # which also sets it, to 0
    threading.stack_size(size)
    return size


def _set_limit(kind: int, limits: tuple[int, int]) -> None:
    """Set a limit, or, where the hard limit was lowered for good, as much of it as is left."""
    try:
        resource.setrlimit(kind, limits)
    except (OSError, ValueError):
        most = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most, most))


# What belongs to the process or the thread: a function that returns it, and one that sets it.
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (sys.getswitchinterval, sys.setswitchinterval),
    (_stack_size, threading.stack_size),
    (_umask, os.umask),
    (partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0)),
    (partial(_locale.setlocale, _locale.LC_ALL), partial(_locale.setlocale, _locale.LC_ALL)),
    *(
        (partial(resource.getrlimit, kind), partial(_set_limit, kind))
        for kind in (
            *(resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS),
            *(resource.RLIMIT_DATA, resource.RLIMIT_NPROC),
        )
    ),
)


def set_aside(folder: str) -> None:
    """Remove from sys.modules those of Python's library that ``folder`` has files of the same name for.

    flopscope has imported them, and the program would not have: it shall find its own. Modules that Python itself
    imports at its start stay, as do those that no file can replace.
    """
    loaded = {name: module for name, module in sys.modules.items() if name not in LOADED_BEFORE and name != _OURS}
    for name in {name for name in loaded if "." not in name}:
        spec = None if loaded[name].__spec__ is None else PathFinder.find_spec(name, [folder])
        if spec is None or not spec.has_location or not loaded[name].__spec__.has_location:  # type: ignore[union-attr]
            continue
        if spec.origin != loaded[name].__spec__.origin:  # type: ignore[union-attr]
            for part in _with_parts(name, loaded):
                del sys.modules[part]


def _with_parts(root: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name == root or name.startswith(f"{root}.")]


class Start:
    """The state of the interpreter where this is created. As a context, it restores that state for a while.

    - Imports find what they would have found then; only what is nowhere there may come from folders that the program
      has added. Modules that the program imported stay, unless another one has their name there; one with extension
      modules always stays, because these are loaded once in a process.
    - The functions and classes of the modules that were imported then, and of builtins, are the same again.
    - ``_SETTINGS`` and ``_ATTRIBUTES`` are as they were, except for limits that cannot be raised again. The recursion
      limit leaves as much room as then.
    - Handlers of signals that the program has set, other than for Ctrl-C and except those of ``ours``, run after it.
    """

    def __init__(self, ours: Iterable[Callable[..., object]] = ()) -> None:
        self._ours = tuple(ours)
        self._table = sys.modules
        self._modules = dict(sys.modules)
        self._builtins = vars(builtins)
        self._names = dict(self._builtins)
        self._functions = [
            (vars(module), {name: value for name, value in vars(module).items() if _is_code(value)})
            for name, module in sys.modules.items()
            if isinstance(module, ModuleType) and name != "__main__" and name.partition(".")[0] != _OURS
        ]
        self._attributes = [(vars(module), name, copy(getattr(module, name))) for module, name, copy in _ATTRIBUTES]
        self._attributes += [(vars(sys), "modules", sys.modules), (vars(sys), "argv", list(sys.argv))]
        self._folder = _current_folder()
        self._set("path", self._absolute(sys.path[1:] if STARTS_WITH_FOLDER else sys.path))
        self._settings = [(read, write, read()) for read, write in _SETTINGS]
        self._recursion = sys.getrecursionlimit()
        self._undo: list[Callable[[], object]] = []

    def set_arguments(self, arguments: list[str]) -> None:
        """State what sys.argv is in the restored state."""
        self._set("argv", arguments)

    def _set(self, name: str, value: Any) -> None:
        known = [row for row in self._attributes if row[0] is vars(sys) and row[1] == name]
        self._attributes[self._attributes.index(known[0])] = (vars(sys), name, value)

    def _absolute(self, path: Iterable[Any]) -> list[str]:
        return [os.path.normpath(os.path.join(self._folder, folder)) for folder in path if isinstance(folder, str)]

    # Restoring --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> None:
        theirs = self._builtins.copy()
        self._builtins.update(self._names)  # the first of all: what follows needs it
        self._undo = [partial(_put_back, self._builtins, dict.fromkeys(self._names, _ABSENT) | theirs)]
        for act in (self._functions_back, self._attributes_back, self._modules_back):
            self._undo.append(act())
        self._settings_back()
        self._arrived: list[int] = []
        self._undo.append(self._signals_back(self._arrived))

    def __exit__(self, *_: object) -> None:
        for act in reversed(self._undo):
            act()
        self._undo.clear()  # what it refers to would outlive the program's modules
        for number in self._arrived:
            raise_signal(number)

    def keep(self, root: ModuleType) -> None:
        """Keep a package with extension modules, which the program has imported, should it remove the package later."""
        parts = {name: sys.modules[name] for name in _with_parts(root.__name__, sys.modules)}
        if _has_extensions(parts.values()):
            self._modules.update(parts)

    def import_module(self, name: str) -> ModuleType:
        """Import a module of flopscope while the program runs: it gets the modules that the start had."""
        undo = self._modules_back()
        try:
            return import_module(name)
        finally:
            undo()

    def _functions_back(self) -> Callable[[], object]:
        changed = []
        for names, functions in self._functions:
            theirs = {
                name: names.get(name, _ABSENT) for name, value in functions.items() if names.get(name) is not value
            }
            if theirs:
                names.update({name: functions[name] for name in theirs})
                changed.append((names, theirs))
        return partial(_put_all_back, changed)

    def _attributes_back(self) -> Callable[[], object]:
        theirs = [(names, {name: names.get(name, _ABSENT)}) for names, name, _ in self._attributes]
        path = getattr(sys, "path", None)
        for names, name, value in self._attributes:
            names[name] = value.copy() if isinstance(value, (list, dict)) and name != "modules" else value
        more = self._absolute(path) if isinstance(path, list) else []
        sys.path += [folder for folder in more if folder not in sys.path]
        return partial(_put_all_back, theirs)

    def _modules_back(self) -> Callable[[], object]:
        table, theirs = self._table, dict(self._table)
        foreign = {root for root in {name.partition(".")[0] for name in theirs} if self._is_foreign(root, theirs)}
        for root in foreign:
            for name in _with_parts(root, theirs):
                del table[name]
        table.update(self._modules)

        def undo() -> None:
            for name in set(table) - set(theirs):
                if name in self._modules or name.partition(".")[0] in foreign:
                    del table[name]
            table.update(theirs)

        return undo

    def _is_foreign(self, root: str, modules: dict[str, Any]) -> bool:
        """Whether a top-level module is not the one that the same import would have found at the start."""
        module = modules.get(root, _ABSENT)
        if module is _ABSENT or root in ("__main__", _OURS):
            return False
        if root in self._modules:
            return self._modules[root] is not module
        if _has_extensions(modules[name] for name in _with_parts(root, modules)):
            return False
        spec: Any = None
        for finder in sys.meta_path:
            with suppress(Exception):  # of a finder that others have installed
                spec = spec or finder.find_spec(root, None)
        return spec is not None and spec.origin != getattr(getattr(module, "__spec__", None), "origin", None)

    def _settings_back(self) -> None:
        frames = sys.getrecursionlimit()
        settings: list[tuple[Callable[[], Any], Callable[[Any], object], Any]] = [*self._settings]
        settings.append((sys.getrecursionlimit, sys.setrecursionlimit, min(frames + self._recursion, _MOST_FRAMES)))
        for read, write, value in settings:
            with suppress(Exception):
                theirs = read()
                if theirs != value:
                    self._undo.append(partial(_quietly, write, theirs))
                    write(value)
        with suppress(OSError):
            self._undo.append(_free_a_descriptor())

    def _signals_back(self, arrived: list[int]) -> Callable[[], object]:
        """Delay the handlers that the program has set, and ignore timers that would end it."""
        handlers: dict[int, Any] = {}

        def note(number: int, frame: FrameType | None) -> None:
            if callable(handlers[number]):
                arrived.append(number)

        with suppress(ValueError):  # outside of the main thread
            for number in signal.valid_signals() - {signal.SIGINT}:
                handler = signal.getsignal(number)
                if (callable(handler) and handler not in self._ours) or (
                    number in _TIMERS and handler is signal.SIG_DFL
                ):
                    handlers[number] = handler
                    signal.signal(number, note)

        def undo() -> None:
            for number, handler in handlers.items():
                signal.signal(number, handler)

        return undo


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.sep


def _has_extensions(modules: Iterable[Any]) -> bool:
    files = (getattr(module, "__file__", None) for module in modules)
    return any(isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files)


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, ModuleType)


def _put_back(names: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, value in theirs.items():
        if value is _ABSENT:
            names.pop(name, None)
        else:
            names[name] = value


def _put_all_back(changed: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for names, theirs in changed:
        _put_back(names, theirs)


def _quietly(write: Callable[[Any], object], value: Any) -> None:
    with suppress(Exception):
        write(value)


def _free_a_descriptor() -> Callable[[], object]:
    """Close standard input if no file can be opened otherwise; the program, which has ended, has forbidden it."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return bool
    except OSError as problem:
        if problem.errno != errno.EMFILE:
            return bool
        os.close(0)
        return partial(os.open, os.devnull, os.O_RDONLY)
