"""Facts that profilers of AMD's and NVIDIA's programs record: properties of devices, and ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flopscope import _core
from flopscope.read.counters import Samples, add_samples
from flopscope.support.process import rank_in

_INDICES = ("type_index", "logical_node_type_id", "logical_index")


def json_object(text: object) -> dict[str, Any]:
    """Parse a JSON object (untrusted); empty if it is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def newer_schema(schema: object, newest: int) -> Iterator[str]:
    """Yield a note if a schema, a text with the major version first, is newer than the newest that is known."""
    major = re.match(r"\d+", str(schema))
    if major and int(major[0]) > newest:
        yield f"its schema is {schema}, newer than {newest}.x: only what this version knows was read"


def finished(
    profiler: str,
    reader: _core.DatabaseReader,
    store: _core.Store,
    facts: dict[str, Any],
    devices: Sequence[Mapping[str, Any]],
    samples: Sequence[Samples],
    base_time: int = 0,
    *,
    accelerator: str = "hip",
) -> tuple[dict[str, int], dict[str, Any]]:
    """Put the events and samples into the store. Return counts, and the metadata of a trace.

    ``facts`` are the member of the metadata that has the name of the profiler. accelerator: "": not told.
    """
    head = {"deviceProperties": devices} | ({"accelerator": accelerator} if accelerator else {})
    report = reader.finish(store, json.dumps(head).encode(), base_time)
    counts = {"samples": add_samples(store, samples), "unmatched_frees": report["unmatched_frees"]}
    metadata: dict[str, Any] = {profiler: facts | counts}
    if devices:
        metadata["deviceProperties"] = devices
    if report["changes"]:
        metadata["profile_memory"] = True
    return report, metadata


def rank_of_process(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return "distributedInfo" from the environment of a process; empty if it names no rank."""
    rank = rank_in(environment)
    return {"distributedInfo": rank} if rank is not None and "world_size" in rank else {}


def properties_of(agent: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a GPU under Kineto's names, from rocprofv3's agent and its details (untrusted)."""
    named = {**details, **{name: value for name, value in agent.items() if value is not None}}
    version = named.get("gfx_target_version")
    banks = named.get("mem_banks")
    sizes = [bank.get("size_in_bytes") for bank in banks if isinstance(bank, dict)] if isinstance(banks, list) else []
    found = {
        "id": next((number for number in map(named.get, _INDICES) if isinstance(number, int)), None),
        "name": next((named[key] for key in ("product_name", "model_name", "name") if named.get(key)), None),
        "totalGlobalMem": sum(size for size in sizes if isinstance(size, int)) or None,
        "computeMajor": version // 10000 if isinstance(version, int) else None,
        "computeMinor": version // 100 % 100 if isinstance(version, int) else None,
        "warpSize": named.get("wave_front_size"),
        "numSms": named.get("cu_count"),
        "maxThreadsPerBlock": named.get("workgroup_max_size"),
        "architecture": named.get("name"),
    }
    return {name: value for name, value in found.items() if value is not None}
