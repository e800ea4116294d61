"""How much of the device time of recorded traces has known work: of what ops with recorded shapes launched themselves,
the share whose bytes flopscope's rules know.

    python benchmarks/trace_coverage.py FOLDER        of Chrome traces of torch.profiler, *.json or *.json.gz

Which op launched what is joined here, apart from flopscope's own join: device work, by its correlation to the API call
that launched it, to the innermost op around that call on its thread; where the file has no call, to the op of its
"External id". What has no such op, or one without shapes, is taken out of the trace before flopscope reads it.
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
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names", type=int, default=5, help="ops without known bytes to name of each trace")
    options = parser.parse_args()
    totals = [0.0, 0.0, 0.0]
    print(f"{'trace':40} {'ms':>9} {'bytes':>7} {'FLOPs':>7} {'estimated':>9}  unmodelled")
    for path in sorted([*options.folder.glob("*.json"), *options.folder.glob("*.json.gz")]):
        found = coverage_of(path)
        if found is None:
            continue
        launched, counted, coverage = found
        estimated = sum(us for _, us in coverage.get("estimated", []))
        names = ", ".join(f"{name[:40]} {us / 1e3:.3f} ms" for name, us in coverage["unmodelled"][: options.names])
        shares = f"{coverage['bytes']:7.3f} {coverage['flops']:7.3f} {estimated / counted:9.3f}"
        print(f"{path.name[:40]:40} {launched / 1e3:9.3f} {shares}  {names}")
        for i, us in enumerate((launched, counted, counted * coverage["bytes"])):
            totals[i] += us
    launched, counted, known = totals
    if counted > 0:
        print(f"known bytes: {known / counted:.3f} of {counted / 1e3:.1f} ms without communication, ", end="")
        print(f"{known / launched:.3f} of all {launched / 1e3:.1f} ms")


def coverage_of(path: Path) -> tuple[float, float, dict[str, Any]] | None:
    """Time in µs that ops with shapes launched, that without communication, and the coverage of the latter."""
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
    kept = [e for e in events if id(e) not in left_out]
    coverage = fs.load_trace(json.dumps({**head, "traceEvents": kept}).encode()).coverage()
    unknown = sum(us for _, us in coverage["unmodelled"])
    counted = unknown / (1 - coverage["bytes"]) if coverage["bytes"] < 1 else launched
    return launched, math.nan if counted == 0 else counted, coverage


def arguments(event: Event) -> dict[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


def id_of(event: Event) -> Any:
    return next((value for key, value in arguments(event).items() if key.lower() == "external id"), None)


def owners(events: list[Event]) -> list[tuple[Event, Event | None]]:
    """Device work and the op that launched it, or None."""
    by_id = {id_of(e): e for e in events if e.get("cat") in OPS}
    calls = {arguments(e).get("correlation"): e for e in events if e.get("cat") in CALLS}
    calls.pop(None, None)
    by_id.pop(None, None)
    launchers = innermost_ops(events, calls)
    found = []
    for work in (e for e in events if e.get("cat") in WORK):
        call = calls.get(arguments(work).get("correlation"))
        found.append((work, by_id.get(id_of(work)) if call is None else launchers.get(id(call))))
    return found


def innermost_ops(events: list[Event], calls: dict[Any, Event]) -> dict[int, Event]:
    """By id() of an API call, the innermost op around its start on its thread."""
    threads: dict[tuple[Any, Any], list[tuple[float, float, Event, bool]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in OPS:
            threads[event.get("pid"), event.get("tid")].append(
                (float(event["ts"]), -float(event.get("dur", 0)), event, True)
            )
    for call in calls.values():
        threads[call.get("pid"), call.get("tid")].append((float(call["ts"]), 0.0, call, False))
    found = {}
    for entries in threads.values():
        stack: list[tuple[float, Event]] = []
        entries.sort(key=lambda entry: (entry[0], entry[1], not entry[3]))
        for start, minus_duration, event, is_op in entries:
            while stack and stack[-1][0] <= start:
                stack.pop()
            if is_op:
                stack.append((start - minus_duration, event))
            elif stack:
                found[id(event)] = stack[-1][1]
    return found


if __name__ == "__main__":
    main()
