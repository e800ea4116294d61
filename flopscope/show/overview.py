"""The overview of a profile in a notebook: HTML without scripts, in the page's colours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from flopscope import _core
from flopscope.show.html import PIXELS, STYLE
from flopscope.show.looks import background
from flopscope.support.core_facts import parts_of
from flopscope.support.safe import markup, shorten
from flopscope.support.units import percent_text, short_time_text

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


def overview_html(
    head: Sequence[str],
    parts: Mapping[str, float],
    advice: Sequence[tuple[str, str, str]],
    picture: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    on_device: bool = True,
) -> str:
    """Return the overview of a profile as a fragment of HTML that is at most PIXELS wide, with all texts escaped.

    head: device, program, steps, time, MFU. parts: the accounting in µs (per step). advice: what to change, gain and
    why. picture: an ``<svg>`` element. headers, rows: of the table, whose first column is a name and whose last one is
    a word. on_device: whether the parts are those of a device, or of a program on a CPU.
    """
    title = " · ".join(markup(shorten(text, 90)) for text in head if text)
    sides = _advice(advice) + picture
    shown = [
        f"<style>{STYLE}{OVERVIEW_STYLE}</style>",
        f'<div class="flopscope-overview"><div class="head">{title}</div>',
        bar_html(parts, on_device),
        f'<div class="sides">{sides}</div>' if sides else "",
        _table(headers, rows),
        *map(quiet_html, notes),
        "</div>",
    ]
    return "\n".join(part for part in shown if part)


def quiet_html(note: str) -> str:
    """Return a note in a paragraph of its own."""
    return f'<div class="quiet">{markup(shorten(note, 300))}</div>'


def failure_html(what: str, problem: BaseException) -> str:
    """Return a line that says what is shown and why there is no overview."""
    text = f"{shorten(what, 200)}: {shorten(str(problem) or type(problem).__name__, 300)}"
    return f'<div class="flopscope-overview">{markup(text)}</div>'


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
        style = f"background: {background(rows[part].light, rows[part].hatch, 'Canvas')}"
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

    def line(tag: str, texts: Sequence[str]) -> str:
        looks = [f' class="name" title="{markup(shorten(texts[0], 200))}"', *[""] * (len(texts) - 2), ' class="bound"']
        cells = zip(looks, texts, strict=True)
        return f"<tr>{''.join(f'<{tag}{look}>{markup(shorten(text, 60))}</{tag}>' for look, text in cells)}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return f'<table class="flopscope"><thead>{line("th", headers)}</thead>\n<tbody>\n{body}\n</tbody></table>'
