"""Where switches reach into torch: settings, constructors, calls of modules. All of it can be undone."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flopscope.measuring.trying.seen import Seen

Call = Callable[..., Any]


class Reach:
    """What switches have done to torch, and how often each of them had an effect.

    seen: what is known of the program. comparing: its results are to be compared, not timed.
    """

    def __init__(self, torch: Any, seen: Seen, comparing: bool = False) -> None:
        self.torch, self.seen, self.comparing = torch, seen, comparing
        self.hits: Counter[str] = Counter()
        """How often each switch changed something."""
        self._undo: list[Callable[[], object]] = []
        self._settings: list[tuple[str, Setting]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until undo()."""
        missing = object()
        before = vars(owner).get(name, missing)
        setattr(owner, name, value)
        self._undo.append(
            functools.partial(delattr, owner, name) if before is missing else lambda: setattr(owner, name, before)
        )

    def construct(self, name: str, owner: Any, change: Callable[[dict[str, Any]], bool]) -> None:
        """Let a function change the arguments of a class's constructor; it returns whether it did.

        The arguments come by name, with the defaults of those that were left out.
        """
        init = owner.__init__
        signature = inspect.signature(init)

        @functools.wraps(init)
        def __init__(*args: Any, **named: Any) -> None:
            try:
                bound = signature.bind(*args, **named)
                bound.apply_defaults()
                given = dict(bound.arguments)
                if change(given):
                    self.hits[name] += 1
                    bound.arguments.update(given)
                    args, named = bound.args, bound.kwargs
            except TypeError:
                pass  # the constructor says what is wrong
            init(*args, **named)

        self.replace(owner, "__init__", __init__)

    def set(self, name: str, setting: Setting) -> None:
        """Set a value now, and again whenever ``hold`` is called, until undo()."""
        self._settings.append((name, setting))
        before = setting.read(self.torch)
        self._undo.append(lambda: setting.write(self.torch, before))
        self.hold()

    def hold(self) -> None:
        """Set the values again that the program has changed."""
        for name, setting in self._settings:
            if setting.read(self.torch) != setting.value:
                setting.write(self.torch, setting.value)
                self.hits[name] += 1

    def later(self, act: Callable[[], object]) -> None:
        """Let undo() call a function too."""
        self._undo.append(act)

    def undo(self) -> None:
        """Put everything back, the last first."""
        self._settings.clear()
        while self._undo:
            self._undo.pop()()


class Setting(NamedTuple):
    """A value of torch: how it is read and written, and which one the switch sets."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]
    value: Any


class Watcher:
    """What is told of the modules that a program calls itself, rather than by another module. It does nothing."""

    def before(self) -> None:
        """Act before each such call."""

    def first(self, module: Any, args: Sequence[Any]) -> None:
        """Act before the first call of each such module."""

    def after(self, result: Any) -> None:
        """Act after each such call."""


QUIET = 100
"""Calls without a new module after which no more are looked for: looking takes time."""


def watch_modules(torch: Any, watchers: Sequence[Watcher]) -> Callable[[], None]:
    """Tell watchers of the modules that the program calls itself, until no new ones come; return what ends it."""
    owner, known, alive = torch.nn.Module, set(), []  # alive: else a number could be that of another module later
    original, left, quiet = owner.__call__, threading.Event(), 0

    def __call__(module: Any, *args: Any, **named: Any) -> Any:
        nonlocal quiet
        owner.__call__ = original  # calls within are another module's
        try:
            for one in watchers:
                one.before()
            quiet += 1
            if id(module) not in known:
                quiet = 0
                known.add(id(module))
                alive.append(module)
                for one in watchers:
                    one.first(module, args)
            result = original(module, *args, **named)
            for one in watchers:
                one.after(result)
            return result
        finally:
            if quiet >= QUIET:
                leave()
            if not left.is_set():
                owner.__call__ = __call__

    def leave() -> None:
        left.set()
        owner.__call__ = original

    owner.__call__ = __call__
    return leave


def call_of(module: Any) -> Call:
    """Return what a call of a module runs."""
    call: Call = module._compiled_call_impl or module._call_impl
    return call


def set_call(module: Any, call: Call | None) -> None:
    """Let calls of a module run another function, its own if None.

    Copies of the module, and what is pickled of it, run its own.
    """
    module._compiled_call_impl = call
