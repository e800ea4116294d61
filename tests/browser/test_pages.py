"""The pages of nine results in Chromium: they open, fit, print, and can be read by everyone."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser import Keys, Open, Report, ready, whole
from helpers.report_pages import contrast
from profiles import PROFILES

from flopscope import _core

EVERY = [*PROFILES]
WIDTHS = (1000, 1280, 1600)
PHONE = 390, 844
BEYOND = """
    const width = document.documentElement.clientWidth;
    const scrolls = (one) => {
        for (let up = one.parentElement; up; up = up.parentElement) {
            if (getComputedStyle(up).overflowX !== 'visible') return true;
        }
        return getComputedStyle(one).position === 'absolute';
    };
    const beyond = (one) => one.getBoundingClientRect().right > width + 1 && !scrolls(one);
    return [...document.querySelectorAll('main *')].filter(beyond).slice(0, 5).map((one) => one.outerHTML);
"""


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.S)
    assert found
    return dict(json.loads(found[1]))


@pytest.mark.parametrize("name", EVERY)
def test_a_page_opens_and_shows_its_sections(open_report: Open, report: Report, name: str) -> None:
    path = report(name)
    sections = list(data_of(path)["sections"])
    page = whole(open_report(path))
    shown = page.run("return [...document.querySelectorAll('section')].map((one) => one.id)")
    assert shown == sections
    links = page.run("return [...document.querySelectorAll('#nav a')].map((one) => one.getAttribute('href'))")
    assert links == [f"#{section}" for section in sections]
    for section in sections:
        assert page.text(f"#{section} .body").strip(), section
        assert not page.all(f"#{section} .body[aria-busy]")
        assert "could not be drawn" not in page.text(f"#{section} .body")
    assert page.text("h1").strip() and page.run("return document.title").endswith("flopscope")


ENDS = """
    const right = (one) => {
        const range = document.createRange();
        range.selectNodeContents(one.lastChild);
        return range.getBoundingClientRect().right;
    };
    return [...document.querySelectorAll('.grid .cut.ends')]
        .filter((one) => one.offsetParent && right(one) > one.getBoundingClientRect().right + 1)
        .map((one) => one.textContent);
"""
CUT = """
    const cut = (one) => getComputedStyle(one).overflowX !== 'visible' && (one.scrollWidth > one.clientWidth + 1
        || (one.className.startsWith('timeline') && one.scrollHeight > one.clientHeight + 1));
    const wide = (one) => one.getBoundingClientRect().right > innerWidth + 1;
    const all = ['#nav', '#nav a', '.parts td', '.beside td', '.largest td', '.timeline-label', '.timeline-group',
        '.timeline-group .cut', '.headline', '.lead', '.tile', '.card .action', '.card .saves'];
    const found = [...document.querySelectorAll(all.join(', '))].filter((one) => one.offsetParent);
    return found.filter((one) => cut(one) || wide(one)).slice(0, 5).map((one) => one.outerHTML.slice(0, 300));
