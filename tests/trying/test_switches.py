"""Each switch is applied to torch, has the effect it names, and is undone; its premise is checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flopscope.answers.rules import RULES
from flopscope.measuring.trying.effects import QUIET, Reach
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.switches import SWITCHES, apply

torch = pytest.importorskip("torch")


@contextmanager
def switched(*names: str, comparing: bool = False, **seen: Any) -> Iterator[Reach]:
    """Apply switches to the torch of this process, and undo them."""
    reach = Reach(torch, Seen(torch="2", **seen), comparing)
    apply(names, reach)
    leave = reach.watch()
    try:
        yield reach
    finally:
        leave()
        reach.undo()


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))


def test_each_row_names_rules_that_exist_its_effect_its_lines_and_a_source() -> None:
    for name, one in SWITCHES.items():
        assert one.name == name and set(one.rules) <= {*RULES}, name
        assert one.what and one.effect and one.source.startswith("https://"), name
        assert 0 < one.tolerance < 0.1, name
        lines = one.lines_for(Seen(cpus=4))
        assert lines and "{" not in lines, name
        if not re.match(r"[A-Z_]+=", lines):  # else a variable of the environment
            compile(lines.replace("(...,", "(x,"), name, "exec")


def test_no_switch_applies_to_a_program_that_uses_neither_torch_nor_jax() -> None:
    assert [name for name, one in SWITCHES.items() if not one.why_not(Seen())] == []


def test_what_needs_a_gpu_is_refused_on_a_cpu_and_the_reverse() -> None:
    seen = Seen(torch="2", modules=1, convolutions=True, float32=True, threads=1, cpus=8, compiler=True, bf16_cpu=True)
    on_cpu = {name for name, one in SWITCHES.items() if not one.why_not(seen)}
    assert {"threads", "affinity", "compile", "autocast", "inference_mode"} == on_cpu
    seen.cuda, seen.capability = True, 90
    on_gpu = {name for name, one in SWITCHES.items() if not one.why_not(seen)}
    assert not on_gpu & {"threads", "affinity"}
    assert {"tf32_products", "tf32_convolutions", "cudnn_benchmark", "compile_graphs", "expandable_segments"} <= on_gpu
    seen.capability = 75
    assert not {name for name, one in SWITCHES.items() if not one.why_not(seen)} & {"tf32_products", "autocast"}


# Settings: how each is read, what it is before, and what the switch makes of it.
SETTINGS: dict[str, list[tuple[Any, Any, Any, Any]]] = {
    "tf32_products": [
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest", "high"),
    ],
    "tf32_convolutions": [
        (
            lambda: torch.backends.cudnn.allow_tf32,
            lambda to: setattr(torch.backends.cudnn, "allow_tf32", to),
            False,
            True,
        ),
    ],
    "cudnn_benchmark": [
        (
            lambda: torch.backends.cudnn.benchmark,
            lambda to: setattr(torch.backends.cudnn, "benchmark", to),
            False,
            True,
        ),
    ],
    "fused_attention": [
        (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, False, True),
        (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp, False, True),
    ],
    "nondeterministic": [
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True, False),
    ],
    "threads": [(torch.get_num_threads, torch.set_num_threads, 1, 2)],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_set_held_against_the_program_and_put_back(name: str) -> None:
    originals = [read() for read, *_ in SETTINGS[name]]
    try:
        for _, write, before, _ in SETTINGS[name]:
            write(before)
        with switched(name, cpus=2) as reach:
            assert [read() for read, *_ in SETTINGS[name]] == [wanted for *_, wanted in SETTINGS[name]]
            hits = reach.hits[name]
            assert hits > 0
            for _, write, before, _ in SETTINGS[name]:
                write(before)  # as the program does after its import of torch
            network()(torch.ones(1, 8))
            assert [read() for read, *_ in SETTINGS[name]] == [wanted for *_, wanted in SETTINGS[name]]
            assert reach.hits[name] > hits
        assert [read() for read, *_ in SETTINGS[name]] == [before for _, _, before, _ in SETTINGS[name]]
    finally:
        for (_, write, *_), value in zip(SETTINGS[name], originals, strict=True):
            write(value)


def test_a_setting_that_the_program_has_already_is_no_hit() -> None:
    threads = torch.get_num_threads()
    with switched("threads", cpus=threads) as reach:
        assert reach.hits["threads"] == 0


# Optimizers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD"])
def test_optimizers_are_made_fused_and_give_the_same_parameters(kind: str) -> None:
    def train() -> Any:
        model = network()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01, foreach=False)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).square().sum().backward()
            optimizer.step()
        return optimizer.defaults["fused"], [one.detach().clone() for one in model.parameters()]

    plain = train()
    with switched("fused_optimizer") as reach:
        fused = train()
    assert (plain[0], fused[0], reach.hits["fused_optimizer"]) == (None, True, 1)
    for a, b in zip(plain[1], fused[1], strict=True):
        torch.testing.assert_close(a, b)
    assert train()[0] is None


def test_a_constructor_keeps_its_own_errors() -> None:
    with switched("fused_optimizer"), pytest.raises(TypeError, match="learning_rate"):
        torch.optim.SGD(network().parameters(), learning_rate=0.1)


def test_optimizers_over_lists_of_parameters() -> None:
    with switched("foreach_optimizer") as reach:
        assert torch.optim.RMSprop(network().parameters(), foreach=False).defaults["foreach"] is True
        assert torch.optim.SGD(network().parameters(), lr=1.0, fused=True).defaults["fused"] is True
    assert reach.hits["foreach_optimizer"] == 1


def test_gradients_are_dropped_where_the_program_fills_them() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with switched("zero_grad") as reach:
        model(torch.ones(1, 8)).sum().backward()
        optimizer.zero_grad()
        assert reach.hits["zero_grad"] == 0
        model(torch.ones(1, 8)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        assert reach.hits["zero_grad"] == 1 and model[0].weight.grad is None
    model(torch.ones(1, 8)).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert model[0].weight.grad is not None


# Data -----------------------------------------------------------------------------------------------------------------


def loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64.0)), batch_size=8, **options)


def test_a_loader_gets_workers_and_yields_the_same_batches() -> None:
    plain = [batch[0].tolist() for batch in loader()]
    with switched("loader_workers", cpus=2) as reach:
        made = loader()
        assert made.num_workers == 1 and made.persistent_workers and reach.hits["loader_workers"] == 1
        assert [batch[0].tolist() for batch in made] == plain
        assert loader(num_workers=3).num_workers == 3
    assert loader().num_workers == 0


def test_a_loader_of_an_iterable_dataset_keeps_its_process() -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    with switched("loader_workers", cpus=4) as reach:
        assert torch.utils.data.DataLoader(Stream()).num_workers == 0
    assert reach.hits["loader_workers"] == 0


def test_loaders_are_pinned_and_load_further_ahead() -> None:
    with switched("loader_pinned", "loader_prefetch") as reach:
        assert loader(num_workers=1).prefetch_factor == 8 and loader().pin_memory
        assert loader(pin_memory=True).num_workers == 0
    assert reach.hits == {"loader_pinned": 2, "loader_prefetch": 1}


class Pinned:
    """A tensor of the host that says it is pinned, which needs a GPU."""

    device = torch.device("cpu")

    def is_pinned(self) -> bool:
        return True


def test_copies_of_pinned_tensors_are_made_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *args, **named: calls.append((args, named)))
    with switched("non_blocking") as reach:
        torch.Tensor.to(Pinned(), "cuda")
        torch.Tensor.to(Pinned(), "cuda", torch.float32, False)
        torch.Tensor.to(Pinned(), "cuda", non_blocking=False)
        torch.Tensor.to(torch.ones(1), "cuda")
    assert [named for _, named in calls] == [{"non_blocking": True}, {}, {"non_blocking": False}, {}]
    assert reach.hits["non_blocking"] == 1


# Calls of modules -----------------------------------------------------------------------------------------------------


def test_autocast_is_around_the_forward_pass_and_its_result_is_float32() -> None:
    seen = []

    class Noting(torch.nn.Linear):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            seen.append(torch.is_autocast_enabled("cpu"))
            return {"y": super().forward(x)}

    torch.manual_seed(0)
    model, x = Noting(8, 8), torch.rand(2, 8)
    plain = model(x)["y"]
    with switched("autocast") as reach:
        result = model(x)["y"]
        model(x)
    assert seen == [False, True, True] and result.dtype == torch.float32 and reach.hits["autocast"] == 1
    assert 0 < (result - plain).abs().max() < 0.02
    assert torch.equal(model(x)["y"], plain)


def test_inference_mode_is_around_the_forward_pass() -> None:
    model = network()
    with switched("inference_mode"):
        assert model(torch.ones(1, 8)).is_inference()
    assert not model(torch.ones(1, 8)).is_inference()


def test_convolutions_and_their_images_get_channels_last() -> None:
    torch.manual_seed(0)
    model, images = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), torch.rand(2, 3, 8, 8)
    plain = model(images)
    with switched("channels_last") as reach:
        result = model(images)
        assert result.is_contiguous(memory_format=torch.channels_last) and reach.hits["channels_last"] == 1
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
        network()(torch.ones(1, 8))
        assert reach.hits["channels_last"] == 1
    torch.testing.assert_close(result, plain)
    assert model[0].weight.is_contiguous() and model(images).is_contiguous()


def test_the_outermost_module_is_compiled_once_inside_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def compiler(call: Any, **options: Any) -> Any:
        made.append((call, options))
        return lambda *args, **named: (torch.is_autocast_enabled("cpu"), call(*args, **named))[1]

    monkeypatch.setattr(torch, "compile", compiler)
    model = network()
    with switched("autocast", "compile") as reach:
        model(torch.ones(1, 8))
        model(torch.ones(1, 8))
    assert [(call.__self__, options) for call, options in made] == [(model, {"mode": "default"})]
    assert reach.hits == {"autocast": 1, "compile": 1} and model._compiled_call_impl is None


def test_a_compiled_module_draws_the_random_numbers_of_eager_ones_where_results_are_compared() -> None:
    if not __import__("shutil").which("g++"):
        pytest.skip("torch.compile needs g++")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    torch.manual_seed(1)
    plain = model(torch.ones(4, 8))
    with switched("compile", comparing=True):
        torch.manual_seed(1)
        compiled = model(torch.ones(4, 8))
    torch.testing.assert_close(compiled, plain)


def test_modules_are_looked_for_until_no_new_ones_come() -> None:
    original = torch.nn.Module.__call__
    first, second = network(), network()
    with switched("inference_mode") as reach:
        for _ in range(QUIET):
            first(torch.ones(1, 8))
        assert torch.nn.Module.__call__ is not original
        second(torch.ones(1, 8))
        for _ in range(QUIET):
            second(torch.ones(1, 8))
        assert torch.nn.Module.__call__ is original and reach.hits["inference_mode"] == 2
        assert first(torch.ones(1, 8)).is_inference()


def test_copies_and_pickles_of_a_module_are_without_the_switch() -> None:
    import copy

    model = network()
    with switched("inference_mode"):
        model(torch.ones(1, 8))
        other = copy.deepcopy(model)
        assert other._compiled_call_impl is None
        assert {*model.state_dict()} == {*other.state_dict()}


def test_larger_buckets_are_the_arguments_of_the_parallel_module() -> None:
    given: dict[str, Any] = {"module": None, "bucket_cap_mb": None, "gradient_as_bucket_view": False}
    means: Any = SWITCHES["ddp_buckets"].means[0]
    assert means.owners == ("nn.parallel.DistributedDataParallel",)
    assert means.change(Seen(), given) is True
    assert given == {"module": None, "bucket_cap_mb": 100, "gradient_as_bucket_view": True}


# The environment ------------------------------------------------------------------------------------------------------


def variables(name: str, before: dict[str, str]) -> dict[str, str]:
    return SWITCHES[name].environment(Seen(cpus=3), before)


def test_variables_are_added_to_those_that_are_set() -> None:
    name = "PYTORCH_CUDA_ALLOC_CONF"
    assert variables("expandable_segments", {}) == {name: "expandable_segments:True"}
    before = {name: "max_split_size_mb:64,expandable_segments:False"}
    assert variables("expandable_segments", before) == {name: "max_split_size_mb:64,expandable_segments:True"}
    flags = variables("jax_latency_hiding", {"XLA_FLAGS": "--xla_dump_to=/x"})["XLA_FLAGS"]
    assert flags == "--xla_dump_to=/x --xla_gpu_enable_latency_hiding_scheduler=true"
    assert variables("threads", {}) == {"OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize("name", [name for name in SWITCHES if name.startswith("jax_")])
def test_jax_knows_the_variables(name: str) -> None:
    pytest.importorskip("jax")
    code = "import jax; print(float(jax.numpy.ones(3).sum()))"
    environment = {**os.environ, **variables(name, {}), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr


def test_libgomp_takes_the_affinity() -> None:
    code = "import torch; print(torch.ones(1000, 1000).sum().item())"
    environment = {**os.environ, **variables("affinity", {})}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1000000.0\n") and "OMP" not in done.stderr
