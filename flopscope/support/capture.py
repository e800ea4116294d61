"""The source of a profile's device times, and the recorder that uses it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from flopscope import _core
from flopscope.support import package
from flopscope.support.package import warn_user

Timer = Literal["auto", "cupti", "event"]
Timing = Literal["cupti", "event", "cpu"]
Keep = Callable[[_core.Profiler], object]

# Who may hold CUPTI, and what to do: clauses of a message.
_TORCH_RECORDS = "torch.profiler is recording; end its profile first, or let it profile the GPU"
_ANOTHER_RECORDS = (
    "end the other profiler first, such as torch.profiler, Triton's Proton or one of NVIDIA's Nsight tools"
)
_NO_CUPTI = "kernels and copies are recorded through CUPTI, which is unavailable ({}): {}"

TIMERS: tuple[Timer, ...] = ("auto", "cupti", "event")


@dataclass(frozen=True)
class Recipe:
    """The settings of a profile's recorder: the arguments of ``profile()``."""

    activities: Set[ProfilerActivity]
    asked_for_cuda: bool = False  # explicitly rather than by default
    timer: Timer = "auto"
    profile_memory: bool = False
    with_stack: bool = False
    api_calls: bool = True
    early: bool = False
    """Capture what the program does on CUDA, which it initializes itself, now or later: it may still choose its devices
    by CUDA_VISIBLE_DEVICES, and use CUDA in processes that it forks."""


def start_core(recipe: Recipe, keep: Keep) -> tuple[_core.Profiler, Timing]:
    """Start a recorder and return it with the source of its device times: "cupti", "event" (CUDA events around ops) or
    "cpu" (no device times).

    ``keep`` is called with each recorder before it starts, so that the caller can stop it if this function is
    interrupted. Warn if CUDA was requested and is unavailable, or if "auto" falls back from CUPTI. Raise RuntimeError
    if ``timer`` is "cupti" and CUPTI is unavailable, or if another profile runs. Every message gives the reason.
    """
    if ProfilerActivity.CUDA not in recipe.activities:
        return _started(recipe, "cpu", keep), "cpu"
    why = ""
    if recipe.timer != "event":
        try:
            missing = why_not_loaded(_core.load_cupti) if recipe.early else why_no_cupti()
            if missing is not None:
                raise RuntimeError(missing)
            return _started(recipe, "cupti", keep), "cupti"
        except RuntimeError as problem:
            owner = _TORCH_RECORDS if _torch_profiles() else _ANOTHER_RECORDS
            why = f"{problem}: {owner}" if is_taken(problem) else str(problem)
            if recipe.timer == "cupti":
                raise RuntimeError(f'timer="cupti" is unavailable: {why}') from problem
    if recipe.early:
        core = _started(recipe, "cpu", keep)
        with suppress(RuntimeError):  # there is no driver
            _core.load_driver()
            warn_user(_NO_CUPTI.format(why, "none are recorded"))
        return core, "cpu"
    no_events = _why_no_events()
    timing: Timing = "event" if no_events is None else "cpu"
    core = _started(recipe, timing, keep)
    if recipe.timer == "auto" and (no_events is None or _core.cuda_is_here()):
        only_ops = "only flopscope's own ops have device times, from CUDA events"
        warn_user(_NO_CUPTI.format(why, only_ops if no_events is None else "none are recorded"))
    elif no_events is not None and recipe.asked_for_cuda:
        warn_user(f"CUDA is not profiled: {why or no_events}")
    return core, timing


def stop_core(core: _core.Profiler) -> None:
    """Stop a recorder if it is running."""
    if core.running:
        core.stop()


def _started(recipe: Recipe, timing: Timing, keep: Keep) -> _core.Profiler:
    """Start a recorder. Without the CPU activity it records no ops, unless they carry the device times."""
    events, ops = timing == "event", ProfilerActivity.CPU in recipe.activities
    options: dict[str, Any] = {"profile_memory": recipe.profile_memory, "ops": ops or events, "event_times": events}
    if timing == "cupti":
        options |= {"cupti": True, "api_calls": recipe.api_calls, "may_share": may_evict()}
    options |= {"nvtx": True, **({"with_stack": True} if recipe.with_stack else {})}
    _core.inject_nvtx()
    core = _core.Profiler(**options)
    keep(core)
    core.start()
    return core


@functools.cache
def why_no_cupti() -> str | None:
    """Return why CUPTI is unavailable, or None if it is loaded and there is a device. Computed once per process."""
    return why_not_loaded(_core.load_cupti) or (None if _core.cuda_is_here() else "there is no CUDA device")


