"""key_averages(group_by=…): rows by step, stream, line, dtype, category and module, held against sums made here."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT
from helpers import TRACES as FOLDER
from helpers.hand_traces import event, op, text_of

import flopscope as fs
from flopscope.cli.program import main
from flopscope.results.categories import sums_of_groups
from flopscope.results.groups import GROUPINGS, ModuleTable

NOTEBOOKS = ROOT / "notebooks" / "data"
MAIN, BACKWARD = 100, 200
LINE = "train.py(12): train"


class Recording:
    """A trace of a small training run, and what is known of each of its events by construction."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.events: list[dict[str, Any]] = []
        self.facts: list[dict[str, Any]] = []
        self.now = 1000
        self.node = 40
        self.step = ""
        self.calls: Counter[str] = Counter()

    def event(self, cat: str, name: str, tid: int, begin: int, end: int, pid: int = 1, **args: Any) -> None:
        self.events.append(event(cat, name, begin / 1000, (end - begin) / 1000, tid, pid, **args))

    def span(self, cat: str, name: str, tid: int, inside: Callable[[], None], **args: Any) -> int:
        """Record an event around others; return its duration."""
        begin = self.now
        self.now += 10
        inside()
        self.now += 10
        self.event(cat, name, tid, begin, self.now, **args)
        self.now += self.random.randrange(5)
        return self.now - begin

    def op(self, name: str, tid: int, module: str | None, line: str | None, **args: Any) -> None:
        dtype, size = self.random.choice(("float", "c10::Half")), self.random.choice((8, 16))
        stream, ns = self.random.choice((7, 13)), self.random.randrange(100, 900)
        number = len(self.events) + 1

        def launch() -> None:
            self.event("cuda_runtime", "cudaLaunchKernel", tid, self.now, self.now + 5, correlation=number)
            self.now += 6
            place = {"device": 0, "stream": stream, "correlation": number}
            self.event("kernel", "k", stream, self.now + 50_000, self.now + 50_000 + ns, pid=0, **place)

        shapes = {"Input Dims": [[size, size], [size, size]], "Input type": [dtype, dtype]}
        self.span("cpu_op", name, tid, launch, **shapes, **args)
        fact = {"step": self.step, "module": module, "line": line, "stream": f"cuda:0 stream {stream}"}
        shown = {"float": "float32, float32", "c10::Half": "float16, float16"}[dtype]
        flops = 2 * size**3 if name == "aten::mm" else size**2
        self.facts.append({**fact, "name": name, "dtype": shown, "ns": ns, "flops": flops})

    def module(self, path: str, inside: Callable[[], None]) -> None:
        def call() -> None:
            self.span("python_function", "torch/nn/modules/module.py(1): _call_impl", MAIN, inside)

        self.calls[path] += 1
        self.span("python_function", f"nn.Module: {path.split('/')[-1]}", MAIN, call)

    def forward(self, path: str, name: str, nodes: list[tuple[int, str, str]]) -> None:
        self.node += 1
        nodes.append((self.node, path, name))
        self.op(name, MAIN, path, LINE, **{"Sequence number": self.node, "Fwd thread id": 0})

    def train(self, steps: int = 3) -> Recording:
        for step in range(steps):
            self.step = f"ProfilerStep#{step}"
            nodes: list[tuple[int, str, str]] = []

            def net(nodes: list[tuple[int, str, str]] = nodes) -> None:
                self.forward("Net_0", "aten::add", nodes)
                for path in ("Net_0/Linear_0", "Net_0/Linear_1", "Net_0/Linear_0"):
                    self.module(path, lambda path=path: self.forward(path, "aten::mm", nodes))

            def train(nodes: list[tuple[int, str, str]] = nodes) -> None:
                self.module("Net_0", net)
                for node, path, name in reversed(nodes):  # on torch's backward thread
                    numbers = {"Sequence number": node, "Fwd thread id": 1}
                    outer = "autograd::engine::evaluate_function: Backward0"
                    self.span("cpu_op", outer, BACKWARD, partial(self.op, name, BACKWARD, path, None), **numbers)
                outer = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                self.span("cpu_op", outer, BACKWARD, lambda: self.op("aten::add", BACKWARD, None, None))

            self.span("user_annotation", self.step, MAIN, partial(self.span, "python_function", LINE, MAIN, train))
        return self

    def load(self, **head: Any) -> fs.Trace:
        return fs.load_trace(text_of(*self.events, with_stack=1, record_shapes=1, **head))


