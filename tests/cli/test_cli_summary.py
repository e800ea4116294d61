"""flopscope summary: its text, its JSON, several traces, and errors."""

import json
from pathlib import Path

import pytest
from helpers.recordings import FAULTS

from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.cli.program import main


def test_it_prints_accounting_advice_and_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(FAULTS / "pointwise_before.json.gz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1.37ms a step; 1.06ms at the device's limits."
    assert lines[1] == "MFU 0.7% of the peak FLOP/s, MBU 77.7% of the peak bandwidth."
    assert lines[2].startswith("Recording delayed it by ")
    bars = lines.index("") + 1
    assert [line.split()[0] for line in lines[bars : bars + 4]] == ["ideal", "memory", "host", "other"]
    assert lines.index("Advice") < lines.index("GPUs") < lines.index("Time")
    assert lines[lines.index("Advice") + 1].startswith("  1. Fuse chains of memory-bound ops with torch.compile: ")


@pytest.mark.parametrize("name", ["pointwise_before", "launch_train_before", "data_before"])
def test_each_part_is_explained_within_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(FAULTS / f"{name}.json.gz")]) == 0
    text = capsys.readouterr().out.partition("\nAdvice")[0]
    parts = [line for line in text.splitlines() if line.split(" ", 3)[2:3] and line.split()[0] in PARTS]
    assert len(parts) > 3
    assert all(line.endswith(_core.parts[line.split()[0]].gloss) and len(line) <= 80 for line in parts)


def test_several_traces_are_printed_one_after_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(FAULTS / f"graph_{when}.json.gz") for when in ("before", "after")]
    target = tmp_path / "summary.json"
    assert main(["summary", *paths, "--json", str(target)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line in paths] == paths
    assert [trace["file"] for trace in json.loads(target.read_text())["traces"]] == paths
