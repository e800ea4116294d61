"""Ops on the CPU."""

import pytest
from helpers.ops_reference import Lab


@pytest.fixture
def lab() -> Lab:
    return Lab("cpu")
