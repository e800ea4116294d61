"""Numbers, shapes and texts at the edge of what is possible are answered or refused by name, and rules may wait."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers.hand_traces import Program, in_a_row
from helpers.processes import ended, environment

import flopscope as fs
from flopscope.support.safe import error_text, shown

H200 = "NVIDIA H200"
NAME = "mine::op"
HUGE = 10**5000  # of more digits than Python prints
ESCAPE = "\x1b[31mred\x9b1m\u202e"


@pytest.fixture
def rule() -> Iterator[Callable[[Any], None]]:
    yield lambda fn: fs.register_work(NAME, fn)
    fs.register_work(NAME, None)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


IMPOSSIBLE = {"a": (-1e15, 1), "b": (1, -1), "c": (math.inf, 1), "d": (1, math.inf), "e": (1e308, 1), "f": (HUGE, 1)}
NO_SHAPES = [cyclic(), deep(3), deep(100_000), "ab", b"ab", [3.5], [True], [2.0]]
ANYTHING = [cyclic(), deep(100_000), HUGE, ESCAPE, [ESCAPE] * 100, Unprintable()]

# Work -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amounts", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_least_times_of_impossible_work_are_refused(amounts: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"^(FLOPs|bytes) must be (finite and at least 0|at most 1e\+280), not "):
        fs.roofline_time(*amounts, device=H200)
    with pytest.raises(ValueError, match="must be"):
        fs.roofline_time(fs.Work(amounts[0], 0, 0, amounts[1], None), device=H200)


@pytest.mark.parametrize("amounts", [(math.nan, 1), (1, math.nan), (1,)])
def test_least_times_of_unknown_work_are_unknown(amounts: tuple[float, ...]) -> None:
    assert math.isnan(fs.roofline_time(*amounts, unit="bf16_tensor", device=H200))


@pytest.mark.parametrize("amounts", [("x", 1), (1, "x"), (1 + 2j, 1), ([1], 1)])
def test_work_that_is_no_number_is_refused(amounts: Any) -> None:
    with pytest.raises(TypeError, match="must be a number, not"):
        fs.roofline_time(*amounts, device=H200)
    with pytest.raises(TypeError, match="device must be the name of a device, not 3"):
        fs.roofline_time(1, 1, device=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [2**63, 2**64, HUGE], ids=["2^63", "2^64", "huge"])
def test_sizes_beyond_64_bits_are_refused(size: int) -> None:
    for shapes in ([(size, 2), (2, 2)], [[(2, 2), (size, 2)], 0]):
        with pytest.raises(ValueError, match=r"has a size of 2\^63 or more"):
            fs.work("aten::mm", shapes)


def test_the_largest_sizes_and_integers_of_numpy_are_counted_in_full() -> None:
    n = 2**63 - 1
    work = fs.work("aten::mm", [(n, n), (n, n)])
    assert work.flops == pytest.approx(2.0 * n**3) and work.bytes == pytest.approx(3 * 4.0 * n**2)
    numpy = pytest.importorskip("numpy")
    assert fs.work("aten::sin", [(numpy.int64(4), numpy.uint8(3))]) == fs.work("aten::sin", [(4, 3)])


@pytest.mark.parametrize("shape", NO_SHAPES, ids=lambda shape: type(shape).__name__)
def test_what_is_no_shape_is_refused_by_name(shape: Any) -> None:
    with pytest.raises(TypeError, match="a shape is a sequence of integers, not") as refused:
        fs.work("aten::mm", [shape, (2, 2)])
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", [cyclic(), deep(3), deep(100_000)], ids=["cyclic", "nested", "deep"])
def test_nested_values_and_what_is_no_list_of_shapes_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="a value is a number, a bool, a string or a list of these"):
        fs.work("aten::sin", [(4,), None], values=[None, value])
    for shapes in (None, 4, "ab"):
        with pytest.raises(TypeError, match="shapes must be a list with an entry for each argument"):
            fs.work("aten::sin", shapes)  # type: ignore[arg-type]


# Rules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((1, 1e308, 1e308), r"bytes_read must be at most 1e\+280"),
        ({"flops": 1e308}, r"flops must be at most 1e\+280"), ((HUGE, 1, 1), "flops must be finite"),
        ((1, ESCAPE, 2), "bytes_read must be a number, not"), ({f"flops{ESCAPE}": 1}, "unknown keys"),
        ({"flops": 1, "unit": ESCAPE}, "unit must be one of"), (ESCAPE, "it returned"),
    ],
    ids=["sum", "flops", "huge", "text", "key", "unit", "result"],
)  # fmt: skip
def test_a_rules_impossible_numbers_are_refused(rule: Callable[[Any], None], result: Any, message: str) -> None:
    rule(lambda call: result)
    with pytest.warns(UserWarning, match=message) as caught:
        work = fs.work(NAME, [(4,)])
    assert math.isnan(work.flops) and math.isnan(work.bytes)
    assert work.why == f"the rule registered for {NAME} gives no work for these arguments"
    assert str(caught[0].message).isprintable()


def test_the_most_work_adds_up_to_finite_sums(rule: Callable[[Any], None]) -> None:
    most = fs._core.most_work
    rule(lambda call: (most, most, most))
    program = Program(devices=0)
    for i in range(50):
        program.op(NAME, 10 * i, 5, [4])
    (row,) = program.load().key_averages(peaks="none")
    assert row.flops == pytest.approx(50 * most) and row.bytes_total_moved == pytest.approx(100 * most)
    assert not math.isinf(row.tflops_per_s)
    with pytest.raises(ValueError, match="finite number of at least 0"):
        fs.record_function("a", flops=1e300)


@pytest.mark.parametrize("problem", [ValueError(ESCAPE), Unprintable()], ids=["escape", "none"])
def test_whatever_a_rule_raises_is_reported_in_printable_text(rule: Callable[[Any], None], problem: Exception) -> None:
    def fails(call: Any) -> None:
        raise problem

    rule(fails)
    with pytest.warns(UserWarning, match=type(problem).__name__) as caught:
        assert math.isnan(fs.work(NAME, [(4,)]).flops)
    assert str(caught[0].message).isprintable()


def test_a_rule_that_asks_for_itself_ends(rule: Callable[[Any], None]) -> None:
    rule(lambda call: (fs.work(NAME, [(4,)]).flops, 0, 0))
    with pytest.warns(UserWarning, match="RecursionError"):
        assert math.isnan(fs.work(NAME, [(4,)]).flops)


WAITING = """
import json, sys, threading
import flopscope as fs
from flopscope.results.results import forget

