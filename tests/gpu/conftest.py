"""These tests need a CUDA device; elsewhere they are left out, and one skipped test says how many and why."""

from __future__ import annotations

import pytest

import flopscope as fs


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        fs._core.cuda_device_count()
    except RuntimeError as why:
        left_out = [item for item in items if "gpu" in item.path.parts]
        if left_out:
            first, *rest = left_out
            first.add_marker(pytest.mark.skip(reason=f"this and {len(rest)} more tests of tests/gpu: {why}"))
            config.hook.pytest_deselected(items=rest)
            gone = set(rest)
            items[:] = [item for item in items if item not in gone]
