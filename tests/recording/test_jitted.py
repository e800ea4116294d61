"""The passes of a program of JAX: calls of the jitted function that takes the most time, heard from a hook of JAX."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flopscope.record import steps
from flopscope.record.steps import LEAST, REPEATS, Jitted


class Hook:
    """JAX's hook; its clock is its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.value: Any = None
        self.now = 0.0
        api = SimpleNamespace(_post_hook_state=self)
        monkeypatch.setitem(sys.modules, "jax._src.api", api)  # type: ignore[arg-type]
        monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: self.now))

    def set_global(self, value: Any) -> None:
        self.value = value

    def call(self, function: Any, took: float) -> None:
        """Call a function, before whose return some s pass."""
        self.now += took
        if self.value is not None:
            self.value(function, (), {}, None)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    return Hook(monkeypatch)


def function(name: str, module: str = "__main__") -> Any:
    return SimpleNamespace(__name__=name, __module__=module)


@pytest.mark.parametrize("waits", ["step", "draw"])
def test_passes_are_calls_of_what_takes_the_most_time_and_is_called_least(hook: Hook, waits: str) -> None:
    """The devices take 1 s of a pass, for which the host waits in the step, or before the first of eight draws."""
    calls: list[str] = []
    jitted, draw, step = Jitted(calls.append), function("draw"), function("train")
    own, test = function("multiply", "jax._src.numpy.ufuncs"), function("test")

    def run() -> None:
        for i in range(8):
            hook.call(draw, 1.0 if waits == "draw" and i == 0 else 0.01)
            hook.call(own, 0.01)
        hook.call(step, 1.0 if waits == "step" else 0.01)

    for _ in range(LEAST + REPEATS - 1):
        assert not calls and not jitted.name
        run()
        if waits == "step":
            hook.call(test, 0.02)
        jitted.look()
        jitted.look()  # nothing was called since then
    assert jitted.name == "train" and not calls, "passes are counted from here on"
    run()
    run()
    assert calls == ["jax"] * 2
    jitted.leave()
    run()
    assert hook.value is None and len(calls) == 2


def test_what_jax_needs_its_hook_for_is_left_alone(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.value = check = lambda *_: None
    jitted = Jitted(lambda _: pytest.fail())
    jitted.look()
    jitted.leave()
    assert hook.value is check and not jitted.name
    hook.value = None
    jitted = Jitted(lambda _: pytest.fail())
    for _ in range(LEAST + REPEATS):
        hook.call(check, 1.0)
        hook.value, before = check, hook.value  # the program asks for the check
        jitted.look()
        hook.value = before
    assert not jitted.name
    monkeypatch.setitem(sys.modules, "jax._src.api", SimpleNamespace())  # type: ignore[arg-type]  # without a hook
    jitted = Jitted(lambda _: pytest.fail())
    jitted.look()
    jitted.leave()


def test_jax_has_the_hook() -> None:
    assert pytest.importorskip("jax._src.api")._post_hook_state.value is None
