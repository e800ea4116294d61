"""Which changes are tried, in how many runs, and what is said of them; the program is simulated."""

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flopscope.cli.schema import schema
from flopscope.measuring.trying import trial
from flopscope.measuring.trying.inside import Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.result import Change, Tried, text_of
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.measuring.trying.trial import Program, Trial, choose, plan_of, predicted_of

USED = Seen(torch="2", cpus=4, threads=1, modules=1, trains=True, zeroed=True)


class Simulated:
    """Processes of a program whose steps take 10 ms, times a factor for each switch, with 1 % of noise."""

    def __init__(self, factors: dict[str, float], **how: Any) -> None:
        self.factors, self.how = factors, how
        self.count = 0
        self.started: list[str] = []
        """The switch of each run but the look."""
        self._draw = random.Random(3)

    def run(self, switch: str, seen: Seen, warm: int | None, steps: int, limit: float) -> Record:
        self.count += 1
        if switch in self.how.get("fails", ()):
            return Record(problem=f"RuntimeError: {switch} is not supported")
        hits = int(bool(switch) and switch not in self.how.get("idle", ()))
        apart = self.how.get("apart", 0.5) if switch in self.how.get("changes", ()) else 0.0
        record = Record(hits=hits, of="losses", values=[2.0, 1.0 + apart], peak=1e9)
        if warm is None:
            used = {name: self.how.get(name, False) for name in ("half", "draws")}
            record.seen = asdict(replace(USED, **used))
            record.marks = [3 + 0.01 * at for at in range(100)]
        else:
            self.started.append(switch)
            record.seconds = 0.01 * self._draw.gauss(1, self.how.get("noise", 0.01)) * self.factors.get(switch, 1.0)
            record.steps = warm + steps
        return record

    def trace(self, *rest: Any) -> Path:
        raise RuntimeError("it is simulated")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that tries changes of a simulated program."""

    def run(simulated: Simulated, *changes: str, **options: Any) -> Tried:
        monkeypatch.setattr(trial, "Processes", lambda *rest: simulated)
        return Trial(Program("train.py"), changes or None, **options).run()

    return run


def test_verdicts_are_those_of_the_program(tried: Any) -> None:
    factors = {"threads": 0.5, "autocast": 0.7, "zero_grad": 1.0, "compile": 1.2, "fused_optimizer": 0.5}
    factors["loader_workers"] = 1.0
    simulated = Simulated(factors, fails=["loader_workers"], changes=["fused_optimizer"])
    result = tried(simulated, *factors)
    verdicts = {one.name: one.verdict for one in result.changes}
    assert verdicts == {
        "threads": "faster", "autocast": "faster", "zero_grad": "same", "compile": "slower",
        "fused_optimizer": "changes results", "loader_workers": "failed",
    }  # fmt: skip
    gains = {one.name: one.ratio.gain for one in result.changes}
    assert gains["threads"] == pytest.approx(50, abs=2) and gains["compile"] == pytest.approx(-20, abs=3)
    assert simulated.started.count("fused_optimizer") == 1, "what changes results is not timed further"
    text = text_of(result, 100)
    assert "loader_workers is not supported" in text and "may change" in text


def test_a_program_of_16_bits_may_differ_by_their_rounding(tried: Any) -> None:
    for half, apart, kept in ((False, 0.01, False), (True, 0.01, True), (True, 0.5, False)):
        simulated = Simulated({"threads": 0.5}, changes=["threads"], apart=apart, half=half)
        assert tried(simulated, "threads").changes[0].verdict == ("faster" if kept else "changes results")


def test_runs_without_and_with_a_change_alternate(tried: Any) -> None:
    simulated = Simulated({"threads": 0.5})
    tried(simulated, "threads")
    assert simulated.started[:6] == ["threads", "", "", "threads", "threads", ""]


def test_what_finds_nothing_to_change_is_not_timed(tried: Any) -> None:
    simulated = Simulated({}, idle=["zero_grad"])
    result = tried(simulated, "zero_grad")
    assert [one.verdict for one in result.changes] == ["not applied"]
    assert simulated.started == ["zero_grad"] and "nothing to change" in text_of(result, 100)


def test_results_that_may_differ_by_random_numbers_are_not_judged(tried: Any) -> None:
    for draws, verdict in ((True, "faster"), (False, "changes results")):
        simulated = Simulated({"compile": 0.5}, changes=["compile"], draws=draws)
        result = tried(simulated, "compile")
        assert result.changes[0].verdict == verdict
        assert ("as it draws other random numbers" in text_of(result, 100).replace("\n  ", " ")) == draws


def test_of_a_group_only_the_best_is_kept(tried: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SWITCHES, "zero_grad", replace(SWITCHES["zero_grad"], group="compile"))  # type: ignore[misc]
    result = tried(Simulated({"zero_grad": 0.5, "compile": 0.8}), "zero_grad", "compile")
    assert result.kept == ["zero_grad"] and result.lines == ["optimizer.zero_grad(set_to_none=True)"]


def test_all_that_are_faster_are_kept_the_best_first(tried: Any) -> None:
    result = tried(Simulated({"threads": 0.5, "autocast": 0.8}), "autocast", "zero_grad", "threads")
    assert result.kept == ["threads", "autocast"] and "Each was measured alone." in text_of(result, 100)
    assert "torch.set_num_threads" in result.lines[0] and "bfloat16" in result.lines[1]


def test_the_first_change_has_its_pairs_before_the_time_is_over(tried: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow(Simulated):
        def run(self, *args: Any) -> Record:
            now[0] += 10.0
            return replace(super().run(*args), lasted=10.0)

    monkeypatch.setattr(trial.time, "monotonic", lambda: now[0])
    simulated = Slow({"threads": 0.9, "zero_grad": 0.9}, noise=0.1)
    result = tried(simulated, "threads", "zero_grad", "compile", max_time=100.0)
    assert [one.ratio.pairs for one in result.changes] == [trial.FEWEST, 1, 0] and now[0] <= 100
    assert "compile: the time was over before it was measured" in text_of(result, 100)


def test_noise_leaves_the_verdict_open_until_the_time_is_over(tried: Any) -> None:
    result = tried(Simulated({"threads": 0.98}, noise=0.1), "threads")
    assert result.changes[0].verdict == "unclear" and result.changes[0].ratio.pairs == trial.MOST


@pytest.mark.parametrize("most, verdict", [(40, "faster"), (7, "failed")])
def test_runs_end_with_a_program_of_fewer_steps(tried: Any, most: int, verdict: str) -> None:
    class Short(Simulated):
        def run(self, switch: str, seen: Seen, warm: int | None, *rest: Any) -> Record:
            record = super().run(switch, seen, warm, *rest)
            if record.steps > most:
                record.seconds, record.steps = None, most
            return record

    result = tried(Short({"threads": 0.5}), "threads")
    assert result.changes[0].verdict == verdict
    assert verdict == "faster" or "it ended after 7 steps, before the last measured one" in text_of(result, 100)


def test_a_program_that_fails_by_itself_is_an_error(tried: Any) -> None:
    class Failing(Simulated):
        def run(self, *args: Any) -> Record:
            return Record(problem="EOFError: EOF when reading a line")

    with pytest.raises(RuntimeError, match=r"train\.py does not run by itself: EOFError.*standard input is empty"):
        tried(Failing({}))


def test_an_interruption_keeps_what_was_measured(tried: Any) -> None:
    class Interrupted(Simulated):
        def run(self, switch: str, *rest: Any) -> Record:
            if switch == "zero_grad":
                raise KeyboardInterrupt
            return super().run(switch, *rest)

    result = tried(Interrupted({"threads": 0.5}), "threads", "zero_grad")
    assert [one.verdict for one in result.changes] == ["faster", "unclear"]
    assert any("interrupted" in note for note in result.notes)


def test_what_was_asked_for_and_does_not_apply_is_noted(tried: Any) -> None:
    result = tried(Simulated({}), "tf32")
    assert result.changes == [] and "tf32 does not apply: the program uses no GPU" in result.notes[-1]


def test_what_the_program_shows_is_tried_by_default(tried: Any) -> None:
    assert {one.name for one in tried(Simulated({})).changes} == {"threads", "zero_grad"}


# Plans and predictions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "step", "count", "whole", "warm", "steps"),
    [
        (3.0, 2**-7, 200, None, 5, 192),  # for half as long as the start takes
        (0.5, 2**-5, 40, None, 5, 16),  # for 0.5 s
        (20.0, 6.0, 12, None, 2, 3),
        (1.0, 0.01, 20, 2.0, 5, 15),  # the program ends
    ],
)
def test_steps_timed_suffice(start: float, step: float, count: int, whole: float | None, warm: int, steps: int) -> None:
    assert plan_of(Record(marks=[start + step * at for at in range(count)], whole=whole)) == (warm, steps, "")


@pytest.mark.parametrize("marks, why", [([], "no steps"), ([1.0, 1.1, 1.2], "3 steps, too few")])
def test_a_program_of_few_steps_is_timed_whole(marks: list[float], why: str) -> None:
    plan = plan_of(Record(marks=marks, whole=3.0))
    assert plan.steps == 0 and why in plan.note


def advice(rule: str, percent: float, **facts: float) -> Any:
    return SimpleNamespace(rule=rule, saving_pct=percent, facts=facts, action=f"mend {rule}", where=None)


def test_a_prediction_is_that_of_the_advice_and_other_advice_needs_an_edit() -> None:
    found, notes = [advice("align", 30.0), advice("data", 20.0), advice("data", 10.0)], list[str]()
    predicted = {name: predicted_of(one, found) for name, one in SWITCHES.items()}
    assert predicted["loader_workers"] == pytest.approx(30) and math.isnan(predicted["compile"])
    chosen = [one.name for one in choose(None, False, USED, found, notes)]
    assert chosen == ["loader_workers", "zero_grad", "threads"]
    assert notes == ["Needs an edit, with an estimate of 30.0%: mend align."]


# What is printed ------------------------------------------------------------------------------------------------------


def test_lines_keep_within_the_width() -> None:
    change = Change("fused_optimizer", predicted=40.0, hits=1)
    change.ratio = change.ratio._replace(value=0.5, low=0.45, high=0.55, pairs=4)
    change.memory = (1e9, 2e9)
    text = text_of(Tried("train.py", "step", 1e4, [change]), 80)
    assert max(map(len, text.splitlines())) <= 80 and "953.7 MiB -> 1.9 GiB" in text


def test_json_has_no_nan(tried: Any) -> None:
    content = tried(Simulated({"threads": 0.5}), "threads").to_dict()
    again = json.loads(json.dumps(content, allow_nan=False))
    assert again["changes"][0]["verdict"] == "faster" and again["changes"][0]["predicted_pct"] is None
    pytest.importorskip("jsonschema").Draft202012Validator(schema("tried")).validate(again)
