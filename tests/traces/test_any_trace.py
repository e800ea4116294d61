"""Every public call answers for every small trace: times of 0, steps without work, odd sizes. No number is wrong in
itself: parts add up, no saving is more than the time, and a trace that is written and read again is the same."""

import contextlib
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import BF16, FLOAT, HALF, NCCL, PAGEABLE, PINNED, Program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.answers.advice import RULES
from flopscope.answers.analysis import analysis_of
from flopscope.cli.program import main

EXAMPLES = int(os.environ.get("FLOPSCOPE_TEST_EXAMPLES", "40"))
LONGEST = 2.3e15  # µs that are still read as a time; more is none
ROUNDING = 1e-9  # of sums of doubles

# Traces ---------------------------------------------------------------------------------------------------------------

OPS: dict[str, tuple[list[Any], list[str] | None]] = {  # shapes and values
    "aten::mm": ([[8, 8], [8, 8]], None),
    "aten::addmm": ([[8], [8, 4096], [4096, 8]], None),
    "aten::cat": ([[], []], ["", "0"]),
    "aten::convolution": ([[1, 3, 8, 8], [4, 3, 3, 3]], None),
    "aten::_scaled_dot_product_flash_attention": ([[1, 2, 8, 64]] * 3, None),
    "aten::bmm": ([[16, 1024, 1024]] * 2, None),
    "aten::add": ([[0, 5], [0, 5]], None),
    "aten::copy_": ([[1 << 20], [1 << 20]], None),
    "aten::_to_copy": ([[64, 64]], None),
    "aten::layer_norm": ([[8, 8], [8], [8]], None),
    "aten::_foreach_add_": ([[[4], [4]], [[4], [4]]], None),
    "aten::_fused_adamw_": ([[[4], [4]]] * 5, None),
    "aten::item": ([[]], None),
    "aten::nonzero": ([[64]], None),
    "aten::index_select": ([[64, 8], [], [7]], None),
    "aten::embedding": ([[1000, 8], [7]], None),
    "aten::silu": ([[1 << 31, 1 << 31]], None),
    "c10d::allreduce_": ([[[64]]], None),
    "record_param_comms": ([[64]], None),
    "flopscope::sin": ([[64]], None),
    "vllm::rms_norm": ([[8, 64], [8, 64], [64]], None),
    "autograd::engine::evaluate_function: MmBackward0": ([], None),
    "": ([], None),
}
WORK = [
    *("kernel", NCCL, "ncclDevKernel_SendRecv", PAGEABLE, PINNED, "Memcpy DtoH (Device -> Pageable)"),
    *("Memset (Device)", "Memcpy DtoD (Device -> Device)", "ampere_sgemm_128x64_nn", "flash_fwd_kernel"),
    "sm90_xmma_gemm_bf16bf16_bf16f32",
    *("void at::native::elementwise_kernel<128, 2>", "triton_poi_fused_add_0", "vectorized_layer_norm_kernel"),
]
CALLS = [
    *("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaMalloc", "cudaFree", "cudaGraphLaunch"),
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
]
RANGES = [
    *("ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#7", "enumerate(DataLoader)#it.__next__"),
    *("forward", "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "Scheduler.__init__ (dynamo_timed)"),
    *("Torch-Compiled Region: 0/0", "## Call CompiledFxGraph x ##", "nccl:all_reduce"),
]
OVERHEADS = ["Buffer Flush", "Lazy Function Loading", "CUPTI disable", "Activity Buffer Request"]
FRAMES = ["train.py(3): step", "nn.Module: Linear_0", "<built-in method mm>", "torch/nn/modules/linear.py(9): forward"]
TIMES = [  # µs, at which events begin and that they last
    [0],
    [0, 0.001],
    [0, 1, 2, 3, 5],
    [0, 0.001, 1, 10, 30, 100, 1000],
    [0, 0.001, 2, 50, 1e6, 1e12],
    [0, 1, 4e15, 9e15],
    [-5, 0, 0.5, 20, LONGEST, 1.8446744073709552e16],
]
CHANGES: list[dict[str, Any]] = [
    *({}, {"host_us_per_launch": 0}, {"host_us_per_launch": 1e6}, {"dtype": "bfloat16"}, {"dtype": "float32"}),
    *({"device": "NVIDIA B200"}, {"device": "NVIDIA A10"}, {"peaks": {"memory": 1e15}}),
    *({"peaks": {"memory": 1.0, "bf16_tensor": 1.0}}, {"rule": list(RULES)}, *({"rule": rule} for rule in RULES)),
]


def events_of(times: list[float]) -> st.SearchStrategy[dict[str, Any]]:
    """Return the events whose times are among these, as arguments of Program.add and what ``written`` knows."""
    when, thread, correlation = st.sampled_from(times), st.integers(1, 2), st.integers(1, 3)
    host = {"ts": when, "dur": when, "tid": thread}
    device = {"device": st.integers(0, 1), "stream": st.sampled_from([0, 7, 8])}
    shaped = {"shaped": st.booleans(), "dtype": st.sampled_from([FLOAT, BF16, HALF, "odd"])}
    memory = {"Bytes": st.sampled_from([-(2**62), -4, 0, 4, 2**62]), "Device Type": st.integers(0, 1)}
    blocks, kernels = st.sampled_from([0, 1, 999]), st.sampled_from(WORK)
    kinds: dict[str, tuple[list[str], dict[str, Any]]] = {
        "cpu_op": (list(OPS), {**host, **shaped, "External id": correlation}),
        "cuda_runtime": (CALLS, {**host, "correlation": correlation}),
        "work": (WORK, {"ts": when, "dur": when, **device, "correlation": st.integers(0, 3), "blocks": blocks}),
        "run": (list(OPS), {"ts": when, "begin": when, "dur": when, **device, **shaped, "kernel": kernels}),
        "user_annotation": (RANGES, host),
        "overhead": (OVERHEADS, host),
        "python_function": (FRAMES, host),
        "cpu_instant_event": (["[memory]"], {"ts": when, "tid": thread, **memory}),
    }
    parts = [
        st.fixed_dictionaries({"cat": st.just(cat), "name": st.sampled_from(names), **fields})
        for cat, (names, fields) in kinds.items()
    ]
    return st.one_of(*parts, parts[3], parts[4])


def written(devices: int, events: list[dict[str, Any]], open_ones: int = 0) -> bytes:
    """Return the text of a trace with these events, of which the last open_ones have no duration."""
    program = Program(devices)
    program.head |= {"record_shapes": 1, "profile_memory": 1, "with_stack": 1}
    for event in events:
        fields = dict(event)
        cat, name, ts = (fields.pop(key) for key in ("cat", "name", "ts"))
        shapes, values = OPS[name] if fields.pop("shaped", False) else ([], None)
        if cat == "work":
            program.work(name, ts, fields.pop("dur"), **fields)
        elif cat == "run":
            program.run(name, ts, fields.pop("begin"), fields.pop("dur"), *shapes, values=values, **fields)
        elif cat == "cpu_op":
            program.op(name, ts, fields.pop("dur"), *shapes, values=values, **fields)
        elif cat == "cpu_instant_event":
            program.add(cat, name, ts, 0, fields.pop("tid"), **fields, Device_Id=0, Addr=64)
            program.events[-1] |= {"ph": "i", "s": "t"}
        else:
            program.add(cat, name, ts, fields.pop("dur"), **fields)
    for event in program.events[len(program.events) - open_ones :]:
        event.pop("dur", None)
    return program.text()


def stepped(devices: int, steps: list[tuple[float, float]], works: list[dict[str, Any]]) -> bytes:
    """Return the text of a trace of steps, each of a length and after a pause, with the same work in each. Works last
    no longer than the step."""
    events: list[dict[str, Any]] = []
    at = 0.0
    for number, (length, pause) in enumerate(steps):
        events.append({"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": length, "tid": 1})
        for work in works:
            times = {name: at + min(work[name], length) for name in ("ts", "begin") if name in work}
            events.append({**work, **times, "dur": min(work["dur"], length)})
        at += length + pause
    return written(devices, events)


def traces_of(times: list[float]) -> st.SearchStrategy[bytes]:
    events, when = events_of(times), st.sampled_from(times)
    works = st.lists(events.filter(lambda event: "dur" in event), min_size=1, max_size=4)
    steps = st.lists(st.tuples(when, when), min_size=1, max_size=9)
    return st.one_of(
        st.builds(written, st.integers(0, 2), st.lists(events, min_size=1, max_size=12), st.sampled_from([0, 0, 1])),
        st.builds(stepped, st.integers(0, 2), steps, works),
    )


traces = st.sampled_from(TIMES).flatmap(traces_of)

# What holds of every answer -------------------------------------------------------------------------------------------


def is_text(text: str) -> None:
    """A number that is unknown is not printed as Python prints it."""
    assert not re.search(r"\b(nan|inf|None)\b", text), text


def is_account(frame: Any) -> None:
    """The parts are at least 0 and add up to the total, to a ns a part, and the steps to the whole; shares are at
    least 0, or unknown."""
    columns = frame.to_dict("list")
    totals = columns["total"]
    ways = [total for total, step in zip(totals, columns["step"], strict=True) if isinstance(step, str)]
    assert not totals or math.isclose(totals[-1], math.fsum(ways or totals[:-1] or totals), rel_tol=ROUNDING, abs_tol=1)
    for row, total in enumerate(columns["total"]):
        parts = [columns[part][row] for part in fs._core.parts]
        assert min(parts) >= 0 and math.isclose(math.fsum(parts), total, rel_tol=ROUNDING, abs_tol=0.02)
    for share in (*columns["mfu"], *columns["mbu"]):
        assert math.isnan(share) or 0 <= share < math.inf


def accounting(trace: Any) -> None:
    is_account(trace.accounting())
    is_account(trace.accounting(peaks="none"))
    is_account(trace.accounting(peaks="memory=1,fp32=1e30,tf32_tensor=1e12"))


def advice(trace: Any) -> None:
    """No saving is more than the time, nor are all together."""
    found, times = trace.advice(), trace.accounting()["total"].tolist()
    savings = [row.saving_us for row in found]
    assert min(savings, default=1) > 0 and math.fsum(savings) <= (times[-1] if times else 0) * (1 + ROUNDING)
    assert all(row.saving_pct <= 100 * (1 + ROUNDING) for row in found)
    assert math.fsum(savings) <= analysis_of(trace, "advice").unobserved * (1 + ROUNDING)
    json.dumps(found.to_dicts(), allow_nan=False)
    is_text(str(found))
    found.to_pandas(), found._repr_html_()


def tables(trace: Any) -> None:
    for group_by in ("name", "shape", "step", "stream", "category", "module", ("name", "step", "dtype")):
        try:
            table = trace.key_averages(group_by=group_by, kernels=group_by == "name")
        except ValueError as refused:
            assert str(refused).startswith("group_by="), refused
            continue
        is_text(table.table(row_limit=-1))
        table.to_dicts(), table._repr_html_()
    table = trace.key_averages()
    assert all(row.count > 0 and row.cpu_time_total >= row.self_cpu_time_total >= 0 for row in table)
    table.by_category(), table.coverage(), table.total_average(), table.to_pandas()


def summaries(trace: Any) -> None:
    frames = (trace.gpu_summary, trace.step_breakdown, trace.launch_summary, trace.collectives, trace.stream_summary)
    for frame in (*frames, trace.counter_timeline, trace.lines):
        assert not any(value in (math.inf, -math.inf) for row in frame().to_dict("records") for value in row.values())
    trace.coverage(), repr(trace)
    summary = trace.summary()
    is_text(str(summary))
    json.dumps(summary.to_dict()), summary._repr_html_()


def events(trace: Any) -> None:
    listed = trace.events()
    assert len(listed) == len(trace) == len(listed.to_pandas())
    for event in listed:
        assert not event.self_cpu_time_total < 0 and not event.self_device_time_total < 0
        event.cpu_parent, event.launcher, event.device_time_total, repr(event)


def report(trace: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        trace.write_report(page)
        assert page.read_text().rstrip().endswith("</html>")
        trace.export_stacks(Path(folder) / "stacks.txt")


def command_line(trace: Any) -> None:
    if not len(trace):
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        path, table = f"{folder}/trace.json", f"{folder}/table.json"
        trace.export_chrome_trace(path)
        assert main(["summary", path]) == main(["table", path, "--json", table]) == 0
        assert printed.getvalue() and "NaN" not in Path(table).read_text()


def reload(trace: Any) -> None:
    """A trace that is written and read again has the same rows, and takes the same time: but for times of decades,
    which are unknown or saturate."""
    spans = [event.time_range for event in trace.events() if event.kind != "memory"]
    if not all(span.start <= 1e15 and span.elapsed_us() <= 1e15 for span in spans):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.json"
        trace.export_chrome_trace(path)
        json.loads(path.read_text(), parse_constant=lambda constant: 1 / 0)
        again = fs.load_trace(path)
    both = [sorted((row.key, row.count) for row in one.key_averages(peaks="none")) for one in (trace, again)]
    assert both[0] == both[1]
    before, after = (one.accounting(peaks="none")["total"].tolist() for one in (trace, again))
    assert len(before) == len(after)
    assert all(math.isclose(a, b, rel_tol=ROUNDING, abs_tol=0.01) for a, b in zip(before, after, strict=True))


ANSWERS: list[Callable[[Any], None]] = [accounting, advice, tables, summaries, events, report, reload, command_line]


def what_if(trace: Any, change: dict[str, Any]) -> None:
    try:
        is_account(trace.what_if(**change))
    except ValueError as refused:
        assert str(refused).startswith("what_if("), refused


def compare(a: Any, b: Any, options: dict[str, Any]) -> None:
    comparison = fs.compare(a, b, **options)
    is_text(comparison.table(-1))
    is_text(comparison.table(-1, wide=True))
    json.dumps(comparison.to_dict(), allow_nan=False)
    comparison.to_dicts(), comparison.to_pandas(), comparison.total_change
    assert math.isnan(comparison.slowdown_pct) or comparison.slowdown_pct >= -100
    with tempfile.TemporaryDirectory() as folder:
        comparison.write_report(Path(folder) / "page.html")


# A division by zero in NumPy fails as one of Python does; other warnings are about the trace.
@pytest.mark.filterwarnings("ignore::UserWarning", "error::RuntimeWarning")
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(traces, traces, st.lists(st.sampled_from(CHANGES), min_size=2, max_size=4),
       st.sampled_from([{}, {"by": "name"}, {"kind": "kernel"}, {"kind": "op"}, {"peaks": "none"}]))  # fmt: skip
def test_every_public_call_answers_for_every_trace(
    text: bytes, other: bytes, changes: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    a, b = fs.load_trace(text), fs.load_trace(other)
    for answer in ANSWERS:
        answer(a)
    for change in changes:
        what_if(a, change)
    compare(a, b, options)
    compare(a, a, options)