events = [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5,
           "args": {"Input Dims": [[4, 4]], "Input type": ["float"]}}
          for i, name in enumerate(["mine::op", "aten::sin"])]
trace = fs.load_trace(json.dumps({"record_shapes": 1, "traceEvents": events}).encode())


def profile():
    with fs.profile(record_shapes=True) as prof:
        fs.sin(fs.rand((64, 64)))
    prof.key_averages(peaks="none")


ASKS = [lambda: trace.key_averages(peaks="none"), lambda: str(trace.summary()), profile,
        lambda: trace.export_chrome_trace(sys.argv[1]), lambda: fs.register_work("mine::other", len),
        lambda: fs.work("mine::op", [(4, 4)]), lambda: fs.sin(fs.rand((1 << 20,))), fs.devices]
CALLS = [lambda: fs.work("mine::op", [(4, 4)]), lambda: trace.key_averages(peaks="none"), lambda: str(trace.summary()),
         lambda: trace.export_chrome_trace(sys.argv[1] + "2"), lambda: fs.compare(trace, trace),
         lambda: trace.write_report(sys.argv[1] + ".html")]
waited = 0
for call in CALLS:
    for ask in ASKS:
        inside = threading.local()
        waiting = []

        def rule(_):
            global waited
            if waiting:
                return None
            waiting.append(thread := threading.Thread(target=ask, daemon=True))
            thread.start()
            thread.join(20)
            assert not thread.is_alive(), "the thread waits for the rule"
            waited += 1
            return 7, 3, 4

        fs.register_work("mine::op", rule)
        forget(trace)
        call()
