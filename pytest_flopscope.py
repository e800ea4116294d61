"""The pytest plugin: the ``perf`` fixture, its marker and its options.

Every pytest run loads this file if flopscope is installed. It is therefore outside the package, and imports the package
only when a test uses the fixture or an option needs it. The implementation is in flopscope/measuring/perf.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flopscope.perf import Perf

MARKER = (
    "perf(device=None, **limits): limits for the measurements of the perf fixture in this test, named as its methods: "
    '@pytest.mark.perf(at_least={"pct_roofline": 80}, bound="memory", no_sync=True). device: skip if it is missing.'
)


AB = "FLOPSCOPE_AB"
"""The environment variable by which ``flopscope ab`` tells how long to time each call, and the file to write to."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flopscope", "performance tests with the perf fixture")
    group.addoption("--perf-skip", action="store_true", help="skip the tests that use the perf fixture")
    text = "outcome of a limit that stays inside the confidence interval after longer measurements (default: fail)"
    group.addoption("--perf-unclear", choices=("fail", "skip", "pass"), default="fail", help=text)
    text = "write all measurements and verdicts to this file, as pytest-benchmark writes its own"
    group.addoption("--perf-json", metavar="FILE", help=text)
    text = "store the measurements as a numbered run of this name (default: the commit), as pytest-benchmark does"
    group.addoption("--perf-save", metavar="NAME", nargs="?", const="", help=text)
    text = 'print a comparison with a stored run: "last", a number, a name or a file *.json'
    group.addoption("--perf-compare", metavar="RUN", default="", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    options = config.option
    if options.perf_json and not Path(options.perf_json).absolute().parent.is_dir():
        raise pytest.UsageError(f"--perf-json {options.perf_json}: the folder does not exist")
    run: Path | None = None
    if options.perf_json or options.perf_save is not None or options.perf_compare:
        if find_spec("pytest_benchmark") is None:
            need = "--perf-save, --perf-compare and --perf-json need pytest-benchmark"
            raise pytest.UsageError(f"{need}: pip install 'flopscope-profiler[perf]'")
        from flopscope.measuring.perf import stored

        try:
            stored.require_savable(options.perf_save or "")
            if options.perf_compare:
                run = stored.find(options.perf_compare, stored.folder_of(config.invocation_params.dir))
        except (OSError, ValueError) as problem:
            raise pytest.UsageError(str(problem)) from None
    config.pluginmanager.register(_Session(config, run), "flopscope-perf-session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test that uses the fixture, so that `-m perf` selects it."""
    for item in items:
        if _measures(item):
            item.add_marker("perf")
            if config.option.perf_skip:
                item.add_marker(pytest.mark.skip(reason="--perf-skip"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the marker before other fixtures run, since these may need the device."""
    if not any(mark.kwargs for mark in item.iter_markers("perf")):
        return
    from flopscope.measuring.perf import limits

    if not _measures(item):
        limits.check_unused(item)  # another plugin may use a marker of the same name
    elif not item.config.option.perf_skip:
        limits.skip_without_device(item)


@pytest.fixture
def perf(request: pytest.FixtureRequest) -> Iterator[Perf]:
    """Measure fn(*args) by perf(fn, *args, flops=None, bytes=None, …), as flopscope.measure does, and chain limits:

    perf(fn, x).at_least(pct_roofline=80).at_most(us=20).bound("memory").no_slower_than(other).kernels(at_most=1)
    """
    from flopscope.perf import LimitError, Perf, Settings

    session: Any = request.config.pluginmanager.get_plugin("flopscope-perf-session")
    options = request.config.option
    settings = Settings(options.perf_unclear, session.write_line, session.ab.get("seconds", 0.0))
    try:
        fixture = Perf(request.node, settings)
    except LimitError as problem:  # in the marker: the test has not started
        pytest.fail(str(problem), pytrace=False)
    request.node.stash[_PERF] = fixture
    yield fixture
    fixture.close()


def _measures(item: pytest.Item) -> bool:
    return "perf" in getattr(item, "fixturenames", ())


_PERF: pytest.StashKey[Perf] = pytest.StashKey()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the measurements to the report, which xdist transfers from its workers; shorten its summary line."""
    outcome: Any = yield
    summary = getattr(call.excinfo.value, "perf_summary", "") if call.excinfo is not None else ""
    crash = getattr(outcome.get_result().longrepr, "reprcrash", None)
    if summary and crash is not None:
        crash.message = summary
    fixture = item.stash.get(_PERF, None)
    if fixture is not None and call.when == "call":
        fixture.passed = call.excinfo is None
    if fixture is not None and call.when == "teardown":
        outcome.get_result().flopscope_perf = fixture.records()
    if AB in os.environ and _measures(item):
        from flopscope.support.imports import loaded

        outcome.get_result().flopscope_modules = loaded() if call.when == "teardown" else {}


class _Session:
    """The measurements of all tests, collected from pytest's reports."""

    def __init__(self, config: pytest.Config, run: Path | None) -> None:
        self.config = config
        self.run = run
        self.records: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.ab: dict[str, Any] = json.loads(os.environ.get(AB, "{}"))
        self._modules: dict[str, str] = {}  # with their files, for ``flopscope ab``
        self._measuring: dict[str, str] = {}  # outcomes of the tests with the fixture, for the same
        self._outcomes: dict[str, str] = {}  # by test

    def write_line(self, line: str) -> None:
        """Write a line to the terminal although the output of tests is captured. xdist's workers have no terminal."""
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        capture: Any = self.config.pluginmanager.get_plugin("capturemanager")
        if terminal is not None:
            with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
                terminal.ensure_newline()
                terminal.write_line(line)
                terminal.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = "passed" if report.when == "setup" else self._outcomes.get(report.nodeid, "passed")
        if report.outcome == "failed" or before == "passed":  # a phase that passes hides none that did not
            before = "xfailed" if report.outcome == "skipped" and hasattr(report, "wasxfail") else report.outcome
        self._outcomes[report.nodeid] = before
        self.records += [{**record, "outcome": before} for record in getattr(report, "flopscope_perf", [])]
        if hasattr(report, "flopscope_modules"):
            self._measuring[report.nodeid] = before
            self._modules |= report.flopscope_modules

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        options = self.config.option
        if hasattr(self.config, "workerinput"):
            return  # under xdist, the controller writes the results of the workers
        if self.ab:
            found = {"records": self.records, "outcomes": self._measuring, "modules": self._modules}
            Path(self.ab["record"]).write_text(json.dumps(found), encoding="utf-8")
            os._exit(0)  # what other plugins do at the end would take as long as the tests
        if options.perf_skip or not (options.perf_json or options.perf_save is not None or self.run):
            return
        if not self.records:
            self.notes.append("nothing was measured, so no file was written")
            return
        from flopscope.measuring.perf import stored
        from flopscope.support.files import write_json

        try:
            content = stored.content_of(self.records)
            if options.perf_json:
                write_json(options.perf_json, content)
                self.notes.append(f"written: {options.perf_json}")
            if self.run is not None:
                self.notes += stored.compared(self.run, content)
            if options.perf_save is not None:
                folder = stored.folder_of(self.config.invocation_params.dir)
                self.notes.append(f"stored: {stored.save(content, options.perf_save, folder)}")
        except OSError as problem:
            self.notes.append(f"the measurements could not be written: {problem}")
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.records and not self.notes:
            return
        from flopscope.measuring.perf import report

        terminalreporter.section("performance")
        for line in [*report.table(self.records), *self.notes]:
            terminalreporter.line(line)
