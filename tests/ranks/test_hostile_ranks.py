"""Ranks whose traces say anything: every answer across ranks is given, and holds no number that JSON lacks."""

import copy
import json
import os
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import NCCL, Program

import flopscope as fs
from flopscope.ranks.digest import Digest, digest_of
from flopscope.ranks.ranks import Ranks

ROUNDS = int(os.environ.get("FLOPSCOPE_TEST_ROUNDS", 40))
CONTROLS = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n"}
VALUES: list[Any] = [
    *(None, True, 0, -1, 1, 7, 127, 128, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30),
    *(0.0, -0.5, 1e-9, 1e18, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "0", "-1", "\x1b[31m", "\ud800", "<b>", "[0, 1]", "[1, 2, ...]", "[99999999999999999999]", "x" * 700),
    *([], {}, [0, 1], [[2**62, 2**62]], {"rank": 0}),
    *(
        "allreduce", "all_to_all", "_allgather_base", "barrier", "send", "BFloat16", "ProfilerStep#1", "kernel", "M",
        "i",
    ),
]  # fmt: skip
EDGES: dict[str, list[Any]] = {
    "ts": [0, 1, 2**53, 2**60, 2**63 - 1, -1, -(2**62), 9.2e18], "dur": [0, 0, 0, 1, 2**53, 2**62, -1],
    "Seq": [0, 1, -1, 2**53, 2**63 - 1], "Group size": [0, 1, -1, 2**31, 2**63 - 1],
    "In msg nelems": [0, 1, -1, 2**62, 2**63 - 1], "device": [0, 1, 127, 128, -1, 2**40],
    "baseTimeNanoseconds": [0, 1, 2**60, 2**62 - 1, 2**62, -1],
}  # fmt: skip
"""Numbers that a reader accepts, or that are just beyond."""


def rank(number: int, size: int, random_: random.Random) -> dict[str, Any]:
    """Return the trace of a rank: steps with ops, launches, kernels, and collectives of two process groups."""
    program = Program(devices=0)
    info = {"backend": "nccl", "rank": number, "world_size": size}
    program.head |= {"distributedInfo": info, "baseTimeNanoseconds": 1_700_000_000 * 10**9}
    for step in range(random_.choice([0, 1, 2, 5])):
        at = 1000.0 * step + 10 * number
        program.step(step, at, 900)
        for kind in range(random_.choice([1, 3])):
            name, begin = "aten::mm" if kind else "aten::add", at + 20 * kind + 1
            program.run(name, begin, at + 40 * kind + 30, 35, [64, 64], [64, 64], kernel=f"kernel{kind}")
        for group in range(2):
            message = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024, "Out msg nelems": 1024}
            message |= {"Process Group Name": str(group), "Process Group Ranks": "[0, 1]", "Group size": size}
            message |= {"Seq": step} if random_.random() < 0.7 else {}
            program.correlation += 1
            program.add("cpu_op", "record_param_comms", at + 300 + 50 * group, 20, **message)
            program.call("cudaLaunchKernelExC", at + 305 + 50 * group, 5, correlation=program.correlation)
            link = {"stream": 9, "correlation": program.correlation}
            program.work(NCCL, at + 400 + 200 * group, 150, **link, **message)
    return {**program.head, "traceEvents": program.events}


def broken(trace: dict[str, Any], random_: random.Random) -> dict[str, Any]:
    """Return the trace with some members replaced, left out, or whole events repeated or left out."""
    trace = copy.deepcopy(trace)
    for _ in range(random_.choice([0, 1, 1, 3, 20, 80])):
        events = trace["traceEvents"]
        if not isinstance(events, list) or not events or random_.random() < 0.1:
            target = random_.choice([trace, trace.get("distributedInfo")])
        else:
            place = random_.randrange(len(events))
            target = random_.choice([events[place], events[place].get("args")])
            if random_.random() < 0.1:
                events.insert(random_.randrange(len(events)), copy.deepcopy(events[place]))
            if random_.random() < 0.1:
                del events[place]
        if not isinstance(target, dict) or not target:
            continue
        key = random_.choice([one for one in target if one != "traceEvents"] or ["x"])
        edges = [one for one in target if one in EDGES]
        if edges and random_.random() < 0.5:
            edge = random_.choice(edges)
            target[edge] = random_.choice(EDGES[edge])
        elif random_.random() < 0.3:
            target.pop(key, None)
        else:
            target[key] = random_.choice(VALUES)
    return trace


def digests_of(seed: int) -> list[Digest]:
    random_ = random.Random(seed)
    size = random_.choice([1, 2, 2, 3, 4])
    digests: dict[int, Digest] = {}
    for number in range(size):
        text = json.dumps(broken(rank(number, size, random_), random_))
        try:
            digest = digest_of(fs.load_trace(text.encode()), f"rank{number}.json", number)
        except ValueError as problem:
            assert str(problem) and not CONTROLS & set(str(problem)), f"seed {seed}"
            continue
        digests.setdefault(digest.rank, digest)
    return [digests[number] for number in sorted(digests)]


@pytest.mark.parametrize("first", range(0, ROUNDS, 10))
def test_every_answer_is_given_whatever_the_ranks_say(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of reading
            digests = digests_of(seed)
        if not digests:
            continue
        ranks = Ranks(digests)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            text = str(ranks)
            tables = ranks.tables()
            content = ranks.to_dict()
            str(ranks.stragglers())
            ranks.collectives(by_group=False)
            ranks.write_report(tmp_path / "page.html")
        assert not CONTROLS & set(text), f"seed {seed}"
        json.dumps(content, allow_nan=False)
        assert len(tables["ranks"]) == len(digests)
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "\x1b" not in page and "NaN" not in page.partition('id="data"')[2].partition("</script>")[0]
