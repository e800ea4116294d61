"""The devices that traces record, and the reasons that tables report for unknown peaks."""

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import kernel, load, op

import flopscope as fs
from flopscope import _core
from flopscope.cli.program import main
from flopscope.support.model import Model, models_of, why_unknown

MI300X = "AMD Instinct MI300X"
UNKNOWN = "AMD Instinct MI999"
STATE = 'state its peaks by peaks="memory=…,bf16_tensor=…" or --peaks, in bytes/s and FLOP/s'


def trace_of(properties: Any, device: int = 0) -> fs.Trace:
    """Return a trace with an element-wise op of 4 MiB that took 10 us on a device."""
    args = {"Input_Dims": [[1024, 1024]], "Input_type": ["float"], "Concrete_Inputs": [""]}
    events = op("aten::neg", 1, 5, External_id=1, **args), kernel("k", 8, 10, device=device, External_id=1)
    return load(*events, deviceProperties=properties)


def properties(name: str, sm_count: int, memory_bytes: int = 0, device: int = 0) -> dict[str, Any]:
    return {"id": device, "name": name, "numSms": sm_count, "totalGlobalMem": memory_bytes}


def test_models_read_sms_and_memory_and_ignore_invalid_properties() -> None:
    names = {0: "a", 1: "b", 2: "c", 3: "d"}
    listed = [
        {"id": 0, "numSms": 132, "totalGlobalMem": 85 << 30}, {"id": 1, "numSms": -3, "totalGlobalMem": 1 << 80},
        {"id": [2], "numSms": 7}, {"id": 3, "numSms": True, "totalGlobalMem": "much"}, "not a device",
    ]  # fmt: skip
    models = models_of(names, listed, ())
    assert models == {0: Model("a", 132, 85 << 30), 1: Model("b"), 2: Model("c"), 3: Model("d")}
    for odd in (None, {}, "text", [None]):
        assert models_of({0: "a"}, odd, ()) == {0: Model("a")}


def test_an_unlisted_device_has_the_model_that_all_others_share() -> None:
    same = [properties(MI300X, 304, device=0), properties(MI300X, 304, device=1)]
    assert models_of({0: MI300X, 1: MI300X}, same, [2]) == dict.fromkeys((0, 1, 2), Model(MI300X, 304))
    other = [properties(MI300X, 304, device=0), properties("AMD Instinct MI210", 104, device=1)]
    assert 2 not in models_of({0: MI300X, 1: "AMD Instinct MI210"}, other, [2]) and models_of({}, None, [2]) == {}
    table = trace_of(same, device=2).key_averages()
    assert table.peaks["cuda:2"] == {"source": "datasheet", "name": MI300X} and table.unknown_peaks == {}


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([properties(MI300X, 38)], f'the datasheet of "{MI300X}" is for 304 SMs, but this device has 38 SMs; {STATE}'),
        ([properties(UNKNOWN, 304)], f'no datasheet row for "{UNKNOWN}"; {STATE}'),
        ([], "the trace does not name the device"),
        ([properties("NVIDIA H200", 132)], None),
    ],
)
def test_a_table_reports_why_it_has_no_shares(listed: list[Any], reason: str | None) -> None:
    table = trace_of(listed).key_averages()
    (row,) = (row for row in table if row.key == "aten::neg")
    assert math.isnan(row.pct_roofline) == (table.peaks == {}) == (reason is not None)
    assert table.unknown_peaks == ({} if reason is None else {"cuda:0": reason})
    assert table.by_category().unknown_peaks == table[:1].unknown_peaks == table.unknown_peaks
    lines = table.table().splitlines()
    assert (f"% Roofline: unknown on cuda:0: {reason}." in lines) == (reason is not None)
    assert "--measure" not in table.table(), "the device is not in this machine"
    silent = trace_of(listed).key_averages(peaks="none")
    assert silent.unknown_peaks == {} and "% Roofline:" not in silent.table()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Model(UNKNOWN), f'no datasheet row for "{UNKNOWN}"'),
        (Model("NVIDIA H200", 66), 'the datasheet of "NVIDIA H200" is for 132 SMs, but this device has 66 SMs'),
        (
            Model("NVIDIA GeForce RTX 3080"),
            'several cards are called "NVIDIA GeForce RTX 3080" (68 SMs and 10 GiB or 70 SMs and 12 GiB), and the '
            "device does not identify its variant",
        ),
        (
            Model("nvidia  geforce RTX 3080", 68, 20 << 30),
            'the datasheet of "nvidia  geforce RTX 3080" is for 68 SMs and 10 GiB or 70 SMs and 12 GiB, but this '
            "device has 68 SMs and 20 GiB",
        ),
    ],
)
def test_unknown_peaks_have_a_specific_reason(model: Model, reason: str) -> None:
    assert _core.datasheet_find(*model) is None
    away = why_unknown(model, here=False, measured=False)
    assert away.startswith(reason) and "flopscope devices" not in away
    here = why_unknown(model, here=True, measured=False)
    assert here == f'{reason}; use peaks="measured" for the peaks measured on this machine'
    missing = why_unknown(model, here=True, measured=True)
    assert missing == f"{reason}, and its peaks are not measured yet: run flopscope devices --measure"


def test_peaks_of_an_unknown_device_are_stated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = trace_of([properties(UNKNOWN, 304)])
    table = trace.key_averages(peaks="memory=1.6e12, fp32=4e13")
    (row,) = (row for row in table if row.key == "aten::neg")
    assert row.pct_peak_bandwidth == pytest.approx(100 * 2 * 4 * 2**20 / 10e-6 / 1.6e12)
    assert table.peaks == {"cuda:0": {"source": "stated", "name": UNKNOWN}} and table.unknown_peaks == {}
    assert trace.accounting(peaks="memory=1.6e12,fp32=4e13").ideal.iloc[-1] == pytest.approx(5.24288, abs=1e-3)
    trace.export_chrome_trace(tmp_path / "trace.json")
    assert main(["summary", str(tmp_path / "trace.json"), "--peaks", "memory=8e11"]) == 0
    assert "its peaks are unknown" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("memroy=1", "there is no peak 'memroy'; did you mean 'memory'"),
        ("memory=fast", "the peak of memory must be a positive number"),
        ("memory=-1", "the peak of memory must be a positive number"),
        ("memory", 'peaks must be "measured", "datasheet", "none", or rates such as'),
    ],
)
def test_wrong_rates_are_errors(stated: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trace_of([]).key_averages(peaks=stated)
