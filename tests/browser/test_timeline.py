"""The timeline, the roofline and the memory in Chromium: zoom, search, selection across the sections, keys."""

import math
from pathlib import Path

import pytest
from browser import Open, Page, Report, whole
from helpers.hand_traces import BF16, Program, memory
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

VIEW = "flopscope.timelineView"


def program() -> Program:
    """A step of three ops on one stream; the second kernel is launched late."""
    made = Program()
    made.step(1, 0, 2000)
    for i, (name, begin, shapes, dtype, kernel, at, time) in enumerate(
        [
            ("aten::mm", 10, [[4096, 4096], [4096, 4096]], BF16, "sm90_xmma_gemm_bf16bf16", 30, 300),
            ("aten::add", 400, [[8192, 8192], [8192, 8192]], "float", "elementwise_add", 460, 180),
            ("aten::relu", 500, [[8192, 8192]], "float", "elementwise_relu", 640, 130),
        ]
    ):
        made.op(name, begin, 60, *shapes, dtype=dtype)
        made.call("cudaLaunchKernel", begin + 10, 20, correlation=i + 1)
        made.add("kernel", kernel, at, time, 7, 0, correlation=i + 1, device=0, stream=7)
    for i, (size, total) in enumerate([(1 << 20, 1 << 20), (3 << 20, 4 << 20), (-(1 << 20), 3 << 20)]):
        totals = {"Total Allocated": total, "Total Reserved": 8 << 20, "Addr": 1000 + i % 2}
        made.events.append(memory(20 + 400 * i, size, **totals))
    return made


@pytest.fixture
def page(open_report: Open) -> Page:
    return whole(open_report(program().load()))


def block(page: Page, name: str) -> int:
    script = (
        f"const t = {VIEW}.timeline; for (let i = 0; i < t.length; i++) if (t.nameOf(i) === arguments[0]) return i; "
        "return -1"
    )
    found = int(page.run(script, name))
    assert found >= 0, name
    return found


def settle(page: Page) -> None:
    page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")


def place(page: Page, number: int) -> dict[str, float]:
    """Return where a block is in the window, in CSS pixels."""
    settle(page)
    script = f"""
        const view = {VIEW}, box = view.canvas.getBoundingClientRect(), at = view.place(arguments[0]), r = view.ratio;
        return {{x: box.left + (at.x0 + at.x1) / 2 / r, y: box.top + (at.y0 + at.y1) / 2 / r,
                 left: box.left + at.x0 / r, right: box.left + at.x1 / r}}"""
    return dict(page.run(script, number))


def show_timeline(page: Page) -> None:
    page.run("document.querySelector('#timeline').scrollIntoView({block: 'start', behavior: 'instant'})")
    settle(page)


def click_at(page: Page, at: dict[str, float]) -> None:
    chain = ActionChains(page.browser).w3c_actions  # type: ignore[no-untyped-call]
    chain.pointer_action.move_to_location(round(at["x"]), round(at["y"]))
    chain.pointer_action.click()
    chain.perform()
    settle(page)


def view(page: Page) -> tuple[float, float]:
    found = page.run(f"return [{VIEW}.view.from, {VIEW}.view.to]")
    return float(found[0]), float(found[1])


def focus(page: Page) -> None:
    page.run(f"{VIEW}.scroller.focus({{preventScroll: true}})")


def selected_row(page: Page) -> str | None:
    script = "const {selected, rows} = flopscope.page; return selected === null ? null : rows.get('key', selected)"
    found = page.run(f"return (() => {{ {script} }})()")
    return None if found is None else str(found)


def test_without_known_work_there_is_no_chart(open_report: Open) -> None:
    made = Program()
    made.run("my::own_op", 5, 20, 100, [64, 64])
    page = whole(open_report(made.load()))
    assert not page.all("#roofline svg")
    notes = page.text("#roofline")
    assert "No op has known FLOPs and bytes" in notes and "my::own_op" in notes and "area of a mark" not in notes
    page.run("flopscope.page.select(0)")
    assert selected_row(page) == "my::own_op"
    page.resize(1000, 900)
    settle(page)


# Selection ------------------------------------------------------------------------------------------------------------


