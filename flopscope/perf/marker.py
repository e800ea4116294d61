"""``@pytest.mark.perf(…)``: limits by name, each a method of Check."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from flopscope.perf.limits import LimitError

if TYPE_CHECKING:
    from flopscope.perf.check import Check

__all__ = ["LIMITS", "apply", "check_unused", "limits_of", "skip_unless_here", "skip_without_device"]

__tracebackhide__ = True  # pytest shows the line of the test instead

# Methods of Check. A marker holds a dict of keywords for one, or its argument or arguments, or True for none.
LIMITS = ("at_least", "at_most", "bound", "no_slower_than", "flops", "bytes", "kernels", "no_sync")

_NAME = re.compile(r"cpu|cuda(:\d+)?")
_EXAMPLES = {"at_least": '; as in at_least={"pct_roofline": 80}', "at_most": '; as in at_most={"us": 20}'}


def limits_of(item: pytest.Item) -> dict[str, Any]:
    """The limits of an item's markers by name; of one name, the marker nearest to the test counts.

    LimitError for a name that is none of LIMITS, or "device".
    """
    wanted = _merged(item)
    wanted.pop("device", None)
    for name in wanted:
        if name not in LIMITS:
            raise LimitError(f"@pytest.mark.perf has no {name!r}; there are device, {', '.join(LIMITS)}")
    return wanted


def apply(check: Check, name: str, arguments: Any) -> None:
    """Hold the limit of that name, with a marker's arguments for it, against a check.

    LimitError for arguments that the method does not take.
    """
    if arguments is False:
        return
    method = getattr(check, name)
    by_name = dict(arguments) if isinstance(arguments, Mapping) else {}
    if arguments is True or by_name:
        in_order: tuple[Any, ...] = ()
    else:
        in_order = tuple(arguments) if isinstance(arguments, (list, tuple)) else (arguments,)
    try:
        inspect.signature(method).bind(*in_order, **by_name)
    except TypeError as problem:
        raise LimitError(f"@pytest.mark.perf({name}={arguments!r}): {problem}{_EXAMPLES.get(name, '')}") from None
    method(*in_order, **by_name)


def check_unused(item: pytest.Item) -> None:
    """Fails an item whose own marker has limits, but which does not use the fixture. Others' markers are left alone.

    A class's or module's marker is for those of its tests that measure; others may stand beside them.
    """
    if any(mark.name == "perf" and set(mark.kwargs) & set(LIMITS) for mark in item.own_markers):
        pytest.fail(
            "@pytest.mark.perf limits what the perf fixture measures: take `perf` as an argument", pytrace=False
        )


def skip_without_device(item: pytest.Item) -> None:
    """Skips an item whose marker names a device that is not here: "cpu", "cuda", "cuda:1" or a part of its name."""
    wanted = _merged(item).get("device")
    if wanted is None:
        return
    if not _NAME.fullmatch(str(wanted)):
        from flopscope.hardware.device import devices

        names = [device.name for device in devices()]
        if not any(str(wanted).lower() in name.lower() for name in names):
            pytest.skip(f"no device here is called {wanted!r}: there are {', '.join(names)}")
    skip_unless_here(wanted)


def skip_unless_here(device: Any) -> None:
    """Skips a test of "cpu", "cuda" or "cuda:1" where that is not here. Other values are left to measure()."""
    from flopscope.hardware.device import find_device

    if not _NAME.fullmatch(str(device)):
        return
    try:
        find_device(str(device))
    except (RuntimeError, ValueError) as reason:
        pytest.skip(str(reason))


def _merged(item: pytest.Item) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for mark in item.iter_markers("perf"):
        merged = {**mark.kwargs, **merged}
    return merged
