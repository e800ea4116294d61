"""The overview of a profile and of a measurement in a notebook: HTML without scripts, in the page's colours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flopscope import _core
from flopscope.support.parts import parts_of
from flopscope.support.safe import markup
from flopscope.support.units import percent_text, short_time_text
from flopscope.views.html import PIXELS, STYLE
from flopscope.views.labels import shorten
from flopscope.views.waterfall import PAPER, look_of

__all__ = ["Overview", "bar_html", "failure_html", "measurement_html", "overview_html"]

LEAST_SHARE = 0.004  # of the bar: smaller parts are summed up
LONGEST_ADVICE = 220

OVERVIEW_STYLE = f"""
.flopscope-overview {{max-width: {PIXELS}px; font-size: 0.9em; line-height: 1.35}}
.flopscope-overview .head {{font-weight: 600; margin: 0.2em 0 0.5em; overflow-wrap: anywhere}}
.flopscope-overview .bar {{display: flex; height: 1.3em; border-radius: 3px; overflow: hidden}}
.flopscope-overview .bar span {{display: block; min-width: 1px}}
.flopscope-overview .legend {{margin: 0.35em 0 0.6em; font-size: 0.9em}}
.flopscope-overview .legend span {{display: inline-block; margin-right: 1.1em; white-space: nowrap}}
.flopscope-overview .legend i {{display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.35em}}
.flopscope-overview .sides {{display: flex; flex-wrap: wrap; gap: 0.4em 1.2em; align-items: flex-start}}
.flopscope-overview .sides > div {{flex: 1 1 20em; min-width: 0}}
.flopscope-overview .sides > svg {{flex: none}}
.flopscope-overview ol {{margin: 0.2em 0; padding-left: 1.6em}}
.flopscope-overview li {{margin-bottom: 0.35em; overflow-wrap: anywhere}}
.flopscope-overview .quiet {{opacity: 0.75; font-size: 0.9em}}
.flopscope-overview table.flopscope {{margin: 0.5em 0 0.2em}}
.flopscope-overview .flopscope .name {{max-width: 22em}}
.flopscope-overview .flopscope .bound {{text-align: left}}
"""
FACTS_STYLE = ".flopscope-overview td.name {white-space: normal; max-width: none}"
# Hatches as in the waterfall: the parts in which the device idles have no colour of their own.
_LINE = "color-mix(in srgb, currentColor 55%, transparent)"
_HATCHES = {
    "////": f"repeating-linear-gradient(135deg, {_LINE} 0 1px, transparent 1px 5px)",
    "\\\\\\\\": f"repeating-linear-gradient(45deg, {_LINE} 0 1px, transparent 1px 5px)",
    "....": f"radial-gradient({_LINE} 1px, transparent 1.2px) 0 0 / 5px 5px",
    "xxxx": f"repeating-linear-gradient(135deg, {_LINE} 0 1px, transparent 1px 5px), "
    f"repeating-linear-gradient(45deg, {_LINE} 0 1px, transparent 1px 5px)",
    "++++": f"repeating-linear-gradient(0deg, {_LINE} 0 1px, transparent 1px 5px), "
    f"repeating-linear-gradient(90deg, {_LINE} 0 1px, transparent 1px 5px)",
}


@dataclass(frozen=True)
class Overview:
    """What the overview shows. All texts are escaped by overview_html()."""

    head: Sequence[str]
    """Device, program, steps, time, MFU."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The accounting: µs (per step) by part."""
    advice: Sequence[tuple[str, str, str]] = ()
    """What to change, gain and why."""
    picture: str = ""
    """An ``<svg>`` element."""
    headers: Sequence[str] = ()
    """Headers of the table. The first column is a name, the last a word."""
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    on_device: bool = True
    """Whether the parts are those of a device, or of a program on a CPU."""


def overview_html(view: Overview) -> str:
    """Return the overview as a fragment of HTML that is at most PIXELS wide."""
    head = " · ".join(markup(shorten(text, 90)) for text in view.head if text)
    sides = _advice(view.advice) + view.picture
    parts = [
        f"<style>{STYLE}{OVERVIEW_STYLE}</style>",
        f'<div class="flopscope-overview"><div class="head">{head}</div>',
        bar_html(view.parts, view.on_device),
        f'<div class="sides">{sides}</div>' if sides else "",
        _table(view.headers, view.rows),
        *(f'<div class="quiet">{markup(shorten(note, 300))}</div>' for note in view.notes),
        "</div>",
    ]
    return "\n".join(part for part in parts if part)


