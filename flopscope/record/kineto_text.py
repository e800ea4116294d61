"""The trace that Kineto writes for a profile of torch: written once, to memory, where it is read and copied from."""

from __future__ import annotations

import gzip
import json
import mmap
import os
import re
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from flopscope._core import Store, trim_memory
from flopscope.read.load import Loaded, read
from flopscope.support.device import CPU, CPU_MEMBER
from flopscope.support.files import COMPRESSION, replacing


def keep_text(profiler: Any) -> None:
    """Wrap the results of a torch.autograd.profiler.profile so that they can be read and saved repeatedly."""
    if not isinstance(profiler.kineto_results, KinetoText):
        profiler.kineto_results = KinetoText(profiler.kineto_results)


def write_earlier(_: object) -> None:
    """Write all traces before another profile of torch begins: to its clock, their device times would be 0."""
    for text in [*_unwritten] if sys.modules["torch"].cuda.is_initialized() else ():
        with suppress(Exception):  # whoever reads it is told
            text._text()


class KinetoText:
    """A wrapper of torch's _ProfilerResult, which saves its trace only once: to memory, where it is copied and read.

    The text takes about 400 bytes per event and lives as long as the results.
    """

    def __init__(self, results: Any) -> None:
        self._results = results
        self.samples: list[Any] = []  # Counters and StackSamples of the same time
        self.ranges: Store | None = None  # of NVTX, likewise; the text has them
        self._memory: int | None = None  # the file descriptor
        self._quoted_path = b""  # the path of its file that the text contains
        _unwritten.add(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def read(self) -> Loaded:
        """Read the trace. The graphs that watch_graphs() saw captured are known."""
        with _links_to(self._text()) as path:
            return read(path, name="torch.profiler", watched=True)

    def release(self) -> None:
        """Let go of torch's results, about ten times the text, whose trace is kept: they have no list of events then.

        What reads the trace needs less.
        """
        self._text()
        self._results = None
        trim_memory()

    def save(self, path: str, compressed: bool = False) -> None:
        """Write the trace to a file, as _ProfilerResult does, with the CPU and the samples, or raise OSError."""
        memory = self._text()
        size = os.fstat(memory).st_size
        head = max(0, size - _TAIL)  # bytes that are copied unchanged
        tail = os.pread(memory, _TAIL, head).replace(self._quoted_path, json.dumps(path, ensure_ascii=False).encode())
        tail = self._completed(tail)
        with replacing(path, "wb") as file:
            if compressed:
                name = os.path.basename(path).removesuffix(".gz")
                with gzip.GzipFile(name, "wb", COMPRESSION, file) as packed:
                    _copy(memory, head, packed.write)
                    packed.write(tail)
                return
            _copy(memory, head, file.write)
            file.write(tail)

    def complete(self) -> int:
        """Add the samples and the CPU to the trace, which send() writes, and return its size. Nothing is read of it."""
        memory = self._text()
        _change_tail(memory, self._completed)
        return os.fstat(memory).st_size

    def _completed(self, tail: bytes) -> bytes:
        store = Store()
        for samples in self.samples:
            samples.pour(store)
        base = _BASE.search(os.pread(self._text(), _HEAD, 0))
        events = store.trace_text("samples", 0 if base is None else int(base[1]))
        # This machine runs what is recorded.
        return _with_member(_with_additions(tail, events, store.trace_text("frames")), CPU_MEMBER, CPU.here().to_head())

    def send(self, target: Any) -> None:
        """Write the trace to a socket."""
        memory, sent = self._text(), 0
        while left := os.fstat(memory).st_size - sent:
            sent += os.sendfile(target.fileno(), memory, sent, left)

    def _text(self) -> int:
        """Return the descriptor of the in-memory file with the trace, writing it on the first call."""
        if self._memory is None:
            memory = os.memfd_create("torch.profiler", os.MFD_CLOEXEC)
            close = weakref.finalize(self, os.close, memory)
            try:
                self._write(memory)
                self._restore_names(memory)
                self._add_ranges(memory)
            except BaseException:
                close()
                raise
            self._memory = memory
            _unwritten.discard(self)
        return self._memory

    def _write(self, memory: int) -> None:
        with _links_to(memory) as path:
            try:
                self._results.save(path)
            except RuntimeError as problem:
                raise RuntimeError(_NOT_SAVED.format(problem)) from None
            self._quoted_path = f'"{path}"'.encode()
        if os.fstat(memory).st_size == 0:
            raise OSError("Kineto wrote no trace; its output may contain the reason")

    def _restore_names(self, memory: int) -> None:
        """Write the names of torch's own events for those that Kineto changes.

        It writes "unknown" for a name that is not ASCII, and a slash for a backslash.
        """
        with mmap.mmap(memory, 0, prot=mmap.PROT_READ) as text:
            base = _BASE.search(text, 0, _HEAD)
            if base is None or len(text) > _MOST_RENAMED or not _has_changed(text):
                return
            names = _names_of(self._results.events(), int(base[1]))
            renamed = os.memfd_create("torch.profiler", os.MFD_CLOEXEC)
            try:
                with os.fdopen(os.dup(renamed), "wb") as file:
                    end = 0
                    for event in _EVENT.finditer(text):
                        name = names.get((_ns(event["start"]), _ns(event["duration"])))
                        if name is not None:
                            file.write(text[end : event.start("name")])
                            file.write(json.dumps(name, ensure_ascii=False).encode("utf-8", "replace"))
                            end = event.end("name")
                    file.write(text[end:])
                os.dup2(renamed, memory, inheritable=False)
            finally:
                os.close(renamed)

    def _add_ranges(self, memory: int) -> None:
        """Insert the ranges of NVTX, which Kineto does not record, at the end of the text."""
        base = _BASE.search(os.pread(memory, _HEAD, 0))
        if self.ranges is None or not self.ranges.event_count or base is None:
            return
        events = self.ranges.trace_text("ranges", int(base[1]))
        _change_tail(memory, lambda tail: _with_additions(tail, events, b""))


def _change_tail(text: int, change: Callable[[bytes], bytes]) -> None:
    begin = max(0, os.fstat(text).st_size - _TAIL)
    tail = change(os.pread(text, _TAIL, begin))
    os.ftruncate(text, begin)
    while tail:
        written = os.pwrite(text, tail, begin)
        begin, tail = begin + written, tail[written:]


def add_member(path: str, name: str, value: object) -> None:
    """Add a member to the head of a trace that KinetoText wrote."""
    with open(path, "r+b") as file:
        _change_tail(file.fileno(), lambda tail: _with_member(tail, name, value))


def _with_member(tail: bytes, name: str, value: object) -> bytes:
    """Insert a member before the trace's name."""
    return f'{json.dumps(name)}: {json.dumps(value)},\n  "traceName"'.encode().join(tail.rsplit(b'"traceName"', 1))


def _has_changed(text: mmap.mmap) -> bool:
    """Return whether a name may have been changed: of ranges also those with a slash."""
    if text.find(b'"name": "unknown"') >= 0:
        return True
    at = 0
    while (at := text.find(b'"user_annotation"', at + 1)) >= 0:
        if b"/" in text[at : text.find(b'"pid"', at)]:
            return True
    return False


def _names_of(events: Iterable[Any], base: int) -> dict[tuple[int, int], str]:
    """Return the names that Kineto changes, by the start and the duration of their events in ns."""
    names = {}
    for event in events:
        with suppress(UnicodeDecodeError):  # the name of a code object that is gone
            name = event.name()
            if not name.isascii() or not name.isprintable() or "\\" in name or '"' in name:
                names[event.start_ns() - base, event.duration_ns()] = name
    return names


def _ns(microseconds: bytes) -> int:
    whole, _, part = microseconds.partition(b".")
    return int(whole + part.ljust(3, b"0"))


def _with_additions(tail: bytes, events: bytes, members: bytes) -> bytes:
    """Insert events at the end of the list of events, and members after it.

    The list ends after the mark of the recording's end. A list of Kineto's own messages may follow it.
    """
    mark = tail.rfind(b'"Record Window End"')
    at = tail.find(b"]", mark) if mark >= 0 else tail.rfind(b"]", 0, tail.rfind(b'"traceName"'))
    if not events or at < 0:
        return tail
    before = tail[:at].rstrip()
    more = b",\n" + members if members else b""
    return before + (b"\n" if before.endswith((b"[", b",")) else b",\n") + events + b"\n]" + more + tail[at + 1 :]


def _copy(memory: int, size: int, write: Callable[[bytes], object]) -> None:
    for begin in range(0, size, _CHUNK):
        write(os.pread(memory, min(_CHUNK, size - begin), begin))


_CHUNK = 1 << 20  # bytes
_HEAD = 1 << 20  # bytes at the start of a trace that contain its base time
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_EVENT = re.compile(
    rb'"name": (?P<name>"[^\n]*"),\n\s*"pid": [^\n]*\n\s*"tid": [^\n]*\n'
    rb'\s*"ts": (?P<start>-?[\d.]+),\n\s*"dur": (?P<duration>[\d.]+)'
)
_MOST_RENAMED = 1 << 29  # bytes: torch's own events take three times the memory
_TAIL = 1 << 16  # bytes at the end of a trace that contain the file's path
_unwritten: weakref.WeakSet[KinetoText] = weakref.WeakSet()
_NOT_SAVED = (
    "Kineto cannot write the trace ({}), because it writes a trace only once: read the exported file with "
    "flopscope.load_trace(path), or call from_profile() before export_chrome_trace()"
)


@contextmanager
def _links_to(memory: int) -> Iterator[str]:
    """Yield a path that links to a file in memory, as does its .tmp name, which Kineto writes and renames."""
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        path = os.path.join(folder, "torch.profiler")
        for name in (path, f"{path}.tmp"):
            os.symlink(f"/proc/self/fd/{memory}", name)
        yield path
