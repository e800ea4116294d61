"""A progress bar for what takes a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str, steps: int, wanted: bool = True) -> Iterator[Callable[[], object]]:
    """Gives a function to call after each step. Silent where not wanted, without a terminal or without rich."""
    advance: Callable[[], object] = bool  # does nothing
    with ExitStack() as stack:
        if wanted and sys.stderr.isatty():
            with suppress(ImportError):
                from rich.console import Console
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
                advance = partial(bar.advance, bar.add_task(title, total=steps))
        yield advance