def why_not_loaded(load: Callable[[str | None], None]) -> str | None:
    """Return why the driver or CUPTI cannot be loaded, or None if both are. ``load`` loads CUPTI from a path."""
    try:
        _core.load_driver()
    except RuntimeError as problem:
        return str(problem)
    try:
        path = package.find_library("cupti")
    except RuntimeError:
        path = None  # the dynamic loader may still find it
    try:
        load(path)
    except RuntimeError as problem:
        return str(problem)
    return None


def is_taken(problem: Exception) -> bool:
    """Return whether the core refused to start because another CUPTI client or another profile is recording."""
    return any(why in str(problem) for why in ("CUPTI is taken", "capture is in progress", "profile is in progress"))


def _torch_profiles() -> bool | None:
    """Return whether torch.profiler is recording; None if torch is not loaded in this process.

    After its first profile, torch.profiler keeps CUPTI's only subscription, without a name, even while it is idle.
    """
    torch_profiler: Any = sys.modules.get("torch.autograd.profiler")
    return None if torch_profiler is None else bool(torch_profiler._is_profiler_enabled)


def may_evict() -> bool:
    """Return whether a subscriber of CUPTI without a name, such as Triton's Proton, can only be idle torch.profiler."""
    return _torch_profiles() is False and not any(name.startswith("triton.profiler") for name in sys.modules)


def warn_of_losses(core: _core.Profiler) -> None:
    """Warn if another CUPTI client took records while ``core``, which has stopped, was capturing."""
    capture = core.capture
    if capture is not None and capture["taken"]:
        warn_user(
            "another CUPTI client (perhaps torch.profiler) started to record during this profile and took "
            f"{capture['taken']} buffer(s) of its records and all later ones: the profile is incomplete"
        )


@functools.cache
def _why_no_events() -> str | None:
    """Return why flopscope's own ops cannot run on CUDA, or None if they can. Computed once per process."""
    try:
        return None if _core.cuda_device_count() > 0 else "there is no CUDA device"
    except RuntimeError as problem:
        return str(problem)


def shortest_kernel(device: str, launches: int = 50) -> float:
    """Return the median time in ns to read and write one element: of a kernel, by CUPTI, on a CUDA device; of an op, as
    profiles record it, on the CPU.

    Raise RuntimeError if CUPTI is unavailable or a profile is running.
    """
    if device == "cpu":
        core = _core.Profiler(event_times=False)
    else:
        why = why_no_cupti()
        if why is not None:
            raise RuntimeError(why)
        core = _core.Profiler(ops=False, cupti=True, api_calls=False, may_share=may_evict())
    x = _core.ones((1,), device=device)
    for _ in range(launches):
        _core.neg(x)
    try:
        core.start()
        for _ in range(launches):
            _core.neg(x)
        core.stop()
    except BaseException:
        stop_core(core)  # an interrupt may have come before, or in the call above
        raise
    columns, _ = core.store.table(False, 0, {})
    if not len(columns["key"]):
        raise RuntimeError(f"none of {launches} calls on {device} were recorded")
    return 1e3 * float(columns["time_median"][0])


class ProfilerActivity(Enum):
    """A kind of activity to record: the host's ops, ranges and Python calls, or the work of CUDA devices."""

    CPU = 0
    CUDA = 1


def activities_named(activities: Iterable[Any] | None) -> frozenset[ProfilerActivity]:
    """Return the activities of ``profile(activities=…)``: flopscope's, or torch's by their names; None means all.

    Raise ValueError for an empty list and for an unsupported activity, TypeError for other objects.
    """
    if activities is None:
        return frozenset(ProfilerActivity)
    if not isinstance(activities, Iterable) or isinstance(activities, (str, bytes)):
        what = "a list like [ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        raise TypeError(f"activities must be {what}, not {activities!r}")
    named = frozenset(map(_activity, activities))
    if not named:
        raise ValueError("activities=[] records nothing; omit it to record all, or name ProfilerActivity.CPU or .CUDA")
    return named


def _activity(item: Any) -> ProfilerActivity:
    name = getattr(item, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{item!r} is not an activity; use ProfilerActivity.CPU and ProfilerActivity.CUDA")
    if name not in ProfilerActivity.__members__:
        raise ValueError(f"the activity {name} is unsupported; flopscope records CPU and CUDA")
    return ProfilerActivity[name]
