"""Progress bars: by rich on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count

from flopscope.support.safe import printable

WAIT_SECONDS = 2.0  # before time_bar() shows a bar
PAUSE_SECONDS = 0.1  # minimum time between two updates


@contextmanager
def progress_bar(title: str, steps: int, wanted: bool = True) -> Iterator[Callable[[], object]]:
    """Show a bar and yield a function to call after each step. Nothing is shown unless ``wanted``."""
    done = count(1)
    with _bar(title) if wanted else nullcontext(bool) as show:
        show(0.0)
        yield lambda: show(next(done) / steps)


@contextmanager
def time_bar(title: str, seconds: float) -> Iterator[Callable[[], object]]:
    """Yield a function to call repeatedly; after two seconds, a bar shows which part of ``seconds`` has elapsed.

    The bar is drawn only during those calls, so that it does not disturb measurements between them.
    """
    begin = time.perf_counter()
    shown: list[Callable[[float], object]] = []
    with ExitStack() as stack:

        def update() -> None:
            elapsed = time.perf_counter() - begin
            if elapsed >= WAIT_SECONDS:
                if not shown:
                    shown.append(stack.enter_context(_bar(title)))
                shown[0](min(elapsed / seconds, 1.0))

        yield update


_showing = False  # whether a bar is shown; nested bars are suppressed


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float], object]]:
    """Yield a function that shows the completed share, 0 to 1, and ignores updates that come too fast."""
    global _showing
    if _showing or not sys.stderr.isatty():
        yield bool  # does nothing
        return
    from rich.console import Console
    from rich.markup import escape as escape_markup
    from rich.progress import Progress

    _showing, last = True, -PAUSE_SECONDS
    try:
        with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
            task = bar.add_task(escape_markup(printable(title)), total=1.0)

            def show(share: float) -> None:
                nonlocal last
                now = time.perf_counter()
                if now - last >= PAUSE_SECONDS:
                    last = now
                    bar.update(task, completed=share, refresh=True)

            yield show
    finally:
        _showing = False
