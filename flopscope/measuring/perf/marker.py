"""The marker ``@pytest.mark.perf(…)``: limits by name, each a method of Check."""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from flopscope.measuring.perf.limits import LimitError, require_bounds, require_limits
from flopscope.support.device import devices, find_device
from flopscope.support.suggest import did_you_mean

if TYPE_CHECKING:
    from flopscope.measuring.perf.check import Check

__tracebackhide__ = True  # pytest shows the line of the test instead

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# Methods of Check. The value in a marker is a dict of keyword arguments, one argument, a sequence of them, or True.
LIMITS = ("at_least", "at_most", "bound", "no_slower_than", "flops", "bytes", "traffic", "kernels", "no_sync")

_NAME = re.compile(r"cpu|cuda(:\d+)?")
_EXAMPLES = {"at_least": '; example: at_least={"pct_roofline": 80}', "at_most": '; example: at_most={"us": 20}'}


def limits_of(item: pytest.Item, checks: type[Check]) -> dict[str, Arguments]:
    """Return the arguments of the limits of an item's markers by name, without limits that are False.

    The marker closest to the test overrides the others. Raises LimitError, before anything is measured, for a name
    other than those of LIMITS and "device", and for arguments that the method of ``checks`` does not accept.
    """
    limits = {}
    for name, given in _merged(item).items():
        if name not in (*LIMITS, "device"):
            hint = did_you_mean(name, LIMITS)
            raise LimitError(f"@pytest.mark.perf has no argument {name!r}; it takes device, {', '.join(LIMITS)}{hint}")
        if name != "device" and given is not False:
            limits[name] = _checked(checks, name, given)
    return limits


def _checked(checks: type[Check], name: str, given: Any) -> Arguments:
    """Return the positional and the keyword arguments that a marker's value stands for."""
    by_name = dict(given) if isinstance(given, Mapping) else {}
    several = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    in_order = () if given is True or by_name else several
    try:
        bound = inspect.signature(getattr(checks, name)).bind(None, *in_order, **by_name)
    except TypeError as problem:
        raise LimitError(f"@pytest.mark.perf({name}={given!r}): {problem}{_EXAMPLES.get(name, '')}") from None
    if name in ("at_least", "at_most"):
        require_limits(by_name)
    elif name == "bound":
        require_bounds(bound.arguments.get("kinds", ()))
    return in_order, by_name


def check_unused(item: pytest.Item) -> None:
    """Fail an item whose own marker has limits but which does not use the fixture.

    Markers of a class or module are ignored, since they apply to those of its tests that use the fixture.
    """
    if any(mark.name == "perf" and set(mark.kwargs) & set(LIMITS) for mark in item.own_markers):
        pytest.fail("@pytest.mark.perf needs the perf fixture: add the argument `perf` to the test", pytrace=False)


def skip_without_device(item: pytest.Item) -> None:
    """Skip an item whose marker names a missing device, by "cpu", "cuda", "cuda:1" or a part of its name."""
    wanted = _merged(item).get("device")
    if wanted is None:
        return
    if not _NAME.fullmatch(str(wanted)):
        names = [device.name for device in devices()]
        if not any(str(wanted).lower() in name.lower() for name in names):
            pytest.skip(f"no device of this machine matches {wanted!r}; its devices are {', '.join(names)}")
    skip_unless_here(wanted)


def skip_unless_here(device: Any) -> None:
    """Skip a test of "cpu", "cuda" or "cuda:1" if that device is missing. measure() checks all other values."""
    if not _NAME.fullmatch(str(device)):
        return
    try:
        find_device(str(device))
    except (RuntimeError, ValueError) as reason:
        pytest.skip(str(reason))


def _merged(item: pytest.Item) -> dict[str, Any]:
    return dict(ChainMap(*(dict(mark.kwargs) for mark in item.iter_markers("perf"))))
