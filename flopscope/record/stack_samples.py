"""Samples of Python stacks: where the threads of a program were, every one to ten milliseconds.

The C core samples (csrc/python/stack_sampler.c) and sums up (csrc/accounting/lines.h).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from flopscope import _core
from flopscope.support.package import source_folders

if TYPE_CHECKING:
    from flopscope._core import Store


def _libraries() -> tuple[str, ...]:
    """Return the folders of Python's library and of installed packages, each with a trailing separator."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = [sysconfig.get_path(name) for name in names]
    if sys.prefix != sys.base_prefix:
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        found += [sysconfig.get_path(name, vars=base) for name in names[2:]]
    with suppress(Exception):  # some interpreters have no user's folder
        import site

        found += [*site.getsitepackages(), site.getusersitepackages()]
    # of other environments
    found += [folder for folder in sys.path if os.path.basename(folder) in ("site-packages", "dist-packages")]
    return tuple(dict.fromkeys(f"{os.path.abspath(folder)}{os.sep}" for folder in found if folder))


class StackSamples:
    """The stacks of all Python threads of this process, sampled from ``start()`` to ``stop()``.

    ``with_children``: also those of the child processes that are forked meanwhile, and of their children. Each writes
    its samples to a file of a temporary folder while it runs, as many end without notice.
    """

    def __init__(self, with_children: bool = False) -> None:
        self._libraries = _libraries()
        self._with_children = with_children
        self._folder = ""  # of the children's files, once there are any
        self._sampler = _core.StackSampler()

    def start(self) -> bool:
        """Begin, and return whether stacks are sampled; another may sample already. Warn if none can be read here."""
        try:
            self._sampler.start()
        except RuntimeError as problem:
            if isinstance(problem, NotImplementedError):
                warnings.warn(f"{problem}; lines of the program are unknown", stacklevel=2)
            return False
        _sampling.add(self)
        return True

    def stop(self) -> None:
        """End; twice is fine."""
        self._sampler.stop()
        _sampling.discard(self)

    def pour(self, store: Store) -> None:
        """Append the samples to the store of a stopped profile. Names of files begin below the folders of sys.path."""
        if self._folder:
            with suppress(OSError):  # the program has removed the folder
                for name in sorted(os.listdir(self._folder)):
                    with open(os.path.join(self._folder, name), "rb") as file:
                        self._sampler.add_log(file.read())
            shutil.rmtree(self._folder, ignore_errors=True)  # those that still run see it, and stop to sample
            self._folder = ""
        own, folders = source_folders()
        # Frames of these, and the callers of these, do not belong to the program.
        launchers = tuple(f"{own}cli{os.sep}{name}.py" for name in ("program", "run"))
        self._sampler.pour(store, launchers, (own,), self._libraries, tuple(folders))

    # Forks: no thread of ours is there, of which Python would warn, and the child finds every lock open.

    def _before_fork(self) -> None:
        self._sampler.stop()
        if self._with_children and not self._folder:
            self._folder = tempfile.mkdtemp(prefix="flopscope-")

    def _after_in_parent(self) -> None:
        with suppress(RuntimeError):
            self._sampler.start()

    def _after_in_child(self) -> None:
        if self._with_children:
            with suppress(OSError, RuntimeError):  # the folder was removed, so there is no reader
                self._sampler = _core.StackSampler(log=os.path.join(self._folder, str(os.getpid())))
                return self._sampler.start()
        return _sampling.discard(self)


_sampling: weakref.WeakSet[StackSamples] = weakref.WeakSet()


def _for_each(act: Callable[[StackSamples], None]) -> None:
    for samples in list(_sampling):
        act(samples)


os.register_at_fork(
    before=partial(_for_each, StackSamples._before_fork),
    after_in_parent=partial(_for_each, StackSamples._after_in_parent),
    after_in_child=partial(_for_each, StackSamples._after_in_child),
)
atexit.register(_for_each, StackSamples.stop)  # before the interpreter ends, whose memory it reads
