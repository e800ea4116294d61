"""Python stacks: the recorded frames, their names, and their use in tables and flame graphs."""

import contextlib
import csv
import functools
import gc
import json
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.tables import make_table
from helpers.view_texts import Tags, header_of

import flopscope as fs
from flopscope import _core
from flopscope.results.exports import export_stacks
from flopscope.results.table import COLUMNS

WHOLE = 1000


@contextlib.contextmanager
def stacks_recorded() -> Iterator[Any]:
    """Record stacks in a block, and stop the recorder when the block ends."""
    core: Any = _core.Profiler(with_stack=True)
    core.start()
    try:
        yield core
    finally:
        if core.running:
            core.stop()


def stacks(core: Any, key: str, depth: int = WHOLE) -> list[tuple[list[str], int]]:
    """Return (stack, calls) of each row with this name."""
    columns, meta = core.table(False, depth, {})
    rows = zip(columns["key"], meta["stacks"], columns["count"], strict=True)
    return [(stack, int(count)) for name, stack, count in rows if name == key]


def entry(fn: Callable[..., object] | types.CodeType) -> str:
    """Return the name of a frame of the function: the path below the deepest folder of sys.path, first line, name."""
    code = fn if isinstance(fn, types.CodeType) else fn.__code__  # type: ignore[attr-defined]
    holding = [folder for folder in sys.path if folder and code.co_filename.startswith(os.path.join(folder, ""))]
    path = os.path.relpath(code.co_filename, max(holding, key=len)) if holding else code.co_filename
    return f"{path}({code.co_firstlineno}): {code.co_name}"


HERE = entry(stacks).split("(")[0]


def names(stack: list[str]) -> list[str]:
    """Return the functions of this file in a stack, innermost first."""
    return [text.split(": ")[1] for text in stack if text.startswith(f"{HERE}(")]


def functions(core: Any, key: str) -> list[list[str]]:
    """Return the functions of this file in the stacks of an op."""
    return [names(stack) for stack, _ in stacks(core.store, f"flopscope::{key}")]


# Frames -------------------------------------------------------------------------------------------------------------


def test_an_op_has_the_stack_of_its_callers(x: fs.Tensor) -> None:
    def inner() -> None:
        fs.sin(x)

    def outer() -> None:
        inner()
        fs.cos(x)

    with stacks_recorded() as core:
        outer()
        inner()
    sines = stacks(core.store, "flopscope::sin")
    here = entry(test_an_op_has_the_stack_of_its_callers)
    assert sines[0][0][:3] == [entry(inner), entry(outer), here] and sines[1][0][:2] == [entry(inner), here]
    assert [stack[:2] for stack, _ in stacks(core.store, "flopscope::cos")] == [[entry(outer), here]]
    assert len(sines) == 2 and core.store.dropped == 0
    by_one = stacks(core.store, "flopscope::sin", 1)
    assert by_one == [([entry(inner)], 2)], "rows are grouped by the requested number of frames"
    assert "stacks" not in core.store.table(False, 0, {})[1]


def test_each_call_is_a_frame_until_it_returns_or_raises(x: fs.Tensor) -> None:
    def fails(depth: int) -> None:
        fs.cos(x)
        if depth == 0:
            raise ValueError
        fails(depth - 1)

    with stacks_recorded() as core:
        for _ in range(3):
            with contextlib.suppress(ValueError):
                fails(199)
            fs.sin(x)
    this = "test_each_call_is_a_frame_until_it_returns_or_raises"
    assert [(names(stack)[0], count) for stack, count in stacks(core.store, "flopscope::sin")] == [(this, 3)]
    assert sorted(stack.count("fails") for stack in functions(core, "cos")) == list(range(1, 201))


def test_a_generator_is_a_frame_while_it_runs(x: fs.Tensor) -> None:
    def numbers() -> Iterator[int]:
        for i in range(3):
            fs.sin(x)
            yield i

    def relay() -> Iterator[int]:
        yield from numbers()

    with stacks_recorded() as core:
        for _ in relay():
            fs.cos(x)
        unfinished = numbers()
        next(unfinished)
        unfinished.close()
        with contextlib.suppress(KeyError):
            next(thrown := numbers())
            thrown.throw(KeyError)
        fs.exp(x)
    this = "test_a_generator_is_a_frame_while_it_runs"
    assert sorted((names(stack)[:3], count) for stack, count in stacks(core.store, "flopscope::sin")) == [
        (["numbers", "relay", this], 3), (["numbers", this], 2),
    ]  # fmt: skip
    assert functions(core, "cos") == [[this]] and functions(core, "exp") == [[this]]


