"""Texts and HTML of views, parsed."""

from html.parser import HTMLParser


def header_of(text: str) -> list[str]:
    lines = text.splitlines()
    first_rule = next(i for i, line in enumerate(lines) if line and not line.strip("- "))
    return [cell.strip() for cell in lines[first_rule + 1].split("  ") if cell.strip()]


class Tags(HTMLParser):
    """The tags, texts, styles and rows of cells of a fragment, which must be well-formed and must run nothing."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self.cells: list[list[str]] = []
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert not self._open

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.tags.append(tag)
        self.styles += [value or "" for name, value in attrs if name == "style"]
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self.cells[-1][-1] += data
