"""What nsys reported of its own recording is printed where the recording has no kernels, and never trusted."""

from pathlib import Path
from typing import Any

import pytest
from helpers.captures import Nsys

import flopscope as fs

ADD = "void add_kernel(float *)"
WHY = "CUDA profiling might have not been started correctly."


def without_kernels(*reports: tuple[Any, Any], named: bool = True) -> Nsys:
    """A recording of ranges, with reports of nsys: severity and text."""
    made = Nsys()
    made.nvtx("range", 10, 90)
    for place, (severity, text) in enumerate(reports):
        made.add("DIAGNOSTIC_EVENT", timestamp=place, timestampType=1, source=2, severity=severity, text=text)
    if named:
        for number, name in enumerate(("Unknown", "Info", "Warning", "Error", "Verbose")):
            made.add("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", id=number, name=name, label=name)
    return made


def summary_of(trace: fs.Trace) -> str:
    return " ".join(str(trace.summary()).split())


@pytest.mark.parametrize("named", [True, False])
def test_reports_of_nsys_are_printed_where_there_are_no_kernels(named: bool, tmp_path: Path) -> None:
    reports = [(1, "Profiling has started."), (2, WHY), (1, "Number of CUDA events collected: \t0.")]
    reports += [(3, "It\nfailed"), (2, WHY)]
    trace = fs.load_trace(without_kernels(*reports, named=named).write(tmp_path / "x.sqlite"))
    said = [
        "nsys reported while it recorded (error): It failed",
        f"nsys reported while it recorded (warning): {WHY}",
        "nsys reported while it recorded (info): Number of CUDA events collected: 0.",
    ]
    assert trace.advice().notes[:3] == said
    text = summary_of(trace)
    assert all(one in text for one in said) and text.count(WHY) == 1 and "Profiling has started" not in text


def test_a_recording_with_kernels_needs_no_reports(tmp_path: Path) -> None:
    made = without_kernels((2, WHY))
    made.kernel(ADD, 20, 30)
    trace = fs.load_trace(made.write(tmp_path / "x.sqlite"))
    assert WHY not in summary_of(trace) and WHY not in str(trace.advice())
    assert trace.metadata["nsys"]["diagnostics"] == [{"severity": "warning", "text": WHY}]


def test_an_empty_recording_reports_at_once(tmp_path: Path) -> None:
    made = without_kernels((2, WHY))
    del made.tables["NVTX_EVENTS"]
    with pytest.warns(UserWarning, match="CUDA profiling might"):
        trace = fs.load_trace(made.write(tmp_path / "x.sqlite"))
    assert summary_of(trace).startswith("Nothing was recorded.") and WHY in summary_of(trace)


def test_hostile_reports_are_escaped_and_few(tmp_path: Path) -> None:
    texts: list[Any] = ["\x1b[31m<script>\u202e", "x" * 10_000, None, b"\xff\x00", 7]
    texts += [f"report {i}" for i in range(2000)]
    made = without_kernels(*((severity, text) for text in texts for severity in (2, None, "2", b"\x01")))
    trace = fs.load_trace(made.write(tmp_path / "x.sqlite"))
    text = summary_of(trace)
    assert "\x1b" not in text and "\u202e" not in text and r"\x1b[31m<script>" in text
    assert len(text) < 4000 and 'metadata["nsys"]["diagnostics"] has ' in text
    trace.write_report(tmp_path / "page.html")
    assert "[31m<script>" not in (tmp_path / "page.html").read_text(encoding="utf-8")
