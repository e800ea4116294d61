"""Tables of traces whose ops have no recorded shapes, so that their work is unknown."""

from helpers.hand_traces import kernel, load, op

import flopscope as fs

SHAPELESS = "The work of ops is unknown because no input shapes were recorded: profile with record_shapes=True."
GEMM = kernel("gemm", 5, 9)


def test_tables_report_why_their_work_is_unknown() -> None:
    shapes = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
    traces = [load(op("aten::mm", 0, 9), GEMM), load(op("aten::mm", 0, 9, **shapes), GEMM)]
    assert [trace.record_shapes for trace in traces] == [False, True]  # neither trace has a record_shapes member
    without, known = (trace.key_averages() for trace in traces)
    assert without.lacks_shapes and SHAPELESS in without.table() and "Not modelled" not in without.table()
    assert not known.lacks_shapes and SHAPELESS not in known.table()


def test_traces_without_ops_and_native_ops_do_not_lack_shapes() -> None:
    table = load(GEMM).key_averages()
    assert not table.lacks_shapes and SHAPELESS not in table.table() and "Not modelled: gemm" in table.table()
    with fs.profile(record_shapes=False) as prof:
        fs.sin(fs.ones((4,), device="cpu"))
    assert not prof.key_averages(peaks="none").lacks_shapes