def sums(facts: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """Return calls, device time in ns and FLOPs by these keys."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for fact in facts:
        sum_ = found[tuple(fact[key] for key in keys)]
        sum_[0] += 1
        sum_[1] += fact["ns"]
        sum_[2] += fact["flops"]
    return {key: (sum_[0], sum_[1], sum_[2]) for key, sum_ in found.items()}


def ns(microseconds: float) -> int:
    return round(1000 * microseconds)


@pytest.mark.parametrize("word", ["step", "line", "module", "dtype"])
@pytest.mark.parametrize("seed", [0, 1])
def test_ops_are_grouped_by(word: str, seed: int) -> None:
    recording = Recording(seed).train()
    trace = recording.load()
    words = ["name", word] if word == "module" else word
    found = {}
    for row in trace.key_averages(group_by=words, peaks="none"):
        if row.key in ("aten::mm", "aten::add"):
            place = (row.key, row.group if word == "dtype" else getattr(row, word))
            found[place] = (row.count, ns(row.self_device_time_total), row.flops)
    assert found == sums(recording.facts, "name", word)


def test_kernels_are_grouped_by_their_stream_and_by_what_launched_them() -> None:
    recording = Recording().train()
    table = recording.load().key_averages(group_by=["name", "stream", "step", "module"], peaks="none")
    work = [row for row in table if row.device_type == "cuda"]
    kernels = {(row.stream, row.step, row.module): (row.count, ns(row.self_device_time_total)) for row in work}
    expected = sums(recording.facts, "stream", "step", "module")
    assert kernels == {key: (count, time) for key, (count, time, _) in expected.items()}
    assert all(row.stream is None for row in table if row.device_type == "cpu")


def test_the_tree_of_modules_has_totals_with_submodules_and_the_backward_pass() -> None:
    recording = Recording().train()
    table = recording.load().key_averages(group_by="module", peaks="none")
    assert isinstance(table, ModuleTable)
    assert [row.module for row in table] == ["Net_0", "Net_0/Linear_0", "Net_0/Linear_1", "(no module)"]
    own = {path: (time, flops) for (path,), (_, time, flops) in sums(recording.facts, "module").items()}
    for row in table:
        path = None if row.module == "(no module)" else row.module
        assert (ns(row.self_device_time_total), row.flops) == own[path]
        nested = [own[other] for other in own if other == path or (path and other and other.startswith(f"{path}/"))]
        assert ns(row.device_time_total) == sum(time for time, _ in nested)
        assert row.flops_total == sum(flops for _, flops in nested) and row.module_calls == recording.calls[path or ""]
    assert [row.module_depth for row in table] == [0, 1, 1, 0]
    assert table[:1][0].module == "Net_0" and table.largest(2)[0].key == "Net_0"
    by_time = table.sorted("self_device_time_total")
    inner = [row.self_device_time_total for row in by_time if row.module_depth == 1]
    assert inner == sorted(inner, reverse=True) and {row.key for row in by_time} == {row.key for row in table}
    lines = str(table).splitlines()
    assert lines[0].split()[:2] == ["Module", "Calls"] and lines[3].startswith("  Linear_0 ")
    assert all(len(line) <= 120 for line in lines)


def test_threads_with_equal_sequence_numbers_are_told_apart() -> None:
    recording = Recording()
    numbers = {MAIN: range(10, 16), MAIN + 1: range(14, 24)}
    for thread, name in ((MAIN, "A_0"), (MAIN + 1, "B_0")):
        for number in numbers[thread]:
            product = partial(recording.op, "aten::mm", thread, name, None, **{"Sequence number": number})
            recording.span("user_annotation", f"nn.Module: {name}", thread, product)
    for torch_thread, thread, name in ((1, MAIN, "A_0"), (5, MAIN + 1, "B_0")):
        for number in numbers[thread]:
            node = {"Sequence number": number, "Fwd thread id": torch_thread}
            recording.op("aten::mm", BACKWARD, name, None, **node)
    recording.op("aten::mm", BACKWARD, None, None, **{"Sequence number": 99, "Fwd thread id": 1})
    table = recording.load().key_averages(group_by=["name", "module"], peaks="none")
    found = {row.module: row.count for row in table if row.key == "aten::mm"}
    assert found == {"A_0": 12, "B_0": 20, None: 1}


def test_links_of_the_backward_pass_are_those_of_kineto() -> None:
    """Each op at the start of a "fwdbwd" arrow is wrapped in a module of its own, where the arrow's end must belong."""
    trace = json.loads(gzip.decompress((NOTEBOOKS / "tutorial_train.json.gz").read_bytes()))
    arrows: dict[int, dict[str, Any]] = defaultdict(dict)
    ops: dict[tuple[int, float], dict[str, Any]] = {}
    for each in trace["traceEvents"]:
        if each.get("cat") == "fwdbwd":
            arrows[each["id"]][each["ph"]] = (each["tid"], each["ts"])
        elif each.get("cat") == "cpu_op" and "Sequence number" in each["args"]:
            place = (each["tid"], each["ts"])
            if place not in ops or each["dur"] > ops[place]["dur"]:
                ops[place] = each
    expected: Counter[tuple[str, str]] = Counter()
    for number, arrow in arrows.items():
        begin, end = ops[arrow["s"]], ops[arrow["f"]]
        wrapper = {**begin, "cat": "user_annotation", "name": f"nn.Module: F{number}", "args": {}}
        trace["traceEvents"].insert(0, wrapper)
        expected[end["name"], f"F{number}"] += 1
    assert len(arrows) > 150 and len({end for end, _ in expected}) > 5
    text = json.dumps(trace).encode()
    table = fs.load_trace(text).key_averages(group_by=["name", "module"], peaks="none")
    found = {
        (row.key, path[-1]): row.count
        for row in table
        if row.module and row.key in {name for name, _ in expected} and (path := row.module.split("/"))
    }
    assert found == expected


def test_ranges_named_as_modules_are_modules() -> None:
    for name in ("nn.Module: Block_3", "layers.0.attention", "Block_12", "Torch-Compiled Region: 0/0"):
        with fs.profile() as prof, fs.record_function(name):
            fs.sin(fs.ones((4,)))
        (row,) = prof.key_averages(group_by="module", peaks="none")[:1]
        assert row.key == name.removeprefix("nn.Module: ") and row.module_calls == 1 and row.flops == 4
    others = ("my range", "forward", "Optimizer.step#SGD.step", "enumerate(DataLoader)#_Single.__next__")
    for name in (*others, "block_1_", ".", "a..b"):
        with fs.profile() as prof, fs.record_function(name):
            fs.sin(fs.ones((4,)))
        with pytest.raises(ValueError, match=r"no modules are recorded; .*with_stack=True"):
            prof.key_averages(group_by="module", peaks="none")


def test_modules_may_be_nested_deeply() -> None:
    recording, depth = Recording(), 3000
    for level in range(depth):
        name = f"nn.Module: Deep{'r' * 20}_{level}"
        recording.event("user_annotation", name, MAIN, 1000 + level, 100_000 - level)
    recording.now = 50_000
    recording.op("aten::mm", MAIN, None, None)
    table = recording.load().key_averages(group_by="module", peaks="none")
    assert len(table) == depth and table[depth - 1].module_depth == depth - 1
    assert table[0].device_time_total == table[depth - 1].self_device_time_total > 0
    assert max(len(row.module) for row in table) < 5000 and all(len(line) <= 120 for line in str(table).splitlines())


# Sums ---------------------------------------------------------------------------------------------------------------

TRACES = [
    *(FOLDER / f"{name}.json.gz" for name in ("tutorial_naive_stack", "tutorial_optimised", "tracking_flops")),
    NOTEBOOKS / "tutorial_train.json.gz",
]
WORDS: list[Any] = [
    *(*GROUPINGS, ["name", "step", "stream", "dtype"], ["name", "module", "line"]),
    *(["category", "step"], ["module", "category"], ["shape", "category"]),
]
ADDITIVE = ("self_cpu_time_total", "self_device_time_total", "flops", "bytes_total_moved", "self_cpu_memory_usage")


def columns_of(table: fs.EventTable, *places: str) -> dict[Any, dict[str, float]]:
    """Return the sums of the additive columns over the rows of each kind, without unknown values."""
    found: dict[Any, dict[str, float]] = defaultdict(lambda: dict.fromkeys(("count", *ADDITIVE), 0))
    for row in table:
        kind = tuple(getattr(row, place) for place in places)
        found[kind]["count"] += row.count
        for column in ADDITIVE:
            value = getattr(row, column)
            scale = 1000 if "time" in column else 1
            found[kind][column] += 0 if math.isnan(value) else round(scale * value)
    return dict(found)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words if isinstance(words, str) else "+".join(words))
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_sums_over_groups_are_those_of_the_ungrouped_table(path: Path, words: Any) -> None:
    trace = fs.load_trace(path)
    try:
        table = trace.key_averages(group_by=words, peaks="none")
    except ValueError as error:
        assert "group_by" in str(error)
        return
    plain = trace.key_averages(peaks="none")
    if "name" in words or not {"module", "category"} & ({words} if isinstance(words, str) else set(words)):
        places = ("key", "device_type", "is_user_annotation")
        expected, found = columns_of(plain, *places), columns_of(table, *places)
        for kind in {tuple(getattr(row, place) for place in places) for row in plain if math.isnan(row.flops)}:
            for column in ("flops", "bytes_total_moved"):  # groups without an unknown call have known sums
                expected[kind][column] = found[kind][column]
        assert found == expected
        return
    if "shape" in words:
        return
    host = [row for row in plain if row.device_type == "cpu"]
    on_host = [row for row in table if row.device_type == "cpu"]
    assert sum(row.count for row in on_host) == sum(row.count for row in host)
    assert ns(math.fsum(row.self_device_time_total for row in table)) == ns(plain.self_device_time_total)
    assert ns(math.fsum(row.self_cpu_time_total for row in table)) == ns(plain.self_cpu_time_total)
    exact = trace.key_averages(group_by=["name", *([words] if isinstance(words, str) else words)], peaks="none")
    for column in ("flops", "bytes_total_moved"):
        known = [getattr(row, column) for row in exact if row.device_type == "cpu" and not row.is_user_annotation]
        assert math.fsum(v for v in known if v == v) == math.fsum(w for r in on_host if (w := getattr(r, column)) == w)


