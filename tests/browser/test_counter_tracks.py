"""The tracks of counters in Chromium, and what the Overview tells of counters, graphs and misfits."""

import pytest
from browser import Open, Page, Report, whole
from helpers.graph_programs import KERNELS, replayed
from profiles import counted_program
from selenium.webdriver.common.action_chains import ActionChains

VIEW = "flopscope.timelineView"
HEIGHTS = f"""
    const view = {VIEW}, row = view.rows.find((one) => one.role === 'counter' && one.track.name === arguments[0]);
    view.scroller.scrollTop = 0;
    view.paint();
    const x = Math.round(view.x(arguments[1])), [strong, soft] = view.trackPixels.get(row.track), r = view.ratio;
    const y0 = Math.round((row.y) * r) + Math.round(3 * r), y1 = Math.round((row.y + row.height) * r) - Math.round(r);
    const count = (color) => {{
        let found = 0;
        for (let y = y0; y < y1; y++) found += view.painter.pixels[y * view.painter.width + x] === color;
        return found / (y1 - y0);
    }};
    return [count(strong), count(soft)];
"""


@pytest.fixture
def page(open_report: Open, report: Report) -> Page:
    return whole(open_report(report("counters")))


def heights(page: Page, name: str, us: float) -> list[float]:
    """Return which shares of a track's height have its colour and its pale colour at a time."""
    return list(page.run(HEIGHTS, name, 1000 * us))


def test_each_counter_is_a_row_below_the_streams_of_its_device(page: Page) -> None:
    found = [text.replace("\u202f", " ") for text in page.texts(".timeline-label.counter")]
    assert found == [
        *("DRAM read, to 2.40 TB/s", "DRAM written, to 1.20 TB/s", "SM active, to 100.0%"),
        *("tensor active, to 100.0%", "power.W, to 550"),
    ]
    order = page.run(f"return {VIEW}.rows.map((row) => row.role)")
    assert order.index("counter") > max(i for i, role in enumerate(order) if role == "work")
    assert order.index("counter") < order.index("host")


def test_the_height_of_a_track_is_its_share_of_the_largest_value(page: Page) -> None:
    page.run(f"{VIEW}.show({{from: 0, to: 500000}})")
    for us, read, tensor in ((100, 900 / 2400, 0.85), (215, 1.0, 0.0)):  # in a product, and in an addition
        assert heights(page, "dram_bytes_read", us)[0] == pytest.approx(read, abs=0.08)
        assert heights(page, "tensor_active", us)[0] == pytest.approx(tensor, abs=0.08)
    page.run(f"{VIEW}.show({{from: 1000000, to: 1500000}})")
    assert heights(page, "dram_bytes_read", 1100) == [0, 0]  # nothing was counted in the second step


def test_the_pointer_tells_the_value(page: Page) -> None:
    page.run(f"{VIEW}.show({{from: 200000, to: 230000}})")
    page.run("document.querySelector('#timeline').scrollIntoView({block: 'start', behavior: 'instant'})")
    page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    x, y = page.run(f"""const row = {VIEW}.rows.find((one) => one.role === 'counter');
        const box = {VIEW}.canvas.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + row.y + row.height / 2]""")
    chain = ActionChains(page.browser).w3c_actions  # type: ignore[no-untyped-call]
    chain.pointer_action.move_to_location(round(x), round(y))
    chain.perform()
    page.until(f"{VIEW}.canvas.title")
    title = page.run(f"return {VIEW}.canvas.title").replace("\u202f", " ")
    assert title == "DRAM read\nCounted 2.40 TB/s"


def test_merged_samples_are_explained(open_report: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from flopscope.show.page import counters

    monkeypatch.setattr(counters.bucketed, "__defaults__", (20,))
    monkeypatch.setattr(counters, "MOST_BUCKETS", 20)
    page = whole(open_report(counted_program().load()))
    assert "samples of counters, those that begin in the same one of 20 equal parts" in page.text(".timeline-notes")
    strong, soft = heights(page, "dram_bytes_read", 150)
    assert 0 < strong < 1 and soft > 0


def test_the_devices_tell_what_was_counted(page: Page) -> None:
    text = page.text("#devices").replace("\u202f", " ")
    assert any(tile.startswith("HFU") for tile in page.texts("#overview .tile"))
    assert "Counters" in text and "tensor active" in text
    present = page.run("""return Object.fromEntries([...document.querySelectorAll('.features tbody tr')].map(
            (one) => [one.children[0].textContent, one.children[1].textContent]))""")
    assert present["Counters"] == "✓ yes"


def test_graphs_and_misfits_are_told(open_report: Open, axe: str) -> None:
    program = replayed(*KERNELS)
    program.run("_C::rms_norm", 200, 240, 8, [4, 8], [4, 8], kernel="<b>norm</b>")
    page = whole(open_report(program.load()))
    assert "launches of graphs" in page.text("#devices")
    assert "Another version of _C::rms_norm: called with (" in page.text("#overview .notes")
    assert page.violations(axe) == []
