"""Where overhead and changes of memory lie among the events of threads, compared with an exhaustive search."""

import random
from collections.abc import Iterator

import pytest
from helpers.hand_traces import memory, op, text_of

import flopscope as fs

Span = tuple[int, int, int]
"""Begin and end in ns, and the thread."""


def nested_spans(rng: random.Random, begin: int, end: int, thread: int) -> Iterator[Span]:
    """Yield events one after the other, each with others within it."""
    while end - begin > 40:
        start = begin + rng.randrange(1, (end - begin) // 4)
        stop = rng.randrange(start + 3, (start + 3 * end) // 4)
        yield start, stop, thread
        yield from nested_spans(rng, start, stop, thread)
        begin = stop + rng.randrange(2, 50)


def lengths_around(spans: list[Span], begin: int, end: int, thread: int | None = None) -> list[int]:
    """Return the lengths of the events around a time, on one thread or on all, the shortest first."""
    around = (one for one in spans if one[0] <= begin and end <= one[1] and thread in (None, one[2]))
    return sorted(one[1] - one[0] for one in around)


@pytest.mark.parametrize("seed", range(12))
def test_overhead_lies_in_the_shortest_event_and_memory_in_a_running_one(seed: int) -> None:
    """An overhead is a candidate for memory too, and the shortest one."""
    rng = random.Random(seed)
    spans = [span for thread in range(5) for span in nested_spans(rng, 0, 12_000, thread)]
    events = [op(f"a{i}", b / 1000, (e - b) / 1000, tid=t + 7) for i, (b, e, t) in enumerate(spans)]
    overheads, at = [], 0
    for _ in range(20):  # in sequence, so that none lies within another; of no thread
        begin = at + 1 + rng.randrange(600)
        at = begin + 1 + rng.randrange(40)
        overheads.append((begin, at))
        events.append({**op("o", begin / 1000, (at - begin) / 1000, tid=-1), "cat": "overhead"})
    changes = [(rng.randrange(12_000), rng.randrange(7)) for _ in range(30)]
    for number, (time, thread) in enumerate(changes):
        events.append(memory(time / 1000, number + 1, thread + 7, 0))
    columns, names, kinds, _ = fs.load_trace(text_of(*events))._core.events()
    kind, name, parent, start, duration, size, thread_of = (
        columns[column].tolist() for column in ("kind", "name", "parent", "start", "duration", "bytes", "resource")
    )
    shift = min(b for b, _, _ in spans) - min(s for s, k in zip(start, kind, strict=True) if kinds[k] == "op")
    for index, of in enumerate(kind):
        inside = parent[index]
        if kinds[of] == "overhead":
            begin = start[index] + shift
            lengths = lengths_around(spans, begin, begin + duration[index])
            assert (duration[inside] if inside >= 0 else None) == (lengths[0] if lengths else None)
        elif kinds[of] == "memory" and thread_of[index] >= 0:  # not a share of an op around
            time, thread = changes[size[index] - 1]
            own, every = lengths_around(spans, time, time, thread), lengths_around(spans, time, time)
            if inside >= 0 and kinds[kind[inside]] == "overhead":
                assert any(b <= time <= e for b, e in overheads)
            elif own:
                assert names[name[inside]].startswith("a") and duration[inside] == own[0]
            else:
                assert (duration[inside] in every) if every else inside < 0
