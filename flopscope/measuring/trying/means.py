"""How a switch is applied to torch: by its settings, arguments of constructors, methods, calls of modules, or by the
environment. All but the last can be undone."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from flopscope.measuring.trying.look import Seen

Call = Callable[..., Any]
QUIET = 100
"""Calls without a new module after which no more are looked for: looking takes time."""


class Setting(NamedTuple):
    """A value of torch: how it is read and written, and which one the switch sets."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    value: Any


class Reach:
    """What was done to torch, and how often each switch had an effect.

    seen: what is known of the program. comparing: its results are to be compared, not timed.
    """

    def __init__(self, torch: Any, seen: Seen, comparing: bool = False) -> None:
        self.torch, self.seen, self.comparing = torch, seen, comparing
        self.hits: Counter[str] = Counter()
        """How often each switch changed something."""
        self.first: list[Callable[[Any, Sequence[Any]], object]] = []
        """Called with each module that the program calls itself, and its arguments, before its first call."""
        self.after: list[Callable[[Any], object]] = []
        """Called with what each call of such a module returned."""
        self._undo: list[Callable[[], object]] = []
        self._settings: list[tuple[str, Setting]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until undo()."""
        before = vars(owner).get(name)
        inherited = name not in vars(owner)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if inherited else setattr(owner, name, before))

    def set(self, name: str, setting: Setting) -> None:
        """Set a value now, and again whenever ``hold`` is called, until undo()."""
        self._settings.append((name, setting))
        self._undo.append(functools.partial(setting.write, setting.read()))
        self.hold()

    def hold(self) -> None:
        """Set the values again that the program has changed."""
        for name, setting in self._settings:
            if setting.read() != setting.value:
                setting.write(setting.value)
                self.hits[name] += 1

    def later(self, act: Callable[[], object]) -> None:
        """Let undo() call a function too."""
        self._undo.append(act)

    def undo(self) -> None:
        """Put everything back, the last first."""
        self._settings.clear()
        while self._undo:
            self._undo.pop()()

    def watch(self) -> Callable[[], None]:
        """Watch the modules that the program calls itself, until no new ones come; return what ends it."""
        owner, known, alive = self.torch.nn.Module, set(), []  # alive: else a number could be that of another later
        original, left, quiet = owner.__call__, threading.Event(), 0

        def __call__(module: Any, *args: Any, **named: Any) -> Any:
            nonlocal quiet
            owner.__call__ = original  # calls within are another module's
            try:
                self.hold()
                quiet += 1
                if id(module) not in known:
                    quiet = 0
                    known.add(id(module))
                    alive.append(module)
                    for act in self.first:
                        act(module, args)
                result = original(module, *args, **named)
                for note in self.after:
                    note(result)
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


# The ways -------------------------------------------------------------------------------------------------------------


class Means:
    """A way to apply a switch. It does nothing."""

    level = -1
    """Of several that wrap calls, those of a lower level are the inner ones."""

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables to set for a process, given those that are set."""
        return {}

    def apply(self, name: str, reach: Reach) -> None:
        """Apply the switch in a process that has just imported torch."""


@dataclass(frozen=True)
class Settings(Means):
    """Values of torch. They are set again if the program changes them during the first steps."""

    settings: Callable[[Any, Seen], Sequence[Setting]]

    def apply(self, name: str, reach: Reach) -> None:
        for setting in self.settings(reach.torch, reach.seen):
            reach.set(name, setting)


@dataclass(frozen=True)
class Constructor(Means):
    """Arguments of constructors. ``change`` gets the arguments by name, with the defaults of those that were left out,
    changes them, and returns whether it did."""

    owners: tuple[str, ...]
    """Names of classes in torch."""
    change: Callable[[Seen, dict[str, Any]], bool]

    def apply(self, name: str, reach: Reach) -> None:
        for path in self.owners:
            owner = attrgetter(path)(reach.torch)
            reach.replace(owner, "__init__", self._changed(name, reach, owner.__init__))

    def _changed(self, name: str, reach: Reach, init: Call) -> Call:
        signature = inspect.signature(init)

        @functools.wraps(init)
        def __init__(*args: Any, **named: Any) -> None:
            try:
                bound = signature.bind(*args, **named)
                bound.apply_defaults()
                given = dict(bound.arguments)
                if self.change(reach.seen, given):
                    reach.hits[name] += 1
                    bound.arguments.update(given)
                    args, named = bound.args, bound.kwargs
            except TypeError:
                pass  # the constructor says what is wrong
            init(*args, **named)

        return __init__


@dataclass(frozen=True)
class Method(Means):
    """Another function in the place of a method. ``make`` gets the method and a function to call at each hit."""

    methods: tuple[str, ...]
    """Their names in torch, as "Tensor.to"."""
    make: Callable[[Call, Callable[[], object]], Call]

    def apply(self, name: str, reach: Reach) -> None:
        def hit() -> None:
            reach.hits[name] += 1

        for path in self.methods:
            owner_path, _, method = path.rpartition(".")
            owner = attrgetter(owner_path)(reach.torch)
            original = getattr(owner, method)
            reach.replace(owner, method, functools.wraps(original)(self.make(original, hit)))


@dataclass(frozen=True)
class Around(Means):
    """The calls of the modules that the program calls itself, or those of a callable.

    ``wrap`` gets the module (None for a callable) and its call, and returns the call to make instead, or None
    to leave a module as it is.
    """

    wrap: Callable[[Reach, Any, Call], Call | None]
    level: int

    def apply(self, name: str, reach: Reach) -> None:
        def switch(module: Any, args: Sequence[Any]) -> None:
            if not any(True for _ in module.parameters()):
                return  # a loss, or a function without state
            # Copies of the module, and what is pickled of it, run its own call.
            before = module._compiled_call_impl
            call = self.wrap(reach, module, before or module._call_impl)
            if call is not None:
                module._compiled_call_impl = call
                reach.later(lambda: setattr(module, "_compiled_call_impl", before))
                reach.hits[name] += 1

        reach.first.append(switch)


@dataclass(frozen=True)
class Variables(Means):
    """Environment variables. ``variables`` gets what was seen and the variables before."""

    variables: Callable[[Seen, Mapping[str, str]], Mapping[str, str]]

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        return dict(self.variables(seen, before))


def attribute(owner: Any, name: str, value: Any) -> Setting:
    """Return the setting that is an attribute."""
    return Setting(functools.partial(getattr, owner, name), functools.partial(setattr, owner, name), value)


def within(context: Callable[[], AbstractContextManager[Any]], call: Call, result: Call | None = None) -> Call:
    """Return a call that runs inside a context; ``result`` changes what it returns."""

    @functools.wraps(call)
    def inside(*args: Any, **named: Any) -> Any:
        with context():
            found = call(*args, **named)
            return found if result is None else result(found)

    return inside
