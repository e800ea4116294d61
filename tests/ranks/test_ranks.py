"""load_ranks(): reading many ranks, their clocks, matching against a plain oracle, and what is named as slow."""

import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.processes import ended, environment
from helpers.ranks_cases import dies, edited, groups_of, simulated, small_rank
from ranks_simulator import Simulated

import flopscope as fs
from flopscope.ranks.calls import (
    NO_STEP,
    Calls,
    Group,
    calls_of,
    match,
    mean,
    median,
    median_of_others,
    row_medians,
    sigma,
)
from flopscope.ranks.digest import ROWS, Digest, digest_of, digests_of, rank_of_name
from flopscope.ranks.engine import Failure, run_each, workers_for
from flopscope.ranks.stragglers import align
from flopscope.ranks.text import rank_notes

# Clocks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drift", [0.0, 5.0])
def test_clocks_are_those_of_the_simulation(drift: float) -> None:
    count, offset, slope, groups = groups_of(4, 8, 2, 300, 1, drift)
    clocks = align(groups, count)
    errors = clocks.offset - offset - clocks.middle * slope
    assert np.abs(errors).max() < 1.5 and np.std(errors[1:] / clocks.uncertainty[1:]) < 3
    for at in (-2e6, 2e6):
        assert np.abs(errors + at * (clocks.drift - slope)).max() < 5


def test_the_clocks_of_traces_are_found(slow: tuple[Path, Simulated], ranks: fs.Ranks) -> None:
    truth, found = slow[1], ranks.stragglers()
    middle = found.clocks.middle + (found.matched.origins[0] - found.matched.origins.min()) / 1000 + 1e4
    expected = truth.offset + truth.drift * middle
    np.testing.assert_allclose(found.ranks["clock_offset"], expected - expected[0], atol=1.0)


def test_ranks_that_share_no_collective_are_not_aligned(tmp_path: Path) -> None:
    groups = groups_of(2, 1, 2, 50, 0)[3]
    clocks = align([group for group in groups if len(group.members) == 2][:2], 5)
    assert list(clocks.component) == [0, 0, 2, 2, 4]
    assert np.isnan(clocks.uncertainty[4]) and np.isfinite(clocks.uncertainty[:4]).all()


def _with_rows(group: Group, rows: Any) -> Group:
    names = ("kind", "message_bytes", "number", "factor", "start", "duration", "exposed")
    return replace(group, **{name: getattr(group, name)[rows] for name in names})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("drift", [0.0, 5.0])
def test_clocks_of_ranks_that_recorded_other_steps(drift: float) -> None:
    count, offset, slope, groups = groups_of(4, 2, 1, 300, 5, drift)
    hours = 3.6e9 * np.arange(count)
    rng = np.random.default_rng(0)
    for group in groups:
        group.start += hours[group.members]
        for column, member in enumerate(group.members):
            if member in (0, 3):
                group.start[40:, column] = np.nan  # the first rank has few calls
            if member == 6:
                group.start[:150, column] = np.nan
        enough = (~np.isnan(group.start)).sum(axis=1) > 2
        drawn = rng.integers(0, 300, len(group.start))[:, None] == np.arange(len(group.members))
        group.start[enough[:, None] & drawn] = np.nan
    groups = [_with_rows(group, (~np.isnan(group.start)).sum(axis=1) > 1) for group in groups]
    clocks = align(groups, count)
    later = [1, 2, 4, 5, 6, 7]
    for at in (0.0, 2e6):
        found = clocks.offset + at * clocks.drift
        expected = offset + hours + (clocks.middle + at) * slope
        difference = (found - expected)[later]
        np.testing.assert_allclose(difference - difference[0], 0, atol=3)
    assert np.isfinite(clocks.uncertainty).all() and not clocks.component.any()


