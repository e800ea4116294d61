"""CUDA graphs of this process: ``watch_graphs()`` lets the kernels of their replays know the ops that were captured."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from flopscope import _core
from flopscope.read.load import read
from flopscope.record.triton_launches import LAUNCHES
from flopscope.support.capture import may_evict, why_not_loaded
from flopscope.support.imports import after_import, around
from flopscope.support.package import WATCH_GRAPHS, warn_user

MARK = "flopscope::clock"
MARKS = 8  # of the clock, before and after a capture


class GraphWatch:
    """The watch of this process over CUDA graphs that are captured, returned by watch_graphs()."""

    def __init__(self, *, with_stack: bool) -> None:
        self.with_stack = with_stack
        """Whether captures record Python calls."""

    @property
    def on(self) -> bool:
        """Whether graphs are watched now."""
        return _core.watch_is_on()

    @property
    def nodes(self) -> int:
        """Number of nodes of graphs that were captured, cloned or instantiated while watching and still exist."""
        return int(_core.watch_state()["nodes"])

    @property
    def known(self) -> int:
        """Number of these nodes whose op, range or Python call is known."""
        return int(_core.watch_state()["resolved"])

    @property
    def launches_lost(self) -> int:
        """Number of launches during profiles of torch that were not logged because the log was full."""
        return int(_core.watch_state()["launches_lost"])

    def stop(self) -> None:
        """End watching. Graphs that were captured so far stay known."""
        _core.watch_stop()

    def forget(self) -> None:
        """Forget all graphs, and release their memory."""
        _core.watch_forget()

    def __enter__(self) -> GraphWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<flopscope.GraphWatch: {'on' if self.on else 'off'}, {self.known} of {self.nodes} nodes known>"


_watch: GraphWatch | None = None


def watch_graphs(*, with_stack: bool = False) -> GraphWatch:
    """Watch this process capture CUDA graphs, so that the kernels of replays belong to the ops that launched them.

    Call it before graphs are captured: before the program warms up, or by setting the environment variable
    FLOPSCOPE_WATCH_GRAPHS=1, which calls it when flopscope is imported. It covers ``torch.cuda.graph``,
    ``torch.compile(mode="reduce-overhead")``, CuPy and graphs of any other library: each node remembers the op, the
    range and the Python call (``with_stack=True``) that were open when it was created, also through clones and
    instantiation. Profiles of flopscope, and those of flopscope.torch, then show a replay as the ops of the capture:
    with their shapes, FLOPs and bytes. It costs time at captures. A replay costs none, except while a profile of torch
    records the GPU: each launch is logged then, because traces of torch up to 2.11 do not name the nodes of graphs. The
    log holds 262,144 launches; the kernels of further ones are matched by their order alone, and a warning says so.

    During a capture by torch, torch's profiler records the ops of the CPU, unless a profile of torch is running, which
    then has the ops itself. The watch holds CUPTI's subscription, the only one of the process; it takes that of an idle
    torch.profiler, which works without it. It does not initialize CUDA. Calling the function again changes
    ``with_stack``.

    Return the watch, which is also a context manager that ends watching. Raise RuntimeError if CUPTI is unavailable or
    taken by another client.
    """
    global _watch, _asked
    why = _why_not_begun()
    if why:
        raise RuntimeError(f"graphs cannot be watched: {why}")
    _asked = True
    if _watch is None:
        _watch = GraphWatch(with_stack=with_stack)
    _watch.with_stack = with_stack
    return _watch


_asked = False  # by watch_graphs(), as opposed to in the background
_background = False  # a recording in the background wants the ops of captures
_with_stack = False  # in the background
_unwatched = ""  # why the watch in the background is off
_hooked = False
_primed = False  # torch's profiler has had a profile in this process


def _why_not_begun() -> str:
    """Begin to watch; return why that is impossible, or "". Does not initialize CUDA."""
    global _hooked
    why = why_not_loaded(_core.load_cupti)
    if why is not None:
        return why
    if "torch.cuda.graphs" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        _prime(sys.modules["torch.autograd.profiler"])
    try:
        _core.watch_start(may_evict())
    except RuntimeError as problem:
        if "forked" in str(problem):
            return str(problem)
        return f"{problem}; end that client, or call watch_graphs() before it starts"
    if not _hooked:
        _hooked = True
        for name, hook in _HOOKS.items():
            after_import(name, hook)
    return ""


def watch_in_background(*, with_stack: bool) -> None:
    """Watch graphs for a recording of a program that did not ask for it, if there is a GPU.

    Loads nothing without one, does not initialize CUDA, and issues no warning: why_unwatched() returns what failed.
    """
    global _background, _with_stack, _unwatched
    if os.environ.get(WATCH_GRAPHS) == "0":
        _unwatched = f"{WATCH_GRAPHS}=0"
    elif has_gpu():
        _background, _with_stack = True, with_stack
        try:
            _unwatched = _why_not_begun()
        except Exception as problem:  # of a library that was hooked; the recording goes on without
            _unwatched = f"{type(problem).__name__}: {problem}"


def pause_background() -> None:
    """Stop watching until watch_in_background() is called again: torch's profiler is about to attach to CUPTI."""
    if _hooked:
        _core.watch_stop()


