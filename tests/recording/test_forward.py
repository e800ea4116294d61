"""The passes of a program that marks no steps: calls of the module that it calls most."""

import inspect
import pickle
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from flopscope.record.steps import LEAST, REPEATS, Forward  # noqa: E402


class Inner(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, look: Any = None) -> Any:
        if look is not None:
            look()
        return x + 1


class Outer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Any, look: Any = None) -> Any:
        return self.inner(x, look)


def seen(module: Any, looks: int, found: Forward) -> None:
    for _ in range(looks):
        module(torch.zeros(1), found.look)


def test_the_outermost_module_is_found_by_looking_and_its_calls_are_passes() -> None:
    outer, other, calls, before = Outer(), Outer(), [], vars(Outer)["forward"]
    forward = Forward(torch, calls.append)
    seen(outer, LEAST - 1, forward)
    forward.look()  # no module is called
    assert vars(Outer)["forward"] is before and "forward" in vars(Inner)
    seen(outer, 1, forward)
    assert vars(Outer)["forward"] is not before
    assert inspect.signature(outer.forward) == inspect.signature(other.forward)
    for module in (outer, other, outer.inner, outer):
        assert module(torch.ones(2)).tolist() == [2, 2]
    assert not calls and not forward.name, "what is called twice may be no loop"
    outer(torch.ones(2))
    outer(torch.ones(2))
    assert len(calls) == 2 and forward.name == "Outer"
    assert isinstance(pickle.loads(pickle.dumps(outer)), Outer)
    with pytest.raises(TypeError):
        outer(torch.ones(2), 1, 2, 3)
    assert len(calls) == 2, "a call that fails is no pass"
    forward.leave()
    outer(torch.ones(2))
    assert vars(Outer)["forward"] is before and len(calls) == 2


def test_a_module_that_is_seen_more_takes_the_place() -> None:
    once, model, calls = Outer(), Inner(), []
    forward = Forward(torch, calls.append)
    seen(once, LEAST, forward)
    seen(model, LEAST + 1, forward)
    for _ in range(REPEATS):
        model(torch.ones(1))
        once(torch.ones(1))
    assert len(calls) == 1 and forward.name == "Inner"
    several = Forward(torch, bool)
    for module in (Outer(), Outer(), Outer()):
        seen(module, LEAST - 1, several)
    assert "forward" in vars(Outer) and not hasattr(vars(Outer)["forward"], "__wrapped__"), "none has half of the looks"
    forward.leave()


def test_an_inherited_forward_is_watched_in_its_class_alone() -> None:
    class Heir(Inner):
        pass

    heir, inner, calls = Heir(), Inner(), []
    forward = Forward(torch, calls.append)
    seen(heir, LEAST, forward)
    for _ in range(REPEATS):
        heir(torch.ones(1))
        inner(torch.ones(1))
    forward.leave()
    heir(torch.ones(1))
    assert len(calls) == 1 and "forward" not in vars(Heir)


def test_a_module_that_is_gone_or_has_its_own_forward_is_not_watched() -> None:
    outer, forward = Outer(), Forward(torch, bool)
    seen(outer, LEAST - 1, forward)
    changed = Inner()
    changed.forward = lambda x, look=None: look and look()
    seen(changed, LEAST + 1, forward)
    assert not hasattr(vars(Inner)["forward"], "__wrapped__") and vars(Outer)["forward"].__name__ == "forward"


def test_the_program_may_replace_the_forward() -> None:
    class Changing(Inner):
        pass

    module, forward = Changing(), Forward(torch, bool)
    seen(module, LEAST, forward)
    Changing.forward = replaced = lambda self, x: x  # type: ignore[assignment, misc]
    forward.leave()
    assert vars(Changing)["forward"] is replaced
