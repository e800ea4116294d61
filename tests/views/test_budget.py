"""Summaries within a budget of words: how many, which, and that nothing is cut in half."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers import DATA, TRACES

import flopscope as fs
from flopscope.cli.program import main

FAULTS = DATA / "programs"
EVERY = sorted([*FAULTS.glob("*.json.gz"), *(DATA / "held_out").glob("*.json.gz"), *TRACES.glob("*.json.gz")])
BUDGETS = (50, 60, 80, 110, 160, 250, 400)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.grid(5)
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore")
def test_a_summary_keeps_to_its_words_and_shows_whole_lines_in_their_order(path: Path) -> None:
    trace = fs.load_trace(path)
    whole = trace.summary().fitted(100)
    lines = whole.split("\n")
    for budget in BUDGETS:
        text = trace.summary(budget=budget).fitted(100)
        assert 0 < words(text) <= budget
        if words(whole) <= budget:
            assert text == whole
            continue
        *shown, note = text.split("\n\n")
        assert re.match(rf"Left out to fit {budget} words: .+\.$", note.replace("\n", " "))
        assert max(map(len, text.split("\n"))) <= 100
        left = iter(lines)
        assert all(line in left for line in "\n".join(shown).split("\n") if line)
        assert lines[0] in shown[0].split("\n") or budget < words(lines[0]) + 45


def test_the_most_valuable_comes_first() -> None:
    trace = fs.load_trace(FAULTS / "vocab_before.json.gz")
    small, middle, large = (trace.summary(budget=budget).fitted(100) for budget in (50, 100, 180))
    assert small.startswith("28.7ms a step") and "1. Pad the vocabulary" in small and "MFU" not in small
    assert "details of Advice" in small and "GPUs, Time, Launches." in small
    assert "MFU" in middle and "Rows that are not multiples" in middle and "  compute " not in middle
    assert "  compute " in large and "8192x1024 1024x50257" in large
    assert large.endswith("Left out to fit 180 words: GPUs, Time, Launches.")


def test_sentences_and_rows_are_not_cut() -> None:
    trace = fs.load_trace(FAULTS / "optimizer_foreach_before.json.gz")
    advice = {row.action: row for row in trace.advice()}
    for budget in range(50, 400, 7):
        text = re.sub(r"\s+", " ", trace.summary(budget=budget).fitted(100))
        for action, row in advice.items():
            reason = re.sub(r"\s+", " ", row.reason)
            assert (f"({row.rule}" in text.replace("rule: ", "")) == (reason in text)
            if reason in text:
                assert action in text
        table = [line for line in trace.summary(budget=budget).fitted(100).split("\n") if line.startswith("  cuda:0")]
        for line in table:
            assert line in trace.summary().fitted(100).split("\n")


def test_facts_and_html_are_not_cut() -> None:
    trace = fs.load_trace(FAULTS / "vocab_before.json.gz")
    assert trace.summary(budget=50).to_dict() == trace.summary().to_dict()
    assert trace.summary(budget=50).html == trace.summary().html


@pytest.mark.parametrize("budget", [0, 49, -1, 60.5, True, "100"])
def test_a_budget_of_too_few_words_is_refused(budget: object) -> None:
    trace = fs.load_trace(FAULTS / "graph_after.json.gz")
    with pytest.raises(ValueError, match="budget must be a number of words, at least 50"):
        trace.summary(budget=budget)  # type: ignore[arg-type]


def test_the_command_shares_the_budget_among_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(FAULTS / f"{name}_before.json.gz") for name in ("vocab", "tf32", "graph")]
    assert main(["summary", *paths, "--budget", "200", "--json", str(tmp_path / "all.json")]) == 0
    out = capsys.readouterr().out
    assert words(out) <= 200 and out.count("Left out to fit 65 words") == 3 and all(path in out for path in paths)
    assert len(json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["traces"]) == 3
    assert main(["summary", paths[0], "--budget", "70"]) == 0
    assert words(capsys.readouterr().out) <= 70
    assert main(["summary", *paths, "--budget", "100"]) == 2
    assert "3 traces need at least 50 words each" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["summary", paths[0], "--budget", "20"])
    assert "'20' is not a number of words of at least 50" in capsys.readouterr().err


def test_a_live_profile_has_a_budget_too() -> None:
    x = fs.rand((64, 64), device="cpu")
    with fs.profile() as prof:
        fs.matmul(x, x)
    assert words(str(prof.summary(budget=50))) <= 50