def release_cupti(*, for_good: bool, by_torch: bool) -> None:
    """Detach CUPTI from the process. for_good: graphs are no longer watched in the background. by_torch: from its
    profiler, too.

    torch's profiler leaves CUPTI attached when it stops, and each call of CUDA then takes longer, a step of many
    launches by a fifth. A watch alone costs none of that.
    """
    if for_good:
        end_background()
    on = _core.watch_is_on()
    with contextlib.suppress(RuntimeError):  # somebody else has CUPTI
        if why_not_loaded(_core.load_cupti) is None:
            _core.watch_start(by_torch and may_evict())
            _core.watch_stop()
            if on and (_asked or not for_good):
                _core.watch_start()


def has_unknown_nodes() -> bool:
    """Return whether graphs exist whose ops are not known."""
    state = _core.watch_state()
    return bool(state["resolved"] < state["nodes"])


def end_background() -> None:
    """Record no ops of captures for the background any more."""
    global _background
    _background = False


def why_unwatched() -> str:
    """Return why graphs are not watched in the background; "" if they are, or if there is no GPU."""
    return _unwatched


_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def has_gpu() -> bool:
    """Return whether this machine has a GPU that the program may use, without loading a driver."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    return not hidden and any(map(os.path.exists, _GPU_FILES))


# Captures -------------------------------------------------------------------------------------------------------------


class _Capture:
    """What runs during the capture of one graph: a recorder for flopscope's ranges and ops, a profile for torch's."""

    def __init__(self) -> None:
        self.begin = _core.clock()
        self._recorder = _record()
        stacks = _watch is not None and _watch.with_stack
        self._torch = _profile_torch(with_stack=stacks or (_background and _with_stack))
        self._marks = _mark_clock(self._torch)
        LAUNCHES.begin(self, torch=self._recorder is None and self._torch is not None)  # recorded once

    def end(self) -> None:
        """Stop recording, and pass to the core what was open when nodes were created."""
        LAUNCHES.end(self)
        self._marks += _mark_clock(self._torch)
        end = _core.clock()
        if self._recorder is not None:
            _core.record_into(None)
            self._recorder.stop()
        if self._torch is None:
            return
        self._torch.__exit__(None, None, None)
        store = _events_of(self._torch)
        shift = _shift_of(store, self._marks)
        if shift is not None:
            _core.watch_resolve(store, self.begin, end, shift)


def _record() -> _core.Profiler | None:
    """Start a recorder, unless a profile is recording."""
    recorder = _core.Profiler(event_times=False)
    try:
        recorder.start()
    except RuntimeError:
        return None
    _core.record_into(recorder)
    return recorder


def _profile_torch(*, with_stack: bool) -> Any:
    """Start a profile of torch's ops on the CPU, unless torch is not loaded or profiling."""
    torch = sys.modules.get("torch")
    if torch is None or torch.autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled:
        return None
    profile = torch.autograd.profiler.profile(record_shapes=True, with_stack=with_stack)
    profile.__enter__()
    return profile


def _mark_clock(profile: Any) -> list[int]:
    """Read the clock within ranges of torch's profile, which ties the clocks of both together."""
    if profile is None:
        return []
    from torch._C._profiler import _RecordFunctionFast

    marks = []
    for _ in range(MARKS):
        with _RecordFunctionFast(MARK):
            marks.append(_core.clock())
    return marks