def test_a_click_selects_the_event_and_its_op_everywhere(page: Page) -> None:
    show_timeline(page)
    kernel = block(page, "sm90_xmma_gemm_bf16bf16")
    click_at(page, place(page, kernel))
    assert page.run(f"return {VIEW}.selected") == kernel and selected_row(page) == "aten::mm"
    details = page.text(".timeline-details")
    for part in ("300", "aten::mm", "GPU 0, stream 7", "cudaLaunchKernel", "4096x4096", "137", "kernel"):
        assert part in details, part
    assert len(page.all("#roofline .mark.selected")) == 1
    assert "aten::mm" in page.text("#selection")
    page.keys(Keys.ESCAPE)
    assert selected_row(page) is None


def test_a_selected_event_is_in_the_address_and_opens_from_it(page: Page, open_report: Open, tmp_path: Path) -> None:
    show_timeline(page)
    kernel = block(page, "sm90_xmma_gemm_bf16bf16")
    click_at(page, place(page, kernel))
    page.until(f"location.hash === '#timeline?event={kernel}'")
    opened = open_report(tmp_path / "report.html", f"#timeline?from=20000&to=400000&event={kernel}")
    opened.until(f"flopscope.timelineView && {VIEW}.selected === {kernel}")
    assert selected_row(opened) == "aten::mm" and "sm90_xmma_gemm" in opened.text(".timeline-details")
    opened.keys(Keys.ESCAPE)
    opened.until("!location.hash.includes('event')")
    for wrong in ("-1", "99999", "x"):
        opened = open_report(tmp_path / "report.html", f"#timeline?event={wrong}")
        opened.until("flopscope.timelineView")
        assert opened.run(f"return {VIEW}.selected") == -1


def test_a_mark_of_the_roofline_selects_the_blocks_of_its_op(page: Page) -> None:
    row = page.run("return flopscope.page.rows.columns.key.findIndex((_, i) => "
                   "flopscope.page.rows.get('key', i) === 'aten::mm')")  # fmt: skip
    page.click(f"#roofline [data-row='{row}']")
    assert selected_row(page) == "aten::mm"
    matched = f"return [arguments[0], arguments[1]].map((one) => {VIEW}.matches(one))"
    assert page.run(matched, block(page, "sm90_xmma_gemm_bf16bf16"), block(page, "elementwise_add")) == [True, False]
    quiet = f"return {VIEW}.colorOf(arguments[0]) !== {VIEW}.rowPixels[{VIEW}.timeline.row[arguments[0]]]"
    assert page.run(quiet, block(page, "elementwise_add"))
    page.run("flopscope.page.select(null)")
    assert page.run(f"return {VIEW}.matching") is None


def test_launches_are_followed_both_ways(page: Page) -> None:
    show_timeline(page)
    kernel, call = block(page, "elementwise_relu"), 0
    click_at(page, place(page, kernel))
    call = int(page.run(f"return {VIEW}.timeline.link[arguments[0]] - 1", kernel))
    assert page.run(f"return {VIEW}.arrows") == [[call, kernel]]
    focus(page)
    page.keys("l")
    assert page.run(f"return {VIEW}.selected") == call
    assert page.run(f"return {VIEW}.timeline.nameOf({VIEW}.selected)") == "cudaLaunchKernel"
    page.keys("l")
    assert page.run(f"return {VIEW}.selected") == kernel
    click_at(page, place(page, block(page, "aten::relu")))  # the op around the call
    assert page.run(f"return {VIEW}.arrows") == [[call, kernel]]


def test_idle_time_tells_its_cause(page: Page) -> None:
    show_timeline(page)
    idle = int(page.run(f"const t = {VIEW}.timeline; return t.lanes.find((one) => one.role === 'idle').first"))
    click_at(page, place(page, idle))
    assert page.run(f"return {VIEW}.selected") == idle and "idle: " in page.text(".timeline-details")
    assert selected_row(page) is None


# The view -------------------------------------------------------------------------------------------------------------


def test_keys_zoom_and_move(page: Page) -> None:
    show_timeline(page)
    focus(page)
    every = view(page)
    page.keys("w")
    assert math.isclose(view(page)[1] - view(page)[0], (every[1] - every[0]) / 1.4)
    before = view(page)
    page.keys("d")
    moved = view(page)
    assert moved[0] > before[0] and math.isclose(moved[1] - moved[0], before[1] - before[0])
    page.keys("a")
    assert math.isclose(view(page)[0], before[0], abs_tol=1)
    page.keys("s")
    assert math.isclose(view(page)[1] - view(page)[0], every[1] - every[0], rel_tol=1e-6)
    page.keys("w", "w", "0")
    assert view(page) == every


