"""The modules of HLO that JAX has compiled in this process, for the kernels of a profile."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from flopscope import _core
from flopscope.sources.hlo import readable
from flopscope.support.safe import printable
from flopscope.support.warn import warn_user

_BACKENDS = "jax._src.xla_bridge"


def tie_to_jax(core: _core.Store) -> dict[str, int]:
    """Give the kernels of a profile the instructions of JAX's modules in this process that launched them.

    Return counts, as sources.hlo.tie(); {} without JAX, without kernels, and if the modules cannot be had: a warning
    says why. JAX is neither imported nor initialized.
    """
    if "jax" not in sys.modules or core.devices <= {"cpu"}:
        return {}
    try:
        known = readable(dict(_modules()), "jax")
        return core.join_hlo(tuple(known.items())) if known else {}
    except Exception as problem:  # of a version of JAX whose interface is another
        warn_user(printable(f"kernels of JAX belong to no instruction: {type(problem).__name__}: {problem}"))
        return {}


def _modules() -> Iterator[tuple[str, str]]:
    """Yield name and text of the modules of all executables that are alive, each text once.

    Names are numbered where several modules have one.
    """
    seen: set[str] = set()
    names: Counter[str] = Counter()
    for client in _clients():
        for executable in client.live_executables():
            for module in executable.hlo_modules():
                text = module.to_string()
                if text in seen:
                    continue
                seen.add(text)
                names[module.name] += 1
                yield f"{module.name}({names[module.name]})", text


def _clients() -> list[Any]:
    """Return the clients of the devices that JAX uses so far: none before its first use of them."""
    bridge = sys.modules.get(_BACKENDS)
    if bridge is None or not bridge.backends_are_initialized():
        return []
    clients = {id(device.client): device.client for device in sys.modules["jax"].devices()}
    return list(clients.values())
