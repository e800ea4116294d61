"""The command line: output, files, errors and exit statuses."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs
from flopscope.cli import bench
from flopscope.cli.program import main
from flopscope.results.table import COLUMNS

SMALL = ["bench", "--device", "cpu", "--size", "32", "--repeat", "2"]


def no_cuda() -> str | None:
    """Return why there is no CUDA device, or None if there is one."""
    try:
        return None if fs._core.cuda_device_count() else "there are no CUDA devices"
    except RuntimeError as why:
        return str(why)


def command(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flopscope", *arguments], capture_output=True, text=True, timeout=120, **keywords
    )


@pytest.fixture(scope="module", autouse=True)
def measured() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this machine may be busy
        fs.measure_peaks("cpu", progress=False)  # stored in the folder that tests/conftest.py sets


# bench ----------------------------------------------------------------------------------------------------------------


TIMED = r"^\w+::\w+ +[\d.]+[mu]?s .*"  # a row of the table


def test_bench_runs_as_a_module() -> None:
    done = command(*SMALL)
    assert done.returncode == 0 and done.stderr == ""
    for expected in (
        "cpu: ",
        "32 × 32 float32, 2 times",
        "on the CPU. ",
        "% roof",
        "GB/s",
    ):
        assert expected in done.stdout
    assert [line.split()[0] for line in re.findall(TIMED, done.stdout, re.M)] == [
        f"flopscope::{op}" for op in bench.OPS
    ]


def test_bench_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main([*SMALL, "--json", str(file)]) == 0
    content = json.loads(
        file.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON")
    )
    assert content["device"] == {"kind": "cpu", "name": fs.devices()[0].name}
    assert (content["size"], content["dtype"], content["repeat"]) == (32, "float32", 2)
    assert (
        content["peaks"]["source"] == "measured"
        and content["peaks"]["flops_per_s"]["fp32"] > 0
        and content["peaks"]["bandwidth_bytes_per_s"] > 0
    )
    rows = {row["key"]: row for row in content["rows"]}
    assert set(rows) == {f"flopscope::{name}" for name in bench.OPS}
    assert all(len(row) == 1 + len(COLUMNS) for row in content["rows"])
    assert all(row["count"] == 2 for row in content["rows"])
    assert rows["flopscope::matmul"]["flops"] == 2 * 2 * 32**3
    assert rows["flopscope::add"]["bytes_total_moved"] == 2 * 3 * 4 * 32**2
    assert rows["flopscope::sum"]["bytes_written"] == 2 * 4
    assert rows["flopscope::ones"]["flops"] == 0 and rows["flopscope::sin"]["pct_roofline"] > 0
    assert {row["bound"] for row in content["rows"]} <= set(fs._core.bounds)


def test_bench_writes_csv(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    assert main([*SMALL, "--csv", str(file), "--ops", "add,sin"]) == 0
    with open(file, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["key"] for row in rows] == ["flopscope::add", "flopscope::sin"]
    assert list(rows[0]) == [column.name for column in COLUMNS]
    assert float(rows[0]["flops"]) == 2 * 32**2 and rows[0]["device_type"] == "cpu"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_bench_supports_every_dtype(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--dtype", dtype, "--ops", "matmul, sin"]) == 0
    out = capsys.readouterr().out
    assert f"32 × 32 {dtype}" in out and "\nflopscope::matmul " in out and "\nflopscope::add " not in out


def test_bench_sorts_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--ops", "sin,matmul,ones", "--sort-by", "flops"]) == 0
    lines = [line.split()[0] for line in re.findall(TIMED, capsys.readouterr().out, re.M)]
    assert lines == ["flopscope::matmul", "flopscope::sin", "flopscope::ones"]
    assert main([*SMALL, "--ops", "sin,ones", "--sort-by", "self_cuda_time_total"]) == 0


def test_bench_runs_the_ops_named_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--ops", "sin,add,sin"]) == 0
    rows = [line.split() for line in re.findall(TIMED, capsys.readouterr().out, re.M)]
    assert [row[0] for row in rows] == ["flopscope::sin", "flopscope::add"]
    assert bench.run("cpu", size=16, ops=["sin", "add", "sin"], repeat=3).table[0].count == 6


def test_bench_runs_with_one_element(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", "cpu", "--size", "1", "--repeat", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 × 1 float32" in out and "nan" not in out.lower()


def test_help_and_version_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, part in (
        (["--help"], "bench"),
        (["bench", "--help"], "--sort-by"),
        (["devices", "--help"], "--measure"),
        (["--version"], fs.__version__),
    ):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert not stop.value.code and part in capsys.readouterr().out


# Failures: exit status 1 ----------------------------------------------------------------------------------------------


def test_a_too_large_matrix_prints_one_error_line() -> None:
    done = command("bench", "--device", "cpu", "--size", str(1 << 23))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "host memory" in done.stderr
    done = command("bench", "--device", "cpu", "--size", str(10**30))
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_a_missing_cuda_device_is_explained() -> None:
    why = no_cuda()
    if why is None:
        pytest.skip("there is a CUDA device")
    done = command("bench", "--device", "cuda", "--size", "8")
    assert (done.returncode, done.stdout) == (1, "") and done.stderr == f"flopscope bench: {why}\n"


def devices_into(stdout: int, unbuffered: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}  # "" turns it off
    command = [sys.executable, "-m", "flopscope", "devices"]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, env=environment)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_prints_nothing(unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = devices_into(closed.fileno(), unbuffered)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error_of_one_line(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = devices_into(full.fileno(), unbuffered)
    assert (done.returncode, done.stderr) == (1, "flopscope devices: [Errno 28] No space left on device\n")


def test_output_works_on_a_terminal_without_unicode() -> None:
    done = command(
        *SMALL, "--ops", "sin,add", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 and "sin " in done.stdout


# devices --------------------------------------------------------------------------------------------------------------


def test_devices_lists_and_measures_the_devices(tmp_path: Path) -> None:
    environment = {**os.environ, "FLOPSCOPE_CACHE_DIR": str(tmp_path / "cache")}
    name = fs.devices()[0].name
    before = command("devices", env=environment)
    assert before.returncode == 0 and before.stderr == ""
    assert f"cpu: {name}" in before.stdout and "flopscope devices --measure" in before.stdout
    why = no_cuda()
    assert (f"no CUDA device: {why}" in before.stdout) == (why is not None)
    assert not list(tmp_path.rglob("*.json"))

    file = tmp_path / "devices.json"
    during = command("devices", "--measure", "--json", str(file), env=environment)
    assert during.returncode == 0, during.stderr
    warned = during.stderr.splitlines()  # without a terminal there is no progress bar; this machine may be busy
    assert all(line.startswith("flopscope devices: ") and "on a busy machine" in line for line in warned)
    assert "measured" in during.stdout and "GB/s" in during.stdout and "fp32" in during.stdout
    (cpu, *rest) = json.loads(file.read_text(encoding="utf-8"))["devices"]
    assert (cpu["kind"], cpu["name"], cpu["datasheet"]) == ("cpu", name, None)
    assert cpu["properties"]["threads"] >= 1 and (rest == []) == (why is not None)
    measured = cpu["measured"]
    assert set(measured["flops_per_s"]) <= set(measured["spread"]) and set(measured["dates"].values()) == {
        measured["when"]
    }
    assert measured["source"] == "measured" and measured["flops_per_s"]["fp32"] > 0 and measured["launch_ns"] > 0
    assert measured["bandwidth_bytes_per_s"] == max(
        measured[f"{what}_bandwidth_bytes_per_s"] for what in ("copy", "read", "write")
    )
    assert all(math.isfinite(rate) for rate in measured["flops_per_s"].values())

    after = command("devices", "--json", str(file), env=environment)
    assert after.stdout == during.stdout, "stored peaks are not measured again"
    assert json.loads(file.read_text(encoding="utf-8"))["devices"][0]["measured"] == measured


def test_an_unusable_cache_is_not_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = command("devices", env={**os.environ, "FLOPSCOPE_CACHE_DIR": str(blocked)})
    assert done.returncode == 0 and "cpu: " in done.stdout


def test_shapes_may_follow_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--peaks", "none", "--max-time", "0.01", "--device", "cpu"]
    assert main(["measure", "add", *options, "16,32", "16,32"]) == 0
    assert "add takes" in capsys.readouterr().out
