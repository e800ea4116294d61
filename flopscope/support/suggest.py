"""Suggestions for misspelt names: "did you mean 'count'?"."""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable
from types import FunctionType
from typing import Any

ALIKE = 0.6  # of difflib's ratio
NEARLY_BEST = 0.02  # below that of the best suggestion
MOST = 3
SHORTEST_PART = 3  # characters of a name that is looked for within others
MOST_CONTAINING = 4
TAKES_ANY_NAME = 8  # a flag of code: inspect.CO_VARKEYWORDS


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'A' or 'B'?" with the known names that are most alike, in any case; "" if none is.

    If none is alike, those that contain the name: 'NVIDIA H200' for "h200".
    """
    import difflib

    wanted, originals = str(name).lower(), {one.lower(): one for one in known}
    found = difflib.get_close_matches(wanted, originals, MOST, ALIKE)
    alike = [difflib.SequenceMatcher(None, one, wanted).ratio() for one in found]
    near = [one for one, ratio in zip(found, alike, strict=True) if ratio >= alike[0] - NEARLY_BEST]
    if not near and len(wanted) >= SHORTEST_PART:
        near = [one for one in originals if wanted in one][:MOST_CONTAINING]
    return f"; did you mean {' or '.join(repr(originals[one]) for one in near)}?" if near else ""


def require_names(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for a keyword argument that a function does not have."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def suggest_names(thing: Any) -> None:
    """Let the error for a misspelt keyword argument name the one that was meant, as Python 3.13 does.

    Of a function; of a class: in the calls of its constructor and of its public methods. What is given is replaced
    where it was defined.
    """
    if sys.version_info >= (3, 13):
        return
    if isinstance(thing, FunctionType):
        setattr(sys.modules[thing.__module__], thing.__name__, _checked(thing))
        return
    for one in thing.__mro__ if isinstance(thing, type) else ():
        for name, value in list(vars(one).items()) if one.__module__.startswith("flopscope.") else ():
            if isinstance(value, FunctionType) and (name == "__init__" or not name.startswith("_")):
                setattr(one, name, _checked(value))


def _checked(function: Any) -> Any:
    if hasattr(function, "__wrapped__"):
        return function
    code = function.__code__
    names = {*code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]}
    if code.co_flags & TAKES_ANY_NAME or not names - {"self"}:
        return function

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if not named.keys() <= names:
            require_names(function.__qualname__, named, names)
        return function(*args, **named)

    return call