def _events_of(profile: Any) -> _core.Store:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "capture.json")
        with contextlib.redirect_stdout(io.StringIO()):
            profile.export_chrome_trace(path)
        return read(path).core


def _shift_of(store: _core.Store, marks: Sequence[int]) -> int | None:
    """Return what to add to the times of a recording for those of the clock: the middle of what the marks allow."""
    columns, names, _, _ = store.events()
    if MARK not in names:
        return None
    chosen = columns["name"] == names.index(MARK)
    starts, durations = columns["start"][chosen], columns["duration"][chosen]
    if len(starts) != len(marks):
        return None
    order = starts.argsort()
    least = max(int(mark) - int(starts[at]) - int(durations[at]) for mark, at in zip(marks, order, strict=True))
    most = min(int(mark) - int(starts[at]) for mark, at in zip(marks, order, strict=True))
    return (least + most) // 2


_running: dict[int, _Capture] = {}


def _began(graph: object) -> None:
    if (_asked or _background) and _core.watch_is_on():
        _running[id(graph)] = _Capture()


def _ended(graph: object) -> None:
    capture = _running.pop(id(graph), None)
    if capture is None:
        return
    try:
        capture.end()
    except Exception as problem:  # the program's capture must not fail by being watched
        warn_user(f"the ops of a captured graph are unknown: {type(problem).__name__}: {problem}")


# Hooks ----------------------------------------------------------------------------------------------------------------


def _hook_torch(module: ModuleType) -> None:
    around(module.CUDAGraph, "capture_begin", before=_began, failed=_ended)
    around(module.CUDAGraph, "capture_end", after=_ended)


def _hook_cupy(module: ModuleType) -> None:
    with contextlib.suppress(AttributeError, TypeError):  # a class of an extension cannot be changed
        around(module.Stream, "begin_capture", before=_began, failed=_ended)
        around(module.Stream, "end_capture", after=_ended)


def _hook_torch_profiler(module: ModuleType) -> None:
    """Let the first profile of torch in the process subscribe to CUPTI, or else torch never records a GPU.

    Let profiles that record a GPU log which graphs are launched.
    """
    if hasattr(module.profile, "_prepare_trace"):
        around(module.profile, "_prepare_trace", before=lambda profile: _prime(module))
        around(module.profile, "_start_trace", before=_launches.begin, failed=_launches.end)
        around(module.profile, "__exit__", after=_launches.end)


class _Launches:
    """Which profile of torch, if any, has the launches of graphs logged."""

    def __init__(self) -> None:
        self._wanted_by: weakref.ref[Any] | None = None
        self._lost = 0

    def begin(self, profile: Any) -> None:
        """Log launches until ``profile`` ends or is collected, if it records a GPU."""
        if getattr(profile, "use_device", None) != "cuda":
            return
        self._wanted_by = weakref.ref(profile, self._collected)
        self._lost = int(_core.watch_state()["launches_lost"])
        _core.watch_launches(True)

    def end(self, profile: Any) -> None:
        """Log no more, if it was for ``profile``."""
        if self._wanted_by is None or self._wanted_by() is not profile:
            return
        self._wanted_by = None
        _core.watch_launches(False)
        lost = int(_core.watch_state()["launches_lost"]) - self._lost
        if lost:
            warn_user(
                f"{lost:,} launches of CUDA graphs were not logged; their kernels are matched in the order of the nodes"
            )

    def _collected(self, reference: weakref.ref[Any]) -> None:
        if self._wanted_by is reference:
            self._wanted_by = None
            _core.watch_launches(False)


_launches = _Launches()


def _prime(module: Any) -> None:
    """Make a profile of torch, so that its profiler has subscribed to CUPTI once; the watch then takes its place."""
    global _primed
    if _primed or module._is_profiler_enabled or not hasattr(module, "profile"):
        return
    _primed = True
    on = _core.watch_is_on()
    if on:
        _core.watch_stop()
    with contextlib.suppress(RuntimeError), module.profile():
        pass
    if on:
        try:
            _core.watch_start(True)
        except RuntimeError as problem:
            warn_user(f"graphs are no longer watched: {problem}")


_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "torch.autograd.profiler": _hook_torch_profiler,
    "torch.cuda.graphs": _hook_torch,
    "cupy.cuda.stream": _hook_cupy,
}
