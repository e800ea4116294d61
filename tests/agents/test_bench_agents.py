"""The benchmark of the tools for agents, on a few of its questions."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import agents as benchmark

QUESTIONS = {name: (folder, pair) for folder, name, pair in benchmark.questions()}
NAMES = ("vocab", "sync", "graph", "data", "pointwise", "optimizer", "lstm_loop", "master_weights")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_finds_the_fault_in_six_calls(name: str) -> None:
    folder, pair = QUESTIONS[name]
    client = benchmark.Client(str(folder))
    row = benchmark.asked(client, folder, name, pair)
    client.close()
    assert row["found"] and row["gain"] and 3 <= row["calls"] <= benchmark.MOST_CALLS
    assert row["rule"] in pair["rules"] and row["words"] < 1000
    if (folder / f"{name}_after.json.gz").exists():
        assert row["slowdown_pct"] < 0


def test_a_wrong_answer_is_not_counted_as_found() -> None:
    pair = {"rules": ["sync"], "before_ms": 10.0, "after_ms": 5.0}

    def judged(**answer: Any) -> dict[str, Any]:
        one = {"rule": "sync", "saving_pct": 50.0, "is_tied": True, **answer}
        return benchmark.judged({"advice": [{"rule": "x", "saving_pct": 60.0, "is_tied": True}, one]}, pair)

    assert (judged()["found"], judged()["first"], judged()["gain"]) == (True, False, True)
    assert judged(rule="launch")["found"] is False
    assert judged(is_tied=False)["found"] is False
    assert judged(saving_pct=20.0)["gain"] is False
    assert benchmark.judged({"advice": []}, pair)["found"] is False
    assert benchmark.judged({"advice": []}, {**pair, "after_ms": 9.9})["found"] is None
