"""Short names of kernels: C++ signatures without their arguments, the usual namespaces, and Numba's tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_NOISE = re.compile(
    r"^void |\(anonymous namespace\)::|\[abi:[^\]]*\]|\b(?:at::native::|at::|c10::|std::|__main__::"
    r"|cuda::(?:std::)?(?:__\d+::)?|(?:cub|thrust)::(?:(?:CUB|THRUST)_\w+::)?(?:[a-z_]+::)*)"
)


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return a short name for each name; names whose short forms would be equal keep their full ones."""
    short = {name: _NOISE.sub("", _without_arguments(name)) or name for name in names}
    owners: dict[str, list[str]] = {}
    for name, one in short.items():
        owners.setdefault(one, []).append(name)
    return {name: one if len(owners[one]) == 1 else name for name, one in short.items()}


def _without_arguments(name: str) -> str:
    """Return a C++ signature without its last pair of parentheses: ``f<(int)4>(float*)`` is ``f<(int)4>``."""
    if not name.endswith(")"):
        return name
    depth = 0
    for i in range(len(name) - 1, 0, -1):
        depth += (name[i] == ")") - (name[i] == "(")
        if depth == 0:
            return name[:i] if name[i - 1] not in " :" else name  # "Memset (Device)" has no arguments
    return name


OF_TRITON = "triton::"
"""What the name of a launch of Triton begins with, unless its kernel names it."""


def is_op_of_library(name: str) -> bool:
    """Return whether a name is that of an op with arguments, such as aten::mm; a launch of Triton has none recorded."""
    return "::" in name and not name.startswith(OF_TRITON)
