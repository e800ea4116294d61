"""Traces of one process in several windows."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

from helpers import TRACES

CONTENT = json.loads(gzip.decompress((TRACES / "tutorial_naive.json.gz").read_bytes()))
STEPS = sorted({e["name"] for e in CONTENT["traceEvents"] if re.fullmatch(r"ProfilerStep#\d+", e["name"])})
SECOND = 1_000_000.0  # µs


def window(number: int, step: int | None = None, **head: Any) -> bytes:
    """Return the recorded trace `number` seconds later: other steps, the same ids of ops and launches."""
    events = []
    for event in CONTENT["traceEvents"]:
        moved = {**event, "ts": event["ts"] + number * SECOND}
        if (found := re.fullmatch(r"ProfilerStep#(\d+)", event["name"])) is not None:
            moved["name"] = f"ProfilerStep#{int(found[1]) + 100 * (number if step is None else step)}"
        events.append(moved)
    return json.dumps({**CONTENT, **head, "traceEvents": events}).encode()


def rank(number: int) -> dict[str, Any]:
    return {"distributedInfo": {"rank": number, "world_size": 4}}
