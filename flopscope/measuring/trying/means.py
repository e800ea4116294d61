"""How a switch is applied: by a setting of torch, a constructor's arguments, around calls, or the environment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from flopscope.measuring.trying.reach import Call, Reach, Setting, Watcher, call_of, set_call
from flopscope.measuring.trying.seen import Seen


class Means:
    """A way to apply a switch. It does nothing."""

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables to set for a process, given those that are set."""
        return {}

    def apply(self, name: str, reach: Reach) -> Watcher | None:
        """Apply the switch in a process that has just imported torch. Return what must be told of its modules."""
        return None

    def around(self, reach: Reach, call: Call) -> Call | None:
        """Return a callable that calls with the switch; None if a callable alone cannot be switched."""
        return None


@dataclass(frozen=True)
class Settings(Means):
    """Values of torch. They are set again if the program changes them during the first steps."""

    settings: Callable[[Any, Seen], Sequence[Setting]]

    def apply(self, name: str, reach: Reach) -> Watcher:
        for setting in self.settings(reach.torch, reach.seen):
            reach.set(name, setting)
        return _Held(reach)

    def around(self, reach: Reach, call: Call) -> Call:
        torch, settings = reach.torch, list(self.settings(reach.torch, reach.seen))

        @functools.wraps(call)
        def switched(*args: Any, **named: Any) -> Any:
            before = [setting.read(torch) for setting in settings]
            for setting in settings:
                setting.write(torch, setting.value)
            try:
                return call(*args, **named)
            finally:
                for setting, value in zip(settings, before, strict=True):
                    setting.write(torch, value)

        return switched


class _Held(Watcher):
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def before(self) -> None:
        self._reach.hold()


@dataclass(frozen=True)
class Constructor(Means):
    """Arguments of constructors. ``change`` gets the arguments by name, changes them, and returns whether it did."""

    owners: Callable[[Any], Sequence[Any]]
    change: Callable[[Seen, dict[str, Any]], bool]

    def apply(self, name: str, reach: Reach) -> None:
        for owner in self.owners(reach.torch):
            reach.construct(name, owner, functools.partial(self.change, reach.seen))


@dataclass(frozen=True)
class Method(Means):
    """Another function in the place of a method. ``make`` gets torch, the method and a function to call at each hit."""

    owners: Callable[[Any], Sequence[tuple[Any, str]]]
    make: Callable[[Any, Call, Callable[[], object]], Call]

    def apply(self, name: str, reach: Reach) -> None:
        def hit() -> None:
            reach.hits[name] += 1

        for owner, method in self.owners(reach.torch):
            original = getattr(owner, method)
            reach.replace(owner, method, functools.wraps(original)(self.make(reach.torch, original, hit)))


@dataclass(frozen=True)
class Both(Means):
    """Two ways at once, of which the second may watch modules."""

    first: Means
    second: Means

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        return self.first.environment(seen, before) | self.second.environment(seen, before)

    def apply(self, name: str, reach: Reach) -> Watcher | None:
        self.first.apply(name, reach)
        return self.second.apply(name, reach)


@dataclass(frozen=True)
class Around(Means):
    """The calls of the modules that the program calls itself, or those of a callable.

    ``wrap`` gets the module (None for a callable) and its call, and returns the call to make instead, or None
    to leave a module as it is. Of several switches, those of a lower ``level`` are the inner ones.
    """

    wrap: Callable[[Reach, Any, Call], Call | None]
    level: int

    def apply(self, name: str, reach: Reach) -> Watcher:
        return _Wrapping(self, name, reach)

    def around(self, reach: Reach, call: Call) -> Call | None:
        return self.wrap(reach, None, call)


class _Wrapping(Watcher):
    def __init__(self, means: Around, name: str, reach: Reach) -> None:
        self._means, self._name, self._reach = means, name, reach
        self.level = means.level

    def first(self, module: Any, args: Sequence[Any]) -> None:
        if not any(True for _ in module.parameters()):
            return  # a loss, or a function without state
        before = module._compiled_call_impl
        call = self._means.wrap(self._reach, module, call_of(module))
        if call is not None:
            set_call(module, call)
            self._reach.later(functools.partial(set_call, module, before))
            self._reach.hits[self._name] += 1


@dataclass(frozen=True)
class Variables(Means):
    """Environment variables. ``variables`` gets what was seen and the variables before."""

    variables: Callable[[Seen, Mapping[str, str]], Mapping[str, str]]

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        return dict(self.variables(seen, before))


def within(context: Callable[[], AbstractContextManager[Any]], call: Call, result: Call | None = None) -> Call:
    """Return a call that runs inside a context; ``result`` changes what it returns."""

    @functools.wraps(call)
    def inside(*args: Any, **named: Any) -> Any:
        with context():
            found = call(*args, **named)
            return found if result is None else result(found)

    return inside
