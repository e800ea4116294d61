"""flopscope table and flopscope compare: output and files for recorded traces, and errors."""

import csv
import json
from pathlib import Path

import pytest
from helpers import TRACES
from helpers.hand_traces import Program

from flopscope.cli.program import main


def trace_text(kernel_time: float, rank: int | None = None) -> bytes:
    """Return a trace of two steps, each with an mm, the kernel that it launched, and a relu."""
    program = Program()
    for step in range(2):
        at = 1000.0 + 1000 * step
        program.step(step, at, 900)
        program.op("aten::mm", at + 10, 100, [64, 32], [32, 16])
        program.call("cudaLaunchKernel", at + 20, 30, correlation=10 + step)
        program.work("gemm", at + 200, kernel_time, correlation=10 + step)
        program.op("aten::relu", at + 500, 40, [64, 16])
    if rank is not None:
        program.head["distributedInfo"] = {"rank": rank, "world_size": 2}
    return program.text()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_bytes(trace_text(100.0))
    return path


@pytest.fixture
def ranks(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "one.json", tmp_path / "zero.json"]
    for path, rank, time in zip(paths, (1, 0), (300.0, 100.0), strict=True):
        path.write_bytes(trace_text(time, rank))
    return [str(path) for path in paths]


def names(text: str) -> list[str]:
    """Return the first cells of the rows of the first table printed; kernels below their ops begin with a blank."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("---")) + 1
    width = lines[first - 1].index(" ")
    return [line[:width].rstrip() for line in lines[first : lines.index("", first)]]


def test_a_table_is_printed_longest_first_with_its_coverage(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(trace)]) == 0
    text = capsys.readouterr().out
    assert names(text)[0] == "aten::mm" and "gemm" not in text and "ProfilerStep*" not in names(text)
    assert "Total: 200us on the GPU" in text and "--: the row has no work of its own" in text
    assert main(["table", str(trace), "--sort-by", "count", "--limit", "1"]) == 0
    text = capsys.readouterr().out
    assert len(names(text)) == 1 and " ops; --limit -1 shows all." in text


def test_a_damaged_trace_prints_one_warning_line(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text(trace.read_text()[:-40])
    assert main(["table", str(trace)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"flopscope table: {trace}: the file is truncated: ")


@pytest.mark.parametrize("command", ["table", "compare"])
def test_shares_use_the_chosen_peaks(command: str, trace: Path, tmp_path: Path) -> None:
    traces, key = ([str(trace)], "key") if command == "table" else ([str(trace), str(trace)], "name")
    shares = {}
    for peaks in (None, "datasheet", "measured", "none"):
        options = [] if peaks is None else ["--peaks", peaks]
        assert main([command, *traces, *options, "--json", str(tmp_path / "out.json")]) == 0
        rows = json.loads((tmp_path / "out.json").read_text())["rows"]
        (row,) = (row for row in rows if row[key] in ("aten::mm", "mm"))
        shares[peaks] = row["pct_roofline" if command == "table" else "pct_roofline_a"]
    assert shares[None] == shares["datasheet"] > 0 and shares["none"] is None
    assert shares["measured"] > 0  # of this machine if it has an H200, otherwise the datasheet's


def test_files_contain_all_rows(trace: Path, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("csv", "json")}
    assert main(["table", str(trace), "--limit", "1", *(f"--{kind}={path}" for kind, path in files.items())]) == 0
    content = json.loads(files["json"].read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["device"] == {"kind": "cuda", "name": "NVIDIA H200"} and content["files"] == [str(trace)]
    rows = {row["key"]: row for row in content["rows"]}
    assert rows["gemm"]["self_device_time_total_us"] == 200.0 and rows["aten::relu"]["self_cpu_time_total_us"] == 80.0
    with open(files["csv"], newline="") as file:
        assert {r["key"]: int(r["count"]) for r in csv.DictReader(file)} == {k: r["count"] for k, r in rows.items()}


def test_several_traces_have_a_table_each(ranks: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", *ranks, "--limit", "2"]) == 0
    first, _, second = capsys.readouterr().out.partition(f"\n\n{ranks[1]}\n")
    assert first.startswith(f"{ranks[0]}\n") and [names(part) for part in (first, second)] == [names(first)] * 2
    assert " 600us" in first and " 200us" in second
    for option in ("--csv", "--json"):
        assert main(["table", *ranks, option, "x"]) == 2
        assert f"{option} writes the table of one trace, not of 2" in capsys.readouterr().err


def test_traces_of_a_process_are_no_ranks(trace: Path, ranks: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    later = trace.with_name("later.json")
    content = json.loads(trace.read_text())
    for each in content["traceEvents"]:
        each["ts"] += 10_000
    later.write_text(json.dumps(content))
    for files, what in (([trace, later], "process 1"), ([trace, trace], "process 1"), ([ranks[0]] * 2, "rank 1")):
        assert main(["report", *map(str, files)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"two of the traces are of {what}: {files[0]} and {files[1]} are recordings of one process" in line


def test_rows_are_chosen_by_kind_and_name(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*options: str) -> list[str]:
        assert main(["table", str(trace), *options]) == 0
        return names(capsys.readouterr().out)

    assert shown("--kind", "kernel") == ["gemm"]
    assert set(shown("--kind", "op")) >= {"aten::mm", "aten::relu"} and "gemm" not in shown("--kind", "op")
    assert shown("--kind", "range") == ["ProfilerStep*"]
    assert set(shown("--kind", "all")) > {"gemm", "aten::mm", "ProfilerStep*"}
    assert shown("--filter", "^aten::m") == ["aten::mm"] and shown("--filter", "relu") == ["aten::relu"]  # idle
    assert shown("--kernels", "--filter", "mm") == ["aten::mm", "  gemm"]
    assert len(shown("--kind", "all", "--top", "2")) == 2
    file = tmp_path / "out.json"
    assert shown("--kind", "kernel", "--json", str(file)) == ["gemm"]
    assert [row["key"] for row in json.loads(file.read_text())["rows"]] == ["gemm"]


STACK_TRACE = str(TRACES / "tutorial_naive_stack.json.gz")


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_tree_of_modules_fits_and_is_filtered(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", STACK_TRACE, "--group-by", "module", "--width", str(width)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width and "LayerNorm_1" in text and "Roofline" in text
    assert main(["table", STACK_TRACE, "--group-by", "module", "--width", str(width), "--filter", "Linear"]) == 0
    filtered = capsys.readouterr().out
    assert "Linear_0" in filtered and "LayerNorm" not in filtered


@pytest.mark.parametrize(("kind", "told"), [("range", True), ("all", True), ("kernel", False)])
def test_times_of_ranges_on_the_gpu_are_explained(kind: str, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", STACK_TRACE, "--kind", kind]) == 0
    assert ("Ranges of the GPU last from" in capsys.readouterr().out) == told


def test_the_columns_named_are_printed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(trace), "--columns", "bound", "Self CUDA,count"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[1:] == ["Bound", "Self", "CUDA", "Calls"]


# compare --------------------------------------------------------------------------------------------------------------


def test_two_traces_are_compared(ranks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("csv", "json")}
    assert main(["compare", *ranks, *(f"--{kind}={path}" for kind, path in files.items())]) == 0
    text = capsys.readouterr().out
    assert "a: own device times of one.json\nb: own device times of zero.json\n" in text
    assert "\nmm " in text and "3.00x" in text
    content = json.loads(files["json"].read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["device"]["a"] == {"kind": "cuda", "name": "NVIDIA H200"}
    mm = next(row for row in content["rows"] if row["name"] == "mm")
    assert (mm["time_a_us"], mm["time_b_us"], mm["ratio"], mm["count_a"]) == (600.0, 200.0, 3.0, 2)
    with open(files["csv"], newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [row["name"] for row in content["rows"]]
    assert main(["compare", *ranks, "--kind", "kernel", "--by", "name"]) == 0 and "gemm" in capsys.readouterr().out
