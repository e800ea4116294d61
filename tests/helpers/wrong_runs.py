"""Stored runs that are wrong."""

from __future__ import annotations

import json
from typing import Any

RUN: dict[str, Any] = {
    "format": 1,
    "machines": {"cpu": {"name": "a CPU"}},
    "measurements": [{"key": "k", "device": "cpu", "measurement": {"median": 2.0, "ci": [1.9, 2.1]}}],
}


def changed(*path: Any, to: Any) -> str:
    run = json.loads(json.dumps(RUN))
    at = run
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = to
    return json.dumps(run)


TIMES = ("measurements", 0, "measurement")
WRONG = {
    "empty": "",
    "array": "[]",
    "number": "1",
    "text": '"text"',
    "cut": json.dumps(RUN)[:-5],
    "UTF-8": b"\xff\xfe{}",
    "NUL": "\0" * 100,
    "deep": "[" * 200_000,
    "deep object": '{"a":' * 200_000,
    "NaN": changed(*TIMES, "median", to=float("nan")),
    "infinite": changed(*TIMES, "median", to=float("inf")),
    "1e400": changed(*TIMES, "median", to=1.5).replace("1.5", "1e400"),
    "1e308": changed(*TIMES, "median", to=1e308),
    "huge integer": changed(*TIMES, "median", to=10**400),
    "very huge integer": changed(*TIMES, "median", to=1.5).replace("1.5", "1" * 100_000),
    "zero": changed(*TIMES, "median", to=0),
    "denormal": changed(*TIMES, "median", to=5e-324),
    "negative": changed(*TIMES, "median", to=-1),
    "true": changed(*TIMES, "median", to=True),
    "text for a time": changed(*TIMES, "median", to="2.0"),
    "ci number": changed(*TIMES, "ci", to=1),
    "ci of three": changed(*TIMES, "ci", to=[1, 2, 3]),
    "ci of texts": changed(*TIMES, "ci", to=["1", "2"]),
    "no times": changed(*TIMES, to=None),
    "measurement": changed("measurements", 0, to=[]),
    "measurements": changed("measurements", to={"a": 1}),
    "no measurements": changed("measurements", to=None),
    "key": changed("measurements", 0, "key", to=["k"]),
    "device": changed("measurements", 0, "device", to=3),
    "machines": changed("machines", to=["cpu"]),
    "machine": changed("machines", "cpu", to="a CPU"),
    "nested machine": changed("machines", "cpu", to={"name": [[1]]}),
    "format": changed("format", to=[1]),
    "huge format": changed("format", to=10**3000),
}
