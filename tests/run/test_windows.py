"""When flopscope run records torch: the first steps, and later a few; all others are timed."""

import json
import math
import random
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.run_programs import run, script

import flopscope as fs
from flopscope import _core
from flopscope.record import windows as module
from flopscope.record.steps import StepCounter
from flopscope.record.windows import FEW_STEPS, LARGE, LATER_STEPS, OF_RANKS, Windows


class Program:
    """A program whose steps take longer while they are recorded; its clock is its own."""

    def __init__(self, bare: Callable[[int], float], recorded: float = 1.5, stop: float = 0.01, ranks: bool = False):
        self.now, self._bare, self._slower, self._stop = 5.0, bare, recorded, stop
        self.windows = Windows(ranks, lambda: self.now)
        self.nbytes_of_step, self.steps = 1000.0, 0
        self.spans: list[list[int]] = []  # first step of each recording, and the step after its last
        self.spent = 0.0  # by recording
        self._begin()

    def _begin(self) -> None:
        self.windows.begin()
        self.spans.append([self.steps, self.steps])

    def end(self, is_last: bool = False) -> None:
        self.windows.end(f"profile {len(self.spans)}", self._stop, is_last)

    def run(self, steps: int) -> "Program":
        for _ in range(steps):
            is_recorded = self.windows.times.is_recording
            bare = self._bare(self.steps)
            time = bare * (self._slower if is_recorded else 1.0)
            self.now, self.steps, self.spent = self.now + time, self.steps + 1, self.spent + time - bare
            self.spans[-1][1] += is_recorded
            if self.windows.is_over and not self.windows.times.step(self.steps):
                continue
            if self.windows.step(self.steps, self.nbytes_of_step * (self.spans[-1][1] - self.spans[-1][0])):
                if is_recorded:
                    self.now, self.spent = self.now + self._stop, self.spent + self._stop
                    self.end()
                else:
                    self._begin()
        return self


def test_the_first_steps_are_recorded_later_a_few_and_the_others_timed() -> None:
    program = Program(lambda step: 1.0 if step == 0 else 0.02).run(3000)
    assert [last - first for first, last in program.spans] == [module.FIRST_STEPS + 8, LATER_STEPS]
    windows, begun = program.windows, program.spans[1][0]
    assert windows.is_over and windows.kept is not None and windows.kept.prof == "profile 2"
    assert windows.kept.times == pytest.approx([30_000] * LATER_STEPS)
    dropped = 2  # steps amid which a recording ended
    assert windows.times.bare_count == 3000 - sum(last - first for first, last in program.spans) - dropped
    assert windows.times.bare() == pytest.approx([20_000] * windows.times.bare_count)
    assert begun - program.spans[0][1] >= 2 * module.SETTLED
    facts = windows.facts(0.0, "optimizer", "", 3000)
    assert facts is not None and len(facts["bare"]) == windows.times.bare_count
    assert facts["recorded"] == pytest.approx(30_000)
    assert facts["recorded_to_s"] - facts["recorded_from_s"] == pytest.approx(5 * 0.03)


@pytest.mark.parametrize("step", [1e-4, 0.005, 0.3, 8.0])
@pytest.mark.parametrize("stop", [0.01, 1.0])
def test_the_later_recording_costs_a_twentieth_of_the_time_before(step: float, stop: float) -> None:
    program = Program(lambda _: step, recorded=2.0, stop=stop)
    program.run(30)
    first = begun = 0.0
    while not program.windows.is_over:
        program.run(1)
        first = program.spent if len(program.spans) == 1 else first
        begun = program.now if len(program.spans) == 1 else begun
    assert program.spent - first <= 1.1 * (module.SHARE * begun + module.LATER_TIME) + stop
    assert program.windows.kept is not None and len(program.windows.kept.times) >= LATER_STEPS


def test_a_program_of_six_steps_has_its_six() -> None:
    program = Program(lambda _: 0.9).run(6)
    program.end(is_last=True)
    facts = program.windows.facts(0.0, "optimizer", "", 6)
    assert program.spans == [[0, 6]] and facts is not None and facts["recorded_from_s"] is None
    long = Program(lambda _: 60.0).run(6)
    assert long.spans[0] == [0, FEW_STEPS] and long.windows.times.bare_count == 2


def test_large_steps_end_the_first_recording() -> None:
    program = Program(lambda _: 0.01)
    program.nbytes_of_step = LARGE / 2
    program.run(20)
    assert program.spans[0] == [0, FEW_STEPS]