@pytest.mark.filterwarnings("error")
def test_statistics_leave_out_what_is_unknown() -> None:
    values = np.array([np.nan, 1.0, np.inf, 2.0, 6.0])
    assert (mean(values), median(values), sigma(values)) == (3.0, 2.0, pytest.approx(1.4826))
    assert all(np.isnan(one(values[:1])) and np.isnan(one(values[:0])) for one in (mean, median, sigma))


def test_medians_leave_out_missing_values_and_those_of_others_are_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (9, 30)).astype(float)
    values[rng.random(values.shape) < 0.3] = np.nan
    role = rng.integers(0, 3, 9)
    np.testing.assert_array_equal(row_medians(values), np.nanmedian(values, axis=1))
    found = median_of_others(values, role)
    for rank in range(9):
        others = (role == role[rank]) & (np.arange(9) != rank)
        for step in range(30):
            known = values[others, step][~np.isnan(values[others, step])]
            expected = np.median(known) if len(known) else np.nan
            np.testing.assert_equal(found[rank, step], expected)


# Matching -------------------------------------------------------------------------------------------------------------


def calls(groups: list[tuple[str, str]], rows: list[tuple[int, int, float, int]], steps: Sequence[int] = ()) -> Calls:
    """Return the calls of a rank: group, kind, bytes and sequence number of each, and the number of its step."""
    group, kind, size, sequence = (list(column) for column in zip(*rows, strict=True))
    count = len(rows)
    known = [(f"ProfilerStep#{step}", 0, 1, True) for step in range(1 + max(steps))] if steps else [NO_STEP]
    return Calls(
        *(groups, np.array(group, np.int32), np.array(kind, np.int8), np.array(size, float)),
        *(np.array(sequence, np.int64), known, np.array(steps or [0] * count, np.int32), np.zeros(count, np.int16)),
        *(np.ones(count, np.bool_), np.arange(count, dtype=np.int64) * 1000, np.ones(count), np.ones(count)),
        np.ones(count),
    )


