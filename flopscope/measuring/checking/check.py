"""check(): is a kernel right, is it faster than a reference, and how far is it from the limit.

A kernel is right if its outputs are those of the reference for all inputs that are tried; only then is its time a time
of the work. What could make a wrong or idle kernel pass is looked for as well: outputs that are alike for all inputs, a
reference that differs from call to call, results that are those of earlier calls.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from flopscope import _core
from flopscope.measuring.arrays import bytes_of, dtype_of, filler, flat, is_array, is_contiguous, is_floating
from flopscope.measuring.checking.bench import Bench, Outcome, Output, Results
from flopscope.measuring.checking.inputs import NUDGES, Case, Inputs, made, nudged
from flopscope.measuring.checking.isolated import Crashed, Isolated, Raised
from flopscope.measuring.checking.judge import Expected, apart_by, difference, expect, same_twice, undetermined
from flopscope.measuring.checking.result import Beside, Checked, Verdict
from flopscope.measuring.counting import Counts, relate, traffic_sentence
from flopscope.measuring.cuda import devices_of
from flopscope.measuring.measuring import is_impossible, peaks_for, require_numbers, require_source
from flopscope.measuring.paired import TimesCompared, judged, rounds
from flopscope.measuring.sampling import NoTime, Sample
from flopscope.measuring.stage import Stage, name_of, require_callable
from flopscope.support.progress import time_bar
from flopscope.support.units import plural, si_text

Side = tuple[Bench | Isolated, int]
"""Where a function is called, and its place there."""
DOUBLE = ("float64", "complex128")
ROUNDED = 3
"""Calls of the reference with rounded inputs, by case."""
MARGIN = 0.01
MIN_ROUNDS, MIN_TIME = 20, 0.05
"""The minimum number of rounds in which both are timed, and their seconds."""
UNDER_LOAD = " under load of other work"
L2S, DRAWN = 4, 16
"""Times the size of the L2 that inputs must have for what is read of them to count; elements drawn of each."""
CASES_SECONDS = 20.0
"""After which no optional case begins."""


class Wrong(Exception):
    """Raised if a kernel is wrong. The text says how."""


def check(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    *args: Any,
    inputs: Callable[[int], Sequence[Any]] | None = None,
    shapes: Sequence[Sequence[tuple[int, ...]]] | None = None,
    outputs: Sequence[int] = (),
    baselines: Mapping[str, Callable[..., Any]] | None = None,
    margin: float = MARGIN,
    max_time: float = 3.0,
    device: str | None = None,
    peaks: Literal["measured", "datasheet", "none"] = "measured",
    seed: int = 0,
) -> Checked:
    """Return whether a kernel computes what a reference does, whether it is faster, and how far it is from the limit.

    Both are called with arrays like ``args``, of torch, NumPy, CuPy, JAX or flopscope, also in tuples, lists and dicts.
    First their outputs are compared for many inputs: those given, normal and large values, other shapes, zeros, one-hot
    rows, NaN, infinities. The error that is allowed follows from the reference in float64: 4 ULPs of the output and 64
    times what rounding each input once changes, or 4 times the error of the reference itself in the dtype. Then both
    are timed in turns, each call with contents that no other has, and outputs of timed calls are compared as well.

    inputs: returns the arguments for a seed, instead of ``args``; the contents are then its own, and the shapes, which
        are the same for each seed.
    shapes: the shapes of the arrays, in the order of the arguments, a list per case, instead of variations.
    outputs: places of the kernel's arguments into which it writes its results; the reference is called without them. An
        argument that the reference changes is an output, too.
    baselines: other functions that compute the same, by name, as {"torch.compile": torch.compile(reference)}: each is
        timed beside the kernel, for as long again, if its outputs for the first inputs are right.
    margin: relative difference up to which times count as the same.
    max_time: seconds for which both are timed. Outputs for other shapes are compared for up to 20 s before.
    device, peaks: as in flopscope.measure.
    seed: of the random values: the same seed gives the same inputs.

    The verdict is "faster", "slower", "same" or "unclear", as of compare_times(); "wrong" if an output differs, or
    an input or memory next to it is changed; "invalid" if the time is no time of the work: results of other calls are
    returned, work goes on after the return, or the device cannot have done it so fast.

    Raises TypeError and ValueError for invalid arguments. Exceptions of the reference and of the kernel for the given
    inputs propagate.
    """
    require_numbers(margin=margin, max_time=max_time)
    require_source(peaks)
    others = [*(baselines or {}).values()]
    for function in (kernel, reference, *others):
        require_callable(function)
    args, written = checked_arguments(made(inputs, seed) if inputs is not None else args, outputs)
    arrays = sum(is_array(one) for _, one in flat(args))
    for each in shapes or ():
        if len(each) != arrays or not all(isinstance(shape, (tuple, list)) for shape in each):
            raise ValueError(f"shapes= needs a list of {plural(arrays, 'shape')} per case, one per array, not {each!r}")
    bench = Bench([kernel, reference, *others], args, [frozenset(), *[frozenset(outputs)] * (1 + len(others))])
    names = [name_of(kernel), name_of(reference), *(baselines or {})]
    sides = [(bench, place) for place in range(len(names))]
    run = Run(sides, names, Inputs(args, inputs, seed, written), written)
    return run.checked(shapes, margin, max_time, device, peaks)


def checked_arguments(args: tuple[Any, ...], outputs: Sequence[int]) -> tuple[tuple[Any, ...], frozenset[int]]:
    """Return the arguments, and the places of outputs in flat(). Raise ValueError if none is an array, or an output is
    none."""
    if not any(is_array(one) for _, one in flat(args)):
        raise ValueError("check() needs arguments that are arrays: check(kernel, reference, x), or inputs=")
    if wrong := [at for at in outputs if not 0 <= at < len(args) or not is_array(args[at])]:
        raise ValueError(f"outputs={[*outputs]}: argument {wrong[0]} of {len(args)} is no array")
    return args, frozenset(len(flat(args[:at])) for at in outputs)


class Run:
    """A check of a kernel. sides: the benches of the kernel, the reference and the baselines, and the places there."""

    def __init__(self, sides: Sequence[Side], names: Sequence[str], inputs: Inputs, outputs: frozenset[int]) -> None:
        self._sides, self._names, self._inputs = sides, names, inputs
        self._outputs = Results(outputs, bool(outputs))
        """The arguments that are results of the kernel, as stated."""
        self._changed: frozenset[int] = frozenset()
        """Arguments that the reference changes, which are results of both."""
        self._viewed: frozenset[int] = frozenset()
        """Arguments whose memory the reference returns."""
        self._cases: list[str] = []
        self._notes: list[str] = []
        self._refused: dict[str, list[str]] = {}
        """The first reason for which the kernel refuses inputs and their names, by the reason without its numbers."""
        self._failed: tuple[Any, ...] | None = None
        self._apart: dict[str, float] = {}
        """By how much calls with the same inputs differ at most, over what is allowed, by when they do."""
        self._timed = [1]
        self._seen: dict[str, Any] = {}

    def checked(self, shapes: Any, margin: float, max_time: float, device: str | None, peaks: str) -> Checked:
        why = ""
        verdict: Verdict
        try:
            with time_bar(f"checking {self._names[0]}", max_time + CASES_SECONDS) as show_time:
                self._compare_outputs(shapes, show_time)
                verdict = self._time(margin, max_time, device, peaks).verdict
        except (Wrong, Crashed) as problem:
            verdict, why = "wrong", str(problem)
        except NoTime as problem:
            verdict, why = "invalid", str(problem)
        apart = (f"calls with the same inputs{when} differ by up to {of:.2g}" for when, of in self._apart.items() if of)
        self._notes += [f"{text} × the allowed error" for text in apart]
        return Checked(
            verdict=verdict,
            kernel=self._names[0],
            reference=self._names[1],
            reason=why,
            **self._seen,
            cases=tuple(self._cases),
            seed=self._inputs.seed,
            isolated=isinstance(self._sides[0][0], Isolated),
            notes=tuple(dict.fromkeys(self._notes)),
            failed=self._failed,
        )

    # Outputs ----------------------------------------------------------------------------------------------------------

    def _compare_outputs(self, shapes: Any, show_time: Callable[[], object]) -> None:
        """Raise Wrong unless the outputs are right for all inputs, and NoTime if that would show nothing."""
        for name, one in zip(self._inputs.names, self._inputs.args, strict=True):
            if is_array(one) and not is_contiguous(one):
                self._notes.append(f"argument {name} is not contiguous: contiguous ones are checked and timed instead")
        begin, first, telling, skipped = time.monotonic(), None, False, 0
        for case in self._inputs.cases(shapes):
            show_time()
            if case.optional and time.monotonic() - begin > CASES_SECONDS:
                skipped += 1
                continue
            try:
                expected = self._expected(case)
            except Exception as problem:
                if first is None:
                    raise
                if not case.optional:
                    self._notes.append(f"{self._names[1]} refuses {case.name}: {_first_line(problem)}")
                continue
            if first is None:
                again = self._side(1, case).outputs
                if not all(same_twice(one.output, two) for one, two in zip(expected, again, strict=True)):
                    raise NoTime(f"{self._names[1]} is not deterministic: a second call with the same inputs differs")
                self._try_baselines(case, expected)
                begin = time.monotonic()  # baselines may have been compiled
            elif not telling and not case.reshaped:
                telling = any(difference(two.output, one) for one, two in zip(first, expected, strict=False))
            first = first or expected
            self._compare(case, expected)
        for why, *names in self._refused.values():
            others = f" and {plural(len(names) - 1, 'other input')}" if names[1:] else ""
            self._notes.append(f"{self._names[0]} refuses {names[0]}{others}: {why}")
        if skipped:
            self._notes.append(f"{plural(skipped, 'other input')} did not begin in {CASES_SECONDS:g} s")
        if not telling:
            raise NoTime("the outputs of all inputs are equal, so that a kernel that does nothing would be right")

    def _try_baselines(self, case: Case, expected: Sequence[Expected]) -> None:
        """Leave those out that are wrong."""
        for place, name in [*enumerate(self._names)][2:]:
            try:
                found = _difference(self._side(place, case).outputs, expected)
            except Exception as problem:
                found = _first_line(problem)
            if found:
                self._notes.append(f"{name} is not timed: {found}")
            else:
                self._timed.append(place)

    def _side(self, which: int, case: Case, dtype: str = "", expected: Sequence[Expected] = ()) -> Outcome:
        bench, place = self._sides[which]
        results = Results(self._changed) if which else self._results
        spoiled = [(one.output.dtype, one.output.values.shape) for one in expected]
        return bench.outcome(place, case, results, which == 1, dtype, spoiled)

    @property
    def _results(self) -> Results:
        return self._outputs if self._outputs.alone else Results(self._changed)

    def _expected(self, case: Case) -> list[Expected]:
        """Return what is expected of the outputs, by calls of the reference in its dtype and in float64."""
        given = self._side(1, case)
        if not given.outputs:
            raise NoTime(f"{self._names[1]} returns {given.returned}, in which no array is found, and changes none")
        self._changed |= given.changed
        self._viewed |= given.viewed
        exact = self._values(case, "float64")
        dtype = "" if exact is None else "float64"
        if exact is None:
            self._notes.append(f"{self._names[1]} does not run in float64: its own outputs are what is expected")
        several = [self._values(self._inputs.rounded(case, number), dtype) for number in range(ROUNDED)]
        exactly = range(NUDGES if any(one.values.dtype.kind != "f" for one in given.outputs) else 0)
        near = [self._values(self._inputs.rounded(case, number, nudged), dtype) for number in exactly]
        short = self._values(case, "float32") if any(one.dtype in DOUBLE for one in given.outputs) else None
        return [
            expect(
                output,
                None if exact is None else exact[at],
                [one[at] for one in several if one],
                None if short is None or output.dtype not in DOUBLE else short[at],
                [one[at] for one in near if one],
            )
            for at, output in enumerate(given.outputs)
        ]

    def _values(self, case: Case, dtype: str) -> list[Any] | None:
        """Return the values of the reference's outputs, None where it fails or does not compute them in float64."""
        with suppress(Exception), np.errstate(all="ignore"):
            found = self._side(1, case, dtype).outputs
            if dtype != "float64" or all(one.values.dtype.kind != "f" or one.dtype in DOUBLE for one in found):
                return [one.values for one in found]
        return None

    def _compare(self, case: Case, expected: Sequence[Expected]) -> None:
        """Raise Wrong unless the kernel's outputs are as expected, and so are those of more calls, one under load."""
        before: list[Output] = []
        for when in ("", "", UNDER_LOAD):
            try:
                outcome = self._side(0, self._poisoned(case._replace(loaded=bool(when)), expected), "", expected)
            except (NoTime, Crashed):
                raise
            except Exception as problem:
                if not self._cases:
                    raise
                if case.reshaped and not case.optional:  # a shape that was asked for
                    raise Wrong(f"for {case.name}{when}, it raises {_first_line(problem)}") from None
                why = _first_line(problem)
                self._refused.setdefault(re.sub(r"\d+", "", why), [why]).append(case.name)
                return
            outputs = self._without_nan(case, outcome.outputs, expected)
            found = self._fault(outcome) or _difference(outputs, expected)
            if found and case.edge:
                self._notes.append(f"for {case.name}{when}, {found}")
                return
            if found:
                self._failed = case.values
                raise Wrong(f"for {case.name}{when}, {found}")
            for output, of in zip(outputs, expected, strict=True):
                if many := undetermined(output, of):
                    what = f"{plural(many, 'element')} of output{output.path}"
                    self._notes.append(f"for {case.name}, not compared: {what}, which a rounding of the inputs changes")
            before = before or outcome.outputs
            self._apart[when] = max(self._apart.get(when, 0.0), *map(apart_by, before, outcome.outputs, expected))
        self._cases.append(case.name)

    def _without_nan(self, case: Case, outputs: Sequence[Output], expected: Sequence[Expected]) -> list[Output]:
        """Return the outputs with what is expected where the kernel alone is NaN for a NaN, which may spread further in
        another order of operations, or one side alone is for infinities, which may add up to NaN; note that."""
        infinite = case.name.startswith("infinities")
        if not infinite and not case.name.startswith("a NaN"):
            return [*outputs]
        found = [*outputs]
        for at, (output, of) in enumerate(zip(outputs, expected, strict=False)):
            if of.allowed is None or output.values.shape != of.values.shape:
                continue
            mine, theirs = np.isnan(output.values), np.isnan(of.values)
            alone = mine != theirs if infinite else mine & ~theirs
            found[at] = output._replace(values=np.where(alone, of.values, output.values))
            if alone.any():
                many = plural(int(np.count_nonzero(alone)), "element")
                self._notes.append(f"for {case.name}, {many} of output{output.path} is NaN on one side alone")
        return found

    def _poisoned(self, case: Case, expected: Sequence[Expected]) -> Case:
        """Return the case with arguments that are results alone full of NaN, or of 77 for integers."""
        values = [*case.values]
        for at, one in zip(sorted(self._outputs.arguments), expected, strict=False):
            values[at] = np.full_like(one.output.values, filler(one.output.dtype))
        return case._replace(values=tuple(values))

    def _fault(self, outcome: Outcome) -> str:
        """Say which memory a call has changed or returned that is not its own, or return ""."""
        mine = self._outputs.arguments | self._changed
        if not outcome.outputs:
            return f"it returns {outcome.returned}, in which no array is found"
        if outcome.overrun is not None:
            return f"it writes beyond its argument {self._inputs.names[outcome.overrun]}"
        if changed := outcome.changed - mine:
            return f"it changes its argument {self._inputs.names[min(changed)]}, which {self._names[1]} does not"
        if viewed := outcome.viewed - mine - self._viewed:
            return f"it returns the memory of its argument {self._inputs.names[min(viewed)]}"
        return ""

    # Times ------------------------------------------------------------------------------------------------------------

    def _time(self, margin: float, max_time: float, device: str | None, source: str) -> TimesCompared:
        """Time the kernel and each of the others in turns, and return how it compares with the reference.

        Raise NoTime if the times are no times of the work.
        """
        benches = {id(bench): bench for bench, _ in self._sides}
        try:
            stages = {}
            for key, bench in benches.items():
                chosen = [self._sides[place][1] for place in (0, *self._timed) if self._sides[place][0] is bench]
                stages[key] = bench.begin(device, self._inputs.pool, chosen)
            stage = stages[id(self._sides[1][0])]
            turns = _Turns(self._sides, self._inputs, self._results, stage.device.kind == "cuda")
            least = min(MIN_TIME, max_time)
            several = []
            for turns.other in self._timed:
                several.append(rounds(turns, margin, MIN_ROUNDS, (least, max_time), stage.watch))
            kept = self._sides[0][0].kept()
        finally:
            for bench in benches.values():
                bench.end()
        for number, outputs in zip(turns.kept, kept, strict=True):
            case = Case(f"timed call {number}", self._inputs.content(number))
            if wrong := _difference(outputs, expected := self._expected(case)):
                raise NoTime(f"it returns results of other calls: of the contents of a timed call, {wrong}")
        self._notes += stage.notes
        written = float(sum(bytes_of(one.dtype, one.values.shape) for one in kept[0]))
        read = float(self._inputs.nbytes)
        found = []
        for place, pairs in zip(self._timed, several, strict=True):
            names = self._names[0], self._names[place]
            times = judged(stage, names, pairs, margin)
            found.append(Beside(names[1], times, *self._shares(stage, source, read, written, times)))
        bench, place = self._sides[0]
        try:
            counts, launch, notes = bench.counted(place)
        except (Crashed, RuntimeError) as problem:  # what has been timed stands
            counts, launch, notes = Counts(), None, [f"nothing was counted: {problem}"]
        self._notes += notes
        _, times, mine, theirs = found[0]
        relate(counts, times.f_median, stage.device.measured)
        traffic = traffic_sentence(counts, read + written, read, written)
        self._seen = {"counters": counts, "launch": launch, "traffic": traffic, "times": times}
        self._seen |= {"pct_limit": mine, "reference_pct_limit": theirs, "baselines": tuple(found[1:])}
        if unread := self._unread(stage, counts.get("dram_bytes_read", math.inf), case, expected, turns.kept[:4]):
            raise NoTime(f"impossible: by the counters of the GPU, {self._names[0]} reads {unread}")
        return times

    def _unread(
        self, stage: Stage, read: float, case: Case, expected: Sequence[Expected], numbers: Sequence[int]
    ) -> str:
        """Say it if a call reads less than half of the inputs that matter. Of small ones, the L2 may hold the rest."""
        bench, which = self._sides[0]
        least = max(L2S * (stage.device.properties.get("l2_bytes") or math.inf), 2 * read)
        there = (devices_of([one]) == {str(stage.device)} and is_floating(one) for one in self._inputs.args)
        inputs = [at for at, holds in enumerate(there) if holds and at not in self._outputs.arguments]
        sizes = {at: bytes_of(dtype_of(self._inputs.args[at]), case.values[at].shape) for at in inputs}
        if sum(sizes.values()) < least or len(numbers) < 2:
            return ""
        draw = random.Random(self._inputs.seed)
        with suppress(Exception):  # of the reference, the kernel or the counters, so that nothing is known
            needed = sum(size for at, size in sizes.items() if self._matters(case, expected, at, draw))
            contents = [self._inputs.fresh(number) for number in numbers]
            if needed >= least and 2 * (read := bench.read(which, contents)) < needed:
                return f"{si_text(read, 'B')} of {si_text(needed, 'B')} that its outputs depend on"
        return ""

    def _matters(self, case: Case, expected: Sequence[Expected], at: int, draw: random.Random) -> bool:
        """Return whether a large value at each of some drawn places of an argument changes the reference's outputs."""
        for _ in range(DRAWN):
            changed = case.values[at].copy()
            changed.reshape(-1)[draw.randrange(changed.size)] = 64 * np.max(np.abs(changed))
            other = case._replace(values=(*case.values[:at], changed, *case.values[at + 1 :]))
            if not _difference(self._side(1, other).outputs, expected):
                return False
        return True

    def _shares(self, stage: Stage, source: str, read: float, written: float, times: TimesCompared) -> list[float]:
        """Return the percent of the limit: inputs and outputs are moved once, and the reference's FLOPs done."""
        peaks, look = peaks_for(stage, source).get(source), stage.looks[self._sides[1][1]]  # of the reference
        moved = read + written
        if peaks is not None:
            peaks = replace(peaks, bandwidth=peaks.bandwidth_of(read, written))
        roof = _core.roof(look.flops, moved, look.unit, {"flops": {}} if peaks is None else peaks.for_core(), 1.0)
        shares = []
        for name, us in ((times.f_name, times.f_median), (times.g_name, times.g_median)):
            rating = _core.rate(roof, look.flops, moved, us, stage.source)
            if source == "measured" and is_impossible(peaks, rating):
                raise NoTime(f"impossible: {name} cannot have done this work in {us:.3g} µs")
            shares.append(float(rating["pct_roofline"]))
        return shares


