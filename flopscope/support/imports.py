"""Acting as soon as a module has been imported, without importing it, and in place of what it and its classes have."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Act = Callable[[ModuleType], object]


def after_import(name: str, act: Act) -> None:
    """Call ``act`` with a module once its import has succeeded, at once if the module is imported already.

    It is called on the thread of the import, before the importing code continues. An import that fails does not call
    it, and a later one does.
    """
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Watcher(name, act))
    else:
        act(module)


def loaded() -> dict[str, str]:
    """Return the files of the modules that this process has imported, without those of the standard library, and those
    that are made without a file: torch.ops says "_ops.py"."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    others = {name: one for name, one in files.items() if one and name.split(".")[0] not in sys.stdlib_module_names}
    return {name: os.path.abspath(one) for name, one in others.items() if os.path.exists(one)}


class _Watcher:
    """A finder that finds what the other finders find, and marks the module's loader."""

    def __init__(self, name: str, act: Act) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        finders = list(sys.meta_path)  # those before this one found nothing, or are other watchers, which ask this one
        for finder in finders[finders.index(self) + 1 if self in finders else 0 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                self._mark(spec.loader)
                return spec
        return None

    def _mark(self, loader: Any) -> None:
        """Make the next exec_module() of a loader call the function afterwards."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._act(module)

        loader.exec_module = exec_module


_ABSENT = object()


def replace(owner: Any, name: str, ours: object) -> Callable[[], None]:
    """Set an attribute. Return a function that restores what was before, unless another has taken our place."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, ours)

    def restore() -> None:
        if vars(owner).get(name) is not ours:
            return
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return restore


def around(
    owner: Any,
    name: str,
    before: Callable[[Any], object] = id,
    failed: Callable[[Any], object] = id,
    after: Callable[[Any], object] = id,
) -> None:
    """Hook a method of a class: call functions of its object before a call, after one that failed, and after each.

    ``id`` does nothing.
    """
    method = getattr(owner, name)

    @functools.wraps(method)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self)
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            failed(self)
            raise
        finally:
            after(self)

    setattr(owner, name, hooked)