print(waited)
"""


def test_a_rule_may_wait_for_a_thread_that_asks_flopscope(tmp_path: Any) -> None:
    done = ended(WAITING, tmp_path / "trace.json", env=environment(PYTHONWARNINGS="error::UserWarning"))
    assert done.stdout.strip() == str(6 * 8), done.stderr


def test_tables_of_several_threads_whose_rules_wait_for_each_other(rule: Callable[[Any], None]) -> None:
    program = Program(devices=0)
    program.op(NAME, 0, 5, [4])
    trace, both = program.load(), threading.Barrier(2, timeout=20)

    def meet(call: Any) -> tuple[int, int, int]:
        both.wait()
        return 7, 3, 4

    rule(meet)
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(trace.key_averages, peaks="none") for _ in range(2)]
    assert [table.result()[0].flops for table in found] == [7, 7]


# What if --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def products() -> fs.Trace:
    return in_a_row(("aten::mm", 50, [[4096, 4096], [4096, 4096]])).load()


@pytest.mark.parametrize("host", [1e308, 1e300, 1e20])
def test_host_times_that_no_clock_holds_are_refused(products: fs.Trace, host: float) -> None:
    with pytest.raises(ValueError, match=r"what_if\(host_us_per_launch=1e.*longer than a century"):
        products.what_if(host_us_per_launch=host)
    year = 1e6 * 86400 * 365
    assert products.what_if(host_us_per_launch=year)["total"].iloc[-1] >= 2 * year


def test_nothing_changed_is_no_longer_than_what_was_recorded() -> None:
    """The sum of the parts is a last digit beyond the recorded times of two devices, which are over a century."""
    program = Program(devices=2)
    for device, ts, dur in ((0, -5.0, 0.0), (0, 0.0, 2.3e15), (1, 0.0, 0.0)):
        program.work("k", ts, dur, device=device)
    trace = program.load()
    assert trace.what_if().equals(trace.accounting())


@pytest.mark.parametrize("rate", [1e-308, 0.5, 1e31, HUGE], ids=["tiny", "half", "large", "huge"])
def test_rates_of_no_device_are_refused(products: fs.Trace, rate: float) -> None:
    with pytest.raises(ValueError, match=r"the peak of memory must be from 1 to 1e\+30 FLOP/s or bytes/s"):
        products.what_if(peaks={"memory": rate})
    with pytest.raises(ValueError, match="the peak of memory must be"):
        products.key_averages(peaks=f"memory={min(rate, 10**300)}")
    with pytest.raises(ValueError, match="must be a number of µs, at least 0"):
        products.what_if(host_us_per_launch=HUGE)


# Steps without time ---------------------------------------------------------------------------------------------------


def test_a_long_step_among_steps_of_no_time_is_not_left_out() -> None:
    program = Program()
    for number, length in enumerate([10, 0, 0, 0, 0, 0]):
        program.step(number, 20 * number, length)
        program.work("kernel", 20 * number, length)
    trace = program.load()
    frame = trace.accounting()
    assert frame["total"].tolist() == [10, 0, 0, 0, 0, 10]  # in the last step, no work began
    assert not any("left out" in note for note in trace.advice().notes) and "2.00us a step" in str(trace.summary())


def test_launches_without_a_kernel_give_no_advice() -> None:
    program = Program()
    for i in range(50):
        program.call("cudaLaunchKernel", 10 * i, 1, correlation=1000 + i)
    program.work("Memset (Device)", 700, 5)
    assert not [row for row in program.load().advice() if row.rule == "launch"]


# Texts ----------------------------------------------------------------------------------------------------------------

NAMED: dict[str, Callable[[fs.Trace], Any]] = {
    "device": lambda trace: fs.roofline_time(1, 1, device=ESCAPE),
    "cuda": lambda trace: fs.roofline_time(1, 1, device=f"cuda:{ESCAPE}"),
    "unit": lambda trace: fs.roofline_time(1, 1, device=H200, unit=ESCAPE),
    "dtype": lambda trace: fs.work("aten::sin", [(4,)], ESCAPE), "shape": lambda trace: fs.work("aten::sin", [ESCAPE]),
    "rule": lambda trace: trace.what_if(rule=ESCAPE), "peak": lambda trace: trace.what_if(peaks={ESCAPE: 1}),
    "rate": lambda trace: trace.what_if(peaks={"memory": ESCAPE}), "model": lambda trace: trace.what_if(device=ESCAPE),
    "keyword of an op": lambda trace: fs.sin(**{ESCAPE: 1}), "step": lambda trace: trace.gpu_summary(ESCAPE),
    "grouping": lambda trace: trace.key_averages(group_by=ESCAPE),
    "stated peaks": lambda trace: trace.key_averages(peaks=f"memory={ESCAPE}"),
    "order": lambda trace: trace.key_averages().table(sort_by=ESCAPE),
    "names": lambda trace: fs.compare(trace, trace.key_averages(), by="shape", names=(ESCAPE, ESCAPE)),
    "file": lambda trace: fs.load_trace(ESCAPE), "folder": lambda trace: trace.write_report(f"/nowhere/{ESCAPE}"),
    "range": lambda trace: fs.record_function(ESCAPE, flops=-1),
    "text": lambda trace: fs.load_trace(b'{"traceEvents": \x1b[31m'),
}  # fmt: skip


@pytest.mark.parametrize("call", NAMED)
def test_no_escape_sequence_reaches_the_text_of_an_error(products: fs.Trace, call: str) -> None:
    with pytest.raises((ValueError, TypeError, OSError)) as refused:
        NAMED[call](products)
    text = str(refused.value)
    assert text and text.isprintable()


def test_names_of_a_trace_are_escaped_in_errors() -> None:
    program = in_a_row(("aten::mm", 50, [[4, 4], [4, 4]]))
    for event in program.events:
        if event["name"].startswith("ProfilerStep"):
            event["name"] += ESCAPE
    with pytest.raises(ValueError, match="no step is named") as refused:
        program.load().gpu_summary("7")
    assert r"\x1b[31mred" in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize("value", ANYTHING, ids=lambda value: type(value).__name__)
def test_any_value_has_a_short_printable_text(value: Any) -> None:
    assert 0 < len(shown(value)) < 2000 and shown(value).isprintable()
    assert shown([1, "a"]) == "[1, 'a']" and error_text(KeyError("a")) == "KeyError: 'a'"


# Memory beside graphs -------------------------------------------------------------------------------------------------


def test_equal_states_of_memory_in_a_trace_with_graphs_stay_apart() -> None:
    """The states are appended once for each change, so the joined copy of the store must keep their number."""
    program, allocated = Program(), [100, 100, 100, 200, 300]
    program.head["profile_memory"] = 1
    program.call("cudaGraphLaunch", 1, 2, correlation=5)
    for i, total in enumerate(allocated):
        program.add("cpu_instant_event", "[memory]", 10 * i, 0, Bytes=4, Addr=64, Device_Type=0, Total_Allocated=total)
        program.events[-1] |= {"ph": "i", "s": "t"}
    trace = program.load()
    _, found = trace._core.timeline(True, 0, {}, False, (), True, 1000)
    assert found["memory"]["allocated"].tolist() == allocated
    assert json.dumps(trace.events().to_pandas()["name"].tolist())