class _Turns:
    """A Clock that times each call with new contents, and keeps the outputs of some calls of the kernel."""

    def __init__(self, sides: Sequence[Side], inputs: Inputs, results: Results, coarse: bool) -> None:
        self.coarse = coarse
        self.kept: list[int] = []
        """Numbers of the contents whose outputs the kernel's bench keeps."""
        self._aside = 0.0
        self._sides, self._inputs, self._results = sides, inputs, results
        self._count, self._next, self._draw = 0, 1, random.Random()
        self.other = 1

    def seconds(self) -> float:
        """The time without that for which outputs were copied."""
        return time.perf_counter() - self._aside

    def run(self, which: int, count: int) -> float:
        raise NotImplementedError

    def sample(self, which: Sequence[int]) -> list[Sample]:
        samples = []
        for one in which:
            bench, place = self._sides[one and self.other]
            self._count += 1
            number = self._inputs.number_of(self._count, self._draw)
            samples.append(Sample(bench.sample(place, self._inputs.fresh(number))))
            if one == 0 and self._count >= self._next:  # a kernel cannot know which
                self._next = int(1.5 * self._count) + self._draw.randint(1, 4)
                begin = time.perf_counter()
                self.kept.append(number)
                bench.keep(place, self._results)
                self._aside += time.perf_counter() - begin
        return samples


def _difference(outputs: Sequence[Output], expected: Sequence[Expected]) -> str:
    if len(outputs) != len(expected):
        return f"it has {len(outputs)} outputs, not {len(expected)}"
    return next((text for one, of in zip(outputs, expected, strict=True) if (text := difference(one, of))), "")


def _first_line(problem: BaseException) -> str:
    name = "" if isinstance(problem, Raised) else f"{type(problem).__name__}: "
    return f"{name}{(str(problem).strip().splitlines() or [''])[0][:200]}"
