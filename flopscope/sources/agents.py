"""Facts that profilers of AMD's and NVIDIA's programs record: properties of devices, and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopscope.support.launchers import rank_in

__all__ = ["properties_of", "rank_of_process"]


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
        "id": _first(named, "type_index", "logical_node_type_id", "logical_index"),
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


def _first(named: Mapping[str, Any], *keys: str) -> int | None:
    return next((named[key] for key in keys if isinstance(named.get(key), int)), None)
