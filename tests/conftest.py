"""Shared fixtures. Measured peaks are cached in a temporary folder."""

import gc
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("helpers")
from helpers.once import Once, once_in  # noqa: E402

if "FLOPSCOPE_CACHE_DIR" not in os.environ:  # inherited by the workers of pytest-xdist
    CACHE = tempfile.TemporaryDirectory(prefix="flopscope-test-cache-")
    os.environ["FLOPSCOPE_CACHE_DIR"] = CACHE.name

# Programs that tests start behave as on any machine, whatever was set where the tests were started.
for name in ("IOENCODING", "OPTIMIZE", "SAFEPATH", "UNBUFFERED", "WARNINGS"):
    os.environ.pop("PYTHON" + name, None)
os.environ.pop("FLOPSCOPE_WATCH_GRAPHS", None)
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, to which texts would be fitted
os.unsetenv("COLUMNS")  # as the readline library does, unseen by os.environ

with suppress(ImportError):  # examples are slow on a busy machine, which is no fault of a test
    from hypothesis import HealthCheck, settings

    # The same examples in each run, so that no change fails by chance; others where more are asked for.
    SAME = "FLOPSCOPE_TEST_EXAMPLES" not in os.environ
    settings.register_profile(
        "flopscope", derandomize=SAME, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("flopscope")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for ``-n auto``: one per core, at most 4; 0 with a GPU, whose times are tested."""
    import flopscope as fs

    try:
        fs._core.cuda_device_count()
    except RuntimeError:
        return min(len(os.sched_getaffinity(0)), 4)
    return 0


WHOLE = os.environ.get("FLOPSCOPE_TEST_WHOLE", "0") != "0"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked grid(step), run every step-th case, unless all or single ones are asked for, or on a GPU."""
    if WHOLE or any("::" in argument for argument in config.args):
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        mark = item.get_closest_marker("grid")
        if mark is None or "gpu" in item.path.parts:
            kept.append(item)
            continue
        test = item.nodeid.split("[")[0]
        (left if seen[test] % mark.args[0] else kept).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_collection_finish() -> None:
    """Take what collection made out of the garbage collector's sight: many tests call gc.collect()."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    return once_in(tmp_path_factory)


@pytest.fixture()
def nothing_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no peaks be known that other tests, or this machine's user, measured."""
    monkeypatch.setenv("FLOPSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("flopscope.support.peaks.remembered", {})


@pytest.fixture
def x() -> Any:
    """A small tensor."""
    import flopscope as fs

    return fs.ones((8, 8))


@pytest.fixture(autouse=True)
def on_the_cpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run tests that name no device on the CPU, even if there is a GPU; tests/gpu keeps the default device."""
    import flopscope as fs

    fs.set_default_device(None if "gpu" in request.path.parts else "cpu")
    yield
    fs.set_default_device(None)


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stands in for CUPTI."""
    from helpers.fake_cupti import build

    return build(tmp_path_factory.mktemp("fake"))


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with the traces of eight simulated ranks, of which rank 5 has a slow GPU, and the true times."""
    from helpers.ranks_cases import simulated

    folder = tmp_path_factory.mktemp("ranks")
    return folder, simulated(folder, slow_gpu={5: 1.3}, drift_ppm=3.0)


@pytest.fixture(scope="session")
def ranks(slow: tuple[Path, Any]) -> Any:
    """The ranks of these traces."""
    import flopscope as fs

    return fs.load_ranks(slow[0], workers=1)
