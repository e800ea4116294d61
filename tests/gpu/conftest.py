"""Tests that need a CUDA device. Without one they are deselected, and a single skipped test reports the reason."""

import pytest
from helpers.ops_reference import Lab

import flopscope as fs


@pytest.fixture
def lab() -> Lab:
    return Lab("cuda")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        fs._core.cuda_device_count()
    except RuntimeError as error:
        gpu_tests = [item for item in items if "gpu" in item.path.parts]
        if gpu_tests:
            first, *rest = gpu_tests
            first.add_marker(pytest.mark.skip(reason=f"this and {len(rest)} more tests of tests/gpu: {error}"))
            config.hook.pytest_deselected(items=rest)
            deselected = set(rest)
            items[:] = [item for item in items if item not in deselected]
