"""Events of traces as text."""

from __future__ import annotations

import json
from typing import Any


def events_to_text(*events: dict[str, Any], **head: Any) -> bytes:
    return json.dumps({**head, "traceEvents": list(events)}).encode()


def op(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {**op(name, ts, dur, tid, **args), "cat": "cuda_runtime"}


def kernel(name: str, ts: float, dur: float, stream: int = 7, device: int = 0, **args: Any) -> dict[str, Any]:
    return {
        **op(name, ts, dur, stream, device=device, stream=stream, **args),
        "cat": "kernel",
        "pid": device,
    }


def memory(ts: float, size: int, tid: int = 1, device_type: int = 1) -> dict[str, Any]:
    args = {"Bytes": size, "Device Type": device_type, "Device Id": 0}
    return {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "args": args,
    }
