"""Runs one task for each file, on processes of this machine or on a cluster, by Dask.

A task returns its result or a Failure; it never raises. A worker that dies takes its tasks with it: they are run again,
at last each alone, so that the file that killed it is found and the others are not lost.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from flopscope.ranks import worker
from flopscope.support.busy import processors
from flopscope.support.memory import available_memory
from flopscope.support.package import VERSION
from flopscope.support.progress import progress_bar

Task = Callable[[Any], Any]
ATTEMPTS = 3
CHUNK = 16  # tasks that a process gets at once, at most: each message costs the scheduler about a millisecond
AHEAD = 2  # chunks for each process, so that none waits for the scheduler
SECONDS_TO_CONNECT = 10
BYTES_PER_EVENT = 200  # of a store, and as much again for its table
EVENT_BYTES_PACKED = 20  # of an event in a compressed trace, at least
BASE_BYTES = 120 << 20  # of a process with the modules that a task imports
MISSING = (
    "load_ranks() and flopscope ranks need Dask and fsspec: pip install 'flopscope-profiler[ranks]'; "
    "fs.stragglers(fs.load_traces(…)) compares a few ranks without them"
)


@dataclass(frozen=True)
class Failure:
    """Why a file is not part of the result."""

    source: str
    reason: str


class NoScheduler(OSError):
    """A scheduler that cannot be reached, or whose workers cannot run flopscope."""


def run_everywhere(task: Task, items: Sequence[Any], names: Sequence[str], client: Any, workers: int) -> list[Any]:
    """Return the results of ``task(item)`` in order, Failures among them.

    client: None for ``workers`` processes of this machine, a ``dask.distributed.Client``, or the address of a
    scheduler.
    Raises ImportError without Dask, NoScheduler if the scheduler cannot be reached or a worker lacks this version of
    flopscope.
    """
    results: dict[int, Any] = {}
    with progress_bar("reading ranks", max(len(items), 1), len(items) > 1) as advance:

        def done(place: int, result: Any) -> None:
            if place not in results:
                results[place] = result
                advance()

        if client is None:
            _run_here(task, items, names, workers, done)
        else:
            with _connected(client) as connected:
                _run_there(task, items, names, connected, done)
    return [results[place] for place in range(len(items))]


# This machine ---------------------------------------------------------------------------------------------------------


def workers_for(sizes: Sequence[int]) -> int:
    """Return how many files this machine can read at once: one per core, as far as memory allows.

    sizes: those of the files in bytes. The largest compressed file is assumed to have an event in every 20 bytes.
    """
    available = available_memory()
    if available is None:
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    largest = max(sizes, default=0)
    each = BASE_BYTES + largest // EVENT_BYTES_PACKED * 2 * BYTES_PER_EVENT
    return max(1, min(processors(), int(0.8 * available) // each, max(len(sizes), 1)))


def _run_here(
    task: Task, items: Sequence[Any], names: Sequence[str], workers: int, done: Callable[[int, Any], None]
) -> None:
    with _without_main(), _folder() as folder:
        context = _server_of_processes(task.__module__)  # which starts while Dask is imported here
        try:
            from dask.callbacks import Callback
            from dask.multiprocessing import get
        except ImportError as problem:
            raise ImportError(MISSING) from problem

        waiting = dict.fromkeys(range(len(items)))
        for attempt in range(ATTEMPTS):
            alone = attempt == ATTEMPTS - 1  # one process for each task
            for places in [[place] for place in waiting] if alone else [list(waiting)]:
                chunks = list(_chunks(places, workers))

                def completed(key: Any, value: Any, *_: Any, of: list[list[int]] = chunks) -> None:
                    for place, result in zip(of[key[1]], _taken(value), strict=True):
                        done(place, result)
                        del waiting[place]

                graph = {
                    ("files", i): (_run_chunk, task, [items[p] for p in one], folder) for i, one in enumerate(chunks)
                }
                try:
                    with _pool(1 if alone else workers, context) as pool, Callback(posttask=completed):
                        get(graph, list(graph), pool=pool, optimize_graph=False, chunksize=1)
                except BrokenProcessPool:
                    if alone:
                        done(places[0], Failure(names[places[0]], _KILLED))
            if not waiting:
                return


def _chunks(places: Sequence[int], workers: int) -> Iterator[list[int]]:
    """Yield the places in chunks that get smaller, so that all workers end at the same time."""
    at = 0
    while at < len(places):
        size = min(CHUNK, max(1, (len(places) - at) // (4 * workers)))
        yield list(places[at : at + size])
        at += size


@contextmanager
def _folder() -> Iterator[str | None]:
    """Yield a folder for the results of workers, which is removed at the end; None where no folder is writable."""
    with ExitStack() as stack:
        folder = None
        with suppress(OSError):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flopscope-", ignore_cleanup_errors=True))
        yield folder


def _run_chunk(task: Task, items: Sequence[Any], folder: str | None) -> str | bytes:
    """Run the tasks and return the file of their results, or those if it cannot be written. Runs in a worker.

    A pipe takes a name at once. It takes a large result in parts: if this process were killed between them, the
    program would wait for the rest without end.
    """
    results = pickle.dumps([task(item) for item in items], pickle.HIGHEST_PROTOCOL)
    if folder is None:
        return results
    path = os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}")
    try:
        with open(path, "xb") as file:
            file.write(results)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        return results
    return path


def _taken(value: str | bytes) -> list[Any]:
    """Return the results of a chunk, and remove their file."""
    if isinstance(value, bytes):
        return list(pickle.loads(value))
    with open(value, "rb") as file:
        os.unlink(value)
        return list(pickle.load(file))


def _server_of_processes(module: str) -> Any:
    """Return how processes are made: forked by a server that has imported the module that a task needs, and Dask."""
    import multiprocessing

    if os.name != "posix":
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    others = list(getattr(forkserver._forkserver, "_preload_modules", ["__main__"]))
    context.set_forkserver_preload([*others, module, "dask.multiprocessing"])
    try:
        forkserver.ensure_running()
    finally:
        context.set_forkserver_preload(others)
    return context


@contextmanager
def _pool(workers: int, context: Any) -> Iterator[Any]:
    """Yield a pool of processes for Dask, which are killed if their tasks are abandoned."""
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=worker.begin)
    try:
        yield _Ahead(pool.submit, AHEAD * workers)
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Ahead:
    """What Dask needs of a pool. It submits as many tasks as it believes that there are processes."""

    submit: Callable[..., Any]
    _max_workers: int


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


_KILLED = "the process that read it died, each time; it may have run out of memory"


# A cluster ------------------------------------------------------------------------------------------------------------


@contextmanager
def _connected(client: Any) -> Iterator[Any]:
    """Yield a Client whose workers have this version of flopscope; one for an address is closed at the end."""
    try:
        from distributed import Client
    except ImportError as problem:
        raise ImportError(MISSING) from problem
    with ExitStack() as stack:
        if isinstance(client, str):
            try:
                client = stack.enter_context(Client(client, timeout=SECONDS_TO_CONNECT))
            except (OSError, ValueError) as problem:
                raise NoScheduler(f"the scheduler {client!r} cannot be reached: {problem}") from None
        elif not hasattr(client, "scheduler_info"):
            raise TypeError(f"client must be a dask.distributed.Client or an address, not {type(client).__name__}")
        _check_versions(client)
        yield client


def _check_versions(client: Any) -> None:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise NoScheduler("the scheduler has no workers; start some, or wait with client.wait_for_workers()")
    found = client.run(_version_there, on_error="return")
    for address, version in found.items():
        if version != VERSION:
            has = "no flopscope" if isinstance(version, BaseException) or version is None else f"flopscope {version}"
            raise NoScheduler(f"the worker {address} has {has}; install flopscope {VERSION} there, as here")


def _version_there() -> str | None:
    try:
        from flopscope.support.package import VERSION as version
    except ImportError:
        return None
    return version


def _run_there(
    task: Task, items: Sequence[Any], names: Sequence[str], client: Any, done: Callable[[int, Any], None]
) -> None:
    from distributed import as_completed

    futures = {client.submit(task, item, pure=False, retries=ATTEMPTS - 1): place for place, item in enumerate(items)}
    for future in as_completed(list(futures)):
        place = futures.pop(future)
        if future.status == "finished":
            done(place, future.result())
        else:
            problem = future.exception()
            reason = _KILLED if type(problem).__name__ == "KilledWorker" else f"{type(problem).__name__}: {problem}"
            done(place, Failure(names[place], reason))
        future.release()
