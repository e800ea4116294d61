"""Results as JSON: one description of each kind of document, by which it is encoded, and from which its schema is made.

A field is described once, beside the record that has it. Its key in JSON is its name with its unit, unless the name has
the unit already. Unknown values are null, and the document's ``why`` says why, by the path of the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flopscope.support.package import VERSION

FORMAT = 2
"""Version of all documents. A field that is removed, renamed or changes meaning increases it; a new one does not."""
WHY = "not recorded, or not applicable"
SIGNS = {"$": "text", "#": "integer", "?": "flag", "*": "integers", "@": "texts"}
"""By the last character of a name in columns(): the type of the values. Others are numbers."""
_SUFFIXES = {
    **{"µs": "us", "ns": "ns", "bytes": "bytes", "FLOP": "flops", "%": "pct", "MHz": "mhz", "J": "joules"},
    **{"TFLOP/s": "tflops_per_s", "GB/s": "gbytes_per_s", "FLOP/s": "flops_per_s", "B/s": "bytes_per_s"},
    **{"FLOP/byte": "flops_per_byte", "W": "watts", "s": "seconds", "ppm": "ppm", "1/s": "per_s", "share": "share"},
}
_SCALARS = {"number": "number", "integer": "integer", "flag": "boolean", "text": "string"}
_EXACT = frozenset((int, bool, str))
"""Types that JSON has as they are."""
_LISTS = {"numbers": "number", "integers": "integer", "texts": "string"}


class Field(NamedTuple):
    """A field of a document."""

    name: str
    """The name in the record that the document is made of."""
    type: str = "number"
    """"number", "integer", "flag", "text"; "numbers", "integers", "texts": lists of them; "record" and "rows": with
    ``fields``; "by name": a mapping to values of the single one of ``fields``; "any": what JSON can hold; "documents":
    a list of documents of the kind ``of``."""
    unit: str = ""
    doc: str = ""
    why: str = WHY
    """Why a value may be null."""
    fields: tuple[Field, ...] = ()
    optional: bool = False
    """Whether the record may lack it."""
    of: Document | None = None

    @property
    def key(self) -> str:
        """The key in JSON."""
        suffix = _SUFFIXES.get(self.unit, "")
        if not suffix or f"_{suffix}_" in f"_{self.name}_":
            return self.name
        return suffix if suffix.startswith(f"{self.name}_") else f"{self.name}_{suffix}"

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the value."""
        about: dict[str, Any] = {"description": self.doc} if self.doc else {}
        about |= {"unit": self.unit} if self.unit else {}
        if self.type in _SCALARS:
            return {"type": [_SCALARS[self.type], "null"], **about}
        if self.type in _LISTS:
            return {"type": ["array", "null"], "items": {"type": [_LISTS[self.type], "null"]}, **about}
        if self.type == "record":
            return {**_object(self.fields), "type": ["object", "null"], **about}
        if self.type == "rows":
            return {"type": "array", "items": _object(self.fields), **about}
        if self.of is not None:
            return {"type": "array", "items": self.of.schema(), **about}
        if self.type == "by name":
            return {"type": "object", "additionalProperties": self.fields[0].schema(), **about}
        return about


def columns(text: str, unit: str = "", why: str = WHY, *, optional: bool = False, **docs: str) -> tuple[Field, ...]:
    """Return a field for each word of ``text``: a name, a sign of SIGNS, and after ":" a unit other than ``unit``.

    docs: descriptions by name.
    """
    found = []
    for word in text.split():
        name, _, own = word.partition(":")
        kind, name = SIGNS.get(name[-1], "number"), name.rstrip("".join(SIGNS))
        own = own or (unit if kind == "number" else "")
        found.append(Field(name, kind, own, docs.get(name, ""), why, optional=optional))
    return tuple(found)


def rows(name: str, fields: Iterable[Field], doc: str = "", *, optional: bool = False) -> Field:
    """Return a field that is a list of records."""
    return Field(name, "rows", doc=doc, fields=tuple(fields), optional=optional)


def record(name: str, fields: Iterable[Field], doc: str = "", why: str = WHY, *, optional: bool = False) -> Field:
    """Return a field that is a record."""
    return Field(name, "record", "", doc, why, tuple(fields), optional)


def by_name(name: str, value: Field, doc: str = "", *, optional: bool = False) -> Field:
    """Return a field that is a mapping from names to values."""
    return Field(name, "by name", value.unit, doc, value.why, (value._replace(name="", unit=""),), optional)


class Document(NamedTuple):
    """A kind of document."""

    kind: str
    doc: str
    fields: tuple[Field, ...]

    def of(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with this content, of values that JSON can hold.

        Raise KeyError for a field that the content lacks, or that the description lacks.
        """
        why: dict[str, str] = {}
        body = next(_records(self.fields, (content,), "", why))
        return {"format": f"flopscope.{self.kind}", "version": FORMAT, "flopscope": VERSION, **body, "why": why}

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of these documents."""
        head = {"format": {"const": f"flopscope.{self.kind}"}, "version": {"const": FORMAT}}
        head["flopscope"] = {"type": "string", "description": "version of flopscope"}
        why = "why values are null, by the path of their field"
        tail = {"why": {"type": "object", "additionalProperties": {"type": "string"}, "description": why}}
        found = _object(self.fields)
        found["properties"] = {**head, **found["properties"], **tail}
        found["required"] = [*head, *found["required"], *tail]
        return {"title": self.kind, "description": self.doc, **found}


def _object(fields: Sequence[Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.key: field.schema() for field in fields},
        "required": [field.key for field in fields if not field.optional],
        "additionalProperties": False,
    }


def _records(
    fields: Sequence[Field], contents: Iterable[Mapping[str, Any]], path: str, why: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the records with the keys of JSON, and add to ``why`` the reasons for what is null."""
    keys = [(field.name, field.key, f"{path}{field.key}", field) for field in fields]
    needed = {field.name for field in fields if not field.optional}
    for content in contents:
        found = {
            key: value if _is_plain(value := content[name]) else _value(value, at, field, why)
            for name, key, at, field in keys
            if name in content
        }
        if len(found) != len(content) or not needed <= content.keys():
            wrong = (content.keys() - {name for name, *_ in keys}) | (needed - content.keys())
            raise KeyError(f"{path or 'the document'} and its description differ in {', '.join(sorted(wrong))}")
        yield found


def _is_plain(value: Any) -> bool:
    kind = value.__class__
    return kind in _EXACT or (kind is float and -math.inf < value < math.inf)


def _value(value: Any, path: str, field: Field, why: dict[str, str]) -> Any:
    if field.type == "rows":
        return [*_records(field.fields, value, f"{path}.", why)]
    if field.type == "documents":
        return list(value)
    if field.type == "by name":
        return {str(name): _value(one, path, field.fields[0], why) for name, one in value.items()}
    if field.type == "record" and value is not None:
        return next(_records(field.fields, (value,), f"{path}.", why))
    found = plain(value)
    if found is None or (found.__class__ in (dict, list) and _has_unknown(found)):
        why.setdefault(path, field.why)
    return found


def plain(value: Any, text: Callable[[str], str] = str.__str__) -> Any:
    """Return a value with None for what is unknown, lists for tuples, and Python's own numbers and texts.

    text: what becomes of texts.
    """
    if isinstance(value, str):
        return text(value)
    if _is_plain(value) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {text(str(name)): plain(one, text) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, text) for one in value]
    return plain(value.item(), text) if hasattr(value, "item") else value  # a number of NumPy


def _has_unknown(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return any(map(_has_unknown, value.values() if isinstance(value, dict) else value))
    return value is None
