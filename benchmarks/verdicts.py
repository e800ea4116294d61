"""Reliability of verdicts: calls with 0, 2, 5 and 10 % more work than a reference call, a hundred trials each.

fs.compare_times returns faster, slower, same or unclear. The pytest plugin checks ``no_slower_than(g, ratio=1.03)``:
calls with 0 or 2 % more work must pass, with 5 or 10 % must fail. A verdict of the plugin is the result of one run of a
test, including the repetitions after an unclear one. CPU: on an idle machine and next to a busy process.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from harness import Report, arguments
from measure import neighbour

import flopscope as fs
from flopscope.perf import Check, PerfFailure, Settings

TRIALS = 100
SLOWER = (0.0, 0.02, 0.05, 0.10)
LIMIT = 1.03
AMOUNTS = {"cpu": 100_000, "cuda": 1 << 25}  # bytes or elements of the reference call
COLUMNS = ["case", "judge", "ratio", "verdicts", "wrong", "unclear", "seconds"]

Call = Callable[[], object]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), rounds=TRIALS)
    report = Report("verdicts", COLUMNS, options.out, options.device)
    judge_all(report, options.device, "idle", options.rounds)
    if options.device == "cpu":
        with neighbour():
            judge_all(report, "cpu", "busy neighbour", options.rounds)
    report.finish()


def judge_all(report: Report, device: str, how: str, trials: int) -> None:
    calls = calls_of(device)
    judges: dict[str, tuple[Callable[[Call, Call], tuple[str, float]], Callable[[float], str]]] = {
        "compare_times": (by_compare_times, lambda slower: "slower" if slower else "same"),
        "perf fixture": (by_plugin, lambda slower: "failed" if 1 + slower > LIMIT else "passed"),
    }
    for who, (judge, expected) in judges.items():
        for slower, call in calls.items():
            begin = time.perf_counter()
            results = [judge(call, calls[0.0]) for _ in range(trials)]
            took = (time.perf_counter() - begin) / trials
            report.keep(f"{100 * slower:g} % more work, {how}: {who}", {"ratio": [ratio for _, ratio in results]}, "")
            counts = Counter(verdict for verdict, _ in results)
            wrong = trials - counts[expected(slower)] - counts["unclear"]
            report.row(
                f"{100 * slower:g} % more work, {how}",
                who,
                f"{statistics.median(r for _, r in results):.4f}",
                ", ".join(f"{count} {word}" for word, count in counts.most_common()),
                str(wrong),
                str(counts["unclear"]),
                f"{took:.2f}",
            )
            if slower == min(SLOWER):
                report.target(f"{who}: false alarms of {trials} at 0 %, {how}", wrong, 0, "")
            if slower == max(SLOWER):
                missed = trials - counts[expected(slower)]
                report.target(f"{who}: missed of {trials} at {100 * slower:g} %, {how}", missed, 0, "")


def by_compare_times(f: Call, g: Call) -> tuple[str, float]:
    comparison = fs.compare_times(f, g, max_time=1.0)
    return comparison.verdict, comparison.ratio


def by_plugin(f: Call, g: Call) -> tuple[str, float]:
    """Return the verdict of perf(f).no_slower_than(g, ratio=LIMIT) in a test, and the measured ratio."""
    check: Any = Check(Settings(unclear="pass"), f, (), {"peaks": "none", "max_time": 0.3})
    with suppress(PerfFailure):
        check.no_slower_than(g, ratio=LIMIT)
    (limit,) = check.record()["limits"]
    return limit["verdict"], float(limit["measured"].partition(" ")[0])


def calls_of(device: str) -> dict[float, Call]:
    """Return calls by their additional work: neg of more elements (CUDA), or a checksum of more bytes of one array.

    The time of a checksum is proportional to the bytes, unlike that of an op with several threads.
    """
    counts = {slower: round(AMOUNTS[device] * (1 + slower)) for slower in SLOWER}
    if device == "cuda":
        return {slower: partial(fs.neg, fs.rand((count,), device=device)) for slower, count in counts.items()}
    data = memoryview(np.random.default_rng(0).bytes(max(counts.values())))
    return {slower: partial(zlib.crc32, data[:count]) for slower, count in counts.items()}


if __name__ == "__main__":
    main()
