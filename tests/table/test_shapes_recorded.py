"""Tables of traces whose ops have no recorded shapes, so that their work is unknown."""

from __future__ import annotations

import json

import flopscope as fs
from flopscope.results.ranks import join_ranks

SHAPELESS = "The work of ops is unknown because no input shapes were recorded: profile with record_shapes=True."


def small_trace(shapes: bool, ops: bool = True) -> fs.Trace:
    args = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]} if shapes else {}
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": args}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 9}
    return fs.load_trace(json.dumps({"traceEvents": [op, kernel] if ops else [kernel]}).encode())


def test_a_trace_without_shapes_reports_why_its_work_is_unknown() -> None:
    without, with_shapes = small_trace(False), small_trace(True)
    assert not without.record_shapes and with_shapes.record_shapes  # neither trace has a record_shapes member
    table = without.key_averages()
    assert table.lacks_shapes and SHAPELESS in table.table() and "Not modelled" not in table.table()
    assert not with_shapes.key_averages().lacks_shapes and SHAPELESS not in with_shapes.key_averages().table()


def test_a_trace_without_ops_does_not_lack_shapes() -> None:
    table = small_trace(False, ops=False).key_averages()
    assert not table.lacks_shapes and SHAPELESS not in table.table() and "Not modelled: gemm" in table.table()


def test_native_ops_never_lack_shapes() -> None:
    with fs.profile(record_shapes=False) as prof:
        fs.sin(fs.ones((4,), device="cpu"))
    assert not prof.key_averages(peaks="none").lacks_shapes


def test_ranks_lack_shapes_if_all_do() -> None:
    tables = [small_trace(shapes).key_averages() for shapes in (False, True)]
    assert join_ranks({0: tables[0], 1: tables[0]}).lacks_shapes
    assert not join_ranks(dict(enumerate(tables))).lacks_shapes
