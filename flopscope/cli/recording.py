"""The recording of an unchanged program: by torch's profiler once torch is imported, before that by flopscope's."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

from flopscope._core import Store, inject_nvtx, wait_for_devices
from flopscope.cli.reporter import NO_OPS, told_warnings, why_no_lines
from flopscope.record import torch_hooks as hooks
from flopscope.record import watching
from flopscope.record.counters import StepStalls
from flopscope.record.jax_modules import compiled, listen
from flopscope.record.profile import profile, running, set_background
from flopscope.record.stack_samples import StackSamples
from flopscope.record.steps import Forward, Jitted, StepCounter
from flopscope.record.windows import LARGE, Records, Window, Windows
from flopscope.results.results import Results, store_of
from flopscope.support.imports import after_import, around
from flopscope.support.process import call_in_main_thread, seconds_waited, start_thread, wait_text


class Recording:
    """What ``flopscope run`` records of the program that runs in this process, on all of its threads.

    ``settings`` are record_shapes, with_stack, profile_memory, counters, sample_stacks and stalls. ``tell`` prints a
    message. ``whole``: record all that torch does, not some steps at the start and a few later.

    Nothing here raises an exception into the program: a failure prints a message and ends the recording.
    """

    def __init__(
        self,
        window: Window | None,
        settings: Mapping[str, Any],
        tell: Callable[[str], None],
        rank: Mapping[str, int] | None = None,
        stops: bool = False,
        whole: bool = False,
    ) -> None:
        self._window = window or Window()
        whole = whole or window is not None or any(map(settings.get, ("profile_memory", "counters")))
        self._windows = None if whole else Windows(rank is not None and rank.get("world_size") != 1)
        self._stops = stops  # the program ends with the window
        self.has_stopped = False
        """The program was told to end, by SIGTERM, because the window has ended."""
        self._settings = dict(settings)
        self._stacks = StackSamples(with_children=True) if self._settings.pop("sample_stacks", False) else None
        self._tell = tell
        self._stalls = StepStalls(self._settings.pop("stalls", False), tell)
        self._rank = rank
        self._lock = threading.RLock()
        self._state = "waiting"  # "armed" until torch is used; "recording"; "ended"; "forked"
        self._changing: int | None = None  # the thread that starts or stops a profile
        self._prof: Any = None
        self._torch: Any = None
        self._starter: int | None = None  # the thread that starts a profiler for us
        self._step: Any = None
        self._step_name = ""
        self._unfinished: list[str] = []  # steps amid which the recording began or ended
        self._steps = StepCounter(self._step_ended, functools.partial(self._safely, self._begin_step))
        self._records: Records | None = None  # while their size is watched
        self._is_watched = False  # by a thread: none is there before a recording, when programs fork
        self._asked = False  # the main thread is to begin or to end a recording
        self._disarm: Callable[[], object] = bool
        self._hooks = ExitStack()  # of a recording of torch
        self._over = threading.Event()
        self._waited = seconds_waited()
        self._lasted = 0.0
        self.why_nothing = ""
        """Why nothing was recorded."""
        self._busy = ""  # why all times are longer than they need be

    def begin(self) -> None:
        os.register_at_fork(after_in_child=self._leave_to_parent)
        self._began = time.monotonic()
        self._steps.listen()
        inject_nvtx()
        set_background(self._give_way)
        if "torch" not in sys.modules:
            self._safely(self._watch_graphs)
        after_import("torch", functools.partial(self._safely, self._turn_to_torch))
        after_import("jax", lambda jax: listen(jax, running))
        if self._windows is not None:
            after_import("jax", lambda _: self._steps.finders.append(Jitted(self._steps.passed)))
        if self._window.begin == 0:
            self._safely(self._open)
        if not self._window.unit and self._stacks is not None:
            self._stacks.start()  # of the whole program, also where nothing else is recorded
        if self._window.unit == "seconds":
            start_thread(self._keep_time, "flopscope-window")

    @property
    def long_steps(self) -> list[Any]:
        return [] if self._windows is None else [one.prof for one in self._windows.long]

    def about(self) -> dict[str, Any]:
        """Return what else the report says, for read_recorded(). Call it after end()."""
        why = watching.why_unwatched()
        hints = {"busy": self._busy} | ({"graphs": f"They could not be watched: {why}."} if why else {})
        of = self._steps
        steps = None if self._windows is None else self._windows.facts(self._began, of.kind, of.name, of.count)
        if steps is not None:
            steps |= {"stalls": self._stalls.rows}
            steps |= {"compiled_s": compiled.total(), "compiled": compiled.most_common(1)} if compiled else {}
        return {"why_nothing": self.why_nothing, "sampled": self._stacks is not None, "hints": hints, "steps": steps}

    def end(self) -> Results | None:
        """End, after the program has, and return what was recorded, or None if that is nothing."""
        if self._changing == threading.get_ident():  # a signal has interrupted it
            self._state, self.why_nothing = "ended", "the program was stopped while its recording began or ended"
            return None
        self._lasted = time.monotonic() - self._began
        waited = seconds_waited()
        if not self._window.unit and self._waited is not None and waited is not None:
            self._busy = wait_text(waited - self._waited, self._lasted)
        self._over.set()
        with self._lock:
            if self._state == "forked":
                return None
            if self._stacks is not None:
                self._stacks.stop()
            self._steps.leave()
            self._stalls.end()
            self._disarm()
            if self._state == "recording":
                self._safely(self._close)
            kept = None if self._windows is None else self._windows.kept
            if kept is not None:  # the last recording may have too few steps
                self._prof = kept.prof
                if self.why_nothing:
                    self._tell(self.why_nothing)
            elif self._state != "ended":
                self.why_nothing = self._why_not_begun()
            self._state = "ended"
            return (None if self._prof is None else self._with_samples(self._prof)) or self._sampled()

    # Windows ----------------------------------------------------------------------------------------------------------

    def _step_ended(self, count: int) -> None:
        # For the rest of the program, a step costs a µs.
        if self._windows is not None and self._windows.is_over and not self._stalls.step(self._windows.times, count):
            return
        self._safely(self._on_step, count)
        self._stop_program()

    def _stop_program(self) -> None:
        """End the program after its window, if that is wanted."""
        if self._stops and self._state == "ended":
            self._stops, self.has_stopped = False, True
            os.kill(os.getpid(), signal.SIGTERM)

    def _on_step(self, count: int) -> None:
        if self._state in ("ended", "forked"):
            return
        self._end_step()
        if self._state == "armed":
            self._start_torch()
        if self._window.unit == "steps":
            if count >= self._window.end:
                return self._close()
            if count >= self._window.begin and self._state == "waiting":
                self._open()
        elif self._windows and self._windows.step(count, 0.0 if self._records is None else self._records.nbytes):
            self._switch()
            if self._uses_cuda:
                self._windows.times.go_on()
        self._begin_step()

    def _switch(self) -> None:
        """Begin or end one of several recordings, outside of what is sampled of the program."""
        if self._state != "recording" and self._windows is not None and self._windows.is_over:
            self._stalls.end()
        if self._stacks is not None:
            self._stacks.stop()
        try:
            again = self._start_own if self._torch is None else self._start_torch
            (self._pause if self._state == "recording" else again)()
        finally:
            if self._stacks is not None:
                self._stacks.start()

    def _watch(self) -> None:
        """Look at the size of recordings, and at what the program calls, until none can follow."""
        while self._state not in ("ended", "forked") and not (self._windows is not None and self._windows.is_over):
            if self._over.wait(self._steps.next_look or SELDOM):
                return
            if self._state == "recording":
                self._steps.look()
            if self._records is not None and (why := self._records.look()):
                self._from_outside(functools.partial(self._safely, self._end_at_limit, why))
            elif not self._asked and self._is_due():
                # The main thread is then in no op, whose end torch would write into what it has given away.
                self._asked = True
                call_in_main_thread(self._switch_if_due)
        self._is_watched = False

    def _is_due(self) -> bool:
        windows, nbytes = self._windows, 0.0 if self._records is None else self._records.nbytes
        return windows is not None and windows.look(nbytes, self._steps.expects)

    def _switch_if_due(self) -> None:
        self._asked = False
        if self._changing is None and self._is_due() and not self._over.is_set():
            self._safely(self._switch)

    def _keep_time(self) -> None:
        window = self._window
        if window.begin > 0 and not self._over.wait(self._began + window.begin - time.monotonic()):
            self._from_outside(functools.partial(self._safely, self._open_amid_step))
        if not math.isinf(window.end) and not self._over.wait(self._began + window.end - time.monotonic()):
            self._from_outside(self._end_window)

    def _end_window(self) -> None:
        self._safely(self._close)
        self._stop_program()

    def _begin_step(self) -> None:
        if self._state != "recording" or self._step is not None:
            return
        by_steps = self._window.unit == "steps"
        ended = self._windows is not None and self._windows.have_steps_ended
        if ended or not (self._steps.count or by_steps or self._steps.expects):
            return  # do not mark steps in a program without any; steps are seen at their end
        self._step_name = name = f"ProfilerStep#{self._steps.count}"
        if isinstance(self._prof, profile):
            live = self._prof._live
            index = None if live is None else live.begin_range(name, True)
            self._step = None if live is None or index is None else functools.partial(live.end_range, index)
        else:
            step = self._torch.autograd.profiler.record_function(name)
            step.__enter__()
            self._step = functools.partial(step.__exit__, None, None, None)

    def _end_step(self) -> None:
        end, self._step = self._step, None
        if end is not None:
            end()

    # Starting and stopping --------------------------------------------------------------------------------------------

    def _safely(self, act: Callable[..., object], *arguments: Any) -> None:
        """Call a method under the lock; a failure ends the recording."""
        with self._lock:
            changing, self._changing = self._changing, threading.get_ident()
            try:
                act(*arguments)
            except Exception as problem:
                self._state, self._prof = "ended", None
                self.why_nothing = f"the recording failed: {type(problem).__name__}: {problem}"
            finally:
                self._changing = changing

    def _open(self) -> None:
        """Start to record, at the beginning of the window."""
        if self._state != "waiting":
            return
        if self._window.unit and self._stacks is not None:
            self._stacks.start()
        if self._torch is None:
            self._start_own()
        elif hooks.starts_cuda(self._torch):
            self._state = "armed"
            self._disarm = hooks.when_used(self._torch, functools.partial(self._safely, self._start_torch))
        else:
            self._start_torch()

    @property
    def _uses_cuda(self) -> bool:
        return watching.has_gpu() if self._torch is None else hooks.uses_cuda(self._torch)

    def _start_own(self) -> None:
        if self._prof is not None:  # what was launched before would be missing in the first step
            with suppress(RuntimeError):  # of the program's work
                wait_for_devices()
        prof = profile(**self._settings)
        prof._recipe = replace(prof._recipe, early=True)
        with told_warnings(self._tell):
            self._start(prof)

    @property
    def _of_one_thread(self) -> bool:
        """Whether torch records the main thread alone: it records no memory where it records all threads."""
        return self._torch is not None and bool(self._settings.get("profile_memory"))

    def _from_outside(self, act: Callable[[], object]) -> None:
        """Start or stop a profile from a thread of ours: on the main thread, if torch records that alone."""
        if self._of_one_thread:
            call_in_main_thread(lambda: act() if self._changing is None else self._from_outside(act))
        else:
            act()

    def _open_amid_step(self) -> None:
        self._open()
        if self._step is not None:
            self._unfinished.append(self._step_name)

    def _start_torch(self) -> None:
        if self._state not in ("waiting", "armed"):
            return
        self._disarm()
        self._state = "waiting"
        if self._torch.autograd.profiler._is_profiler_enabled:
            self.why_nothing = "the program's own torch.profiler was recording"
            return
        if hooks.uses_cuda(self._torch):
            self._watch_graphs()
            if self._prof is not None:  # what was launched before would be missing in the first step
                hooks.wait(self._torch)
        self._prof = None  # unless it is kept, nobody reads it
        settings = dict(self._settings)
        everywhere = hooks.all_threads_setting(self._torch)
        alone = self._of_one_thread and threading.current_thread() is threading.main_thread()
        if self._of_one_thread and not alone:
            self._tell("no memory is recorded: torch records it on one thread, and this is not the main thread")
        if everywhere is not None and not alone:
            settings["experimental_config"] = everywhere
            if settings.get("record_shapes"):
                self._hooks.callback(hooks.record_arguments(self._torch))
        elif self._window.unit == "seconds" and not alone:
            raise RuntimeError(f"torch {self._torch.__version__} cannot record all threads; update it, or use --steps")
        prof = import_module("flopscope.torch").profile(**settings)
        with hooks.quiet_start(self._torch):
            self._start(prof)
        self._hooks.callback(hooks.record_collections(self._torch))

    def _watch_graphs(self) -> None:
        """Let the kernels of replayed CUDA graphs know the ops that were captured, from before the window on."""
        if self._state in ("ended", "forked"):
            return
        before, self._starter = self._starter, threading.get_ident()
        try:
            watching.watch_in_background(with_stack=bool(self._settings.get("with_stack")))
        finally:
            self._starter = before

    def _start(self, prof: Any) -> None:
        self._starter = threading.get_ident()
        prof._is_of_program = not self._window.unit
        try:
            prof.start()
        finally:
            self._starter = None
        self._prof, self._state = prof, "recording"
        if self._windows is not None:
            self._windows.begin()
        self._begin_step()
        if isinstance(prof, profile) or (not self._window.unit and hooks.all_threads_setting(self._torch) is not None):
            self._records = Records(prof, SURELY if self._windows is None else SOON)
            if not self._is_watched:
                self._is_watched = True
                start_thread(self._watch, "flopscope-memory")

    def _end_at_limit(self, why: str) -> None:
        """Stop recording before it takes the memory that the program needs, and keep what there is."""
        if self._state == "recording":
            self._tell(f"{why}: this recording ends here; --steps or --seconds record another part")
            self._close()
            if not isinstance(self._prof, profile):
                self._prof._release()

    def _close(self) -> None:
        """Stop recording, at the end of the window or of the program."""
        self._disarm()
        if self._window.unit and self._stacks is not None:
            self._stacks.stop()
        if self._state == "recording":
            self._pause(is_last=self._over.is_set())
        elif self._state == "armed":
            self.why_nothing = _UNUSED
        self._state = "ended"
        watching.end_background()

    def _pause(self, is_last: bool = False) -> None:
        """Stop a recording, of which others may follow."""
        records, self._records = self._records, None
        self._leave_step()
        hooks.name_rank(self._prof, self._rank)
        began, by_torch = time.monotonic(), not isinstance(self._prof, profile)
        with nullcontext() if by_torch else told_warnings(self._tell):
            self._prof.stop()
        took = time.monotonic() - began
        if not by_torch and self._prof._core is not None:
            for name in self._unfinished:
                self._prof._core.undo_step(name)
        self._unfinished.clear()  # they are those of one recording
        self._hooks.close()
        self._state = "waiting"
        if self._windows is not None:
            self._windows.end(self._prof, took, is_last)
            if by_torch and records is not None and records.nbytes > LARGE and took < QUICK:  # it ended for its size
                self._windows.was_nothing()
        if not is_last and self._uses_cuda:
            if by_torch and watching.has_unknown_nodes():
                self._prof.trace()  # it tells the ops of graphs that were captured in it, for later recordings
            watching.release_cupti(for_good=not self._windows or self._windows.is_over, by_torch=by_torch)

    def _leave_step(self) -> None:
        """End the open step, which its program has not ended, and put into the trace which steps are unfinished."""
        if self._step is not None:
            self._unfinished.append(self._step_name)
            self._end_step()
        if self._unfinished:
            with suppress(Exception):
                self._prof.add_metadata_json("unfinishedSteps", json.dumps(self._unfinished))

    # torch ------------------------------------------------------------------------------------------------------------

    def _turn_to_torch(self, torch: Any) -> None:
        """Record with torch's profiler from now on."""
        if self._state in ("ended", "forked"):
            return
        self._torch = torch
        if hooks.uses_cuda(torch):  # its profiler must find CUPTI free at its first profile
            watching.pause_background()
            hooks.after_cuda(torch, functools.partial(self._safely, self._watch_graphs))
        self._steps.count_optimizers(torch)
        # a process can have only one profiler of torch
        around(torch.autograd.profiler.profile, "_prepare_trace", before=lambda _: self._give_way("torch.profiler"))
        if self._windows is not None:
            self._steps.finders.append(Forward(torch, self._steps.passed))
            self._windows = Windows(self._windows.of_ranks)  # of torch's recordings
        elif self._state != "recording":
            return
        prof, self._records = self._prof, None
        if self._state == "recording":
            self._end_step()
            prof.stop()
        before = sum(row.count for row in prof.key_averages(peaks="none")) if prof and len(prof) else 0
        if before:
            self._tell(
                f"{before:,} ops and kernels before the import of torch are left out: "
                "from here on, torch's profiler records"
            )
        self._prof, self._state = None, "waiting"
        self._open()

    def _give_way(self, who: str) -> None:
        """End the recording before the program starts something that cannot be recorded."""
        if self._starter == threading.get_ident():
            return
        with self._lock:
            self._stalls.end()
            # What records from now on slows steps, too.
            if self._windows is not None:
                self._windows.give_up()
            if self._state == "recording":
                self._tell(
                    f"the program starts {who}, and nothing else can record at the same time: this recording ends here"
                )
                self._safely(self._close)

    # The end ----------------------------------------------------------------------------------------------------------

    def _with_samples(self, prof: Any) -> Results | None:
        """Return the profile with the samples, or None if it is known to be empty. That of torch is not read here."""
        if not isinstance(prof, profile):
            if self._stacks is not None:
                prof._add_samples(self._stacks)
            return cast("Results", prof)
        if not len(prof):
            self.why_nothing = self.why_nothing or NO_OPS
            return None
        if self._stacks is not None:
            self._stacks.pour(store_of(prof, "stacks"))
        wanted = self._settings.get("counters") and not prof._counters_refused
        if wanted and not store_of(prof, "counters").samples():
            self._tell("nothing was counted: the program used no GPU, or ended before counting had begun")
        return prof

    def _sampled(self) -> Results | None:
        """Return the samples alone, or None if there are none."""
        found = Results()
        if self._stacks is not None:
            found._core = Store()
            self._stacks.pour(found._core)
        clause = why_no_lines(found._core)
        self.why_nothing += clause
        return None if clause else found

    def _why_not_begun(self) -> str:
        window, steps = self._window, self._steps.count
        if self._state == "armed":
            return _UNUSED
        if self.why_nothing or not window.unit:
            return self.why_nothing
        if window.unit == "steps" and steps == 0:
            return f"{window}: the program has no step; one ends with step() of a torch optimizer, or flopscope.step()"
        ended = f"in step {steps}" if window.unit == "steps" else f"after {self._lasted:.3g} s"
        return f"the program ended {ended}, and {window} begins later"

    def _leave_to_parent(self) -> None:
        self._lock = threading.RLock()
        recording = self._state == "recording"
        self._state, self._changing, self._step = "forked", None, None
        self._steps.leave()
        if recording and self._torch is not None and not isinstance(self._prof, profile):
            with suppress(Exception):
                self._torch._C._autograd._clear_callbacks()  # the child's ops would only fill its memory


SELDOM, QUICK = 0.3, 0.2
"""s from one look at a recording to the next, where no passes are sought; in which torch ends one of few ops."""
SOON, SURELY = 0.3, 6.0
"""s after which a process is said to grow steadily: where another recording may follow, and where none does."""
_UNUSED = (
    "torch was imported, but no GPU and no torch.nn.Module was used; with CUDA_VISIBLE_DEVICES= (empty), torch is "
    "recorded from its import"
)
