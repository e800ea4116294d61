"""What a profile records of JAX in this process: its compilations, and the modules of HLO that its kernels belong to.

Only JAX's public listeners and the executables of its clients are used. If this JAX has others, a warning says so once,
and kernels remain kernels.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flopscope.read.xplane import readable
from flopscope.support.package import warn_user
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope._core import Store

_BACKENDS = "jax._src.xla_bridge"
_MOST_KEPT = 4096
"""Modules that are kept in case that their executables are deleted, the newest ones."""
compiled: Counter[str] = Counter()
"""Seconds that XLA has compiled functions for since listen(), by name."""
_SHORTEST = 1e-3
"""Seconds; shorter traces, of functions within others, are left out."""
_COMPILED = "XLA compilation"
_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "JAX tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "JAX lowering",
    "/jax/core/compile/backend_compile_duration": _COMPILED,
}
"""What JAX reports when it ends; csrc/work/names.c knows these ops by the second name."""
_ON_CPU = (
    "JAX runs on the CPU here, where a profile records its compilations alone; "
    "fs.work_of_hlo(jax.jit(f).lower(x).compile().as_text()) counts the work of a program"
)


class JaxModules:
    """The modules that JAX has compiled in this process, also those that are deleted after a look at them."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque(maxlen=_MOST_KEPT)
        self._seen: set[int] = set()  # executables, by id: see look()
        self.on_cpu = False
        """Whether JAX has devices, and they are CPUs."""

    def look(self, *, compiled: bool = False) -> Any:
        """Keep the modules of executables that are new, and return the first of the newest executable, or None.

        compiled: one has just been compiled. It may have the id of one that was deleted, and comes first.
        """
        newest = None
        for client in _clients():
            self.on_cpu = client.platform == "cpu"
            for place, executable in enumerate(client.live_executables()):
                if id(executable) in self._seen and not (compiled and place == 0):
                    continue
                self._seen.add(id(executable))
                modules = executable.hlo_modules()
                self._kept.extend(modules)
                newest = newest or next(iter(modules), None)
        return newest

    def texts(self) -> dict[str, str]:
        """Return the text of each module by name, each text once. Names are numbered where several modules have one."""
        self.look()
        modules = {module.to_string(): module.name for module in self._kept}
        names: Counter[str] = Counter()
        found = {}
        for text, name in modules.items():
            names[name] += 1
            found[f"{name}({names[name]})"] = text
        return found


def tie_to_jax(core: Store, modules: JaxModules | None = None) -> dict[str, int]:
    """Give the kernels of a profile the instructions of JAX's modules in this process that launched them.

    Return counts, as sources.hlo.tie(); {} without JAX, without kernels, and if the modules cannot be had. A warning
    says why not, once. JAX is neither imported nor initialized.
    """
    if "jax" not in sys.modules:
        return {}
    if core.devices <= {"cpu"}:
        if modules is not None and modules.on_cpu and not any("::" in name for name in core.names()):
            _say(_ON_CPU)
        return {}
    try:
        known = readable((modules or JaxModules()).texts(), "jax")
        return core.join_hlo(tuple(known.items())) if known else {}
    except Exception as problem:  # of a version of JAX whose interface is another
        _warn(problem)
        return {}


Running = Callable[[], "Any | None"]
"""Returns the profile in progress, or None."""


def begin(running: Running, modules: JaxModules | None = None) -> JaxModules | None:
    """Listen to JAX, and look at its modules; return what keeps them, None without JAX."""
    if "jax" not in sys.modules:
        return None
    found = modules or JaxModules()
    listen(sys.modules["jax"], running)
    try:
        found.look()
    except Exception as problem:
        _warn(problem)
    return found


_listening: list[Running] = []  # of the profiles that are told, once JAX calls _heard


def listen(jax: Any, running: Running) -> None:
    """Hear of JAX's compilations from now on. Only a profile that runs meanwhile is told of them."""
    if _listening:
        return
    try:
        jax.monitoring.register_event_duration_secs_listener(_heard)
        _listening.append(running)
    except Exception as problem:
        _warn(problem)


def _heard(event: str, seconds: float, **facts: Any) -> None:
    """Record what JAX has just done on this thread. Nothing here fails in the program."""
    what, prof = _EVENTS.get(event), _listening[0]() if _listening else None
    if what == _COMPILED:
        compiled[facts.get("fun_name") or "functions"] += seconds  # type: ignore[assignment]
    if what is None or prof is None or prof._live is None or (what != _COMPILED and seconds < _SHORTEST):
        return
    try:
        module = None
        if what == _COMPILED:
            prof._jax = prof._jax or JaxModules()
            module = prof._jax.look(compiled=True)
        name = facts.get("fun_name") or getattr(module, "name", "function")
        prof._live.add_op(printable(f"{name} ({what})"), int(seconds * 1e9))
    except Exception as problem:
        _warn(problem)


_said: set[str] = set()


def _warn(problem: Exception) -> None:
    _say(printable(f"kernels of JAX belong to no instruction: {type(problem).__name__}: {problem}"))


def _say(text: str) -> None:
    """Warn, once of each thing."""
    if text not in _said:
        _said.add(text)
        warn_user(text)


def _clients() -> Iterator[Any]:
    """Yield the clients of the devices that JAX uses so far: none before its first use of them."""
    bridge = sys.modules.get(_BACKENDS)
    if bridge is not None and bridge.backends_are_initialized():
        yield from {id(device.client): device.client for device in sys.modules["jax"].devices()}.values()
