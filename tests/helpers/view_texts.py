"""Texts and HTML of views, parsed."""

from __future__ import annotations

from html.parser import HTMLParser


def header_of(text: str) -> list[str]:
    lines = text.splitlines()
    first_rule = next(i for i, line in enumerate(lines) if line and not line.strip("- "))
    return [cell.strip() for cell in lines[first_rule + 1].split("  ") if cell.strip()]


class Tags(HTMLParser):
    """The tags and texts of a fragment."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(fragment)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
