"""load_trace(hlo=…): the kernels of a JAX program belong to the instructions of its HLO. The program is
tests/data/hlo/aligned.hlo, its recording is made here; work is counted by hand."""

import gzip
import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from helpers.hand_traces import text_of
from helpers.hlo_traces import ELEMENTS, HLO, PRODUCT, STEP, STEPS, TRIPS, recorded

import flopscope as fs


def _ops(trace: fs.Trace, **options: Any) -> dict[str, Any]:
    """Return the rows of instructions, by name."""
    return {
        row.key: row
        for row in trace.key_averages(**options)
        if row.self_device_time_total and row.count and not math.isnan(row.bytes_read)
    }


@pytest.mark.parametrize("graphs", [True, False])
def test_each_instruction_has_a_row_with_its_work(graphs: bool) -> None:
    trace = fs.load_trace(recorded(graphs=graphs), hlo=HLO)
    ops = _ops(trace)
    calls = {name: row.count for name, row in ops.items()}
    each = STEPS * TRIPS
    assert calls == {
        "loop_convert_fusion.7": STEPS, "copy.1": STEPS, "custom-call.1": each, "loop_multiply_fusion": each,
        "loop_add_fusion": each, "loop_multiply_fusion.1": STEPS,
    }  # fmt: skip
    product = ops["custom-call.1"]
    assert product.flops == each * PRODUCT and product.bytes_read == each * 2 * (ELEMENTS + 512 * 512)
    assert product.self_device_time_total == each * 18  # a kernel and the fill before it
    assert product.unit == "bf16_tensor" and ops["loop_convert_fusion.7"].bytes_read == STEPS * 4 * ELEMENTS
    assert ops["loop_multiply_fusion.1"].flops == STEPS * ELEMENTS
    assert trace.coverage()["bytes"] == trace.coverage()["flops"] == 1
    assert trace.hlo["works"] == STEPS * len(STEP) and trace.hlo["executions"] == STEPS
    assert trace.hlo["tied_ns"] == trace.hlo["kernel_ns"] and trace.hlo["guessed"] == 0


def test_rows_are_grouped_by_scope_line_category_and_shapes() -> None:
    trace = fs.load_trace(recorded(), hlo=HLO)
    paths = {row.module: row for row in trace.key_averages(group_by="module")}
    assert {*paths} == {
        "(no module)",  # calls of the driver
        "jit_step",  # of the copy, which has no op_name
        "jit(step)",
        *("jit(step)/while", "jit(step)/while/body", "jit(step)/while/body/attention", "jit(step)/while/body/mlp"),
    }
    assert paths["jit(step)/while/body/attention"].flops == STEPS * TRIPS * PRODUCT
    assert paths["jit(step)"].module_calls == STEPS
    lines = {row.line for row in trace.key_averages(group_by="line") if row.key == "custom-call.1"}
    assert lines == {"/home/someone/train.py(12): layer"}
    categories = {row.key: row.category for row in trace.key_averages(group_by=("category", "name"))}
    assert categories["custom-call.1"] == "matrix product" and categories["loop_multiply_fusion.1"] == "pointwise"
    assert categories["loop_convert_fusion.7"] == categories["copy.1"] == "copies"
    shapes = {row.key: row.input_shapes for row in trace.key_averages(group_by_input_shape=True) if row.input_shapes}
    assert shapes["custom-call.1"] == [[256, 512], [512, 512]]


def test_kernels_that_no_module_has_and_rows_of_kernels_remain() -> None:
    data = recorded(outside=20)
    with pytest.warns(UserWarning, match=r"20 of 80 kernels, copies and fills, 29% of the kernels' time"):
        trace = fs.load_trace(data, hlo={"jit_step": HLO})
    rows = {row.key: row for row in trace.key_averages()}
    assert rows["some_other_kernel"].count == 20 and rows["custom-call.1"].count == STEPS * TRIPS
    with_hlo, without = (fs.load_trace(recorded(), hlo=hlo).key_averages() for hlo in (HLO, None))
    before = {row.key: (row.count, row.self_device_time_total) for row in without if row.self_device_time_total}
    after = {row.key: (row.count, row.self_device_time_total) for row in with_hlo if math.isnan(row.bytes_read)}
    assert {name: after[name] for name in before} == before


def several(steps: tuple[int, ...], renamed: tuple[str, ...]) -> bytes:
    """Return a trace of recordings one after the other, in which the convert's kernel has another name."""
    events = []
    for place, (count, name) in enumerate(zip(steps, renamed, strict=True)):
        for event in json.loads(recorded(steps=count))["traceEvents"]:
            event["ts"] += 1e6 * place
            event["args"]["correlation"] += 1000 * place
            event["name"] = event["name"].replace("loop_convert_fusion_7", name)
            events.append(event)
    return text_of(*events, schemaVersion=1)


def test_instructions_of_equal_names_keep_apart() -> None:
    """Of two modules, the one that ran more instructions keeps their names."""
    other = HLO.replace("HloModule jit_step", "HloModule jit_eval").replace("loop_convert_fusion.7", "only_here")
    data = several((STEPS, 1), ("loop_convert_fusion_7", "only_here"))
    ops = _ops(fs.load_trace(data, hlo={"train": HLO, "evaluate": other}))
    assert ops["custom-call.1"].count == STEPS * TRIPS and ops["jit_eval/custom-call.1"].count == TRIPS
    assert ops["jit_eval/only_here"].count == 1


