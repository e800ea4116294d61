"""Schedules, and profiles that follow them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import flopscope as fs

NONE, WARMUP, RECORD, SAVE = fs.ProfilerAction
few = st.integers(0, 4)
plans = st.fixed_dictionaries(
    {"wait": few, "warmup": few, "active": st.integers(1, 4), "repeat": few, "skip_first": few, "skip_first_wait": few}
)


def quiet(make: Callable[..., Any], **plan: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(**plan)