def test_ctrl_and_wheel_zoom_at_the_pointer(page: Page) -> None:
    show_timeline(page)
    at = place(page, block(page, "elementwise_add"))
    wheel = f"""
        const event = new WheelEvent('wheel', {{deltaY: arguments[2], ctrlKey: arguments[3], clientX: arguments[0],
            clientY: arguments[1], bubbles: true, cancelable: true}});
        const before = {VIEW}.timeAt(event);
        {VIEW}.canvas.dispatchEvent(event);
        return [event.defaultPrevented, before, {VIEW}.timeAt(event)]"""
    every = view(page)
    assert page.run(wheel, at["x"], at["y"], -60, False) == [False, *(page.run(wheel, at["x"], at["y"], 0, False)[1:])]
    assert view(page) == every  # without Ctrl the page scrolls
    prevented, before, after = page.run(wheel, at["x"], at["y"], -60, True)
    assert prevented and math.isclose(before, after) and view(page)[1] - view(page)[0] < every[1] - every[0]


def test_drag_moves(page: Page) -> None:
    show_timeline(page)
    focus(page)
    page.keys("w", "w")
    add = block(page, "elementwise_add")
    page.run(f"{VIEW}.showBlock(arguments[0], 0.3)", add)
    before, at = view(page), place(page, add)
    chain = ActionChains(page.browser).w3c_actions  # type: ignore[no-untyped-call]
    chain.pointer_action.move_to_location(round(at["x"]), round(at["y"])).pointer_down()
    chain.pointer_action.move_to_location(round(at["x"]) - 50, round(at["y"])).pointer_up()
    chain.perform()
    assert view(page)[0] > before[0] and page.run(f"return {VIEW}.selected") == -1


def test_the_view_is_in_the_address(page: Page) -> None:
    show_timeline(page)
    page.run(f"{VIEW}.show({{from: 100000, to: 700000}})")
    page.until("location.hash === '#timeline?from=100000&to=700000'")
    page.run(f"{VIEW}.show({VIEW}.whole)")
    page.until("location.hash === '#timeline'")
    page.run("location.hash = '#timeline?from=200000&to=300000'")
    page.until(f"{VIEW}.view.from === 200000 && {VIEW}.view.to === 300000")


def test_events_are_stepped_through_by_keys(page: Page) -> None:
    show_timeline(page)
    page.run(f"{VIEW}.choose(arguments[0])", block(page, "sm90_xmma_gemm_bf16bf16"))
    focus(page)
    names = []
    for key in (".", ".", ".", ","):
        page.keys(key)
        names.append(page.run(f"return {VIEW}.timeline.nameOf({VIEW}.selected)"))
    assert names == ["elementwise_add", "elementwise_relu", "elementwise_relu", "elementwise_add"]
    assert "elementwise_add" in page.text("#announce")


def test_search_counts_and_steps_through_matches(page: Page) -> None:
    show_timeline(page)
    page.one(".timeline-search").send_keys("elementwise")
    assert page.text(".timeline-tools [role=status]") == "2 events"
    found = []
    for _ in range(3):
        page.keys(Keys.ENTER)
        found.append(page.run(f"return {VIEW}.timeline.nameOf({VIEW}.selected)"))
    assert found == ["elementwise_add", "elementwise_relu", "elementwise_add"]
    assert page.run(f"return {VIEW}.matches(arguments[0])", block(page, "elementwise_relu"))
    assert not page.run(f"return {VIEW}.matches(arguments[0])", block(page, "sm90_xmma_gemm_bf16bf16"))


def test_groups_fold(page: Page) -> None:
    show_timeline(page)
    before = len(page.all(".timeline-label"))
    page.click(".timeline-group")
    assert len(page.all(".timeline-label")) < before
    assert page.one(".timeline-group").get_attribute("aria-expanded") == "false"
    page.run(f"{VIEW}.showBlock(arguments[0], 0.5)", block(page, "elementwise_add"))
    page.click(".timeline-group")
    assert len(page.all(".timeline-label")) == before


# What is painted ------------------------------------------------------------------------------------------------------


