"""Progress bars for what takes a while: on a terminal by rich, in a notebook as HTML. Elsewhere nothing is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html import escape
from typing import Any

from flopscope.support.safe import printable

__all__ = ["progress_bar", "time_bar"]

WAIT_SECONDS = 2.0  # before a bar of time is shown
PAUSE_SECONDS = 0.1  # at least, between two changes of what is seen


@contextmanager
def progress_bar(title: str, steps: int, wanted: bool = True) -> Iterator[Callable[[], object]]:
    """Gives a function to call after each step. Silent where not wanted."""
    done = 0
    with ExitStack() as stack:
        show = stack.enter_context(_bar(title)) if wanted else bool

        def advance() -> None:
            nonlocal done
            done += 1
            show(done / steps)

        show(0.0)
        yield advance


@contextmanager
def time_bar(title: str, seconds: float) -> Iterator[Callable[[], object]]:
    """Gives a function to call now and then: after two seconds a bar shows how much of so many seconds is over.

    It is drawn when that function is called and at no other time, so that it does not disturb what is timed between.
    """
    begin = time.perf_counter()
    shown: list[Callable[[float], object]] = []
    with ExitStack() as stack:

        def look() -> None:
            elapsed = time.perf_counter() - begin
            if elapsed >= WAIT_SECONDS:
                if not shown:
                    shown.append(stack.enter_context(_bar(title)))
                shown[0](min(elapsed / seconds, 1.0))

        yield look


_showing = False  # a bar: what else would have one meanwhile has none


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float], object]]:
    """Gives a function that shows which share, 0 to 1, is done; not more often than one can see."""
    global _showing
    if _showing:
        yield bool  # does nothing
        return
    last = -PAUSE_SECONDS
    _showing = True
    try:
        with _in_notebook(title) if _notebook() else _on_terminal(title) as draw:

            def show(share: float) -> None:
                nonlocal last
                now = time.perf_counter()
                if now - last >= PAUSE_SECONDS:
                    last = now
                    draw(share)

            yield show
    finally:
        _showing = False


@contextmanager
def _on_terminal(title: str) -> Iterator[Callable[[float], object]]:
    try:
        if not sys.stderr.isatty():
            raise ImportError
        from rich.console import Console
        from rich.markup import escape as as_it_is
        from rich.progress import Progress
    except ImportError:
        yield bool  # does nothing
        return
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(as_it_is(printable(title)), total=1.0)
        yield lambda share: bar.update(task, completed=share, refresh=True)


def _notebook() -> bool:
    """Whether IPython runs in a kernel, whose front end shows HTML."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _in_notebook(title: str) -> Iterator[Callable[[float], object]]:
    from IPython.display import HTML, display

    def bar(share: float) -> Any:
        return HTML(f"{escape(title)} <progress value='{share:.3f}' style='width: 20em'></progress> {share:.0%}")

    shown: Any = display(bar(0.0), display_id=True)
    try:
        yield lambda share: shown.update(bar(share))
    finally:
        shown.update(HTML(""))