def test_modules_of_one_name_keep_apart() -> None:
    """A function was compiled for three shapes; the second module ran most."""
    names = tuple(f"only_in_{place}" for place in range(3))
    texts = {f"jit_step({i})": HLO.replace("loop_convert_fusion.7", name) for i, name in enumerate(names)}
    ops = _ops(fs.load_trace(several((1, STEPS, 2), names), hlo=texts))
    calls = {name: row.count for name, row in ops.items() if "custom-call.1" in name or "only_in" in name}
    assert calls == {
        **{"only_in_1": STEPS, "custom-call.1": STEPS * TRIPS},
        **{"jit_step(2)/only_in_0": 1, "jit_step(2)/custom-call.1": TRIPS},
        **{"jit_step(3)/only_in_2": 2, "jit_step(3)/custom-call.1": 2 * TRIPS},
    }


def test_a_trace_that_flopscope_writes_has_the_instructions(tmp_path: Path) -> None:
    trace = fs.load_trace(recorded(), hlo=HLO)
    trace.export_chrome_trace(str(tmp_path / "out.json"))
    again = fs.load_trace(tmp_path / "out.json")
    for grouping in ("name", "category", "line"):
        first, second = (one.key_averages(group_by=grouping).to_pandas() for one in (trace, again))
        names = ["key", "count", "flops", "bytes_read", "self_device_time_total", "roofline_time", "bound"]
        first, second = (one[names].sort_values(names[:2], ignore_index=True) for one in (first, second))
        assert first.equals(second)
    assert again.coverage() == trace.coverage()
    unchanged = fs.load_trace(tmp_path / "out.json", hlo=HLO)  # works that have an op keep it
    assert len(unchanged) == len(again) and unchanged.hlo["works"] == 0


@pytest.mark.parametrize("form", ["text", "bytes", "path", "gzip", "json"])
def test_hlo_is_text_or_a_file(form: str, tmp_path: Path) -> None:
    path = tmp_path / "step.txt"
    path.write_text(HLO)
    packed = tmp_path / "modules.json.gz"
    packed.write_bytes(gzip.compress(json.dumps({"jit_step": HLO}).encode()))
    (tmp_path / "step.hlo.gz").write_bytes(gzip.compress(HLO.encode()))
    given = {"text": HLO, "bytes": HLO.encode(), "path": path, "gzip": str(tmp_path / "step.hlo.gz"), "json": packed}
    trace = fs.load_trace(recorded(), hlo=given[form])
    assert trace.hlo["tied_ns"] == trace.hlo["kernel_ns"] > 0


@pytest.mark.parametrize("runs", [False, True])
def test_calls_without_end_are_refused(runs: bool) -> None:
    """Each computation calls the next one twice: 2^60 calls, of nothing or of a kernel."""
    body = "y = f32[8] add(x, x)\n  ROOT z = f32[8] bitcast(y)" if runs else "ROOT z = f32[8] bitcast(x)"
    bodies = [f"f0 {{\n  x = f32[8] parameter(0)\n  {body}\n}}\n"]
    for i in range(1, 60):
        calls = f"a = f32[8] call(x), to_apply=f{i - 1}\n  ROOT b = f32[8] call(a), to_apply=f{i - 1}"
        bodies.append(f"f{i} {{\n  x = f32[8] parameter(0)\n  {calls}\n}}\n")
    text = "HloModule m, is_scheduled=true\n" + "".join(bodies)
    text += "ENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] call(x), to_apply=f59\n}\n"
    if runs:
        with pytest.raises(ValueError, match="more than"):
            fs.load_trace(recorded(), hlo=text)
        return
    with pytest.warns(UserWarning, match="belong to no"):
        assert fs.load_trace(recorded(), hlo=text).hlo["tied_ns"] == 0


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"jit_step": HLO[:3000]}, ValueError, "jit_step: line"),
        ("HloModule x\nnothing", ValueError, "hlo: line"),
        ({"jit_step": 3}, TypeError, "hlo must map names"),
        (3, TypeError, "hlo must be HLO"),
        (Path("absent"), FileNotFoundError, "absent"),
        (Path("damaged.gz"), ValueError, "damaged.gz"),
        (Path("list.json"), ValueError, "list.json: .*object of module to text"),
        (Path("module.json"), ValueError, "module.json: jit_f: line 1 "),
        (Path("deep.json"), ValueError, "deep.json: .*recursion"),
        (Path("bomb.gz"), ValueError, "bomb.gz: it expands to more than"),
    ],
    ids=["cut", "no module", "number of a module", "number", "absent", "damaged", "list", "module", "deep", "bomb"],
)
def test_what_is_no_hlo_is_an_error(wrong: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    (tmp_path / "damaged.gz").write_bytes(gzip.compress(HLO.encode())[:-20])
    (tmp_path / "list.json").write_text('{"a": 1}')
    (tmp_path / "module.json").write_text('{"jit_f": "nothing"}')
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(4 << 20)))
    with pytest.raises(error, match=text), patch("flopscope.read.input.EXPANSION_FREE", 1 << 20):
        fs.load_trace(recorded(), hlo=tmp_path / wrong if isinstance(wrong, Path) else wrong)