def test_decorators_are_frames_except_those_of_flopscope(x: fs.Tensor) -> None:
    def twice(fn: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(fn)
        def wrapper() -> None:
            fn()
            fn()

        return wrapper

    @twice
    @fs.record_function("part")
    def work() -> None:
        fs.sin(x)

    with fs.profile(with_stack=True) as prof:
        work()
        sorted([2, 1], key=lambda v: (fs.cos(x), v)[1])
    stacks_by_op = {row.key: (row.stack, row.count) for row in prof.key_averages(group_by_stack_n=WHOLE)}
    stack, count = stacks_by_op["flopscope::sin"]
    assert names(stack)[:2] == ["work", "wrapper"] and count == 2
    assert names(stacks_by_op["flopscope::cos"][0])[0] == "<lambda>"
    assert not any("flopscope" + os.sep in text or "sorted" in text for text in stack)


def test_threads_have_separate_stacks(x: fs.Tensor) -> None:
    begun, go = threading.Event(), threading.Event()

    def early() -> None:
        begun.set()
        go.wait(60)
        fs.sin(x)

    def late() -> None:
        fs.cos(x)

    old = threading.Thread(target=early)
    old.start()
    begun.wait(60)
    with stacks_recorded() as core:
        new = threading.Thread(target=late)
        new.start()
        new.join()
        go.set()
        old.join()
    for key, fn in (("flopscope::sin", early), ("flopscope::cos", late)):
        ((stack, _),) = stacks(core.store, key)
        assert stack[0] == entry(fn) and stack[1].endswith(": run") and stack[-1].endswith(": _bootstrap")
        assert names(stack) == [fn.__name__], "frames of different threads do not mix"
    assert core.store.dropped == 0


def test_calls_in_progress_at_start_and_stop_are_frames(x: fs.Tensor) -> None:
    core: Any = _core.Profiler(with_stack=True)

    def starts() -> None:
        core.start()
        fs.sin(x)

    def stops() -> None:
        fs.cos(x)
        core.stop()

    def after() -> None:
        fs.exp(x)

    starts()
    stops()
    after()
    assert functions(core, "sin")[0][0] == "starts"
    assert functions(core, "cos") == [["stops", "test_calls_in_progress_at_start_and_stop_are_frames"]]
    columns, meta = core.store.table(False, 0, {})
    assert meta["open_events"] == 0 and "flopscope::exp" not in columns["key"]


def test_stacks_do_not_change_where_ranges_end(x: fs.Tensor) -> None:
    @contextlib.contextmanager
    def keep_open() -> Iterator[None]:
        with fs.record_function("keep_open"):
            yield
            fs.exp(x)

    def batches() -> Iterator[int]:
        for i in range(2):
            with fs.record_function("batch"):
                yield i

    def program() -> None:
        for _ in batches():
            with keep_open():
                fs.sin(x)
            fs.cos(x)

    def rows(with_stack: bool) -> dict[str, tuple[int, float, bool]]:
        with fs.profile(with_stack=with_stack) as prof:
            program()
        return {row.key: (row.count, row.flops_total, row.top_level) for row in prof.key_averages(peaks="none")}

    assert rows(True) == rows(False)
    assert rows(True)["keep_open"] == (2, 2 * 2 * 64, False) and rows(True)["batch"][1] == 2 * 3 * 64


# The profile function -----------------------------------------------------------------------------------------------


def test_the_profile_function_is_removed() -> None:
    hook = threading.getprofile()
    with stacks_recorded():
        assert sys.getprofile() is None and threading.getprofile() is not hook
    assert sys.getprofile() is None and threading.getprofile() is hook
    core: Any = _core.Profiler(with_stack=True)
    core.start()
    del core
    gc.collect()
    assert threading.getprofile() is hook
    with stacks_recorded() as second:
        pass
    assert second.store.event_count > 0


def test_functions_are_released_when_it_stops() -> None:
    space: dict[str, Any] = {}
    exec("def function(): pass", space)
    with stacks_recorded() as core:
        space["function"]()
        code = weakref.ref(space["function"].__code__)
        space.clear()
        gc.collect()
        assert code() is not None, "another function could reuse the address"
    assert code() is None and core.store.dropped == 0


def test_another_profiler_is_not_replaced() -> None:
    seen: list[str] = []

    def profiler(frame: object, event: str, arg: object) -> None:
        seen.append(event)

    core: Any = _core.Profiler(with_stack=True)
    sys.setprofile(profiler)
    try:
        with pytest.raises(RuntimeError, match=r"another profiler uses it \(<function .*profiler"):
            core.start()
        assert sys.getprofile() is profiler and not core.running
    finally:
        sys.setprofile(None)
    assert seen
    with fs.profile():
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_not_traced() -> None:
    def call() -> None:
        pass

    with stacks_recorded() as core:
        child = os.fork()
        if child == 0:
            before = core.store.event_count  # includes the fork handlers that ran in the parent
            for _ in range(3):
                call()
            os._exit(0 if core.store.event_count == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("name", ["µ → 🚀.py", "a b;c.py", "%s.py", "lone \udc80.py"])
def test_any_file_name_is_shown(name: str, x: fs.Tensor) -> None:
    code = compile("def function(): sin(x)", f"/nowhere/{name}", "exec")
    space: dict[str, Any] = {"sin": fs.sin, "x": x}
    exec(code, space)
    with stacks_recorded() as core:
        space["function"]()
    shown = f"/nowhere/{name}(1): function".encode("utf-8", "replace").decode()
    assert stacks(core.store, "flopscope::sin", 1) == [([shown], 1)]


def test_frames_are_named_as_torch_names_them(x: fs.Tensor) -> None:
    torch = pytest.importorskip("torch")
    y = torch.ones(8)

    def inner(add: Callable[[Any, Any], Any], a: Any) -> None:
        add(a, a)

    def outer(add: Callable[[Any, Any], Any], a: Any) -> None:
        inner(add, a)

    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, with_stack=True, experimental_config=config) as prof:
        outer(torch.add, y)
    theirs = next(event.stack for event in prof.events() if event.name == "aten::add")
    with stacks_recorded() as core:
        outer(fs.add, x)
    ours = stacks(core.store, "flopscope::add", 2)[0][0]
    assert ours == [text for text in theirs if not text.startswith("<built-in")][:2]


# Views --------------------------------------------------------------------------------------------------------------

STACKS = [["model.py(12): forward", "train.py(3): step", "train.py(20): <module>"], ["a" * 90 + ".py(1): f"], []]
ROWS = [
    {"key": "aten::mm", "count": 2, "self_cpu_time_total": 10.0, "cpu_time_total": 12.5, "flops": 64.0},
    {"key": "aten::mm", "count": 1, "self_cpu_time_total": 1500.0, "cpu_time_total": 2000.0},
    {"key": "outer", "is_user_annotation": True, "self_cpu_time_total": 30.0, "cpu_time_total": 42.0},
]


@pytest.mark.parametrize("width", [75, 30, 10, 3, None])
def test_text_with_stacks_equals_the_text_of_torch(width: int | None) -> None:
    pytest.importorskip("torch")
    from torch.autograd import DeviceType
    from torch.autograd.profiler_util import EventList, FunctionEventAvg

    events = []
    for row, stack in zip(ROWS, STACKS, strict=True):
        event = FunctionEventAvg()
        event.key, event.count, event.stack = row["key"], row.get("count", 1), stack
        event.cpu_time_total, event.self_cpu_time_total = row["cpu_time_total"], row["self_cpu_time_total"]
        event.input_shapes, event.overload_name, event.device_type = "", "", DeviceType.CPU
        event.is_legacy, event.is_async, event.node_id = False, False, -1
        event.is_user_annotation, event.use_device = row.get("is_user_annotation", False), None
        events.append(event)
    theirs = EventList(events, use_device=None, profile_memory=False, with_flops=False)
    ours = make_table(*ROWS, stacks=STACKS)
    options: dict[str, Any] = {"row_limit": -1, "max_src_column_width": width}
    assert ours.table(**options, roofline=False) == theirs.table(**options)
    by_time = {"sort_by": "self_cpu_time_total", **options}
    assert ours.table(**by_time, roofline=False) == theirs.table(**by_time)


def test_stacks_precede_the_columns_of_flopscope_and_are_optional() -> None:
    text = make_table(*ROWS, stacks=STACKS).table()
    assert header_of(text)[-8:-6] == ["Source Location", "FLOPs"]
    lines = text.splitlines()[3:-2]
    assert len(lines) == 3 + 2 + 3 and lines[1].strip() == STACKS[0][1] and lines[3].strip() == ""
    assert len({len(line) for line in lines}) == 1
    table = make_table(*ROWS, stacks=STACKS)
    assert [row.stack for row in table] == STACKS and [row.stack for row in table[1:]] == STACKS[1:]
    assert [row.stack for row in table.sorted("self_cpu_time_total")] == [STACKS[1], STACKS[2], STACKS[0]]
    assert make_table(*ROWS)[0].stack == [] and make_table(*ROWS).stacks is None
    assert "Source Location" not in make_table(*ROWS).table()
    assert "Source Location" not in make_table(*ROWS, stacks=[[], [], []]).table()
    parsed = Tags(make_table(*ROWS, stacks=[["<script>.py(1): f", "b.py(2): g"], [], []])._repr_html_())
    assert "script" not in parsed.tags and "<script>.py(1): f\nb.py(2): g" in parsed.texts
    assert 'class="stack"' not in make_table(*ROWS)._repr_html_()


def test_records_have_a_stack_only_if_grouped_by_stack(tmp_path: Path) -> None:
    table, columns = make_table(*ROWS, stacks=STACKS), [column.name for column in COLUMNS]
    assert list(table.to_dicts()[0]) == [*columns, "stack"] and table.to_dicts()[0]["stack"] == STACKS[0]
    assert list(make_table(*ROWS).to_dicts()[0]) == columns
    table.to_csv(tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        assert [json.loads(row["stack"]) for row in csv.DictReader(file)] == STACKS
    pytest.importorskip("pandas")
    assert list(table.to_pandas().columns) == [*columns, "stack"] and list(table.to_pandas()["stack"]) == STACKS
    assert list(make_table(*ROWS).to_pandas().columns) == columns


# Folded stacks ------------------------------------------------------------------------------------------------------


def example_store() -> Any:
    """Return a store: main calls f twice; f has an op of 3 µs with a nested op of 1 µs and a kernel of 7.9 µs."""
    core: Any = _core.Store()
    main = _core._append(core, kind="frame", name="a b.py(1): main", start=0, duration=100_000)
    for i in range(2):
        at = i * 50_000
        f = _core._append(core, kind="frame", name="a b.py(5): f", start=1000 + at, duration=20_000, parent=main)
        op = _core._append(core, kind="op", name="x::a;b", start=2000 + at, duration=3000, parent=f)
        _core._append(core, kind="op", name="x::c", start=2500 + at, duration=1000, parent=op)
        _core._append(core, kind="kernel", name="k", start=9000 + at, duration=7900, launcher=op, device=0, stream=7)
    _core._append(core, kind="op", name="x::short", start=99_000, duration=999, parent=main)
    _core._append(core, kind="op", name="x::alone", start=200_000, duration=5000)
    return core


def test_folded_stacks_have_the_self_time_of_ops(tmp_path: Path) -> None:
    path = tmp_path / "stacks.txt"
    export_stacks(example_store(), path)
    assert sorted(path.read_text(encoding="utf-8").splitlines()) == [
        "a_b.py(1):_main;a_b.py(5):_f;x::a_b 4", "a_b.py(1):_main;a_b.py(5):_f;x::c 2", "x::alone 5",
    ]  # fmt: skip
    for metric in ("self_cuda_time_total", "self_device_time_total"):
        export_stacks(example_store(), str(path), metric)
        assert path.read_text(encoding="utf-8") == "a_b.py(1):_main;a_b.py(5):_f;x::a_b 15\n"
    with pytest.raises(ValueError, match=r"metric must be one of self_cpu_time_total, .*; got 'flops'"):
        export_stacks(example_store(), path, "flops")
