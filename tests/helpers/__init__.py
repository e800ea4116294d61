"""What tests share: programs with known answers, fakes, readers of pages. On the path by the settings of pytest."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
DATA = TESTS / "data"
TRACES = DATA / "traces"