def test_steps_that_still_warm_up_are_waited_for() -> None:
    program = Program(lambda step: 0.02 * (1 + 20 * 0.97**step)).run(2000)
    times = program.windows.kept.times  # type: ignore[union-attr]
    assert program.windows.is_over and max(times) < 1.25 * 30_000


@pytest.mark.parametrize("last", [0, 3, 24])
def test_long_steps_are_recorded_by_themselves(last: int) -> None:
    """An evaluation after every 25 steps, a checkpoint after every 400: none is among the usual steps."""

    def bare(step: int) -> float:
        return 0.02 * (100 if step % 400 == 399 else 10 if step % 25 == last else 1)

    windows = Program(bare).run(4000).windows
    assert windows.kept is not None and max(windows.kept.times) == pytest.approx(30_000)
    assert [max(one.times) for one in windows.long] == pytest.approx([300_000, 3_000_000])
    assert all(len(one.times) <= 3 and min(one.times) == pytest.approx(30_000) for one in windows.long)
    facts = windows.facts(0.0, "optimizer", "", 4000)
    assert facts is not None and facts["recorded_long"] == [max(one.times) for one in windows.long]


@pytest.mark.parametrize("bare", [
    lambda step: 0.02 * (10 if step in (100, 137, 300, 411) else 1),  # not regular
    lambda step: 0.02 * (4 if step % 200 == 0 else 1),  # no part of the time
    lambda step: 0.02 * (10_000 if step % 200 == 0 else 1),  # too long
    lambda step: 0.02,
])  # fmt: skip
def test_long_steps_that_do_not_come_again_or_do_not_matter_are_not_recorded(bare: Callable[[int], float]) -> None:
    program = Program(bare).run(2000)
    assert program.windows.is_over and not program.windows.long and len(program.spans) <= 2 + module.TRIES


def test_long_steps_that_come_sooner_than_a_recording_ends_are_among_its_steps() -> None:
    windows = Program(lambda step: 0.02 * (10 if step % 4 == 0 else 1)).run(2000).windows
    assert windows.is_over and windows.kept is not None and max(windows.kept.times) == pytest.approx(300_000)


def test_a_program_that_records_itself_ends_a_recording_that_is_kept() -> None:
    program = Program(lambda _: 0.02).run(5)
    program.windows.give_up()
    program.end()
    assert program.windows.kept is not None and len(program.windows.kept.times) == 5


def test_a_long_step_that_is_late_is_given_up() -> None:
    program = Program(lambda step: 0.02 * (10 if step in (100, 200, 300, 450) else 1)).run(2000)
    windows = program.windows
    assert not windows.long and windows.times.awaited == module.NEVER and math.isinf(windows.times.long_from)


def test_processes_of_one_program_record_the_same_steps() -> None:
    random.seed(1)
    spans = [Program(lambda _: random.uniform(0.001, 0.1), ranks=True).run(200).spans for _ in range(4)]
    assert spans[0] == [[0, OF_RANKS[0]], [OF_RANKS[1], OF_RANKS[2]]] and all(one == spans[0] for one in spans)


def test_steps_that_were_a_warm_up_are_forgotten() -> None:
    """Three optimizer steps, the capture of a graph, and its replays."""
    program = Program(lambda _: 0.2).run(3)
    windows = program.windows
    program.now += module.ENDED - 0.1
    assert not windows.have_steps_ended and windows.look(LARGE, expects_steps=True), "three are enough"
    program.end()
    assert windows.facts(0.0, "optimizer", "", 3)["recorded"] == pytest.approx(0.3e6)  # type: ignore[index]
    assert not windows.look(0.0, expects_steps=True), "steps may come again"
    program.now += 2.0
    assert windows.have_steps_ended and windows.look(0.0, expects_steps=True), "the next recording begins"
    program._begin()
    program.now += 3.0
    program.end(is_last=True)
    facts = windows.facts(0.0, "optimizer", "", 3)
    assert facts is not None and windows.kept is not None and windows.kept.prof == "profile 2"
    assert (facts["kind"], facts["steps"], facts["bare"], facts["recorded"]) == ("", 3, [], None)


def test_one_step_is_too_few_to_end_for_its_size() -> None:
    windows = Program(lambda _: 0.2).run(1).windows
    assert not windows.look(2 * LARGE, expects_steps=True) and windows.look(module.MOST * LARGE, expects_steps=True)


def test_steps_may_come_again() -> None:
    program = Program(lambda _: 0.2).run(3)
    program.now += 2 * module.ENDED
    assert program.windows.have_steps_ended
    assert not program.run(1).windows.have_steps_ended


