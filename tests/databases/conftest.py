"""Each test that asks for ``reader`` runs twice: databases are read by the core, and by Python's sqlite3 module."""

import pytest

from flopscope.read import database


@pytest.fixture(params=["core", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read by the core, or by Python's module as where the core finds no library."""
    monkeypatch.setattr(database, "_library", database._library if request.param == "core" else lambda: False)
    return str(request.param)
