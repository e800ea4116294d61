"""Chrome traces: what ran and when, for Perfetto, chrome://tracing and all else that reads torch.profiler's traces.

The text is made in C (csrc/views/chrome_trace.h says what it holds); here it goes to a file.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any, Protocol

from flopscope import _core
from flopscope.support.files import replacing
from flopscope.support.progress import progress_bar

__all__ = ["export", "json_value", "member", "trace_handler"]

PIECE = 1 << 18  # bytes that the core hands on at once
EVENT_BYTES = 450  # of text per event, about
EVENTS_IN_A_SECOND = {False: 2_000_000, True: 600_000}  # written; and compressed
# Members of a trace's head that are not the program's to say.
OWN_MEMBERS = frozenset(
    {"schemaVersion", "deviceProperties", "flopscope", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents"}
)
COMPRESSION = 3  # above it, zlib takes more time than the space is worth


class _Exports(Protocol):
    """What a trace handler needs of a profile."""

    def export_chrome_trace(self, path: str) -> object: ...


def export(core: _core.Store, path: str | bytes | PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
    """Write what a stopped profile saw to ``path`` as a Chrome trace; compressed by gzip if it ends in ``.gz``.

    ``metadata`` are more members of the trace's head. The file appears when it is complete: a failure leaves the one
    that was there before, if any. FileNotFoundError if the folder does not exist, IsADirectoryError if ``path`` is one,
    RuntimeError while the profile is running; a warning says if events have no time and could not be written.
    """
    path = os.fsdecode(path)
    name = os.path.basename(os.path.realpath(path))
    members = {**_members(path), **(metadata or {})}
    compressed = name.endswith(".gz")
    pieces = 1 + core.event_count * EVENT_BYTES // PIECE
    slow = core.event_count > 2 * EVENTS_IN_A_SECOND[compressed]
    with (
        replacing(path, "wb") as file,
        _compression(file, name.removesuffix(".gz")) if compressed else _as_it_is(file) as write,
        progress_bar(f"writing {name}", pieces, slow) as advance,
    ):

        def take(piece: bytes) -> None:
            write(piece)
            advance()

        left_out = core.write_trace(take, _version(), _json(members)[1:-1])
    if left_out:
        warnings.warn(f"{left_out} events have no time and are not in {name}", RuntimeWarning, stacklevel=3)


def _json(members: Mapping[str, Any]) -> str:
    """The members as JSON. A number beyond a double, as 1e400 in another trace's head, is null: JSON has no other."""
    try:
        return json.dumps(members, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(members), allow_nan=False)


def _finite(value: Any) -> Any:
    """The value with null for the floats that are infinite or no number."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def member(key: str) -> str:
    """A key for the head of a trace. TypeError for what is no string, ValueError for those that it has anyway."""
    if not isinstance(key, str):
        raise TypeError(f"a key of a trace's metadata is a string, not {key!r}")
    if key in OWN_MEMBERS:
        raise ValueError(f"{key!r} cannot be set: a trace says that itself")
    return key


def json_value(key: str, text: str) -> Any:
    """The value that JSON says. TypeError for what is no text, ValueError for what is no JSON; both name the key."""
    if not isinstance(text, str):
        raise TypeError(f"the value of {key!r} is given as the text of its JSON, not {text!r}; json.dumps() makes it")

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is none")

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError as problem:
        raise ValueError(f"the value of {key!r} is not JSON ({problem}): {text!r}") from None


def trace_handler(
    dir_name: str | PathLike[str], worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[_Exports], None]:
    """A handler for ``on_trace_ready`` that writes each recorded cycle's trace into a folder, which it makes if needed.

    As ``torch.profiler.tensorboard_trace_handler`` does, down to the names of the files:
    ``{worker_name}.{nanoseconds}.pt.trace.json``, with ``.gz`` for ``use_gzip``. ``worker_name`` is the host's name and
    the process's id unless given. TypeError for what is no path, ValueError for a name with a "/". The handler raises
    what ``export`` and making a folder raise.
    """
    folder = os.fspath(dir_name)  # now, rather than when all has been recorded
    if worker_name is not None and os.sep in worker_name:
        raise ValueError(f"worker_name is part of a file's name; it cannot be {worker_name!r}")

    def handle(prof: _Exports) -> None:
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        os.makedirs(folder, exist_ok=True)
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(folder, name))

    return handle


def _version() -> str:
    from flopscope.support.package import VERSION

    return VERSION


def _members(name: str) -> dict[str, Any]:
    """What the head of a trace says beside what the core knows. Tools tell the traces of a job apart by its rank."""
    members: dict[str, Any] = {"traceName": name, "trace_id": secrets.token_hex(16).upper()}
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and world_size.isdecimal():
        members["distributedInfo"] = {"rank": int(rank), "world_size": int(world_size)}
    return members


@contextmanager
def _as_it_is(file: IO[bytes]) -> Iterator[Callable[[bytes], object]]:
    yield file.write


@contextmanager
def _compression(file: IO[bytes], name: str) -> Iterator[Callable[[bytes], object]]:
    import gzip

    with gzip.GzipFile(name, "wb", COMPRESSION, file) as compressed:
        yield compressed.write