def test_without_steps_a_recording_ends_for_its_size_and_others_follow() -> None:
    program = Program(lambda _: 1.0)
    windows, begun = program.windows, [program.now]
    assert not windows.look(LARGE - 1, expects_steps=False) and not windows.look(LARGE, expects_steps=True)
    while program.now < 200:
        program.now += 0.05
        size = 1e9 * (program.now - begun[-1]) if windows.times.is_recording else 0.0
        if windows.look(size, expects_steps=False):
            if not windows.times.is_recording:
                windows.begin()
                begun.append(program.now)
            else:
                windows.end(f"profile {len(begun)}", 0.05)
    waits = [b - a for a, b in pairwise(begun)]
    assert waits == pytest.approx([1 << n for n in range(len(waits))], abs=0.2) and len(begun) == 8
    assert windows.kept is not None and windows.kept.prof == "profile 8"


def test_data_that_grew_is_no_recording() -> None:
    program = Program(lambda _: 1.0)
    assert program.windows.look(LARGE, expects_steps=False)
    program.end()
    program.windows.was_nothing()
    assert program.windows.look(0.0, expects_steps=False), "the next begins at once"
    program.windows.begin()
    assert not program.windows.look(3 * LARGE, expects_steps=False) and program.windows.look(5 * LARGE, False)


def test_of_many_steps_every_so_many_times_are_kept() -> None:
    random.seed(2)
    most, spans = 1 << 16, [random.randrange(1, 1000) for _ in range(150_000)]
    ends = iter([0, *accumulate(spans)])
    times = _core.StepTimes(lambda: float(next(ends)))
    for number in range(len(spans) + 1):
        times.step(number)
    assert times.bare_count == len(spans) and most // 2 <= times.kept < most
    assert times.bare() == [1e6 * span for span in spans[3::4]], "every fourth"
    longest = sorted(range(len(spans)), key=lambda at: (-spans[at], at))[:5]
    assert [[time, number] for time, number, _ in times.slowest] == [[1e6 * spans[at], at + 1] for at in longest]


def test_steps_after_a_recording_begin_with_idle_devices() -> None:
    """The host runs ahead for a step and waits for its device from then on, 30 s a step; they do not count as bare."""
    times = _core.StepTimes(iter([0.0, 1, 31, 40, 50, 53, 83, 113]).__next__)
    times.step(0)
    times.begin()
    times.step(1)
    assert times.end() == [30e6] and times.drained != times.drained
    times.go_on()
    for number in range(2, 6):
        times.step(number)
    assert times.drained == 3e6 and times.bare() == [30e6, 30e6][: times.bare_count] and times.bare_count == 2


@pytest.mark.parametrize(("calls", "steps"), [
    ("a" * 40, 40),
    ("ab" * 5, 5),  # as of a model with Muon and AdamW
    ("abc" * 4, 4),
    ("ddddg" * 4, 4 + 3),  # the first four were thought to be alone
    ("a" * 5 + "b" * 100, 5 + 100 - 31),  # one after the other
])  # fmt: skip
def test_of_several_optimizers_in_turn_the_last_ends_a_step(calls: str, steps: int) -> None:
    counter = StepCounter(lambda count: None, bool)
    cuda = SimpleNamespace(is_initialized=lambda: False)
    ended = []
    for at, call in enumerate(calls):
        counter._optimized(ord(call), cuda)
        ended += [at] if counter.count > len(ended) else []
    assert counter.count == steps == len(ended) and ended[-1] == len(calls) - 1


