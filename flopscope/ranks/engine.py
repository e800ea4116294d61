"""Runs one task for each file, in processes of this machine.

A task returns its result or a Failure; it never raises. A process that dies takes the tasks of its pool with it: those
that had begun are run again, each alone, so that the file that killed it is found and the others are not lost.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any

from flopscope.support.busy import processors
from flopscope.support.process import available_memory
from flopscope.support.progress import progress_bar

Task = Callable[[Any], Any]
BYTES_PER_EVENT = 200  # of a store, and as much again for its table
EVENT_BYTES_PACKED = 20  # of an event in a compressed trace, at least
BASE_BYTES = 120 << 20  # of a process with the modules that a task imports
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of mallopt(3)
KEPT_BYTES = 32 << 20  # the largest threshold that glibc takes
KILLED = "the process that read it died; it may have run out of memory"


@dataclass(frozen=True)
class Failure:
    """Why a file is not part of the result."""

    source: str
    reason: str
    unopened: bool = False
    """Whether the file is absent, or could not be opened."""


def workers_for(sizes: Sequence[int]) -> int:
    """Return how many files this machine can read at once: one per core, as far as memory allows.

    sizes: those of the files in bytes. The largest compressed file is assumed to have an event in every 20 bytes.
    """
    available = available_memory() or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    largest = max(sizes, default=0)
    each = BASE_BYTES + largest // EVENT_BYTES_PACKED * 2 * BYTES_PER_EVENT
    return max(1, min(processors(), int(0.8 * available) // each, max(len(sizes), 1)))


def run_each(task: Task, items: Sequence[Any], names: Sequence[str], workers: int) -> list[Any]:
    """Return the results of ``task(item)`` in order, Failures among them, of ``workers`` processes."""
    results: dict[int, Any] = {}
    context = _server_of_processes(task.__module__)
    with (
        progress_bar("reading ranks", max(len(items), 1), len(items) > 1) as advance,
        _without_main(),
        tempfile.TemporaryDirectory(prefix="flopscope-", ignore_cleanup_errors=True) as folder,
    ):
        paths = [os.path.join(folder, str(place)) for place in range(len(items))]
        alone: list[int] = []
        while waiting := [place for place in range(len(items)) if place not in results]:
            places = [alone.pop()] if alone else waiting
            try:
                with _pool(min(workers, len(places)), context) as pool:
                    futures = {pool.submit(_run, task, items[place], paths[place]): place for place in places}
                    for future in as_completed(futures):
                        future.result()
                        place = futures[future]
                        with open(paths[place], "rb") as file:
                            results[place] = pickle.load(file)
                        os.unlink(paths[place])
                        advance()
            except BrokenProcessPool:
                if len(places) == 1:
                    results[places[0]] = Failure(names[places[0]], KILLED)
                    advance()
                else:
                    alone = [place for place in waiting if os.path.exists(paths[place])] or places[:1]
    return [results[place] for place in range(len(items))]


def _run(task: Task, item: Any, path: str) -> None:
    """Write the result of a task to a file, which is there once the task has begun. Runs in a process of the pool.

    A pipe would take a large result in parts: if the process were killed between them, the program would wait for the
    rest without end.
    """
    with open(path, "wb") as file:
        pickle.dump(task(item), file, pickle.HIGHEST_PROTOCOL)


def _begin() -> None:
    """Prepare a process for its tasks: it ends with the process that started it, which also handles Ctrl-C, and keeps
    memory for the next file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _keep_memory()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _keep_memory() -> None:
    """Keep blocks of up to 32 MB that are freed, for all threads alike, where the C library can: of a small file, a
    quarter of the time goes into pages that the system maps and clears again for each."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(M_TRIM_THRESHOLD, 4 * KEPT_BYTES)


def _server_of_processes(module: str) -> Any:
    """Return how processes are made: forked by a server that has imported the module that a task needs."""
    import multiprocessing
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    others = list(getattr(forkserver._forkserver, "_preload_modules", ["__main__"]))
    context.set_forkserver_preload([*others, module])
    try:
        forkserver.ensure_running()
    finally:
        context.set_forkserver_preload(others)
    return context


@contextmanager
def _pool(workers: int, context: Any) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes, which are killed if their tasks are abandoned."""
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep worker processes from importing the program's main module, which they do not need: a program that calls
    load_ranks() at its top level would call it in each of them."""
    main: Any = sys.modules["__main__"]
    hidden = {name: main.__dict__[name] for name in ("__file__", "__spec__") if name in main.__dict__}
    try:
        main.__spec__ = None
        main.__dict__.pop("__file__", None)
        yield
    finally:
        main.__dict__.update(hidden)
