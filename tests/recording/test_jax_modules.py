"""Profiles of a process that uses JAX: the modules come from its client, of which there is a fake here, and so do the
events of its compilations. The last tests run JAX itself, in processes of their own, as it starts threads."""

import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.hlo_traces import HLO, STEPS, TRIPS, recorded
from helpers.processes import ended

import flopscope as fs
from flopscope.read.load import read
from flopscope.record import jax_modules
from flopscope.record.jax_modules import JaxModules, tie_to_jax

CPU_ONLY = "HloModule jit_other\nENTRY %main { ROOT %a = f32[2]{0} parameter(0) }"


class _Jax:
    """A JAX with one client, whose executables are listed as JAX's are: the newest first."""

    def __init__(self, platform: str = "cuda") -> None:
        self.executables: list[Any] = []
        self.listeners: list[Any] = []
        client = SimpleNamespace(live_executables=lambda: list(self.executables), platform=platform)
        self.devices = lambda: [SimpleNamespace(client=client)] * 2
        self.monitoring = SimpleNamespace(register_event_duration_secs_listener=self.listeners.append)

    def compile(self, text: str, seconds: float = 0.0, **facts: str) -> None:
        module = SimpleNamespace(name="jit_step", to_string=lambda: text)
        self.executables.insert(0, SimpleNamespace(hlo_modules=lambda: [module]))
        for heard in self.listeners:
            heard("/jax/core/compile/backend_compile_duration", seconds, **facts)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_modules, "_said", set())
    monkeypatch.setattr(jax_modules, "_listening", [])


def _use(monkeypatch: pytest.MonkeyPatch, texts: list[str], *, initialized: bool = True, platform: str = "cuda") -> Any:
    jax = _Jax(platform)
    for text in reversed(texts):
        jax.compile(text)
    bridge = SimpleNamespace(backends_are_initialized=lambda: initialized)
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)  # type: ignore[arg-type]
    return jax


def test_kernels_belong_to_the_modules_of_live_executables(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, [CPU_ONLY, HLO, HLO])
    core = read(recorded()).core
    counts = tie_to_jax(core)
    assert counts["tied_ns"] == counts["kernel_ns"] and counts["instructions"] == STEPS * (3 + 3 * TRIPS)
    assert core.has_modules and core.has_frames


def test_a_module_that_cannot_be_read_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, [HLO, "HloModule new\n???"])
    with pytest.warns(UserWarning, match=r"jax: the kernels of a module belong to no instruction: jit_step\(2\)"):
        counts = tie_to_jax(read(recorded()).core)
    assert counts["tied_ns"] == counts["kernel_ns"]


@pytest.mark.parametrize("initialized", [True, False])
def test_jax_is_not_initialized(monkeypatch: pytest.MonkeyPatch, initialized: bool) -> None:
    _use(monkeypatch, [], initialized=initialized)
    assert tie_to_jax(read(recorded()).core) == {}


def test_modules_of_deleted_executables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = _use(monkeypatch, [HLO, CPU_ONLY])
    modules = JaxModules()
    modules.look()
    jax.executables.clear()
    assert modules.texts() == {"jit_step(1)": HLO, "jit_step(2)": CPU_ONLY}
    counts = tie_to_jax(read(recorded()).core, modules)
    assert counts["tied_ns"] == counts["kernel_ns"] > 0
    # An executable with the address of a deleted one is new.
    jax = _use(monkeypatch, [CPU_ONLY])
    modules = JaxModules()
    modules.look()
    text = HLO
    jax.executables[0].hlo_modules = lambda: [SimpleNamespace(name="jit_step", to_string=lambda: text)]
    modules.look(compiled=True)
    assert {*modules.texts().values()} == {CPU_ONLY, HLO}