def recorded(tmp_path: Path, code: str, *options: str, needs: str = "torch") -> tuple[dict[str, Any], str, fs.Trace]:
    """Run a program, and return what its summary's JSON says of its steps, the summary's text, and the trace."""
    pytest.importorskip(needs)
    options = (*options, "--no-report", "--json", "s.json", "--trace", "t.json")
    result = run(tmp_path, *options, script(tmp_path, code))
    assert result.returncode == 0, result.stderr
    facts = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["recording"]
    json.loads((tmp_path / "t.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)  # NaN is not JSON
    return facts, " ".join(result.stderr.split()), fs.load_trace(tmp_path / "t.json")


TRAINING = """
    import json, time, torch
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer, times, begin = torch.optim.SGD(model.parameters(), 0.01), [], time.monotonic()
    def evaluate():
        time.sleep(0.1)
    while time.monotonic() < begin + 6 or len(times) < 600:
        if len(times) % 60 == 59:
            evaluate()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter())
    print(json.dumps(sorted(b - a for a, b in zip(times, times[1:]))[len(times) // 2]))
    """


def test_a_step_takes_what_it_takes_without_recording(tmp_path: Path) -> None:
    facts, text, trace = recorded(tmp_path, TRAINING)
    assert facts["step"] == "optimizer" and facts["recorded_steps"] >= FEW_STEPS and facts["bare_steps"] > 20
    assert facts["bare_step_low_us"] <= facts["bare_step_us"] <= facts["bare_step_high_us"]
    assert "steps that nothing recorded" in text and "flopscope run --whole records all" in text
    assert "of the steps not recorded take 3 times that or more" in text
    assert any(slow["line"] and slow["line"].endswith(" evaluate") for slow in facts["slow_steps"])
    whole = trace.accounting().iloc[-1]
    assert whole.step == "not recorded" and whole.total == pytest.approx(facts["bare_step_us"])
    assert whole[list(_core.parts)].sum() == pytest.approx(whole.total)
    steps = trace.accounting().iloc[:-1]
    assert FEW_STEPS <= len(steps) <= facts["recorded_steps"] and steps.total.min() > 0
    assert [row["step"] for row in trace.summary().to_dict()["accounting"]] == [*steps.step, None]
    assert trace.summary().to_dict()["recording"] == facts, "a trace says what flopscope run said"
    scales = trace.what_if().iloc[:-1].total / steps.total
    assert scales.to_numpy() == pytest.approx(scales.mean(), rel=1e-3), "on a CPU, all of a step is scaled"


def test_the_whole_is_recorded_on_request(tmp_path: Path) -> None:
    code = TRAINING.replace("begin + 6 or len(times) < 600", "begin + 1.5")
    facts, text, trace = recorded(tmp_path, code, "--whole")
    assert facts["bare_steps"] == 0 and facts["bare_step_us"] is None and "nothing recorded" not in text
    assert facts["recorded_steps"] == len(trace.accounting()) - 1


def test_the_passes_of_a_module_are_steps(tmp_path: Path) -> None:
    code = """
        import time, torch
        torch.set_num_threads(1)
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(20)])
            def forward(self, x):
                return self.layers(x)
        net, begin, count = Net(), time.monotonic(), 0
        while time.monotonic() < begin + 20 or count < 3000:
            net(torch.ones(4, 16))
            count += 1
        print(count)
        """
    facts, text, trace = recorded(tmp_path, code)
    assert (facts["step"], facts["step_of"]) == ("forward", "Net") and facts["bare_steps"] > 20
    assert "A step is a pass of Net, found by repetition" in text
    steps = trace.accounting().iloc[:-1]
    calls = next(row.count for row in trace.key_averages() if row.key == "aten::linear")
    assert facts["recorded_steps"] >= len(steps) >= FEW_STEPS and calls == pytest.approx(20 * len(steps), abs=20)


def test_the_passes_of_a_jitted_function_are_steps(tmp_path: Path) -> None:
    code = """
        import time, jax, jax.numpy as jnp
        @jax.jit
        def train(x, key):
            return jnp.tanh(x @ x) + jax.random.normal(key, x.shape)
        split, times, x, key = jax.jit(jax.random.split), [], jnp.ones((64, 64)), jax.random.PRNGKey(0)
        begin = time.monotonic()
        while time.monotonic() < begin + 6 or len(times) < 1500:
            for _ in range(3):
                key, _ = split(key)
            x = train(x, key).block_until_ready()
            times.append(time.monotonic())
        print(len(times), sorted(b - a for a, b in zip(times, times[1:]))[len(times) // 2])
        """
    facts, text, trace = recorded(tmp_path, code, needs="jax")
    assert (facts["step"], facts["step_of"]) == ("jax", "train") and facts["bare_steps"] > 200
    assert facts["recorded_steps"] >= LATER_STEPS and facts["recorded_step_us"] > 0
    assert "A step is a pass of train, found by repetition" in text and "XLA compiled for" in text
    assert "JAX runs on the CPU here" in text and "Advice" not in text and "no op ran" not in text
    assert trace.summary().to_dict()["recording"] == facts, "a trace says what flopscope run said"


def test_marked_steps_without_torch_are_timed(tmp_path: Path) -> None:
    code = """
        import time
        import flopscope as fs
        x = fs.ones((64, 64))
        for i in range(1200):
            fs.exp(x)
            time.sleep(0.002)
            fs.step()
        """
    facts, _, trace = recorded(tmp_path, code, needs="flopscope")
    assert facts["step"] == "flopscope.step()" and facts["bare_steps"] > 100 and facts["bare_step_us"] > 2000
    count = next(row.count for row in trace.key_averages() if row.key == "flopscope::exp")
    assert LATER_STEPS <= count < facts["recorded_steps"] < 1200
    whole, _, trace = recorded(tmp_path, code, "--whole", needs="flopscope")
    assert whole["bare_steps"] == 0 and len(trace.accounting()) - 1 == 1199
