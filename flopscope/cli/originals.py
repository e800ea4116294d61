"""The functions of Python's library and of other modules, which a program may have replaced by its end."""

from __future__ import annotations

import builtins
import errno
import os
import resource
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

_ABSENT: Any = object()
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_NOFILE)
_FRAMES = 1000  # of ours
_MOST_FRAMES = 2**31 - 1


class Originals:
    """The functions and classes of the modules that are imported when this is created. As a context, it puts them back
    for a while, and lifts limits that keep a recording from being passed on."""

    def __init__(self) -> None:
        modules = [builtins, *(module for module in sys.modules.values() if type(module) is ModuleType)]
        self._ours = [
            (vars(module), {name: value for name, value in vars(module).items() if callable(value)})
            for module in modules
            if module.__name__ != "__main__"
        ]
        self._ours.append((vars(sys), {"modules": sys.modules}))
        self._ours.append((sys.modules, dict(sys.modules)))  # imports within functions find what they found then
        self._theirs: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def __enter__(self) -> None:
        for names, ours in self._ours:  # builtins first
            theirs = {name: names.get(name, _ABSENT) for name, value in ours.items() if names.get(name) is not value}
            names.update(ours)
            self._theirs.append((names, theirs))
        self._frames = sys.getrecursionlimit()
        sys.setrecursionlimit(min(self._frames + _FRAMES, _MOST_FRAMES))
        self._limits = [(kind, resource.getrlimit(kind)) for kind in _LIMITS]
        for kind, (_, hard) in self._limits:
            resource.setrlimit(kind, (hard, hard))
        self._has_closed = _free_a_descriptor()

    def __exit__(self, *_: object) -> None:
        if self._has_closed:
            os.open(os.devnull, os.O_RDONLY)
        for kind, limits in self._limits:
            resource.setrlimit(kind, limits)
        with suppress(RecursionError):  # deeper than the program's own limit
            sys.setrecursionlimit(self._frames)
        for names, theirs in reversed(self._theirs):
            for name, value in theirs.items():
                if value is _ABSENT:
                    del names[name]
                else:
                    names[name] = value
        self._theirs.clear()


def _free_a_descriptor() -> bool:
    """Close standard input if nothing can be opened otherwise; the program, which has ended, has forbidden it."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        if problem.errno == errno.EMFILE:
            os.close(0)
            return True
    return False
