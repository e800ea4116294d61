"""Advice on well-made programs that were recorded on an H200: none above 3 %, except what was measured to gain."""

from __future__ import annotations

import json
import statistics

import pytest
from helpers import DATA

import flopscope as fs

FOLDER = DATA / "well_made"
PROGRAMS = json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))["programs"]
"""Samples in ms per step, without a profiler: of the program as it is, and with the option that follows a rule."""
LEAST_PCT = 3.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_advice_above_three_percent_gains_at_least_half_of_what_it_promises(name: str) -> None:
    samples = PROGRAMS[name]
    as_made = statistics.median(samples["as made"])
    for row in fs.load_trace(FOLDER / f"{name}.json.gz").advice():
        if row.saving_pct > LEAST_PCT:
            assert row.rule in samples, f"{row.rule} was not shown to gain: {row.what}"
            gained = 100 * (1 - statistics.median(samples[row.rule]) / as_made)
            assert gained >= row.saving_pct / 2, (row.rule, row.saving_pct, gained)
