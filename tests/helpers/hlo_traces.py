"""A recording of the program in tests/data/hlo/aligned.hlo: four steps of a loop of three, as Kineto would write it."""

from __future__ import annotations

import json
from typing import Any

from helpers import TESTS

HLO = (TESTS / "data" / "hlo" / "aligned.hlo").read_text(encoding="utf-8")
STEPS, TRIPS = 4, 3
ELEMENTS = 256 * 512
PRODUCT = 2 * 256 * 512 * 512
BODY = ["Memset (Device)", "nvjet_tst_64x256_NNN", "loop_multiply_fusion", "loop_add_fusion"]
STEP = ["loop_convert_fusion_7", "memcpy32_post", *TRIPS * BODY, "loop_multiply_fusion"]
PARTS = (5, 8, len(STEP))  # where the launches of a step end


def _work(name: str, start: float, correlation: int, stream: int = 7) -> dict[str, Any]:
    kind = "gpu_memset" if name.startswith("Memset") else "kernel"
    args: dict[str, Any] = {"device": 0, "context": 1, "stream": stream, "correlation": correlation}
    args |= {"graph id": 3, "graph node id": 1} if kind == "kernel" else {"bytes": 4}
    args |= {"grid": [256, 1, 1], "block": [128, 1, 1]} if kind == "kernel" else {}
    place = {"pid": 0, "tid": stream, "ts": start, "dur": 9.0}
    return {"ph": "X", "cat": kind, "name": name, **place, "args": args}


def _call(start: float, correlation: int) -> dict[str, Any]:
    place = {"pid": 1, "tid": 1, "ts": start, "dur": 5.0, "args": {"correlation": correlation}}
    return {"ph": "X", "cat": "cuda_driver", "name": "cuGraphLaunch", **place}


def recorded(*, graphs: bool = True, steps: int = STEPS, outside: int = 0) -> bytes:
    """Return a trace of steps, launched as graphs or kernel by kernel, and of kernels outside of them."""
    events, time, correlation = [], 1000.0, 1
    for name in [*outside * ["some_other_kernel"], *steps * STEP]:
        position = (len([event for event in events if event["pid"] == 0]) - outside) % len(STEP)
        if not graphs or position in (0, *PARTS[:-1]) or name == "some_other_kernel":
            correlation += 1
            events.append(_call(time - 900, correlation))
        events.append(_work(name, time, correlation))
        time += 10
    devices = [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}]
    return json.dumps({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events}).encode()