# Errors, exports and the command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("shapes", r"group_by must be one or several of name, shape, .*; got 'shapes'"), (["name", 3], r"got 3"),
        (["module", "stream"], "ops, which have no stream"),
        ("stack", "no stacks are recorded without with_stack=True"),
        ("line", "no stacks are recorded without with_stack=True"), ("step", r"no steps are recorded; prof.step\(\)"),
        ("stream", "no device work is recorded"), ("shape", "no input shapes are recorded without record_shapes=True"),
    ],
)  # fmt: skip
def test_what_was_not_recorded_is_an_error_that_names_the_option(words: Any, message: str) -> None:
    with fs.profile() as prof:
        fs.sin(fs.ones((4,)))
    with pytest.raises(ValueError, match=message):
        prof.key_averages(group_by=words, peaks="none")


def test_groups_are_columns_of_data_frames_and_files(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    trace = Recording().train().load()
    table = trace.key_averages(group_by=["name", "step", "stream"], peaks="none")
    frame = table.to_pandas()
    assert list(frame.columns)[-2:] == ["step", "stream"] and list(frame["step"]) == [row.step for row in table]
    assert table.to_dicts()[0]["step"] == table[0].step
    modules = trace.key_averages(group_by="module", peaks="none")
    assert list(modules.to_pandas()["module"])[:2] == ["Net_0", "Net_0/Linear_0"]
    path = tmp_path / "trace.json"
    path.write_bytes(text_of(*Recording().train().events, with_stack=1))
    out = tmp_path / "rows.json"
    assert main(["table", str(path), "--group-by", "name,step", "--json", str(out)]) == 0
    assert {row["step"] for row in json.loads(out.read_text())["rows"]} >= {"ProfilerStep#0", "ProfilerStep#2"}


def test_overloads_share_a_row_unless_rows_are_grouped_by_them() -> None:
    """Only names of the form that torch's ops have are parted: a space of names, the op, and its overload."""
    names = ("aten::add", "aten::add.Tensor", "aten::add.out", "my_lib::op.default")
    names += ("a::b::c.d", "aten::add.x y", "x.y")
    within = op("aten::add.Scalar", 1, 2)  # an only child is merged with its parent
    trace = fs.load_trace(text_of(*(op(name, 10 * i, 5) for i, name in enumerate(names)), within))
    rows = [(row.key, row.overload_name, row.count) for row in trace.key_averages()]
    others = [("a::b::c.d", "", 1), ("aten::add.x y", "", 1), ("x.y", "", 1)]
    assert rows == [("aten::add", "", 3), ("my_lib::op", "", 1), *others]
    rows = [(row.key, row.overload_name, row.count) for row in trace.key_averages(group_by_overload_name=True)]
    adds = [("aten::add", overload, 1) for overload in ("", "Tensor", "out")]
    assert rows == [*adds, ("my_lib::op", "default", 1), *others]


INTEGERS = ("count", "self_cpu_memory_usage", "cpu_memory_usage", "self_device_memory_usage", "device_memory_usage")
NUMBERS = (
    "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total", "device_busy_time",
    "flops", "bytes_read", "bytes_written", "bytes_total_moved", "roofline_time", "headroom", "tflops_per_s",
    "gbytes_per_s", "pct_peak_flops", "pct_peak_bandwidth", "pct_roofline",
)  # fmt: skip
ROWS, GROUPS = 300, 7


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("ops_have_work", [False, True])
def test_nested_groups_add_up_what_is_known_of_their_rows(ops_have_work: bool, on_device: bool) -> None:
    """Ranges have work of their own only where no op of a group has any: theirs is that of the ops inside."""
    rng = np.random.default_rng(4 * ops_have_work + on_device)
    columns: dict[str, Any] = {name: rng.integers(-300, 700, ROWS) for name in INTEGERS}
    columns |= {name: np.where(rng.random(ROWS) < 1 / 7, np.nan, rng.random(ROWS) * 1e6) for name in NUMBERS}
    ranges = columns["is_user_annotation"] = rng.random(ROWS) < 0.25
    columns["count"] = rng.integers(0, 9, ROWS)
    if not ops_have_work:
        for name in ("flops", "bytes_read", "bytes_written", "bytes_total_moved"):
            columns[name][~ranges] = np.nan
    parents = [-1, -1, -1, *(int(rng.integers(0, group)) for group in range(3, GROUPS))]
    groups = rng.integers(-1, GROUPS, ROWS)
    found = sums_of_groups(columns, groups.tolist(), parents, on_device)
    lists = {name: values.tolist() for name, values in columns.items()}
    assert repr(sums_of_groups(lists, groups.tolist(), parents, on_device)) == repr(found)
    works = ~ranges if ops_have_work else np.ones(ROWS, bool)
    time = columns["roofline_time"] + columns["headroom"]
    elapsed = np.where(ranges, columns["cpu_time_total"], columns["self_cpu_time_total"])
    if on_device:
        elapsed = columns["device_busy_time"]

    def total(name: str, rows: Any) -> float:
        known = columns[name][rows & ~np.isnan(columns[name])]
        return float(known.sum()) if len(known) else math.nan

    def mean(name: str, rows: Any) -> float:
        rows = rows & ~np.isnan(columns[name] + time)
        return float(np.average(columns[name][rows], weights=time[rows])) if rows.any() else math.nan

    def rate(work: str, name: str, rows: Any) -> float:
        rows = rows & ~np.isnan(columns[name]) & (elapsed > 0)
        return float(np.nansum(columns[work][rows]) / elapsed[rows].sum()) if rows.any() else math.nan

    for group in range(GROUPS):
        inside = {group}
        for inner in range(group + 1, GROUPS):
            inside |= {inner} if parents[inner] in inside else set()
        here, within = groups == group, np.isin(groups, list(inside))
        expected = {
            "rows": within.sum(), "count": columns["count"][here].sum(),
            "cpu_memory_usage": columns["self_cpu_memory_usage"][within].sum(),
            "self_cpu_time_total": total("self_cpu_time_total", here),
            "device_time_total": total("self_device_time_total", within),
            "device_busy_time": total("device_busy_time", here & works), "flops": total("flops", here & works),
            "flops_total": total("flops", within & works), "headroom": total("headroom", here & works),
            "bytes_read": total("bytes_read", here & works), "roofline_time": total("roofline_time", here & works),
            "pct_peak_flops": mean("pct_peak_flops", here & works),
            "pct_roofline_total": mean("pct_roofline", within & works),
            "tflops_per_s": rate("flops", "tflops_per_s", here & works) / 1e6,
            "gbytes_per_s": rate("bytes_total_moved", "gbytes_per_s", here & works) / 1e3,
        }  # fmt: skip
        assert {name: found[name][group] for name in expected} == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_device_time_of_no_group_is_one_more_sum() -> None:
    columns = {"count": [600, 600], "self_device_time_total": [100.0, 200.0]}
    found = sums_of_groups(columns, [0, 1], [-1, -1], device_time=600.0)
    assert found["device_busy_time"][2] == 300 and math.isnan(found["flops"][2])
    # 0.001 µs for each of the calls are a matter of rounding.
    assert len(sums_of_groups(columns, [0, 1], [-1, -1], device_time=300.5)["count"]) == 2


def test_work_of_absent_columns_is_unknown_and_integers_beyond_int64_are_its_largest() -> None:
    found = sums_of_groups({"count": [2, 3]}, [0, 0])
    assert found["count"] == [5] and found["self_cpu_time_total"] == [0.0] and np.isnan(found["flops"][0])
    assert sums_of_groups({}, [], [])["count"] == []
    assert sums_of_groups({"count": [2**63 - 1, 2**63 - 1]}, [0, 0], [-1])["count"] == [2**63 - 1]
