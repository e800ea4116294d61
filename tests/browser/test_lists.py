"""Sections that are made of tables and lists: comparisons and ranks. What they show is held
against flopscope's own tables, or against numbers that the test computes."""

import re
from pathlib import Path

import numpy as np
import pytest
from browser import Keys, Open, Page, Report, ready, whole
from helpers.hand_traces import in_a_row
from helpers.ranks_cases import stragglers_of
from helpers.recordings import FAULTS
from profiles import NASTY, many_ranks, ranks_of

import flopscope as fs

UNITS = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}


def time_of(text: str) -> float:
    """Return a time on the page in µs; NaN if it is unknown."""
    match = re.fullmatch(r"([+−]?)([\d.]+)\s*(ns|µs|ms|s)", text.strip())
    if match is None:
        assert text.strip() in ("–", "0"), text
        return 0.0 if text.strip() == "0" else float("nan")
    return (-1 if match[1] == "−" else 1) * float(match[2]) * UNITS[match[3]]


def cells(page: Page, section: str, number: int = 0) -> list[list[str]]:
    """Return the texts of the rows of a list that are in view."""
    return page.run("""const grid = document.querySelectorAll(`#${arguments[0]} .grid`)[arguments[1]];
        const texts = (line) => [...line.children].map((cell) => cell.textContent);
        return [...grid.querySelectorAll('.line')].map(texts);""", section, number)  # fmt: skip


def header(page: Page, section: str, title: str) -> None:
    page.run(
        """const heads = [...document.querySelectorAll(`#${arguments[0]} .grid [role=columnheader] button`)];
        heads.find((one) => one.textContent.replace(/ [↓↑]$/, '') === arguments[1]).click()""",
        section,
        title,
    )


# Comparisons ----------------------------------------------------------------------------------------------------------


def test_what_changed_has_the_numbers_of_the_comparison(open_report: Open, report: Report) -> None:
    runs = [fs.load_trace(FAULTS / f"compile_fuse_{which}.json.gz") for which in ("before", "after")]
    comparison = fs.compare(*runs)
    page = whole(open_report(report("compare")))
    shown = {row[0].lstrip("▶▼"): row for row in cells(page, "compare")}
    assert set(shown) == {change.name for change in comparison.changes}
    for change in comparison.changes:
        row = shown[change.name]
        assert time_of(row[1]) == pytest.approx(change.time_a, rel=0.006)
        assert time_of(row[2]) == pytest.approx(change.time_b, rel=0.006)
        assert time_of(row[3]) == pytest.approx(change.time_b - change.time_a, rel=0.006, abs=0.006)
        assert row[7] == change.cause
    tiles = page.texts("#compare > .body > .tiles .value")
    assert [time_of(text) for text in tiles[:2]] == pytest.approx(comparison.time, rel=0.006)
    a, b = comparison.time
    assert float(tiles[3].rstrip("×")) == pytest.approx(a / b, rel=0.006)
    regions = [one.get_attribute("aria-label") for one in page.all('[role="region"]')]
    assert len(regions) > 1 and len(set(regions)) == len(regions)
    parts = page.run("""return [...document.querySelectorAll('#compare .beside tbody tr')].map(
            (one) => [...one.cells].slice(2).map((cell) => cell.textContent))""")
    sums = np.sum([[time_of(text) for text in part[:2]] for part in parts], axis=0)
    assert sums == pytest.approx([sum(side.values()) for side in comparison.parts], rel=0.01)
    assert sums == pytest.approx(comparison.time, rel=0.01)
    for sentence in comparison.verdict:
        spaced = re.sub(r"(?<= )([-+]?[0-9.]+)(us|ms|s)\b", "\\1\u202f\\2", sentence).replace("\u202fus", "\u202fµs")
        shown, parts = page.text("main"), spaced.split("; ") if sentence is comparison.verdict[0] else [spaced]
        assert all(part in shown or part[0].upper() + part[1:] in shown for part in parts)
    assert "\u202fms in a and" in page.text(".headline")


def test_lists_sort_filter_and_open(open_report: Open, report: Report) -> None:
    page = whole(open_report(report("compare")))
    for times in range(2):
        header(page, "compare", "a")
        found = [time_of(row[1]) for row in cells(page, "compare")]
        assert found == sorted(found, reverse=times == 0)
    before = cells(page, "compare")
    box = page.one("#compare input[type=search]")
    box.send_keys("fused")
    page.until(f"document.querySelectorAll('#compare .grid .line').length < {len(before)}")
    assert re.fullmatch(r"\d+ of \d+ names", page.text("#compare .count"))
    box.send_keys("no such name")
    page.until("document.querySelector('#compare .nothing') && !document.querySelector('#compare .nothing').hidden")
    box.clear()
    box.send_keys(" ")
    page.until("document.querySelectorAll('#compare .grid .line').length > 2")
    page.click("#compare .grid .line button.open")
    page.until("document.querySelector('#compare .grid .line[aria-level=\"2\"]')")
    page.click("#compare .grid .line[aria-expanded=true] button.open")
    page.until("!document.querySelector('#compare .grid .line[aria-level=\"2\"]')")


