"""Long texts cut to a width; in the middle, without making different texts equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

ELLIPSIS = "…"
ROUNDS = 8  # in which texts that became equal are cut elsewhere
CONTEXT = 2  # characters kept before the first difference


def cut_end(text: str, width: int) -> str:
    """Return the text, without its end if it is longer than ``width``."""
    return text if len(text) <= width else f"{text[: width - 1]}{ELLIPSIS}"


def cut_start(text: str, width: int) -> str:
    """Return the text, without its beginning if it is longer than ``width``."""
    return text if len(text) <= width else f"{ELLIPSIS}{text[1 - width :]}"


def cut_middle(text: str, width: int) -> str:
    """Return the text, without its middle if it is longer than ``width``."""
    if len(text) <= width:
        return text
    tail = max(0, width - len(ELLIPSIS)) // 2
    head = max(0, width - len(ELLIPSIS) - tail)
    return f"{text[:head]}{ELLIPSIS}{text[len(text) - tail :]}"


def cut_apart(texts: Iterable[str], width: int) -> Mapping[str, str]:
    """Return the text of at most ``width`` characters for each text; those of different texts differ, if they can.

    Texts are cut in the middle. Those that this makes equal keep the place where they differ instead.
    """
    cut = {text: cut_middle(text, width) for text in texts}
    for _ in range(ROUNDS):
        groups: dict[str, list[str]] = {}
        for text, short in cut.items():
            groups.setdefault(short, []).append(text)
        alike = [group for group in groups.values() if len(group) > 1]
        if not alike:
            break
        for group in alike:
            place = _first_difference(group)
            cut.update({text: _cut_around(text, place, width) for text in group})
    return cut


def _cut_around(text: str, place: int, width: int) -> str:
    """Return the beginning of a text and its part from ``place`` on."""
    if len(text) <= width:
        return text
    head = max(0, width // 3)
    begin = max(head, place - CONTEXT)
    rest = text[begin:]
    room = width - head - len(ELLIPSIS)
    if len(rest) > room:
        rest = f"{rest[: max(0, room - len(ELLIPSIS))]}{ELLIPSIS}"
    elif len(rest) < room:  # the end is reached: keep more of the beginning
        head = width - len(ELLIPSIS) - len(rest)
    return f"{text[:head]}{ELLIPSIS}{rest}"[:width]


def _first_difference(texts: Sequence[str]) -> int:
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
