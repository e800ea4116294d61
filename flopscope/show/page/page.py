"""One HTML file of sections: a template that escapes, inert data, and one script that the page's policy allows."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import cache
from importlib import resources
from typing import Any

from flopscope.results.results import Results
from flopscope.show.looks import BOUNDS, sheet
from flopscope.show.page import devices, lines, memory, ops, overview, roofline, timeline
from flopscope.show.page.encode import Columns, cut, json_text, sentence
from flopscope.show.page.profile import Profile
from flopscope.show.page.rows import REASONS, encode_table
from flopscope.support.files import replacing
from flopscope.support.package import VERSION

SECTIONS: dict[str, Callable[[Profile, Columns], dict[str, Any] | None] | None] = {
    "ranks": None,
    "overview": overview.section,
    "ops": ops.section,
    "lines": lines.section,
    "roofline": roofline.section,
    "timeline": timeline.section,
    "memory": memory.section,
    "devices": devices.section,
    "compare": None,
}
"""The sections in their order, and what makes their data for a profile's page: None where there is nothing to show."""

SCRIPTS = (
    *("shell.js", "format.js", "draw.js", "print.js", "overview.js", "grid.js", "list.js", "details.js"),
    *("ops.js", "ops_columns.js", "controls.js", "tables.js", "ranks.js", "compare.js", "colors.js", "roofline.js"),
    *("timeline_model.js", "timeline_paint.js", "timeline_counters.js", "timeline_axis.js", "timeline_rows.js"),
    *("timeline.js", "timeline_draw.js", "timeline_events.js", "timeline_details.js", "memory.js"),
)
"""The scripts of the page, in the order in which they run; theme.js comes before them, start.js follows."""

STYLES = ("style.css", "parts.css", "overview.css", "ops.css", "sections.css", "canvas.css")
"""The style sheets of the page, in their order, after that of the core's colours; print.css follows."""


class Page:
    """What a page shows: title, headline and what follows it, sections, and the columns that their data refers to."""

    def __init__(self, title: str, *, headline: str = "", lead: str = "") -> None:
        self.title, self.subtitle, self.headline, self.lead = title, "", headline, lead
        self.columns = Columns()
        self.sections: dict[str, Any] = {}
        """The data of each section, by the names of SECTIONS."""
        self.rows: dict[str, Any] | None = None
        """The table whose rows marks, events and advice refer to by their indices."""
        self.device_type = "cuda"
        """torch's type of the devices."""
        self.made = datetime.now(timezone.utc)

    def content(self) -> dict[str, Any]:
        """Return the JSON of the page."""
        return {
            "flopscope": VERSION,
            "made": self.made.isoformat(timespec="seconds"),
            "title": cut(self.title),
            "bounds": {name: bound.meaning for name, bound in BOUNDS.items()},
            "reasons": REASONS,
            "device_type": self.device_type,
            "rows": self.rows,
            "sections": {name: self.sections[name] for name in SECTIONS if name in self.sections},
            "strings": self.columns.strings,
        }


def profile_page(results: Results, *, peaks: str | None = None, title: str | None = None) -> Page:
    """Return the page of a profile. Raise RuntimeError during recording and if nothing was recorded."""
    source = Profile(results, peaks, timeline.MOST_BLOCKS)
    page = Page(title or overview.title_of(source))
    page.device_type = source.core.device_type
    page.rows = encode_table(source.rows, page.columns)
    for name, section in SECTIONS.items():
        if section is not None and (name == "lines" or not source.has_lines_alone):
            content = section(source, page.columns)
            page.sections |= {} if content is None else {name: content}
    told = lines if source.has_lines_alone else overview
    page.subtitle, page.headline = overview.subtitle_of(source), told.headline_of(source)
    page.lead = " ".join(filter(None, [source.analysis.facts.hints.busy, told.lead_of(source)]))
    return page


def write(path: str | os.PathLike[str], page: Page) -> None:
    """Write a page. An existing file is replaced only by a complete one. Raise OSError if it cannot be written."""
    parts = render(page)
    head = next(parts)  # what it needs is read before another file is open
    with replacing(path) as stream:
        stream.write(head)
        stream.writelines(parts)


def render(page: Page) -> Iterator[str]:
    """Yield the text of a page in parts."""
    template = _template()
    from markupsafe import Markup  # of Jinja2

    style = sheet() + _joined((*STYLES, "print.css"))
    early, script = _source("theme.js"), _joined((*SCRIPTS, "start.js"))
    yield from template.generate(
        title=cut(page.title),
        subtitle=cut(page.subtitle),
        headline=sentence(cut(page.headline)),
        lead=sentence(cut(page.lead)),
        version=VERSION,
        made=page.made.strftime("%Y-%m-%d %H:%M UTC"),
        policy=_policy(style, early, script),
        style=Markup(style),
        early=Markup(early),
        script=Markup(script),
        data=Markup(json_text(page.content())),
        blobs=[Markup(blob) for blob in page.columns.blobs()],
    )


@cache
def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_source("page.html"))


@cache
def _source(name: str) -> str:
    return (resources.files("flopscope.show.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(map(_source, names))


def _policy(style: str, *scripts: str) -> str:
    """Return the Content-Security-Policy: this style, these scripts, and pictures that they make."""
    digests = (hashlib.sha256(text.encode()).digest() for text in (style, *scripts))
    own, *others = (f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {' '.join(others)}; style-src {own}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
