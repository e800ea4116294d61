"""The CPU of a trace: what its file says of it, and by whose peaks its work is rated."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import Program

import flopscope as fs
from flopscope.cli.program import main
from flopscope.results.results import Results
from flopscope.support import peaks as cache
from flopscope.support.device import CPU_MEMBER, find_device
from flopscope.support.peaks import Peaks

FP32, BANDWIDTH = 4e11, 2e10
WRITTEN = {"source": "measured", "flops": {"fp32": FP32}, "bandwidth": BANDWIDTH, "when": "2026-01-01T00:00:00+00:00"}
MEASURED = Peaks(**WRITTEN, launch_ns=50.0, kernel_ns=100.0)  # type: ignore[arg-type]
N = 256  # a product of N x N matrices takes 1 ms in the traces below
LEAST_US = 2 * N**3 / FP32 * 1e6


pytestmark = pytest.mark.usefixtures("nothing_measured")


@pytest.fixture()
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make a measurement store MEASURED, and return the list of those that were made."""
    made: list[str] = []

    class Quick:
        temporary = ()

        def __init__(self, device: Any) -> None:
            made.append(str(device))

        def run(self, progress: bool) -> Peaks:
            return MEASURED

    monkeypatch.setattr("flopscope.support.device.Measurement", Quick)
    return made


def store_peaks() -> None:
    cache.keep_peaks(find_device("cpu"), MEASURED, False, ())


def trace_with(tmp_path: Path, file: str = "trace", **cpu: Any) -> Results:
    """Write a trace as torch does, of a product on a CPU described by these members, and load it."""
    program = Program(0)
    program.op("aten::mm", 10, 1000, [N, N], [N, N], strides=[[N, 1], [N, 1]])
    program.head = {"schemaVersion": 1, "deviceProperties": []} | ({CPU_MEMBER: cpu.get("member", cpu)} if cpu else {})
    (tmp_path / f"{file}.json").write_bytes(program.text())
    return fs.load_trace(tmp_path / f"{file}.json")


def here(**changes: Any) -> dict[str, Any]:
    """Return the description of this machine's CPU, changed."""
    facts = find_device("cpu").properties
    return {**{name: facts[name] for name in ("name", "isa", "threads", "cache_bytes")}, **changes}


def share_of(trace: Results, peaks: str | None = None) -> float:
    return next(row for row in trace.key_averages(peaks=peaks) if row.key == "aten::mm").pct_roofline


def ideal_of(trace: Results, peaks: str | None = None) -> float:
    return float(trace.accounting(peaks=peaks).ideal.iloc[-1])


def test_a_written_trace_carries_the_cpu_and_its_measured_peaks(tmp_path: Path) -> None:
    store_peaks()
    x = fs.ones((64, 64))
    with fs.profile() as prof:
        fs.matmul(x, x)
    prof.export_chrome_trace(tmp_path / "trace.json")
    (member,) = [json.loads((tmp_path / "trace.json").read_text())[CPU_MEMBER]]
    peaks = member.pop("peaks")
    assert member == here() and member["threads"] == fs._core.num_threads()
    assert peaks["flops"] == {"fp32": FP32} and peaks["bandwidth"] == BANDWIDTH and peaks["source"] == "measured"


def test_the_peaks_in_a_trace_rate_it_on_every_machine(tmp_path: Path) -> None:
    cpu = {"name": "Another CPU", "threads": 96, "peaks": WRITTEN}
    trace = trace_with(tmp_path, **cpu)
    assert share_of(trace) == pytest.approx(LEAST_US / 1000 * 100)
    assert ideal_of(trace) == pytest.approx(LEAST_US, rel=1e-3)
    assert trace.key_averages().peaks == {"cpu": {"source": "measured", "name": "Another CPU"}}
    assert share_of(trace, "measured") == share_of(trace) and math.isnan(share_of(trace, "none"))
    trace.export_chrome_trace(tmp_path / "again.json.gz")
    again = json.loads(gzip.decompress((tmp_path / "again.json.gz").read_bytes()))
    assert again[CPU_MEMBER]["name"] == "Another CPU" and again["rooflinePeaks"] == {"cpu": "measured"}
    assert share_of(fs.load_trace(tmp_path / "again.json.gz")) == pytest.approx(share_of(trace))


def test_stored_peaks_rate_a_trace_of_this_cpu_measured_on_demand(tmp_path: Path, measurements: list[str]) -> None:
    trace = trace_with(tmp_path, **here())
    assert math.isnan(share_of(trace)), "nothing is measured unless asked for"
    (why,) = trace.key_averages().unknown_peaks.values()
    assert "flopscope devices --measure" in why and not measurements
    assert share_of(trace, "measured") == pytest.approx(LEAST_US / 1000 * 100) and measurements == ["cpu"]
    assert share_of(trace_with(tmp_path, **here())) == pytest.approx(LEAST_US / 1000 * 100), "now they are stored"


@pytest.mark.parametrize("change", [{"name": "Another CPU"}, {"threads": 1000}, {"isa": "sse"}, {"cache_bytes": 1}])
@pytest.mark.parametrize("peaks", [None, "measured", "datasheet"])
def test_no_trace_of_another_cpu_is_rated_by_this_one(
    tmp_path: Path, measurements: list[str], change: dict[str, Any], peaks: str | None
) -> None:
    store_peaks()
    trace = trace_with(tmp_path, **here(**change))
    table = trace.key_averages(peaks=peaks)
    assert math.isnan(share_of(trace, peaks)) and ideal_of(trace, peaks) == 0 and not table.peaks
    assert "another CPU" in table.unknown_peaks["cpu"] and not measurements
    trace.write_report(tmp_path / "page.html", peaks=peaks)
    assert '"measured"' not in json.dumps(table.peaks)


