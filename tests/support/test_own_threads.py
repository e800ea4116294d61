"""start_thread(): signals stay with the thread that starts another."""

from __future__ import annotations

import signal
import threading

import pytest

from flopscope.support.process import FAULTS, start_thread


def test_the_thread_blocks_what_is_not_its_own_error() -> None:
    seen: list[set[int]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    start_thread(lambda: seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "one").join()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM} <= seen[0] and not FAULTS & seen[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_ctrl_c_while_signals_are_blocked_leaves_them_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """pthread_sigmask() blocks, and then runs the handlers of signals that came before."""
    original = signal.pthread_sigmask
    before, threads = original(signal.SIG_BLOCK, ()), threading.active_count()

    def interrupted(how: int, mask: set[int]) -> set[signal.Signals]:
        known = original(how, mask)
        if how == signal.SIG_BLOCK and mask:
            raise KeyboardInterrupt
        return known

    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_thread(lambda: None, "one")
    assert original(signal.SIG_BLOCK, ()) == before and threading.active_count() == threads
