"""Devices and their probes, in tests of what is made of them, are a fake's."""

from pathlib import Path

import pytest
from helpers.fake_core import FakeCore, install


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCore:
    return install(monkeypatch, tmp_path)
