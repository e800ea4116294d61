"""Coverage of recorded traces: of the device time launched directly by ops with recorded shapes, the share with bytes
known to flopscope's rules.

    python benchmarks/trace_coverage.py FOLDER        Chrome traces of torch.profiler, *.json or *.json.gz

The op of each piece of device work is determined here, independently of flopscope: it is the innermost op on the thread
around the API call with the same correlation, or, if the file lacks that call, the op with the same "External id". Work
without such an op, or whose op lacks shapes, is removed from the trace before flopscope reads it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import flopscope as fs

Event = dict[str, Any]
OPS = {"cpu_op", "Operator"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"}
WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the traces")
    parser.add_argument("--names", type=int, default=5, help="ops with unknown bytes to list per trace; default: 5")
    options = parser.parse_args()
    totals = [0.0] * 4
    print(f"{'trace':40} {'ms':>9} {'bytes':>7} {'FLOPs':>7} {'estimated':>9}  unmodelled")
    for path in sorted([*options.folder.glob("*.json"), *options.folder.glob("*.json.gz")]):
        result = coverage_of(path)
        if result is None:
            continue
        launched, counted, unsized, coverage = result
        estimated = sum(us for _, us in coverage.get("estimated", []))
        names = ", ".join(f"{name[:40]} {us / 1e3:.3f} ms" for name, us in coverage["unmodelled"][: options.names])
        shares = f"{coverage['bytes']:7.3f} {coverage['flops']:7.3f} {estimated / counted:9.3f}"
        print(f"{path.name[:40]:40} {launched / 1e3:9.3f} {shares}  {names}")
        for i, us in enumerate((launched, counted, counted * (1 - coverage["bytes"]), unsized)):
            totals[i] += us
    launched, counted, unknown, unsized = totals
    if counted > 0:
        print(f"unknown bytes: {unknown / counted:.5f} of {counted / 1e3:.1f} ms without communication, ", end="")
        print(
            f"{(unknown + unsized) / launched:.5f} of all {launched / 1e3:.1f} ms, of which {unsized / launched:.5f} ",
            end="",
        )
        print("are collectives without a size")


def coverage_of(path: Path) -> tuple[float, float, float, dict[str, Any]] | None:
    """Return the µs of device time launched by ops with shapes, that without communication, that of collectives of
    unknown size, and the coverage of what is no communication."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = json.loads(text.decode("utf-8", "replace"), strict=False)
    head, events = ({}, trace) if isinstance(trace, list) else (trace, trace["traceEvents"])
    timed = [e for e in events if isinstance(e, dict) and e.get("ph") == "X"]
    launched, left_out = 0.0, set()
    for work, op in owners(timed):
        if op is None or not any(key.lower() == "input dims" for key in arguments(op)):
            left_out.add(id(work))
            continue
        launched += float(work.get("dur", 0))
        identifier = id_of(op)
        work["args"] = {k: v for k, v in arguments(work).items() if k.lower() != "external id"}
        work["args"]["External id"] = identifier
    if launched == 0:
        return None
    remaining = [e for e in events if id(e) not in left_out]
    loaded = fs.load_trace(json.dumps({**head, "traceEvents": remaining}).encode())
    coverage, collectives = loaded.coverage(), loaded.collectives()
    unsized = float(collectives["duration"][collectives["message_bytes"].isna()].sum())
    unknown = sum(us for _, us in coverage["unmodelled"])
    counted = unknown / (1 - coverage["bytes"]) if coverage["bytes"] < 1 else launched
    return launched, math.nan if counted == 0 else counted, unsized, coverage


def arguments(event: Event) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def id_of(event: Event) -> Any:
    return next((value for key, value in arguments(event).items() if key.lower() == "external id"), None)


def owners(events: list[Event]) -> list[tuple[Event, Event | None]]:
    """Return pairs of device work and the op that launched it, or None."""
    by_id = {id_of(e): e for e in events if e.get("cat") in OPS}
    calls = {arguments(e).get("correlation"): e for e in events if e.get("cat") in CALLS}
    calls.pop(None, None)
    by_id.pop(None, None)
    launchers = innermost_ops(events, calls)
    pairs: list[tuple[Event, Event | None]] = []
    for work in (e for e in events if e.get("cat") in WORK):
        call = calls.get(arguments(work).get("correlation"))
        pairs.append((work, by_id.get(id_of(work)) if call is None else launchers.get(id(call))))
    return pairs


def innermost_ops(events: list[Event], calls: dict[Any, Event]) -> dict[int, Event]:
    """Return the innermost op around the start of each API call on its thread, by id() of the call."""
    threads: dict[tuple[Any, Any], list[tuple[float, float, Event, bool]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in OPS:
            threads[event.get("pid"), event.get("tid")].append(
                (float(event["ts"]), -float(event.get("dur", 0)), event, True)
            )
    for call in calls.values():
        threads[call.get("pid"), call.get("tid")].append((float(call["ts"]), 0.0, call, False))
    innermost = {}
    for entries in threads.values():
        stack: list[tuple[float, Event]] = []
        entries.sort(key=lambda entry: (entry[0], entry[1], not entry[3]))
        for start, minus_duration, event, is_op in entries:
            while stack and stack[-1][0] <= start:
                stack.pop()
            if is_op:
                stack.append((start - minus_duration, event))
            elif stack:
                innermost[id(event)] = stack[-1][1]
    return innermost


if __name__ == "__main__":
    main()
