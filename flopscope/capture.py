"""Who tells the device times of a profile, and the recorder that goes with it."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Literal

from . import _core, _libraries
from .schedule import ProfilerActivity

__all__ = [
    "TIMERS",
    "Recipe",
    "Timer",
    "Timing",
    "is_taken",
    "least_kernel",
    "start_core",
    "stop_core",
    "warn_of_losses",
    "warn_user",
]

Timer = Literal["auto", "cupti", "event"]
Timing = Literal["cupti", "event", "cpu"]
Keep = Callable[[_core.Profiler], object]

TIMERS: tuple[Timer, ...] = ("auto", "cupti", "event")


@dataclass(frozen=True)
class Recipe:
    """What a profile's recorder is to record, as ``profile()`` was told."""

    activities: Set[ProfilerActivity]
    asked_for_cuda: bool  # rather than by default
    timer: Timer
    profile_memory: bool
    with_stack: bool
    api_calls: bool


def start_core(recipe: Recipe, keep: Keep) -> tuple[_core.Profiler, Timing]:
    """A recorder that runs, and who tells its device times: "cupti", "event" (CUDA events around ops) or "cpu", nobody.

    keep: called with each recorder before it starts, so that the caller can stop it whatever interrupts this function.
    Warns where CUDA was asked for and there is none, and where "auto" has to do without CUPTI. RuntimeError where
    ``timer`` is "cupti" and CUPTI cannot be had, or another profile runs. Each names why.
    """
    if ProfilerActivity.CUDA not in recipe.activities:
        return _started(recipe, "cpu", keep), "cpu"
    why = ""
    if recipe.timer != "event":
        try:
            return _started_with_cupti(recipe, keep), "cupti"
        except RuntimeError as problem:
            why = f"{problem}: {_who_may_have_it()}" if is_taken(problem) else str(problem)
            if recipe.timer == "cupti":
                raise RuntimeError(f'timer="cupti" cannot be had: {why}') from problem
    no_events = _why_no_events()
    timing: Timing = "event" if no_events is None else "cpu"
    core = _started(recipe, timing, keep)
    if recipe.timer == "auto" and (no_events is None or _core.cuda_is_here()):
        seen = "only flopscope's own ops have device times, from CUDA events" if no_events is None else "none are seen"
        warn_user(f"kernels and copies are seen through CUPTI, which cannot be had ({why}): {seen}")
    elif no_events is not None and recipe.asked_for_cuda:
        warn_user(f"CUDA is not profiled: {why or no_events}")
    return core, timing


def stop_core(core: _core.Profiler) -> None:
    """Stop a recorder, if it runs."""
    if core.running:
        core.stop()


def _started(recipe: Recipe, timing: Timing, keep: Keep) -> _core.Profiler:
    """Without the CPU activity no ops are kept, except where they carry the device times."""
    options: dict[str, Any] = {
        "profile_memory": recipe.profile_memory,
        "ops": ProfilerActivity.CPU in recipe.activities or timing == "event",
        "event_times": timing == "event",
    }
    if timing == "cupti":
        options |= {"cupti": True, "api_calls": recipe.api_calls, "may_share": _may_share()}
    if recipe.with_stack:
        options["with_stack"] = True
    core = _core.Profiler(**options)
    keep(core)
    core.start()
    return core


def _started_with_cupti(recipe: Recipe, keep: Keep) -> _core.Profiler:
    why = _why_no_cupti()
    if why is not None:
        raise RuntimeError(why)
    return _started(recipe, "cupti", keep)


@functools.cache
def _why_no_cupti() -> str | None:
    """None where CUPTI is loaded and there is a device. Asked once per process."""
    try:
        _core.load_driver()
    except RuntimeError as problem:
        return str(problem)
    try:
        path = _libraries.find("cupti")
    except RuntimeError:
        path = None  # the system's loader may find it
    try:
        _core.load_cupti(path)
    except RuntimeError as problem:
        return str(problem)
    return None if _core.cuda_is_here() else "there is no CUDA device"


def is_taken(problem: Exception) -> bool:
    """Whether the core refused to capture or record since another client, or a profile, does."""
    return any(why in str(problem) for why in ("CUPTI is taken", "capture is in progress", "profile is in progress"))


def _torch_profiles() -> bool | None:
    """Whether torch.profiler records now; None where this process has no torch.

    After its first profile it keeps CUPTI's one subscription for good, under no name, also while it does nothing.
    """
    torch_profiler: Any = sys.modules.get("torch.autograd.profiler")
    if torch_profiler is None:
        return None
    return bool(torch_profiler._is_profiler_enabled)


def _may_share() -> bool:
    """Whether a nameless subscriber must be torch.profiler, and idle: Triton's Proton gives no name either."""
    return _torch_profiles() is False and not any(name.startswith("triton.profiler") for name in sys.modules)


def _who_may_have_it() -> str:
    if _torch_profiles():
        return "torch.profiler is recording; end its profile before, or leave the GPU to it"
    return "end the other profiler first: torch.profiler, Triton's Proton and NVIDIA's Nsight tools are such"


def warn_of_losses(core: _core.Profiler) -> None:
    """Say it where another client of CUPTI took records while ``core``, which has stopped, captured."""
    capture = core.capture
    if capture is not None and capture["taken"]:
        warn_user(
            "another client of CUPTI (torch.profiler, perhaps) began to record while this profile did and took "
            f"{capture['taken']} buffer(s) of its records, and all that followed: what the profile shows is not whole"
        )


@functools.cache
def _why_no_events() -> str | None:
    """None where flopscope itself can work on a CUDA device. Asked once per process."""
    try:
        return None if _core.cuda_device_count() > 0 else "there is no CUDA device"
    except RuntimeError as problem:
        return str(problem)


def least_kernel(device: str, launches: int = 50) -> float:
    """Median time in ns of what reads and writes one element: on a CUDA device of a kernel, by CUPTI; on the CPU of an
    op, as profiles record it.

    RuntimeError where CUPTI cannot be had now, or a profile runs.
    """
    if device == "cpu":
        core = _core.Profiler(event_times=False)
    else:
        why = _why_no_cupti()
        if why is not None:
            raise RuntimeError(why)
        core = _core.Profiler(ops=False, cupti=True, api_calls=False, may_share=_may_share())
    x = _core.ones((1,), device=device)
    for _ in range(launches):
        _core.neg(x)
    try:
        core.start()
        for _ in range(launches):
            _core.neg(x)
        core.stop()
    except BaseException:
        stop_core(core)
        raise
    columns, _ = core.store.table(False, 0, {})
    if not len(columns["key"]):
        raise RuntimeError(f"nothing was recorded of {launches} calls on {device}")
    return 1e3 * float(columns["time_median"][0])


def warn_user(message: str) -> None:
    """Warn at the line outside of flopscope that led here."""
    folder = os.path.dirname(__file__)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(folder):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
