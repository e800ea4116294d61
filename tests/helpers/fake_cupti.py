"""A Python driver for tests/c/fake_cupti.c: build() compiles it; Cuda controls it in the process that loaded it.

A process can load CUPTI only once, so run_with_fake() runs each program in a new process.
"""

import ctypes
import functools
import itertools
import json
import os
import shlex
import subprocess
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import ROOT, TESTS
from helpers.processes import environment, output_of

CALL_NS = 1000
LAUNCH, GRAPH_LAUNCH = "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"

BEGIN = """
import json, os, sys, threading, time, warnings
import flopscope as fs
from flopscope import _core
from helpers.fake_cupti import CALL_NS, GRAPH_LAUNCH, LAUNCH, Cuda, refused, rows

LIBRARY = sys.argv[1]
fs.set_default_device("cpu")
"""
LOAD = """
_core.load_cupti(LIBRARY, LIBRARY)
cuda = Cuda(LIBRARY)
"""


def build(folder: Path, *absent: str) -> Path:
    """Compile the fake as a shared library, without the functions named in ``absent``."""
    target = folder / f"libfake{'_'.join(['', *absent])}.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", f"-I{ROOT}", f"-I{ROOT / 'csrc'}"]
    command += [*(f"-D{name}=absent_{name}" for name in absent), str(TESTS / "c" / "fake_cupti.c")]
    done = subprocess.run([*command, "-lpthread", "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run_with_fake(library: Path, *parts: str, load: bool = True) -> Any:
    """Run a program in a new process and return its output, parsed as JSON (None if there is none).

    The fake is loaded in place of CUPTI and named ``cuda``; with ``load=False``, only its path LIBRARY is defined.
    """
    code = "".join([BEGIN, LOAD if load else "", *map(textwrap.dedent, parts)])
    quiet = environment(PYTHONWARNINGS="ignore::DeprecationWarning")
    printed = output_of(code, library, env=quiet, timeout=120)
    return json.loads(printed) if printed else None


Run = Callable[..., Any]


def runner(*beginning: str) -> Any:
    """Return the fixture of a function that runs programs, each after this beginning, and returns their output."""
    import pytest

    @pytest.fixture(scope="module")
    def run(fake: Path) -> Run:
        return functools.partial(run_with_fake, fake, *beginning)

    return run


def rows(prof: Any) -> dict[str, dict[str, Any]]:
    """Return the table's rows for JSON, by "name" on the host and "name @cuda" on the device."""
    names = ("count", "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total",
             "is_user_annotation", "timing_source")  # fmt: skip
    return {
        row.key + (" @cuda" if row.device_type == "cuda" else ""): {name: getattr(row, name) for name in names}
        for row in prof.key_averages(peaks="none")
    }


def refused(call: Callable[[], object]) -> str:
    """Return the message of the RuntimeError that a call raises; "" if it raises none."""
    try:
        call()
    except RuntimeError as problem:
        return str(problem)
    return ""


class Cuda:
    """A simulated GPU: API calls of this thread and the work that they launch, in ns of the profile's clock."""

    def __init__(self, library: str) -> None:
        self.fake = ctypes.CDLL(library)
        u64, u32, number, text = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int, ctypes.c_char_p
        self.fake.fake_now.restype = u64
        self.fake.fake_count.restype = ctypes.c_long
        for name, arguments in {
            "fake_fail": (text, number),
            "fake_call": (text, u64, u64, u32, u32),
            "fake_kernel": (text, u64, u64, u32, u32, u32),
            "fake_copy": (number, number, number, u64, u64, u64, u32, u32, u32),
            "fake_copy_peer": (u64, u64, u64, u32, u32, u32, u32),
            "fake_overhead": (number, u64, u64, u32),
            "fake_fill": (number, u64, u64, u64, u32, u32, u32),
            "fake_synchronization": (number, u64, u64, u32),
            "fake_set_launch": (u32, u32, u32, u32, u32),
            "fake_set_graph": (u32, u64),
            "fake_graph_node": (u32, u64, u64, number),
            "fake_graph": (u32, u32),
            "fake_link": (u64, u64),
            "fake_launch_graph": (text, u32, ctypes.c_long),
            "fake_update": (u32,),
            "fake_set": (text, ctypes.c_long),
            "fake_take": (text,),
            "fake_traffic": (number, text, u64, u64, ctypes.c_double),
            "fake_set_chip": (text,),
            "fake_lack": (text,),
        }.items():
            getattr(self.fake, name).argtypes = arguments
        self._names: list[bytes] = []  # keeps the names alive, as CUPTI does while the code is loaded
        self._correlation = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        return int(self.fake.fake_now())

    def count(self, name: str) -> int:
        return int(self.fake.fake_count(name.encode()))

    def set(self, name: str, value: int) -> None:
        """Set one of FAKE_SETTINGS."""
        self.fake.fake_set(name.encode(), value)

    def fail(self, function: str, code: int) -> None:
        self.fake.fake_fail(function.encode(), code)

    def take(self, by: str | None) -> None:
        self.fake.fake_take(None if by is None else by.encode())

    def traffic(self, metric: str, start: int, length: int, amount: float, device: int = 0) -> None:
        """Let a metric, by CUPTI's name, count an amount, evenly over a time."""
        self.fake.fake_traffic(device, metric.encode(), start, start + length, amount)

    def call(
        self, function: str = LAUNCH, at: int | None = None, length: int = CALL_NS, executable: int = 0
    ) -> tuple[int, int]:
        """Make an API call at a time, or now, and wait for its end; return (start, correlation).

        ``executable``: a graph that the call launches.
        """
        with self._lock:
            self._correlation += 1
            correlation = self._correlation
        start = self.now() if at is None else at
        if executable:
            self.launch_graph(executable)
        while self.now() <= start + length:
            pass
        self.fake.fake_call(function.encode(), start, start + length, threading.get_native_id(), correlation)
        return start, correlation

    def kernel(self, name: str, start: int, length: int, correlation: int, device: int = 0, stream: int = 7) -> None:
        self._names.append(name.encode())
        end = start + length if length else 0
        self.fake.fake_kernel(self._names[-1], start, end, device, stream, correlation)

    def node(self, what: str, node: int, original: int = 0, kind: int = 0) -> None:
        """Create, clone, update, set or destroy a node of a graph; ``kind``: 0 kernel, 1 copy, 2 fill."""
        functions = {"created": 13, "destroyed": 14, "cloned": 20, "updated": 22, "set": 23}
        self.fake.fake_graph_node(functions[what], node, original, kind)

    def destroy(self, graph: int, *, executable: bool = False) -> None:
        """Destroy a graph. Of an executable graph, CUPTI does not report the nodes."""
        self.fake.fake_graph(19 if executable else 10, graph)

    def link(self, *nodes: int) -> None:
        """Let each of these nodes of a graph depend on the one before."""
        for before, node in itertools.pairwise(nodes):
            self.fake.fake_link(node, before)

    def launch_graph(self, executable: int, times: int = 1, function: str = "cuGraphLaunch") -> None:
        """Let the driver launch an executable graph."""
        self.fake.fake_launch_graph(function.encode(), executable, times)

    def replay(self, *kernels: tuple[str, int], graph: int = 1) -> None:
        """Launch a graph whose kernels have these names and nodes."""
        start, correlation = self.call(GRAPH_LAUNCH, executable=graph)
        for i, (name, node) in enumerate(kernels):
            self.fake.fake_set_graph(graph, node)
            self.kernel(name, start + CALL_NS // 2 + 5000 * i, 4000, correlation)
        self.fake.fake_set_graph(0, 0)

    def launch(
        self, name: str = "kernel", length: int = 5000, at: int | None = None, device: int = 0, stream: int = 7
    ) -> int:
        """Launch a kernel that starts halfway through its API call; return the kernel's start."""
        start, correlation = self.call(LAUNCH, at)
        self.kernel(name, start + CALL_NS // 2, length, correlation, device, stream)
        return start + CALL_NS // 2
