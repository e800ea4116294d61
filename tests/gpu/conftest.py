"""These tests need a CUDA device; elsewhere they are skipped with the reason."""

from __future__ import annotations

import pytest

import flopscope as fs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        fs._core.cuda_device_count()
    except RuntimeError as why:
        skip = pytest.mark.skip(reason=str(why))
        for item in items:
            if "gpu" in item.path.parts:
                item.add_marker(skip)
