"""Profiles of a process that uses JAX: the modules come from its client, of which there is a fake here."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from helpers.hlo_traces import HLO, STEPS, TRIPS, recorded

import flopscope as fs
from flopscope.sources.jax_modules import tie_to_jax
from flopscope.sources.load import read

CPU_ONLY = "HloModule jit_other\nENTRY %main { ROOT %a = f32[2]{0} parameter(0) }"


def _use_jax(monkeypatch: pytest.MonkeyPatch, texts: list[str], *, initialized: bool = True) -> None:
    modules = [SimpleNamespace(name="jit_step", to_string=lambda text=text: text) for text in texts]
    executables = [SimpleNamespace(hlo_modules=lambda module=module: [module]) for module in modules]
    client = SimpleNamespace(live_executables=lambda: executables)
    jax = SimpleNamespace(devices=lambda: [SimpleNamespace(client=client)] * 2)
    bridge = SimpleNamespace(backends_are_initialized=lambda: initialized)
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)  # type: ignore[arg-type]


def test_kernels_belong_to_the_modules_of_live_executables(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_jax(monkeypatch, [CPU_ONLY, HLO, HLO])
    core = read(recorded()).core
    counts = tie_to_jax(core)
    assert counts["tied_ns"] == counts["kernel_ns"] and counts["instructions"] == STEPS * (3 + 3 * TRIPS)
    assert core.has_modules and core.has_frames


def test_a_module_that_cannot_be_read_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_jax(monkeypatch, [HLO, "HloModule new\n???"])
    with pytest.warns(UserWarning, match=r"jax: the kernels of a module belong to no instruction: jit_step\(2\)"):
        counts = tie_to_jax(read(recorded()).core)
    assert counts["tied_ns"] == counts["kernel_ns"]


def test_another_version_of_jax_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_jax(monkeypatch, [HLO])
    monkeypatch.setattr(sys.modules["jax"], "devices", lambda: [SimpleNamespace(client=SimpleNamespace())])
    core = read(recorded()).core
    before = core.event_count
    with pytest.warns(UserWarning, match="kernels of JAX belong to no instruction: AttributeError"):
        assert tie_to_jax(core) == {}
    assert core.event_count == before


@pytest.mark.parametrize("initialized", [True, False])
def test_jax_is_not_initialized(monkeypatch: pytest.MonkeyPatch, initialized: bool) -> None:
    _use_jax(monkeypatch, [], initialized=initialized)
    assert tie_to_jax(read(recorded()).core) == {}


def test_a_profile_without_kernels_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_jax(monkeypatch, [HLO])
    monkeypatch.setattr(sys.modules["jax"], "devices", lambda: 1 / 0)
    with fs.profile() as prof:
        fs.matmul(fs.ones((8, 8)), fs.ones((8, 8)))
    assert prof.hlo == {}
    assert [row.key for row in prof.key_averages(peaks="none") if "matmul" in row.key]
