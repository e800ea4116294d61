"""The command line: output, files, errors and exit statuses."""

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
    words = [sys.executable, "-m", "flopscope", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **keywords)


@pytest.fixture(scope="module", autouse=True)
def measured() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this machine may be busy
        fs.measure_peaks("cpu", progress=False)  # stored in the folder that tests/conftest.py sets


# bench ----------------------------------------------------------------------------------------------------------------


TIMED = r"^\w+::\w+ +[\d.]+[mu]?s .*"  # a row of the table


def names(out: str) -> list[str]:
    """Return the names in the rows of a table."""
    return [line.split()[0].removeprefix("flopscope::") for line in re.findall(TIMED, out, re.M)]


def test_bench_runs_as_a_module() -> None:
    done = command(*SMALL)
    assert done.returncode == 0 and done.stderr == ""
    for expected in ("cpu: ", "32 × 32 float32, 2 times", "on the CPU. ", "% roof", "GB/s"):
        assert expected in done.stdout
    assert names(done.stdout) == [*bench.OPS]


def test_bench_writes_json_and_csv(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv")}
    assert main([*SMALL, *(f"--{kind}={file}" for kind, file in files.items())]) == 0
    content = json.loads(files["json"].read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["device"] == {"kind": "cpu", "name": fs.devices()[0].name}
    assert (content["size"], content["dtype"], content["repeat"]) == (32, "float32", 2)
    peaks = content["peaks"]
    assert peaks["source"] == "measured" and min(peaks["flops_per_s"]["fp32"], peaks["bandwidth_bytes_per_s"]) > 0
    rows = {row["key"].removeprefix("flopscope::"): row for row in content["rows"]}
    assert {*rows} == {*bench.OPS}
    assert all(len(row) == 1 + len(COLUMNS) and row["count"] == 2 for row in content["rows"])
    assert rows["matmul"]["flops"] == 2 * 2 * 32**3
    assert rows["add"]["bytes_total_moved"] == 2 * 3 * 4 * 32**2 and rows["sum"]["bytes_written"] == 2 * 4
    assert rows["ones"]["flops"] == 0 and rows["sin"]["pct_roofline"] > 0
    assert {row["bound"] for row in content["rows"]} <= set(fs._core.bounds)
    with open(files["csv"], newline="", encoding="utf-8") as stream:
        written = {row["key"].removeprefix("flopscope::"): row for row in csv.DictReader(stream)}
    assert {*written} == {*rows} and list(written["sin"]) == [column.name for column in COLUMNS]
    assert float(written["sin"]["flops"]) == 2 * 32**2 and written["sin"]["device_type"] == "cpu"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        *((("--dtype", dtype, "--ops", "matmul, sin"), ["matmul", "sin"]) for dtype in fs._core.float_dtypes),
        (("--ops", "sin,add,sin"), ["sin", "add"]),
        (("--size", "1", "--repeat", "1"), [*bench.OPS]),
    ],
)
def test_bench_has_options(options: tuple[str, ...], shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *options]) == 0
    out = capsys.readouterr().out
    assert names(out) == shown and "nan" not in out.lower()
    assert f" {options[1]}, 2 times" in out or options[0] != "--dtype"


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
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = command(*SMALL, "--ops", "sin,add", env={**os.environ, **plain})
    assert "Traceback" not in done.stderr and done.returncode == 0 and "sin " in done.stdout


# devices --------------------------------------------------------------------------------------------------------------


def test_devices_lists_and_measures_the_devices(tmp_path: Path) -> None:
    environment = {**os.environ, "FLOPSCOPE_CACHE_DIR": str(tmp_path / "cache")}
    name = fs.devices()[0].name
    before = command("devices", env=environment)
    assert before.returncode == 0 and before.stderr == ""
    assert f"cpu: {name}" in before.stdout and "flopscope devices --measure" in before.stdout
    why = no_cuda()
    assert (f"no CUDA device: {why}" in before.stdout) == (why is not None) and not list(tmp_path.rglob("*.json"))

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
    assert set(measured["flops_per_s"]) <= set(measured["spread"])
    assert measured["source"] == "measured" and measured["flops_per_s"]["fp32"] > 0 and measured["launch_ns"] > 0
    rates = [measured[f"{what}_bandwidth_bytes_per_s"] for what in ("copy", "read", "write")]
    assert measured["bandwidth_bytes_per_s"] == max(rates)
    assert all(math.isfinite(rate) for rate in measured["flops_per_s"].values())

    after = command("devices", "--json", str(file), env=environment)
    assert after.stdout == during.stdout, "stored peaks are not measured again"
    assert json.loads(file.read_text(encoding="utf-8"))["devices"][0]["measured"] == measured


def test_shapes_may_follow_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--peaks", "none", "--max-time", "0.01", "--device", "cpu"]
    assert main(["measure", "add", *options, "16,32", "16,32"]) == 0 and "add takes" in capsys.readouterr().out