def test_a_chosen_change_tells_why(open_report: Open, report: Report) -> None:
    page = whole(open_report(report("compare")))
    page.keys("/")
    assert page.run("return document.activeElement.type") == "search"
    page.keys(Keys.ESCAPE)
    page.run("document.querySelector('#compare .grid').focus()")
    page.keys(Keys.ARROW_DOWN, Keys.ENTER)
    row = cells(page, "compare")[1]
    assert page.text("#compare .chosen").startswith(f"{row[0].lstrip('▶▼')}: {row[1]} → {row[2]} ({row[3]}); {row[7]}")


# Ranks ----------------------------------------------------------------------------------------------------------------


def test_ranks_have_the_numbers_of_stragglers(open_report: Open, report: Report, tmp_path: Path) -> None:
    traces = ranks_of(tmp_path)
    expected = stragglers_of(traces).ranks.set_index("rank")
    page = whole(open_report(report("ranks")))
    rows = cells(page, "ranks")
    assert len(rows) == 8 and rows[0][0] == "1"  # whom the others wait for comes first
    for row in rows:
        rank = int(row[0])
        total = traces[rank].accounting()["total"].iloc[:-1].mean()
        assert time_of(row[1]) == pytest.approx(total, rel=0.006)
        assert time_of(row[5]) == pytest.approx(expected["awaited"][rank], rel=0.006, abs=1e-6)
        assert time_of(row[6]) == pytest.approx(expected["waited"][rank], rel=0.006, abs=1e-6)
        assert int(row[8]) == expected["times_last"][rank]
    assert page.text("h1 ~ .headline").startswith("Rank 1 ")


def beside(page: Page) -> dict[str, list[float]]:
    """Return the times of a part of the rank that is shown, of the others, and their difference."""
    rows = page.run("""return [...document.querySelectorAll('#ranks .beside tbody tr')].map((row) =>
        [row.querySelector('.name').textContent, ...[...row.cells].slice(2).map((one) => one.textContent)])""")
    return {name: [time_of(text.replace("+", "")) for text in times] for name, *times in rows}


SELECTED = "return document.querySelector('#ranks .grid [aria-selected=true]').firstChild.textContent"


def test_the_page_opens_on_the_slow_rank_beside_the_others(open_report: Open, report: Report, tmp_path: Path) -> None:
    page = ready(open_report(report("ranks")))
    page.until("document.querySelector('#ranks .grid [aria-selected=true]')")
    assert page.run(SELECTED) == "1" and page.text("#ranks h3") == "Rank 1 beside the others"
    assert page.text("#ranks .todo").startswith("What to do: Compare its GPU")
    assert page.one("#ranks .todo").rect["y"] < 400 and page.one("#ranks .beside").rect["y"] < 500  # the first screen
    shown = beside(page)
    frames = [trace.accounting().iloc[:-1] for trace in ranks_of(tmp_path).values()]
    for name, part in (("memory, beyond ideal", "memory"), ("communication", "communication")):
        own = frames[1][part].mean()
        others = np.median([frame[part].mean() for rank, frame in enumerate(frames) if rank != 1])
        assert shown[name] == pytest.approx([own, others, own - others], rel=0.006)
    assert [*shown][0 :: len(shown) - 1] == ["memory, beyond ideal", "communication"]  # the cause comes first


def test_the_chosen_rank_is_in_the_address(open_report: Open, report: Report) -> None:
    page = open_report(report("ranks"), "#ranks?rank=6")
    page.until("document.querySelector('#ranks .grid [aria-selected=true]')")
    page.until("document.querySelector('#ranks h3').textContent === 'Rank 6 beside the others'")
    assert page.run(SELECTED) == "6"
    page.run("[...document.querySelectorAll('#ranks .grid .line')].find(e => e.firstChild.textContent === '3').click()")
    assert page.run("return location.hash") == "#ranks?rank=3"
    page.run("[...document.querySelectorAll('#ranks .grid .line')].find(e => e.firstChild.textContent === '1').click()")
    assert page.run("return location.hash") == "#ranks"


def test_thousands_of_ranks_can_be_read(open_report: Open, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    many_ranks(path, 4096)
    assert path.stat().st_size < 8e6
    page = ready(open_report(path, "#ranks"))
    page.until("document.querySelector('#ranks .grid .line')")
    assert cells(page, "ranks")[0][0] == "1234"
    assert len(page.all("#ranks .grid .line")) < 300
    assert "100 of 2,048" in page.text("#ranks")
    page.resize(1000, 800)
    assert page.text("h1 ~ .headline").startswith("Rank 1234 ")


def test_a_page_of_nothing_known_opens(open_report: Open, tmp_path: Path) -> None:
    many_ranks(tmp_path / "ranks.html", 40, unknown=True)
    page = whole(open_report(tmp_path / "ranks.html"))
    assert not re.search(r"\bNaN\b|undefined|Infinity|could not be drawn", page.text("main"))


def test_hostile_names_of_runs_are_shown_as_text(open_report: Open) -> None:
    runs = [in_a_row((NASTY[0], time, ([8, 8],))).load() for time in (10.0, 20.0)]
    page = whole(open_report(fs.compare(*runs, names=(NASTY[1], NASTY[3]))))
    assert page.text("h1") == f"{NASTY[1]} → right\\u202eto left\\u2066"
    assert [row[0].lstrip("▶▼") for row in cells(page, "compare")] == [NASTY[0]]


def test_the_first_click_selects_a_row(open_report: Open, report: Report) -> None:
    page = whole(open_report(report("ranks")))
    page.click("#ops .grid .line:nth-child(2) .first")
    page.until("document.querySelector('#ops .grid .line:nth-child(2)[aria-selected=true]')")
