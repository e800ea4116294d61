"""The parts of a summary as lines: all of them, or as many as fit a number of words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from flopscope.support.columns import Rows

INDENT = "  "
LEAST = 50
"""Words of a budget, at least."""
ADVICE = "Advice"
EVIDENCE = 2
"""The detail of a piece of advice that is the evidence, after what to do and why."""


class Shown(Protocol):
    """A part of a summary that is more than a paragraph."""

    def lines(self, width: int) -> Iterable[str]:
        """Return the part as lines of at most ``width`` characters."""

    def _repr_html_(self) -> str: ...


@runtime_checkable
class Itemized(Protocol):
    """A part of several items, such as pieces of advice, some of which may be left out."""

    def items(self, width: int) -> Iterable[list[list[str]]]:
        """Return the lines of each item, the most valuable item first: what matters, then the details."""


def wrapped(line: str, width: int) -> list[str]:
    """Return a paragraph as lines, which keep its indentation; those of a numbered one begin below its text."""
    if len(line) <= width:
        return [line]
    begin = re.match(r"\s*(?:\d+\. )?", line)
    hanging = " " * len(begin[0]) if begin else ""
    return textwrap.wrap(line, width, subsequent_indent=hanging, break_on_hyphens=False)


def part_lines(part: str | Rows | Shown, width: int) -> list[str]:
    """Return a part as lines of at most ``width`` characters."""
    if isinstance(part, str):
        return wrapped(part, width)
    return _indented(part.lines(width - len(INDENT)), width)


def _indented(lines: Iterable[str], width: int) -> list[str]:
    return [line for one in lines for line in wrapped(f"{INDENT}{one}".rstrip(), width)]


def require_budget(budget: int | None) -> None:
    """Raise ValueError for a budget of too few words."""
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < LEAST):
        raise ValueError(f"budget must be a number of words, at least {LEAST}, not {budget!r}")


# A budget -------------------------------------------------------------------------------------------------------------


@dataclass
class Block:
    """Lines that are shown together or not at all."""

    lines: list[str]
    item: int = 0
    """The item of the section to which it belongs."""
    detail: int = 0
    """0: what matters of the item; more: details of it."""
    is_shown: bool = False


@dataclass
class Section:
    """A title, "" for none, and blocks."""

    title: str
    name: str = ""
    """By which it is called where it is left out."""
    blocks: list[Block] = field(default_factory=list)

    @property
    def words(self) -> int:
        """How many words it has."""
        return _words(self.title) + sum(_words_of(block.lines) for block in self.blocks)

    def text(self) -> str:
        """Return what is shown."""
        chosen = [line for block in self.blocks if block.is_shown for line in block.lines]
        return "\n".join([self.title, *chosen] if self.title and chosen else chosen)

    def left_out(self) -> str:
        """Return what is left out, "" for nothing."""
        items = [block for block in self.blocks if not block.detail]
        left = sum(not block.is_shown for block in items)
        if left:
            return self.name if left == len(items) else f"{left} of {len(items)} items of {self.name}"
        return f"details of {self.name}" if any(not block.is_shown for block in self.blocks) else ""


def within_budget(parts: Sequence[str | Rows | Shown], budget: int, width: int) -> str:
    """Return as many parts as fit in ``budget`` words, and a sentence that says what was left out.

    The time of a step counts most, then the first piece of advice, the parts of the time, more advice, and the other
    sections in their order; what is shown keeps the order that it has without a budget. Sentences and rows of tables
    are shown whole or not at all.
    """
    sections = _sections(parts, width)
    every = _by_value(sections)
    whole = sum(section.words for section in sections) <= budget
    refused: set[tuple[int, int]] = set()  # what follows would be out of place
    for place, block in every:
        section = sections[place]
        before = [one for one in section.blocks if one.item == block.item and one.detail < block.detail]
        block.is_shown = (place, block.detail) not in refused and all(one.is_shown for one in before)
        if not whole and block.is_shown:
            used = _words_of(one.text() for one in sections) + _words(_note(sections, budget))
            block.is_shown = used <= budget
        if not block.is_shown:
            refused.add((place, block.detail))
    texts = [
        *filter(None, (section.text() for section in sections)),
        *([] if whole else ["\n".join(wrapped(_note(sections, budget), width))]),
    ]
    return "\n\n".join(texts)


def _by_value(sections: Sequence[Section]) -> list[tuple[int, Block]]:
    """Return the blocks with the places of their sections, the most valuable first."""
    advice = next((i for i, section in enumerate(sections) if section.title == ADVICE), len(sections))

    def rank(one: tuple[int, Block]) -> tuple[int, int, int, int]:
        place, block = one
        if place == 0:
            return 0, 2 * min(block.item, 1), 0, block.item
        if place == advice:
            is_first = block.item == 0 and block.detail < EVIDENCE
            return 0 if is_first else 2, 1 + 2 * block.detail, 0, block.item
        return 1 if place < advice else 3, 0, place, block.item

    return sorted(((i, block) for i, section in enumerate(sections) for block in section.blocks), key=rank)


def _sections(parts: Sequence[str | Rows | Shown], width: int) -> list[Section]:
    """Return the parts between empty lines."""
    sections: list[Section] = []
    group: list[str | Rows | Shown] = []
    for part in [*parts, ""]:
        if part != "":
            group.append(part)
            continue
        if group:
            sections.append(_section(group, width, first=not sections))
        group = []
    return sections


def _section(group: Sequence[str | Rows | Shown], width: int, first: bool) -> Section:
    """Return a section; a line above a table or above indented lines is its title."""
    head, below = group[0], group[1] if len(group) > 1 else ""
    titled = isinstance(head, str) and (not isinstance(below, str) or below.startswith(" "))
    title = head if titled and isinstance(head, str) else ""
    section = Section(title, title or ("the beginning" if first else "the parts of the time"))
    blocks = section.blocks
    for part in group[titled:]:
        item = blocks[-1].item + 1 if blocks else 0
        if isinstance(part, Itemized):
            for number, details in enumerate(part.items(width - len(INDENT)), item):
                blocks += [Block(_indented(lines, width), number, i) for i, lines in enumerate(details) if lines]
        elif isinstance(part, str) and part.startswith(" ") and blocks:
            blocks[-1].lines += part_lines(part, width)  # a note on what is above it
        else:
            blocks.append(Block(part_lines(part, width), item))
    return section


def _note(sections: Sequence[Section], budget: int) -> str:
    left = ", ".join(filter(None, (section.left_out() for section in sections)))
    return f"Left out to fit {budget} words: {left}."


def _words(text: str) -> int:
    return len(text.split())


def _words_of(texts: Iterable[str]) -> int:
    return sum(map(_words, texts))