"""


@pytest.mark.parametrize("name", EVERY)
def test_a_page_fits_the_width_of_windows_and_phones(open_report: Open, report: Report, name: str) -> None:
    page = whole(open_report(report(name)))
    for width, height in (*((width, 900) for width in WIDTHS), PHONE):
        page.resize(width, height)
        page.value("new Promise((done) => setTimeout(done, 150))")
        assert page.run(BEYOND) == [], width
        assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
    assert page.run(ENDS) == [], "on a phone"
    if name != "hostile":  # a name of ten thousand characters may be cut
        assert page.run(CUT) == [], "on a phone"


@pytest.mark.parametrize("size", [(1280, 900), PHONE, (320, 640)])
def test_the_marked_link_is_of_the_section_in_view(open_report: Open, report: Report, size: tuple[int, int]) -> None:
    page = open_report(report("training"))
    page.resize(*size)
    whole(page)
    sections = page.run("return [...document.querySelectorAll('section')].map((one) => one.id)")
    for section in (*sections, *reversed(sections)):
        page.run("document.querySelector(`#nav a[href='#${arguments[0]}']`).click()", section)
        page.until(f"document.querySelector('#nav [aria-current]').hash === '#{section}'", section)
        top = f"document.querySelector('#title-{section}').getBoundingClientRect().top"
        assert page.value(f"{top} >= document.getElementById('bar').getBoundingClientRect().bottom"), "below the bar"


def test_the_first_screen_has_the_headline_the_advice_and_the_largest_ops(open_report: Open, report: Report) -> None:
    page = open_report(report("training"))
    page.resize(1440, 900)
    whole(page)
    tops = page.run("""return ['.headline', '.card', '.largest', '.accounting'].map(
            (one) => document.querySelector(`main ${one}`).getBoundingClientRect().top)""")
    assert tops[0] < tops[1] < tops[3] and tops[2] < tops[3] and max(tops[:3]) < 900 and abs(tops[1] - tops[2]) < 60
    assert len(page.all("#overview .largest tbody tr")) == 5
    notes = "document.querySelectorAll('.parts tbody .note')"
    explained = page.run(f"return [...{notes}].map((one) => one.textContent)")
    assert len(explained) == len(page.all(".parts .swatch")) and {*explained} <= {p.gloss for p in _core.parts.values()}
    leaves = "[...document.querySelectorAll('main *')].filter((one) => !one.children.length)"
    texts = page.run(f"return {leaves}.map((one) => one.textContent)")
    assert [text for text in texts if re.search(r"\[\]|\*\d", text)] == [], "shapes are written out"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_accessible(open_report: Open, report: Report, axe: str, name: str, dark: bool) -> None:
    assert whole(open_report(report(name), dark=dark)).violations(axe) == []


@pytest.mark.parametrize("name", EVERY)
def test_a_page_prints_in_light_colours_with_all_sections(open_report: Open, report: Report, name: str) -> None:
    page = ready(open_report(report(name), dark=True))
    page.value("flopscope.page.mountAll().then(() => true)")
    assert page.paper().startswith(b"%PDF-") and page.run("return document.documentElement.dataset.theme") == "auto"
    page.media(dark=True, medium="print")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    background = page.run("return getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert page.run("return getComputedStyle(document.querySelector('.bar')).display") == "none"
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("return document.documentElement.dataset.theme") == "auto"


def test_the_browsers_own_print_has_what_was_not_in_view(open_report: Open, report: Report) -> None:
    page = open_report(report("training"))
    page.until("document.documentElement.dataset.inflated === 'true'")
    mounted = page.run("return flopscope.page.mounted.size")
    page.run("addEventListener('afterprint', () => { window.waiting = document.querySelector('.body[aria-busy]'); })")
    assert base64.b64decode(page.browser.print_page()).startswith(b"%PDF-")
    assert page.run("return window.waiting") is None
    assert mounted < len(data_of(report("training"))["sections"]), "all sections were in view before"
    assert page.run("return document.documentElement.dataset.theme") == "auto"


def test_the_keyboard_reaches_everything(open_report: Open, report: Report) -> None:
    page = whole(open_report(report("ranks")))
    page.keys(Keys.TAB)
    assert page.run("return document.activeElement.className") == "skip"
    reached = set()
    for _ in range(400):
        page.keys(Keys.TAB)
        place = page.run("""const one = document.activeElement;
            if (one === document.body) return null;
            const style = getComputedStyle(one);
            return [one.tagName, one.getAttribute('aria-label') || one.textContent.slice(0, 40),
                style.outlineStyle !== 'none', Boolean(one.closest('section'))];""")
        if place is None:
            break
        reached.add(place[0])
        assert place[2], f"the focus on {place} cannot be seen"
    assert {"A", "BUTTON", "SELECT", "INPUT", "svg", "DIV"} <= reached


def test_a_button_changes_the_theme(open_report: Open, report: Report) -> None:
    page = ready(open_report(report("ranks")))
    colours = []
    for theme in ("light", "dark", "auto"):
        page.click("#theme")
        page.until(f"document.documentElement.dataset.theme === '{theme}'")
        colours.append(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert colours[0] == colours[2] != colours[1]


COLOURS = """
    const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const paper = flopscope.color('paper');
    const seen = (...layers) => { // colours, each with its opacity, from the bottom
        probe.globalAlpha = 1;
        probe.fillStyle = paper;
        probe.fillRect(0, 0, 1, 1);
        for (const [colour, alpha] of layers) {
            probe.globalAlpha = alpha;
            probe.fillStyle = colour;
            probe.fillRect(0, 0, 1, 1);
        }
        return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const [texts, grounds] = arguments;
    return [texts.map((name) => seen([flopscope.color(name), 1])),
        grounds.map(([name, alpha]) => seen([flopscope.color(name), alpha]))];
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_stand_out_from_their_grounds(open_report: Open, report: Report, dark: bool) -> None:
    """axe-core leaves open what lies above bars, pictures and blurred grounds."""
    page = ready(open_report(report("compare"), dark=dark))
    soft = ["text", "text-soft", "text-faint", "accent", "warn", "good"]
    for texts, grounds in (
        (soft, [("paper", 1.0), ("raised", 1.0)]),
        (["text", "text-soft", "accent"], [("sunken", 1.0), ("accent-soft", 1.0)]),
        (["text"], [("bar", 0.75), ("series-2", 0.38)]),  # numbers with a bar behind them
    ):
        found = page.run(COLOURS, texts, grounds)
        for name, text in zip(texts, found[0], strict=True):
            for (ground, _), colour in zip(grounds, found[1], strict=True):
                assert contrast(text, colour) >= 4.5, (name, ground, text, colour)


def test_less_motion_is_respected(open_report: Open, report: Report) -> None:
    page = whole(open_report(report("ranks")))
    page.media(calm=True)
    moving = page.run("""return [...document.querySelectorAll('*')].filter(one => { const style = getComputedStyle(one);
        return style.transitionDuration !== '0s' || style.animationName !== 'none'; }).length""")
    assert moving == 0
