"""Each switch is applied to torch and has the effect it names; its premise is checked."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from flopscope.answers.advice import RULES
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.switches import SWITCHES, Reach

torch = pytest.importorskip("torch")


@contextmanager
def switched(name: str, **seen: Any) -> Iterator[Reach]:
    """Apply a switch to the torch of this process, and undo it."""
    reach, switch = Reach(torch, Seen(torch="2", **seen)), SWITCHES[name]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for path in switch.functions:
            owner, _, function = path.rpartition(".")
            patch.setattr(owner := attrgetter(owner)(torch), function, getattr(owner, function))
        for one in switch.settings(torch, reach.seen) if switch.settings else ():
            stack.callback(one.write, one.read())
        switch.apply(reach)
        reach.watch()
        stack.callback(reach.leave)
        yield reach


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))


def test_each_row_names_rules_that_exist_its_effect_its_lines_and_a_source() -> None:
    for name, one in SWITCHES.items():
        assert one.name == name and one.rule in {"", *RULES}, name
        assert one.what and one.effect and one.source.startswith("https://"), name
        assert 0 < one.tolerance < 0.1, name
        compile(one.lines.replace("(...,", "(x,"), name, "exec")


def test_what_needs_a_gpu_is_refused_on_a_cpu_and_the_reverse() -> None:
    seen = Seen(torch="2", modules=1, threads=1, cpus=8, convolutions=True)
    on_gpu = {"tf32", "cudnn_benchmark", "compile_graphs"}
    refused = {name for name, one in SWITCHES.items() if one.why_not(seen)}
    assert refused == on_gpu | {"zero_grad", "inference_mode"}
    assert not SWITCHES["inference_mode"].why_not(replace(seen, gradients=True))
    seen.cuda = seen.zeroed = seen.gradients = seen.trains = True
    assert {name for name, one in SWITCHES.items() if one.why_not(seen)} == {"threads", "inference_mode"}


# Settings: how each is read, what it is before, and what the switch makes of it.
SETTINGS: dict[str, tuple[Any, Any, Any]] = {
    "tf32": (torch.get_float32_matmul_precision, "highest", "high"),
    "cudnn_benchmark": (lambda: torch.backends.cudnn.benchmark, False, True),
    "threads": (torch.get_num_threads, 1, 2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_set_and_held_against_the_program(name: str) -> None:
    read, before, wanted = SETTINGS[name]
    settings: Any = SWITCHES[name].settings
    write, original = settings(torch, Seen(cpus=2))[0].write, read()
    try:
        write(before)
        assert read() == before
        with switched(name, cpus=2) as reach:
            assert read() == wanted
            hits = reach.hits
            assert hits > 0
            write(before)  # as the program does after its import of torch
            network()(torch.ones(1, 8))
            assert read() == wanted and reach.hits > hits
    finally:
        write(original)


def test_a_setting_that_the_program_has_already_is_no_hit() -> None:
    threads = torch.get_num_threads()
    with switched("threads", cpus=threads) as reach:
        assert reach.hits == 0


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
    assert (plain[0], fused[0], reach.hits) == (None, True, 1)
    for a, b in zip(plain[1], fused[1], strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_are_dropped_where_the_program_fills_them() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with switched("zero_grad") as reach:
        model(torch.ones(1, 8)).sum().backward()
        optimizer.zero_grad()
        assert reach.hits == 0
        model(torch.ones(1, 8)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        assert reach.hits == 1 and model[0].weight.grad is None


# Data -----------------------------------------------------------------------------------------------------------------


def loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64.0)), batch_size=8, **options)


def test_a_loader_gets_workers_and_yields_the_same_batches() -> None:
    plain = [batch[0].tolist() for batch in loader()]
    with switched("loader_workers", cpus=2) as reach:
        made = loader()
        assert made.num_workers == 1 and made.persistent_workers and reach.hits == 1
        assert [batch[0].tolist() for batch in made] == plain and loader(num_workers=3).num_workers == 3


def test_a_loader_of_an_iterable_dataset_keeps_its_process() -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    with switched("loader_workers", cpus=4) as reach:
        assert torch.utils.data.DataLoader(Stream()).num_workers == 0
    assert reach.hits == 0


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
    assert seen == [False, True, True] and result.dtype == torch.float32 and reach.hits == 1
    assert 0 < (result - plain).abs().max() < 0.02


def test_convolutions_and_their_images_get_channels_last() -> None:
    torch.manual_seed(0)
    model, images = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), torch.rand(2, 3, 8, 8)
    plain = model(images)
    with switched("channels_last") as reach:
        result = model(images)
        assert result.is_contiguous(memory_format=torch.channels_last) and reach.hits == 1
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
        network()(torch.ones(1, 8))
        assert reach.hits == 1
    torch.testing.assert_close(result, plain)


def test_the_outermost_module_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda call, **options: made.append((call, options)) or call)
    model = network()
    with switched("compile") as reach:
        model(torch.ones(1, 8))
        model(torch.ones(1, 8))
    assert [(call.__self__, options) for call, options in made] == [(model, {"mode": "default"})] and reach.hits == 1


def test_modules_are_looked_for_until_the_measured_steps_begin() -> None:
    original = torch.nn.Module.__call__
    first, second = network(), network()
    with switched("inference_mode") as reach:
        first(torch.ones(1, 8))
        second(torch.ones(1, 8))
        reach.leave()
        assert torch.nn.Module.__call__ is original and reach.hits == 2 and first(torch.ones(1, 8)).is_inference()


def test_copies_and_pickles_of_a_module_are_without_the_switch() -> None:
    import copy

    model = network()
    with switched("inference_mode"):
        model(torch.ones(1, 8))
        other = copy.deepcopy(model)
        assert other._compiled_call_impl is None and {*model.state_dict()} == {*other.state_dict()}
