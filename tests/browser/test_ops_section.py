"""The rows of Ops in Chromium: they equal the tables, whatever the order, the filter and the grouping."""

import math
from typing import Any

import pytest
from browser import Keys, Open, Page
from helpers import TRACES
from helpers.hand_traces import Program, load, op

import flopscope as fs
from flopscope.cli.program import main

TRACE = TRACES / "tutorial_naive_stack.json.gz"


@pytest.fixture(scope="module")
def trace() -> fs.Trace:
    return fs.load_trace(TRACE)


def opened(open_report: Open, results: Any) -> Page:
    page = open_report(results, "#ops")
    page.until("document.querySelector('#ops .grid .line')")
    return page


@pytest.fixture
def ops(open_report: Open, trace: fs.Trace) -> Page:
    return opened(open_report, trace)


AT_DEPTH = """return flopscope.ops.grid.lines.filter((line) => TEST).map((line) =>
    flopscope.ops.cell(line, {name: 'key'}).text)"""


def lines(page: Page) -> list[str]:
    """Return the first cells of all lines, whether they are in view or not."""
    script = "return flopscope.ops.grid.lines.map((line) => flopscope.ops.cell(line, {name: 'key'}).text)"
    return [str(text) for text in page.run(script)]


def by_time(rows: Any, name: str = "self_device_time_total") -> list[str]:
    order = sorted(range(len(rows)), key=lambda i: -getattr(rows[i], name))
    return [rows[i].key for i in order]


def by_gain(rows: Any) -> list[str]:
    """Return the names in the order of the command line: by headroom, or by time where that is unknown."""

    def gain(row: Any) -> float:
        time = float(row.self_device_time_total)
        return -math.inf if not time else time if math.isnan(row.headroom) else float(row.headroom)

    order = sorted(range(len(rows)), key=lambda i: (-gain(rows[i]), -rows[i].self_cpu_time_total))
    return [rows[i].key for i in order]


def choose(page: Page, selector: str, value: str) -> None:
    page.run(f"""const one = document.querySelector('{selector}'); one.value = {value!r};
        one.dispatchEvent(new Event('change', {{bubbles: true}}))""")


def test_ops_have_the_order_of_the_command_line(ops: Page, trace: fs.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(ops)
    assert shown == by_gain(trace.key_averages().of_kind("op"))
    header = ops.one("#ops .header [aria-sort]")
    assert header.get_attribute("aria-sort") == "descending" and header.text.startswith("Headroom")
    assert main(["table", str(TRACE), "--width", "200", "--limit", "12"]) == 0
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("aten::")]
    assert len(printed) > 5 and [name for name in shown if name.startswith("aten::")][: len(printed)] == printed


@pytest.mark.parametrize("kind, title", [("kernel", "Device work"), ("range", "Ranges"), ("all", "All")])
def test_kinds_choose_rows(ops: Page, trace: fs.Trace, kind: str, title: str) -> None:
    ops.click(f"#ops .segments [data-kind={kind}]")
    order = by_time if kind == "all" else by_gain
    assert lines(ops) == order(trace.key_averages().of_kind(kind))
    assert ops.text(f"#ops .segments [data-kind={kind}]") == title


def test_a_header_sorts_both_ways_and_unknown_stays_last(ops: Page, trace: fs.Trace) -> None:
    rows = [(row.key, row.pct_roofline) for row in trace.key_averages().of_kind("op")]
    known = [pair for pair in rows if not math.isnan(pair[1])]
    unknown = [key for key, share in rows if math.isnan(share)]
    for direction, sign in (("descending", -1), ("ascending", 1)):
        ops.run("[...document.querySelectorAll('#ops .header button')].find(b => /% roof/.test(b.textContent)).click()")
        assert lines(ops) == [key for key, _ in sorted(known, key=lambda pair: sign * pair[1])] + unknown
        assert ops.one("#ops .header [aria-sort]").get_attribute("aria-sort") == direction


def test_all_words_of_the_filter_must_occur(ops: Page, trace: fs.Trace) -> None:
    choose(ops, "#group", "shape")
    ops.until("flopscope.ops.id === 'shape' && flopscope.ops.grid.lines.length")
    ops.keys("/")
    ops.until("document.activeElement.id === 'filter'")
    ops.keys(*"MM 2048")
    table = trace.key_averages(group_by=("name", "shape")).of_kind("op")
    rows = [row for row in table if "mm" in f"{row.key} {row.input_shapes}" and "2048" in str(row.input_shapes)]
    assert 0 < len(rows) < len(table)
    ops.until(f"flopscope.ops.grid.lines.length === {len(rows)}")
    assert lines(ops) == by_gain(rows)
    assert ops.text("#ops .count") == f"{len(rows)} of {len(trace.key_averages(group_by=('name', 'shape')))} rows"
    ops.run("flopscope.ops.input.value = 'no such row'; flopscope.ops.input.dispatchEvent(new Event('input'))")
    assert "No row matches" in ops.text("#ops .nothing")


@pytest.mark.parametrize("group", ["name", "shape", "dtype", "stack", "line", "step", "category", "module"])
def test_the_filter_finds_shapes_in_every_grouping(ops: Page, trace: fs.Trace, group: str) -> None:
    table = trace.key_averages(group_by=("name", "shape")).of_kind("op")
    found = [row for row in table if "addmm" in row.key and any(512 in shape for shape in row.input_shapes)]
    size = max(max(shape) for shape in found[0].input_shapes if shape)
    of_size = {row.key for row in table if any(size in shape for shape in row.input_shapes if shape)}
    ops.click("#ops .segments [data-kind=all]")
    choose(ops, "#group", group)
    ops.until(f"flopscope.ops.id === '{group}' && flopscope.ops.grid.lines.length")
    everything = ops.run("return flopscope.ops.top")
    ops.run(f"flopscope.ops.input.value = 'addmm {size}'; flopscope.ops.input.dispatchEvent(new Event('input'))")
    assert 0 < ops.run("return flopscope.ops.top") < everything
    if group not in ("category", "module"):
        names = ops.run(AT_DEPTH.replace("TEST", "!line.depth"))
        assert all("addmm" in name for name in names) and set(names) & of_size
    if group == "name":  # open, with the shapes that it was found by
        inner = ops.run(AT_DEPTH.replace("TEST", "line.depth"))
        assert inner and all(str(size) in text for text in inner)


