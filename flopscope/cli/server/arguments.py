"""Arguments of tools, each described once: their JSON Schema is made from it, and values are checked against it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flopscope.support.safe import shown
from flopscope.support.suggest import did_you_mean

LONGEST_TEXT = 4096
MOST_ITEMS = 10_000


class Argument(NamedTuple):
    """An argument of a tool."""

    name: str
    type: str
    """A row of TYPES."""
    doc: str
    default: Any = None
    """None: left out, unless ``required``."""
    required: bool = False
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        one = {**TYPES[self.type].schema, "description": self.doc}
        one |= {"enum": [*self.choices]} if self.choices else {}
        one |= {"minimum": self.least} if math.isfinite(self.least) else {}
        one |= {"maximum": self.most} if math.isfinite(self.most) else {}
        return one if self.default is None else {**one, "default": self.default}

    def checked(self, value: Any) -> Any:
        """Return a value that is valid. Raise ValueError for another."""
        kind = TYPES[self.type]
        if not kind.accepts(value):
            raise ValueError(f"{self.name} must be {kind.text}, not {shown(value)}")
        if self.choices and value not in self.choices:
            hint = did_you_mean(value, self.choices) or f"; it is one of {', '.join(self.choices)}"
            raise ValueError(f"{self.name} cannot be {shown(value)}{hint}")
        if self.type in ("integer", "number") and not self.least <= value <= self.most:
            limit = f"at least {self.least:g}" if value < self.least else f"at most {self.most:g}"
            raise ValueError(f"{self.name} must be {limit}, not {shown(value)}")
        return value


class _Type(NamedTuple):
    text: str
    schema: Mapping[str, Any]
    accepts: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT and "\0" not in value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and abs(value) <= sys.float_info.max


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_ITEMS and all(map(_is_text, value))


def _are_rates(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MOST_ITEMS and all(map(_is_number, value.values()))


TYPES = {
    "text": _Type(f"a text of at most {LONGEST_TEXT} characters", {"type": "string"}, _is_text),
    "integer": _Type("a whole number", {"type": "integer"}, _is_whole),
    "number": _Type("a number that a double holds", {"type": "number"}, _is_number),
    "flag": _Type("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool)),
    "texts": _Type("a list of texts", {"type": "array", "items": {"type": "string"}}, _are_texts),
    "rates": _Type("an object of numbers", {"type": "object", "additionalProperties": {"type": "number"}}, _are_rates),
}


def schema_of(arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these arguments."""
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in arguments},
        "required": [one.name for one in arguments if one.required],
        "additionalProperties": False,
    }


def checked(arguments: Sequence[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each argument, by default None. Raise ValueError for a wrong, unknown or missing one."""
    known = {one.name: one for one in arguments}
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"there is no argument {shown(name)}{hint}")
    missing = [one.name for one in arguments if one.required and given.get(one.name) is None]
    if missing:
        raise ValueError(f"the argument {missing[0]} is required")
    values = {name: given.get(name) for name in known}
    return {name: one.default if values[name] is None else one.checked(values[name]) for name, one in known.items()}