@pytest.mark.parametrize("marked", [3, 4], ids=["one rank without steps", "steps"])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_calls_match_as_in_a_dict(seed: int, share: float, marked: int) -> None:
    rng = np.random.default_rng(seed)
    names = [(str(i), f"[{i}]") for i in range(3)]
    program = [(int(rng.integers(3)), int(rng.integers(3)), float(rng.integers(1, 3))) for _ in range(160)]
    every, rows = [], []
    for rank in range(4):
        kept = [i for i in range(len(program)) if i % 4 != rank or rng.random() > 0.2]
        has_number = {i: i if rng.random() < share else -1 for i in kept}
        steps = [i // 20 + (rank == 1) for i in kept]  # rank 1 counts its steps from another one
        every.append(calls(names, [(*program[i], has_number[i]) for i in kept], steps if rank < marked else ()))
        rows.append([(*program[i], has_number[i], step * (marked == 4)) for i, step in zip(kept, steps, strict=True)])
    counts = [Counter((*row[:3], row[4]) for row in of if row[3] < 0) for of in rows]
    expected: dict[Any, set[int]] = {}
    for rank, of in enumerate(rows):
        seen: Counter[Any] = Counter()
        for row in of:
            like = (*row[:3], row[4])
            seen[like] += row[3] < 0
            if row[3] >= 0 or counts[rank][like] == max(one[like] for one in counts):
                number = row[3] if row[3] >= 0 else seen[like] - 1
                expected.setdefault((like, row[3] >= 0, number), set()).add(rank)
    together = Counter((key[0][:3], key[2], *sorted(who)) for key, who in expected.items() if len(who) > 1)
    matched = match(every)
    found: Counter[Any] = Counter()
    for group in matched.groups:
        for row in range(len(group.kind)):
            who = group.members[np.flatnonzero(~np.isnan(group.start[row]))].tolist()
            found[((int(group.name), group.kind[row], group.message_bytes[row]), group.number[row], *who)] += 1
    assert found == together and found
    assert list(matched.matched) == [sum(n for key, n in found.items() if rank in key[2:]) for rank in range(4)]
    assert not matched.mismatched


@pytest.mark.parametrize(
    ("one", "other", "matched"),
    [
        (["train"] * 3, ["train"] * 2, 0),  # which of its steps one rank did not record is unknown
        (["train"] * 2, ["train"] * 2, 2),
        (["a", "b"], ["b"], 1),
        (["a", None, None], ["a", None], 1),  # after a step, where one lacks a call
        ([None, "b"], [None, "b"], 2),
        (["a", "b"], [None, None], 2),  # one rank without steps
    ],
)
def test_calls_of_different_steps_are_never_one(one: list[Any], other: list[Any], matched: int) -> None:
    ranks = []
    for steps in (one, other):
        row = {"group": "0", "ranks": "", "collective": "allreduce", "name": "allreduce", "sequence": None, "device": 0}
        row |= dict.fromkeys(("start", "message_bytes", "duration", "exposed"), 8)
        row |= dict.fromkeys(("bus_gbytes_per_s", "algorithm_gbytes_per_s"), 1.0)
        columns = {name: [value] * len(steps) for name, value in row.items()} | {"step": steps}
        columns["step_occurrence"] = [steps[:place].count(name) for place, name in enumerate(steps)]
        ranks.append(calls_of(columns, 0))
    assert list(match(ranks).matched) == [matched] * 2


def test_different_calls_under_one_number_are_listed() -> None:
    one = calls([("dp", "[0, 1]")], [(0, 0, 8.0, 0), (0, 0, 8.0, 1), (0, 3, 8.0, 2)])
    other = calls([("dp", "[0, 1]")], [(0, 0, 8.0, 0), (0, 2, 8.0, 1), (0, 3, 16.0, 2)])
    matched = match([one, other])
    assert matched.mismatched == 1  # all-to-all may send more on one rank than on another
    assert matched.mismatches[0].number == 1
    assert matched.mismatches[0].calls == {("allreduce", 8.0): [0], ("allgather", 8.0): [1]}
    assert list(matched.matched) == [2, 2]
    (group,) = matched.groups
    assert isinstance(group, Group) and list(group.message_bytes) == [8, 16]


# Files ----------------------------------------------------------------------------------------------------------------


def test_wrong_files_are_listed_and_the_rest_is_analysed(tmp_path: Path) -> None:
    simulated(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / names[0]).write_bytes((tmp_path / names[0]).read_bytes()[:300])  # of rank 0
    (tmp_path / "again.json.gz").write_bytes((tmp_path / names[3]).read_bytes())
    (tmp_path / "notes.json").write_text("{}")
    missing = pytest.warns(UserWarning, match="1 of 8 ranks have no trace")
    with missing, pytest.warns(UserWarning, match=r"[23] files are left out of 10.*Ranks.files"):
        ranks = fs.load_ranks(tmp_path, workers=2)
    left_out = ranks.files[ranks.files["problem"] != ""]
    reasons = dict(zip(map(os.path.basename, left_out["source"]), left_out["problem"], strict=True))
    assert "rank 3 was read from" in "".join(reasons.values()) and "notes.json" in reasons
    assert "1 of 8 ranks have no trace: 0." in ranks.notes and set(range(1, 8)) <= set(ranks.stragglers().ranks["rank"])


def test_files_without_a_rank_get_the_free_numbers(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1)

    def unnamed(rank: int, trace: dict[str, Any]) -> None:
        if rank in (0, 2):
            del trace["distributedInfo"]

    edited(tmp_path, unnamed)
    for rank in range(4):
        next(tmp_path.glob(f"*rank{rank}.json.gz")).rename(tmp_path / f"{'cabd'[rank]}.json.gz")
    with pytest.warns(UserWarning, match="2 traces do not name their rank, which is taken from the order of the files"):
        files = fs.load_ranks(tmp_path, workers=1).files
    assert [os.path.basename(one) for one in files["source"]] == ["b.json.gz", "a.json.gz", "c.json.gz", "d.json.gz"]
    assert list(files["rank"]) == [0, 1, 2, 3] and list(files["rank_from"]) == ["order", "trace", "order", "trace"]


@pytest.mark.parametrize(
    ("present", "world", "notes"),
    [
        ((0, 1, 3, 4, 6, 7), 8, ["2 of 8 ranks have no trace: 2, 5"]),
        ((0, 3), 2, ["1 of 2 ranks have no trace: 1", "the traces name a world size of 2, but are of rank 3 too"]),
        ((7,), None, []),
    ],
)
def test_ranks_without_a_trace_and_beyond_the_world_are_noted(
    present: tuple[int, ...], world: int | None, notes: list[str], tmp_path: Path
) -> None:
    for rank in present:
        small_rank(tmp_path / f"{rank}.json", rank, world)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranks = fs.load_ranks(tmp_path, workers=1)
    assert [str(one.message) for one in caught] == notes
    assert ranks.notes == [f"{note[0].upper()}{note[1:]}." for note in notes]


def test_a_world_size_makes_no_memory(tmp_path: Path) -> None:
    for rank in (0, 3):
        small_rank(tmp_path / f"{rank}.json", rank, 2**31)
    digests = [digest_of(fs.load_trace(tmp_path / f"{rank}.json"), "", 0) for rank in (0, 3)]
    tracemalloc.start()
    try:
        (note,) = rank_notes(digests)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert note == "2,147,483,646 of 2,147,483,648 ranks have no trace: 1, 2, 4, 5, 6, 7, 8, 9, …"


@pytest.mark.parametrize(
    ("rank", "world", "reason"),
    [
        (2**31, 2, r'"rank" is 2147483648; it must be an integer from 0 to 2147483647'),
        (0, 2**31 + 1, r'"world_size" is 2147483649; it must be an integer from 1 to 2147483648'),
        (0, 0, r'"world_size" is 0; it must be'), (0, -1, r'"world_size" is -1; it must be'),
        (0, 2.5, r'"world_size" is 2.5; it must be'), (0, True, r'"world_size" is True; it must be'),
        (0, "\x1b[31m", r'"world_size" is \'\\x1b\[31m\'; it must be'),
    ],
)  # fmt: skip
def test_ranks_and_sizes_beyond_the_limits_are_refused(rank: int, world: object, reason: str, tmp_path: Path) -> None:
    small_rank(tmp_path / "a.json", rank, world)
    with pytest.raises(ValueError, match=reason):
        fs.load_ranks(tmp_path, workers=1)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3), ("a/b_rank-12.pt.trace.json.gz", 12), ("trace_rank_007.json", 7), ("Rank1_rank2.json", 2),
        ("franking.json", None), ("3.json", None),
    ],
)  # fmt: skip
def test_ranks_of_file_names(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


@pytest.mark.parametrize(
    ("paths", "options", "error", "message"),
    [
        ([], {}, ValueError, ""),
        ("/nowhere/at/all/*.json", {}, ValueError, "no file matches this pattern"),
        ([__file__], {"workers": 0}, ValueError, "workers must be at least 1, not 0"),
        ([__file__], {"workers": 1}, ValueError, "no file could be read"),
    ],
)
def test_the_unreadable_is_refused(paths: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fs.load_ranks(paths, **options)


# Sources of digests ---------------------------------------------------------------------------------------------------


def test_any_source_of_digests_makes_the_same_ranks(slow: tuple[Path, Simulated], ranks: fs.Ranks) -> None:
    traces = {trace.rank: trace for trace in fs.load_traces(slow[0])}
    digests = list(digests_of(traces))
    assert [one.rank for one in digests if isinstance(one, Digest)] == list(range(8))
    for source in (digests, iter(digests[::-1]), digests_of(traces), pickle.loads(pickle.dumps(digests))):
        assert fs.Ranks(source).to_dict() == ranks.to_dict()


def test_a_source_names_what_is_left_out(tmp_path: Path) -> None:
    small_rank(tmp_path / "a.json", 3, 4)
    digest = digest_of(fs.load_trace(tmp_path / "a.json"), "a.json", 0)
    again = replace(digest, identity=replace(digest.identity, source="b.json"))
    ranks = fs.Ranks([Failure("c.json", "no JSON"), digest, again])
    assert len(ranks) == 1 and list(ranks.files["problem"].fillna("")) == [
        "", "no JSON", "rank 3 was read from a.json already",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"^none of the 2 files could be read: c.json \(no JSON\); d.json \(empty\)$"):
        fs.Ranks([Failure("c.json", "no JSON"), Failure("d.json", "empty")])


def test_a_rank_given_by_its_key_replaces_that_of_the_trace(tmp_path: Path) -> None:
    small_rank(tmp_path / "rank9.json", 0, None)
    trace = fs.load_trace(tmp_path / "rank9.json")
    files = fs.Ranks(digests_of({0: trace, 5: trace})).files
    assert list(files["rank"]) == [0, 5] and list(files["rank_from"]) == ["trace", "trace"]
    trace.metadata["distributedInfo"] = {"rank": -1}
    (failure,) = digests_of({0: trace})
    assert isinstance(failure, Failure) and failure.source.endswith("rank9.json") and '"rank" is -1' in failure.reason


# Workers --------------------------------------------------------------------------------------------------------------


def test_a_task_that_kills_its_worker_is_a_failure_and_the_others_are_not_lost() -> None:
    found = run_each(dies, range(6), [f"file {i}" for i in range(6)], 2)
    assert [one for one in found if not isinstance(one, Failure)] == [0, 10, 20, 40, 50]
    assert isinstance(found[3], Failure) and found[3].source == "file 3" and "died" in found[3].reason


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed in /proc")
def test_a_worker_killed_while_it_writes_its_result_stops_nothing() -> None:
    program = (
        "from helpers.ranks_cases import dies_while_it_writes\nfrom flopscope.ranks.engine import run_each\n"
        "found = run_each(dies_while_it_writes, range(6), list('abcdef'), 2)\n"
        "print([len(one) if isinstance(one, bytes) else one.source for one in found])"
    )
    done = ended(program)
    assert done.stdout in ("[0, 1, 2, 'd', 4, 5]\n", f"[0, 1, 2, {64 << 20}, 4, 5]\n"), done.stderr  # it may be late


def is_running(process: int) -> bool:
    """Return whether the process runs: it is neither gone nor only waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed in /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_program(tmp_path: Path, end: signal.Signals) -> None:
    folder = tmp_path / "workers"
    folder.mkdir()
    program = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # also if it is ignored here
        "from helpers.ranks_cases import sleeps\nfrom flopscope.ranks.engine import run_each\n"
        f"run_each(sleeps, [{str(folder)!r}] * 2, ['one', 'two'], 2)\n"
    )
    started = subprocess.Popen([sys.executable, "-c", program], env=environment(), stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while len(list(folder.iterdir())) < 2 and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = [int(one.name) for one in folder.iterdir()]
        assert len(workers) == 2 and all(is_running(one) for one in workers)
        started.send_signal(end)
        assert started.wait(timeout=300) != 0
        while any(is_running(one) for one in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(is_running(one) for one in workers)
    finally:
        started.kill()
        started.wait()


def test_a_program_without_a_guard_reads_once(slow: tuple[Path, Simulated], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import flopscope as fs\nprint(fs.load_ranks({str(slow[0])!r}, workers=2).findings[0].ranks)\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("(5,)\n", "")


def test_workers_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopscope.ranks.engine.processors", lambda: 16)
    monkeypatch.setattr("flopscope.ranks.engine.available_memory", lambda: 4 << 30)
    assert workers_for([1 << 20] * 100) == 16 and workers_for([100 << 20] * 100) == 1 + 0
    assert workers_for([1 << 20] * 3) == 3 and workers_for([]) == 1 and ROWS > 1000
