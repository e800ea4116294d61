"""A module ``triton`` whose launches call their hooks as those of the real versions do, and compile and run nothing."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

ADD_IR = """module {
  tt.func public @add(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %0 = tt.load %x : !tt.ptr<f32>
    %1 = tt.load %y : !tt.ptr<f32>
    %2 = arith.addf %0, %1 : f32
    tt.store %out, %2 : !tt.ptr<f32>
    tt.return
  }
}
"""
DOUBLE_IR = """module {
  tt.func public @double(%x: !tt.ptr<f32>) attributes {noinline = false} {
    %0 = tt.load %x : !tt.ptr<f32>
    %1 = arith.addf %0, %0 : f32
    tt.store %x, %1 : !tt.ptr<f32>
    tt.return
  }
}
"""
TENSOR_PTX = "\twgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 \t{%f1};\n"


class Tensor:
    """As much of a tensor as a launch reads."""

    def __init__(self, *shape: int, item: int = 4, address: int | None = None, stride: tuple[int, ...] | None = None):
        self.shape = shape
        self._item = item
        self._address = id(self) if address is None else address
        self._stride = stride

    def element_size(self) -> int:
        return self._item

    @property
    def nbytes(self) -> int:
        size = self._item
        for length in self.shape:
            size *= length
        return size

    def is_contiguous(self) -> bool:
        return self._stride is None

    def stride(self) -> tuple[int, ...]:
        return self._stride or tuple(1 for _ in self.shape)

    def data_ptr(self) -> int:
        return self._address


class LazyDict:
    """The metadata of a launch, which a kernel adds to."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def get(self) -> dict[str, Any]:
        while self.extras:
            make, arguments = self.extras[0]
            self.data = {**self.data, **make(*arguments)}
            del self.extras[0]
        return self.data


class HookChain:
    def __init__(self, reversed: bool = False) -> None:
        self.calls: list[Callable[[Any], object]] = []
        self.reversed = reversed

    def add(self, hook: Callable[[Any], object]) -> None:
        self.calls.append(hook)

    def remove(self, hook: Callable[[Any], object]) -> None:
        self.calls.remove(hook)

    def __call__(self, *arguments: Any) -> None:
        for call in [*reversed(self.calls)] if self.reversed else [*self.calls]:
            call(*arguments)


class CompiledKernel:
    """A kernel of which the launcher does nothing but call the hooks."""

    launch_enter_hook: Any = None  # in Triton 3.3
    launch_exit_hook: Any = None

    def __init__(self, name: str, code: Mapping[str, str], run: Callable[[], object]) -> None:
        self.name, self.asm, self.function, self._run = name, code, id(self), run

    def run(self, metadata: Any, enter: Any, leave: Any, *arguments: Any) -> None:
        if enter is not None:
            enter(metadata)
        self._run()
        if leave is not None:
            leave(metadata)


class JITFunction:
    """A kernel: ``kernel[grid](…)`` launches it."""

    def __init__(
        self, name: str, code: Mapping[str, str], launch_metadata: Callable[..., dict[str, Any]] | None = None,
        run: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.kernel = CompiledKernel(name, code, run)
        self.launch_metadata = launch_metadata
        self.hooks = sys.modules["triton"].hooks_of  # type: ignore[attr-defined]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args: Any, grid: tuple[int, ...], warmup: bool, **kwargs: Any) -> CompiledKernel:
        bound_args = {**{f"argument_{place}": value for place, value in enumerate(args)}, **kwargs}
        kernel = self.kernel
        enter, leave = self.hooks()
        launch_metadata = None
        if enter is not None:
            launch_metadata = LazyDict({"name": kernel.name, "function": kernel.function, "stream": 0})
            if self.launch_metadata is not None:
                launch_metadata.extras.append((self.launch_metadata, (grid, SimpleNamespace(), bound_args)))
        kernel.run(launch_metadata, enter, leave, *bound_args.values())
        return kernel


def modules(version: str) -> dict[str, ModuleType]:
    """Return the modules of a fake Triton "3.3", "3.4" or "3.6"."""
    made = {name: ModuleType(name) for name in ("triton", "triton.runtime.jit", "triton.compiler.compiler")}
    made["triton.runtime.jit"].JITFunction = JITFunction  # type: ignore[attr-defined]
    kernels = type("CompiledKernel", (CompiledKernel,), {"launch_enter_hook": None, "launch_exit_hook": None})
    made["triton.compiler.compiler"].CompiledKernel = kernels  # type: ignore[attr-defined]
    owner: Any = kernels
    if version != "3.3":
        chains = version == "3.6"
        hooks = {
            "launch_enter_hook": HookChain() if chains else None,
            "launch_exit_hook": HookChain(reversed=True) if chains else None,
        }
        owner = type("runtime_knobs", (), hooks)()
        made["triton.knobs"] = ModuleType("triton.knobs")
        made["triton.knobs"].runtime = owner  # type: ignore[attr-defined]
    made["triton"].owner = owner  # type: ignore[attr-defined]
    made["triton"].hooks_of = lambda: (owner.launch_enter_hook, owner.launch_exit_hook)  # type: ignore[attr-defined]
    return made


@contextmanager
def imported(version: str = "3.6") -> Iterator[Any]:
    """Let a fake Triton be imported; yield what has its hooks as attributes."""
    hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if name.split(".")[0] == "triton"}
    made = modules(version)
    sys.modules.update(made)
    try:
        yield made["triton"].owner
    finally:
        for name in made:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