def painted(page: Page, lane: str) -> list[float]:
    """Return for each column of pixels of a lane the share of its height that is not paper."""
    settle(page)
    script = f"""
        const view = {VIEW}, row = view.rows.find((one) => one.label === arguments[0]), {{painter, ratio}} = view;
        const paper = flopscope.colors.pixel(view.paper);
        const y0 = Math.round((row.y - view.scroller.scrollTop) * ratio) + ratio;
        const y1 = Math.round((row.y + row.height - view.scroller.scrollTop) * ratio) - ratio;
        const shares = [];
        for (let x = 0; x < painter.width; x++) {{
            let full = 0;
            for (let y = y0; y < y1; y++) full += painter.pixels[y * painter.width + x] !== paper;
            shares.push(full / (y1 - y0));
        }}
        return shares"""
    return list(page.run(script, lane))


def test_blocks_are_painted_where_they_are(page: Page) -> None:
    begin, end = view(page)
    columns = painted(page, "stream 7")
    width = len(columns)
    kernels = [(30, 330), (460, 640), (640, 770)]
    for x, share in enumerate(columns):
        time = (begin + (x + 0.5) / width * (end - begin)) / 1000
        slack = (end - begin) / width / 1000 * 2
        inside = any(a + slack < time < b - slack for a, b in kernels)
        outside = all(time < a - slack or time > b + slack for a, b in kernels) and abs(time) > slack  # a step begins
        assert not inside or share == 1
        assert not outside or share == 0


def test_what_is_narrower_than_a_pixel_is_as_high_as_its_share(open_report: Open) -> None:
    made = Program()
    for i in range(30_000):  # 3 of 10 µs busy, then 8 of 10
        made.add("kernel", "k", 10 * i, 3 if i < 15_000 else 8, 7, 0, device=0, stream=7)
    page = whole(open_report(made.load()))
    columns = painted(page, "stream 7")
    middle = len(columns) // 2
    steps = 1 / 16 + 0.01  # of the height of a lane
    assert all(abs(share - 0.3) < steps for share in columns[20 : middle - 20])
    assert all(abs(share - 0.8) < steps for share in columns[middle + 20 : -20])


def test_the_theme_changes_the_pictures(page: Page) -> None:
    paper = f"return [{VIEW}.paper, flopscope.colors.named('paper')]"
    light = page.run(paper)
    page.media(dark=True)
    settle(page)
    dark = page.run(paper)
    assert light[0] == light[1] == [255, 255, 255] and dark[0] == dark[1] != light[0]


# Roofline and memory --------------------------------------------------------------------------------------------------


def test_the_roofline_is_read_by_keys(page: Page) -> None:
    page.run("document.querySelector('#roofline svg').focus()")
    page.keys(Keys.ARROW_RIGHT)
    assert "aten::mm" in page.text("#announce")  # the one with the most time
    page.keys(Keys.ENTER)
    assert selected_row(page) == "aten::mm"


def test_the_memory_shows_the_peak_and_who_holds_it(page: Page) -> None:
    text = page.text("#memory")
    assert "4.00\u202fMiB" in text and "8.00\u202fMiB" in text and "as the allocator recorded it" in text
    rows = page.run(f"return {VIEW}.rows.filter((one) => one.track).map((one) => [one.label, one.track.top])")
    assert rows == [["allocated, to 4.00\u202fMiB", 4 << 20], ["reserved, to 8.00\u202fMiB", 8 << 20]]
    facts = page.run(
        f"const {{track}} = {VIEW}.rows.find((one) => one.track), at = track.start[1] + 1; "
        "return flopscope.timelineCounters.facts(track, at, at + 1)"
    )
    assert facts == [["", "allocated"], ["Counted", "4.00\u202fMiB"]]


@pytest.mark.parametrize("name", ["training", "huge", "ranks"])
def test_whole_profiles_pan_and_zoom(open_report: Open, report: Report, name: str) -> None:
    page = open_report(report(name), "#timeline")
    page.until(f"typeof flopscope === 'object' && {VIEW}")
    focus(page)
    page.keys("w", "w", "w", "d", "s", "0", ",", Keys.ENTER, ".", ".", "f", "l", "0")
    settle(page)
    assert page.run(f"return {VIEW}.selected >= 0 && {VIEW}.frames > 5") and page.text(".timeline-details dl").strip()