def test_a_trace_without_a_cpu_is_rated_by_this_one_on_demand_only(
    tmp_path: Path, measurements: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store_peaks()
    trace, path = trace_with(tmp_path), tmp_path / "trace.json"
    assert math.isnan(share_of(trace)) and "--peaks measured" in trace.key_averages().unknown_peaks["cpu"]
    assert share_of(trace, "measured") == pytest.approx(LEAST_US / 1000 * 100) and not measurements
    assert main(["summary", str(path)]) == 0
    assert "--peaks measured" in " ".join(capsys.readouterr().out.split("\n")[:2]), "the first lines say what helps"
    assert main(["summary", str(path), "--peaks", "measured"]) == 0 and "at the CPU's limits" in capsys.readouterr().out


@pytest.mark.parametrize(
    "peaks",
    [7, [], {"source": "measured"}, {"source": "guessed", "flops": {}, "bandwidth": 1.0, "when": "now"},
     {"source": "measured", "flops": {"fp32": -1}, "bandwidth": 1.0, "when": "now"},
     {"source": "measured", "flops": {"fp32": math.nan}, "bandwidth": 1.0, "when": "now"}],
)  # fmt: skip
def test_peaks_that_are_none_are_ignored_with_a_warning(tmp_path: Path, peaks: Any) -> None:
    with pytest.warns(UserWarning, match="the peaks of its CPU are ignored"):
        trace = trace_with(tmp_path, name="Another CPU", threads=4, peaks=peaks)
    assert math.isnan(share_of(trace)) and "Another CPU, 4 threads" in trace.key_averages().unknown_peaks["cpu"]


@pytest.mark.parametrize(
    "member", [None, 3, {}, {"name": "x"}, {"name": 3, "threads": 4}, {"name": "x", "threads": True}]
)
def test_a_description_without_name_and_threads_is_none(tmp_path: Path, member: Any) -> None:
    store_peaks()
    assert "does not name its CPU" in trace_with(tmp_path, member=member).key_averages().unknown_peaks["cpu"]


def test_compare_rates_both_sides_by_their_own_cpu(tmp_path: Path) -> None:
    slow = {**WRITTEN, "flops": {"fp32": FP32 / 2}}
    a = trace_with(tmp_path, "a", **{"name": "A", "threads": 1, "peaks": slow})
    store_peaks()
    (row,) = fs.compare(a, trace_with(tmp_path, "b", **here()))
    assert row.a.pct_roofline == pytest.approx(2 * row.b.pct_roofline) == pytest.approx(LEAST_US / 5)


def test_stated_work_alone_is_the_work_of_the_cpu(measurements: list[str]) -> None:
    with fs.profile() as prof, fs.record_function("product", flops=1e6, unit="fp32"):
        sum(range(100_000))
    whole = prof.accounting().iloc[-1]
    assert measurements == ["cpu"], "a live profile measures the CPU whose work is known"
    assert whole.ideal == pytest.approx(1e6 / FP32 * 1e6, abs=0.01)
    assert whole.mfu == pytest.approx(100 * whole.ideal / whole.total, rel=0.01) and whole.mbu == 0
    assert whole.host + whole.unmodelled < 0.5 * whole.total


def test_ranges_without_stated_work_measure_nothing(measurements: list[str]) -> None:
    with fs.profile() as prof, fs.record_function("product"):
        sum(range(1000))
    assert len(prof.key_averages()) == 1 and not len(prof.accounting()) and not measurements
    assert not any("devices --measure" in note for note in prof.advice().notes), "no peaks rate unknown work"


def test_torchs_live_profile_and_its_file_know_their_cpu(tmp_path: Path, measurements: list[str]) -> None:
    torch = pytest.importorskip("torch")
    import flopscope.torch as ft

    x = torch.ones(N, N)
    with ft.profile(record_shapes=True) as prof:
        torch.mm(x, x)
    assert math.isnan(share_of(prof)) and not measurements, "torch's profile does not measure by itself"
    for name in ("trace.json", "trace.json.gz"):
        prof.export_chrome_trace(str(tmp_path / name))
        trace = fs.load_trace(tmp_path / name)
        assert trace._cpu is not None and trace._cpu.facts == here()
    assert share_of(prof, "measured") > 0 and measurements == ["cpu"]
    assert share_of(prof) == share_of(prof, "measured") == pytest.approx(share_of(trace)), "now its peaks are stored"
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())[CPU_MEMBER]["peaks"]["flops"] == {"fp32": FP32}


def test_run_rates_cpus_of_known_work(tmp_path: Path, measurements: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from flopscope.cli import reporting

    unnamed, other, trace = (trace_with(tmp_path, **cpu) for cpu in ({}, here(name="Another CPU"), here()))
    assert ideal_of(trace) == 0
    said: list[str] = []
    monkeypatch.setattr(reporting, "tell", said.append)
    reporting._measure_cpu(trace)
    assert measurements == ["cpu"] and "once for this machine" in said[0]
    assert ideal_of(trace) == pytest.approx(LEAST_US, rel=1e-3), "the analysis before is not used again"
    assert ideal_of(unnamed) == ideal_of(other) == 0
    reporting._measure_cpu(trace)
    assert measurements == ["cpu"], "once"


def test_a_cpus_trace_is_told_in_a_cpus_words(tmp_path: Path) -> None:
    store_peaks()
    trace = trace_with(tmp_path, **here())
    text = f"{trace.summary()}\n{trace.key_averages()}\n{trace.advice()}\n{trace._repr_html_()}"
    for word in ("the device", "kernel", "launch late", "host late", "pin_memory", "autocast", "GPU", "cuda"):
        assert word not in text, word
    assert "at the CPU's limits" in text