def failure_html(what: str, problem: BaseException) -> str:
    """Return a line that says what is shown and why there is no overview."""
    text = f"{shorten(what, 200)}: {shorten(str(problem) or type(problem).__name__, 300)}"
    return f'<div class="flopscope-overview">{markup(text)}</div>'


def _background(part: str) -> str:
    _, colour, hatch = look_of(part, True)
    if not hatch:
        return colour
    return _HATCHES[hatch] + ("" if colour == PAPER else f", {colour}")


def bar_html(parts: Mapping[str, float], on_device: bool = True) -> str:
    """Return the accounting: a bar of segments, and a legend with times, shares and what the parts are."""
    known = {part: us for part, us in parts.items() if us > 0 and part in _core.parts}
    total = sum(known.values())
    if not total > 0:
        return ""
    order = ["ideal", *(part for part in sorted(known, key=lambda part: -known[part]) if part != "ideal")]
    segments, entries, rest = [], [], 0.0
    rows = parts_of(on_device)
    for part in order:
        us = known.get(part, 0.0)
        if us < LEAST_SHARE * total:
            rest += us
            continue
        text = f"{rows[part].label} {short_time_text(us)} {percent_text(100 * us / total)}"
        style = f"background: {_background(part)}"
        width = 100 * us / total
        segments.append(f'<span style="width: {width:.2f}%; {style}" title="{markup(text)}"></span>')
        gloss = f' <small class="quiet">{markup(rows[part].gloss)}</small>'
        entries.append(f'<span><i style="{style}"></i>{markup(text)}{gloss}</span>')
    if rest > 0:
        entries.append(f"<span>others {short_time_text(rest)}</span>")
    return f'<div class="bar">{"".join(segments)}</div>\n<div class="legend">{"".join(entries)}</div>'


def _advice(advice: Sequence[tuple[str, str, str]]) -> str:
    if not advice:
        return ""
    texts = [
        (action, gain, textwrap.shorten(why[:2000], LONGEST_ADVICE, placeholder=" …")) for action, gain, why in advice
    ]
    items = "".join(
        f"<li><b>{markup(shorten(action, 120))}</b>: {markup(shorten(gain, 80))}<br>{markup(why)}</li>"
        for action, gain, why in texts
    )
    return f"<div><b>What to change first</b><ol>{items}</ol></div>"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    last = len(headers) - 1

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{_class(i, last)}{_tooltip(text) if i == 0 else ''}>{markup(shorten(text, 60))}</{tag}>"
            for i, text in enumerate(texts)
        )

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<table class="flopscope"><thead><tr>{cells("th", headers)}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'


def _class(i: int, last: int) -> str:
    return ' class="name"' if i == 0 else ' class="bound"' if i == last else ""


def _tooltip(text: str) -> str:
    return f' title="{markup(shorten(text, 200))}"'


def measurement_html(
    verdict: str, facts: Mapping[str, str], notes: Sequence[str], pictures: Sequence[str], strip: str
) -> str:
    """Return a measurement: its verdict, the samples, a roofline with its one mark, and its facts."""
    rows = "".join(
        f'<tr><td class="name">{markup(shorten(name, 60))}</td><td class="name">{markup(shorten(text, 200))}</td></tr>'
        for name, text in facts.items()
    )
    table = f'<table class="flopscope"><tbody>{rows}</tbody></table>'
    more = "".join(f'<div class="quiet">{markup(shorten(note, 300))}</div>' for note in notes)
    return (
        f"<style>{STYLE}{OVERVIEW_STYLE}\n{FACTS_STYLE}</style>\n"
        f'<div class="flopscope-overview"><div class="head">{markup(shorten(verdict, 400))}</div>\n{strip}\n'
        f'<div class="sides"><div>{table}</div>{"".join(pictures)}</div>\n{more}</div>'
    )