def test_empty_cells_say_why(open_report: Open) -> None:
    made = Program()
    made.run("aten::mm", 5, 20, 300, [4096, 4096], [4096, 4096])
    made.run("my::own_op", 40, 400, 200, [64, 64])
    made.op("aten::view", 80, 5, [64, 64])
    page = opened(open_report, made.load())
    script = """
        const texts = (line) => ['bound', 'pct_roofline'].map((name) => flopscope.ops.cell(line, {name}));
        return Object.fromEntries(flopscope.ops.grid.lines.map((line) =>
            [flopscope.ops.cell(line, {name: 'key'}).text, texts(line).map((cell) => [cell.text, cell.title])]))"""
    cells = page.run(script)
    (word, why), (number, title) = cells["my::own_op"]
    assert (word, number) == ("no rule", "–") and "no rule knows" in why and title == why
    assert cells["aten::view"][0][0] == "host only"
    assert "(no rule)" in page.text("#ops .body > .note") and "40.0%" in page.text("#ops .body > .note")
    del made.events[:]
    made.op("aten::mm", 5, 20)
    assert opened(open_report, made.load()).run(script)["aten::mm"][0][0] == "no shapes"


def test_a_row_opens_into_shapes_and_kernels(ops: Page, trace: fs.Trace) -> None:
    table = trace.key_averages(group_by=("name", "shape"), kernels=True)
    name = "aten::addmm"
    shapes = [row for row in table if row.key == name]
    assert len(shapes) > 1
    place = lines(ops).index(name)
    ops.run(f"flopscope.ops.grid.move({place})")
    ops.run("flopscope.ops.grid.element.focus()")
    ops.keys(Keys.ARROW_RIGHT)
    opened = lines(ops)[place + 1 : place + 1 + len(shapes)]
    assert all("x" in text for text in opened)
    ops.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    longest = max(shapes, key=lambda row: row.headroom)
    kernels = [kernel for kernel, _, _ in sorted(longest.kernels, key=lambda kernel: -kernel[2])]
    assert lines(ops)[place + 2 : place + 2 + len(kernels)] == kernels
    ops.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert lines(ops) == by_gain(trace.key_averages().of_kind("op"))


def test_enter_selects_and_escape_clears(ops: Page) -> None:
    ops.run("flopscope.ops.grid.element.focus()")
    ops.keys(Keys.ARROW_DOWN, Keys.ENTER)
    ops.until("flopscope.page.selected !== null")
    name = lines(ops)[1]
    assert ops.text("#ops .details h3") == name and name in ops.text("#announce")
    assert ops.text("#selection .what") == name
    assert len(ops.all("#ops .line[aria-selected=true]")) == 1
    ops.keys(Keys.ESCAPE)
    ops.until("flopscope.page.selected === null")
    assert not ops.one("#selection").is_displayed() and not ops.one("#ops .details").is_displayed()


def test_evidence_selects_its_row(ops: Page, trace: fs.Trace) -> None:
    ops.value("flopscope.page.mountAll().then(() => true)")
    ops.run("document.querySelector('#overview .evidence button.link').click()")
    ops.until("flopscope.page.selected !== null")
    assert ops.text("#ops .details h3") == trace.advice()[0].evidence[0]["op"]
    assert trace.advice()[0].action in ops.text("#ops .details")
    line = ops.run("return flopscope.ops.grid.lines.find((line) => line.key === flopscope.ops.current.key)")
    assert line["id"] in ("shape", "name")


def test_an_address_restores_the_view(open_report: Open, trace: fs.Trace) -> None:
    page = open_report(trace, "#ops?group=step&kind=all&filter=softmax&sort=-count")
    page.until("flopscope.ops && flopscope.ops.id === 'step' && flopscope.ops.grid && flopscope.ops.grid.lines.length")
    rows = [row for row in trace.key_averages(group_by=("name", "step")) if "softmax" in row.key]
    assert len(lines(page)) == len(rows) and page.run("return document.getElementById('filter').value") == "softmax"


def test_columns_are_chosen(ops: Page) -> None:
    ops.click("#ops .menu > button")
    labels = "[...document.querySelectorAll('#columns-panel label')]"
    ops.run(f"{labels}.find((one) => /^Bytes read/.test(one.textContent)).querySelector('input').click()")
    assert "Bytes read" in ops.texts("#ops .header [role=columnheader]")
    ops.click("#columns-panel > button")
    assert "Bytes read" not in ops.texts("#ops .header [role=columnheader]")


def test_thousands_of_rows_are_a_few_elements(open_report: Open) -> None:
    page = opened(open_report, load(*(op(f"op{i}", 10 * i, 1 + i % 7) for i in range(15_000))))
    assert page.run("return flopscope.ops.grid.lines.length") == 15_000
    assert len(page.all("#ops .line")) < 100
    page.run("flopscope.ops.grid.element.scrollTop = 1e9")
    page.until("document.getElementById('ops-row-14999')")
    assert len(page.all("#ops .line")) < 100
