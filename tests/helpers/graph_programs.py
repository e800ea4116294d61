"""Programs that capture and replay CUDA graphs."""

from typing import Any

from helpers.hand_traces import BF16, Program

GRAPH = "cudaGraphLaunch"


class Replay(Program):
    """A trace of replays."""

    def replay(
        self, at: float, *kernels: str, streams: tuple[int, ...] = (), label: str | None = None, **args: Any
    ) -> None:
        self.correlation += 1
        if label:
            self.add("user_annotation", label, at - 1, 8)
        self.call(GRAPH, at, 5, 1, self.correlation)
        for i, kernel in enumerate(kernels):
            stream = streams[i] if streams else 7
            self.work(kernel, at + 10 + 10 * i, 8, correlation=self.correlation, stream=stream, **args)


class Capture(Replay):
    """A trace of captures of graphs, and of replays. ``named``: launches have their kernel's name, as those of HIP."""

    def __init__(self, *, named: bool = True) -> None:
        super().__init__(1)
        self.named = named
        self.at = 0.0

    def call_of(self, name: str, kernel: str | None, tid: int = 1, **args: Any) -> None:
        self.correlation += 1
        named = {"kernel": kernel} if kernel is not None and self.named else {}
        self.add("cuda_runtime", name, self.at + 1, 1, tid, correlation=self.correlation, **named, **args)

    def begin(self, tid: int = 1) -> None:
        self.call_of("cudaStreamBeginCapture", None, tid)
        self.at += 10

    def end(self, tid: int = 1) -> None:
        self.call_of("cudaStreamEndCapture", None, tid)
        self.at += 10

    def launch(self, op: str, kernel: str, *shapes: list[int], tid: int = 1, call: str = "cudaLaunchKernel") -> None:
        self.op(op, self.at, 5, *shapes, dtype=BF16, tid=tid)
        self.call_of(call, kernel, tid)
        self.at += 10

    def label(self, name: str, at: float, dur: float) -> None:
        self.add("user_annotation", name, at, dur)


def step(capture: Capture, width: int = 256) -> Capture:
    """Capture a product, an activation, and a product again."""
    capture.begin()
    capture.launch("aten::mm", "gemm_a", [64, 128], [128, width])
    capture.launch("aten::relu", "relu_kernel", [64, width])
    capture.launch("aten::mm", "gemm_b", [64, width], [width, 128])
    capture.end()
    return capture


KERNELS = ("gemm_a", "relu_kernel", "gemm_b")


def replayed(*kernels: str, at: tuple[float, ...] = (0.0,), **how: Any) -> Replay:
    """Return a program that replays a graph of these kernels at these times."""
    program = Replay()
    for time in at:
        program.replay(time, *kernels, **how)
    return program
