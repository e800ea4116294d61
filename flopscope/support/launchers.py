"""What launchers of parallel programs pass to a process: its rank, and the number of processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RANK_VARIABLES = (  # torchrun; Open MPI; MPICH and Intel MPI; SLURM
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def rank_in(environment: Mapping[str, Any]) -> dict[str, int] | None:
    """Return {"rank": …, "world_size": …} from the environment of a process (untrusted); None if it names no rank.

    "world_size" is missing if the launcher does not provide it. Of several launchers, the first with several processes
    counts.
    """
    found = []
    for names in RANK_VARIABLES:
        known = [str(environment.get(name, "")) for name in names]
        numbers = [int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None for text in known]
        if numbers[0] is not None:
            pairs = zip(("rank", "world_size"), numbers, strict=True)
            found.append({name: number for name, number in pairs if number is not None})
    return next((one for one in found if one.get("world_size") != 1), found[0] if found else None)