def test_a_compilation_is_an_op_with_what_ran_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = _use(monkeypatch, [], platform="cpu")
    x = fs.ones((8, 8))
    with fs.profile() as prof:
        with fs.record_function("step"):
            fs.sin(x)
            begin = time.monotonic()
            time.sleep(0.002)
            with fs.record_function("tries"):
                fs.matmul(x, x)
            jax.compile(HLO, time.monotonic() - begin, fun_name="jit(step)")
            fs.cos(x)
        jax.compile(HLO, 1e9)  # since before the profile began
        jax.listeners[0]("/jax/core/compile/jaxpr_trace_duration", 1e-4, fun_name="short")
        jax.listeners[0]("/jax/some/other/event", 1.0)
    columns, names, *_ = prof._core.events()  # type: ignore[union-attr]
    events = [names[name] for name in columns["name"]]
    around = {name: "" if up < 0 else events[up] for name, up in zip(events, columns["parent"].tolist(), strict=True)}
    assert around == {
        "jit_step (XLA compilation)": "", "step": "jit_step (XLA compilation)", "flopscope::sin": "step",
        "jit(step) (XLA compilation)": "step", "tries": "jit(step) (XLA compilation)", "flopscope::matmul": "tries",
        "flopscope::cos": "step",
    }  # fmt: skip


def test_listening_outlives_no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = _use(monkeypatch, [], platform="cpu")
    with pytest.warns(UserWarning, match="CPU here"), fs.profile():
        pass
    jax.compile(HLO, 1.0)
    with fs.profile() as prof:
        pass
    assert len(jax.listeners) == 1 and len(prof.events()) == 0


def test_a_profile_of_an_unknown_jax_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = _use(monkeypatch, [HLO])
    monkeypatch.setattr(jax, "devices", lambda: 1 / 0)
    with (
        pytest.warns(UserWarning, match="JAX belong to no instruction: ZeroDivisionError") as said,
        fs.profile() as prof,
    ):
        fs.matmul(fs.ones((8, 8)), fs.ones((8, 8)))
    assert prof.hlo == {} and len(said) == 1
    assert [row.key for row in prof.key_averages(peaks="none") if "matmul" in row.key]


def _run(code: str) -> Any:
    """Run a program, and return what it prints, which is JSON."""
    pytest.importorskip("jax")
    done = ended(code)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


PROGRAM = """
import json, jax, jax.numpy as jnp, flopscope as fs
def kept(x):
    return jnp.tanh(x @ x).sum()
old = jax.jit(lambda x: x + 1)
old(jnp.ones(3))
kept = jax.jit(kept)
with fs.profile(schedule=fs.schedule(wait=0, warmup=1, active=3, repeat=1)) as prof:
    for size in (3, 3, 4, 5):
        kept(jnp.ones((size, size))).block_until_ready()
        prof.step()
    kept = old = None
    jax.clear_caches()
rows = {row.key: row.count for row in prof.key_averages()}
names = sorted(name.split("(")[0] for name in prof._jax.texts())
parts = prof.accounting()[["compilation", "total"]].iloc[-1].tolist()
print(json.dumps([rows, names, len(jax.devices()[0].client.live_executables()), parts]))
"""


def test_compilations_of_jax_are_recorded_and_its_modules_kept() -> None:
    (rows, names, alive, (compiling, total)), said = _run(PROGRAM)
    assert sum(count for name, count in rows.items() if name.endswith("kept) (XLA compilation)")) == 2
    assert {"jit_kept", "jit__lambda"} <= {*names} and names.count("jit_kept") == 3 and alive == 0
    assert 0 < compiling < total and said.count("JAX runs on the CPU here") == 1


def test_a_program_of_which_only_compilations_are_recorded_is_told_by_its_lines() -> None:
    """JAX's ops on a CPU are seen by nobody: leaving the first steps out would leave nothing."""
    code = """
import json, jax, jax.numpy as jnp, flopscope as fs
with fs.profile(sample_stacks=True) as prof:
    jax.jit(lambda x: jnp.tanh(x @ x).sum())(jnp.ones((9, 9))).block_until_ready()
print(json.dumps([str(prof.summary()), [one.rule for one in prof.advice()]]))
"""
    (said, rules), _ = _run(code)
    text = " ".join(said.split())
    assert text.startswith("Compiling took ") and "(XLA compilation)" in text and "no other op was recorded." in text
    assert "Advice" not in text and rules == []
