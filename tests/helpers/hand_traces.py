"""Chrome traces of torch.profiler, put together by hand: events, texts of them, and programs. Times are in µs."""

import json
import warnings
from pathlib import Path
from typing import Any

import flopscope as fs

Json = dict[str, Any]
H200 = {
    "name": "NVIDIA H200",
    **{"totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132, "warpSize": 32},
    **{"maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536},
    **{"regsPerBlock": 65536, "sharedMemPerBlock": 49152, "sharedMemPerMultiprocessor": 233472},
}
PEAKS = {"bf16_tensor": 989.4e12, "tf32_tensor": 494.7e12, "fp32": 66.9e12}  # FLOP/s of the datasheet
BANDWIDTH = 4.8e12  # bytes/s
BLOCKS = 132 * 8  # of a grid that fills the device evenly
BF16, HALF, FLOAT, DOUBLE, INT8 = "c10::BFloat16", "c10::Half", "float", "double", "signed char"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
CATEGORIES = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
CALLS = {"gpu_memcpy": "cudaMemcpyAsync", "gpu_memset": "cudaMemsetAsync", "kernel": "cudaLaunchKernel"}


def event(cat: str, name: str, ts: float, dur: float, tid: Any = 1, pid: Any = 1, **args: Any) -> Json:
    """Return an event; underscores in names of arguments stand for spaces, and arguments of None are left out."""
    named = {key.replace("_", " "): value for key, value in args.items() if value is not None}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": named}


def op(name: str, ts: float, dur: float, tid: Any = 1, **args: Any) -> Json:
    return event("cpu_op", name, ts, dur, tid, **args)


def call(name: str, ts: float, dur: float, tid: Any = 1, **args: Any) -> Json:
    return event("cuda_runtime", name, ts, dur, tid, **args)


def kernel(name: str, ts: float, dur: float, stream: int = 7, device: int = 0, **args: Any) -> Json:
    return event("kernel", name, ts, dur, stream, device, **{"device": device, "stream": stream, **args})


def memory(ts: float, size: int, tid: int = 1, device_type: int = 1, **args: Any) -> Json:
    """Return an allocation, or the return of memory if ``size`` is negative."""
    args = {"Bytes": size, "Device Type": device_type, "Device Id": 0, **args}
    return {**event("cpu_instant_event", "[memory]", ts, 0, tid, **args), "ph": "i", "s": "t"}


def text_of(*events: Json, **head: Any) -> bytes:
    return json.dumps({**head, "traceEvents": events}).encode()


def quietly(source: Any, **options: Any) -> fs.Trace:
    """Load a trace without the warnings about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fs.load_trace(source, **options)


def load(*events: Json, **head: Any) -> fs.Trace:
    """Return the trace of these events, without the warnings about it."""
    return quietly(text_of(*events, **head))


def rewritten(results: Any, folder: Path) -> fs.Trace:
    """Return the trace that is read from the one that is written of these results."""
    results.export_chrome_trace(folder / "again.json")
    return fs.load_trace(folder / "again.json")


class Program:
    """A program whose events are added one by one. ``devices``: how many H200 it uses; ``step``: the length of one."""

    def __init__(self, devices: int = 1, step: float = 0.0) -> None:
        self.head: Json = {"record_shapes": 1} if devices else {}
        if devices:
            self.head["deviceProperties"] = [{"id": i, **H200} for i in range(devices)]
        self.events: list[Json] = []
        self.correlation = 100
        if step:
            self.step(0, 0, step)

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, pid: int = 1, **args: Any) -> None:
        self.events.append(event(cat, name, ts, dur, tid, pid, **args))

    def step(self, number: int, ts: float, dur: float, tid: int = 1) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", ts, dur, tid)

    def op(
        self, name: str, ts: float, dur: float, *shapes: list[int], dtype: Any = FLOAT, tid: int = 1, **args: Any
    ) -> None:
        """Add an op; ``dtype`` is that of all arguments, or a list; ``strides`` and ``values`` are lists, too."""
        for short, member in (("strides", "Input_Strides"), ("values", "Concrete_Inputs")):
            if short in args:
                args[member] = args.pop(short)
        if shapes:
            types = list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * len(shapes)
            args |= {"Input_Dims": [list(shape) for shape in shapes], "Input_type": types}
        self.add("cpu_op", name, ts, dur, tid, **args)

    def call(self, name: str, ts: float, dur: float, tid: int = 1, correlation: int | None = None) -> None:
        self.add("cuda_runtime", name, ts, dur, tid, correlation=correlation)

    def work(
        self, name: str, ts: float, dur: float, *, device: int = 0, stream: int = 7, blocks: int = BLOCKS, **args: Any
    ) -> None:
        """Add a kernel, copy or fill."""
        cat = next((cat for prefix, cat in CATEGORIES.items() if name.startswith(prefix)), "kernel")
        grid = {"grid": [blocks, 1, 1], "block": [256, 1, 1]} if cat == "kernel" else {}
        self.add(cat, name, ts, dur, stream, device, **{"device": device, "stream": stream, **grid, **args})

    def run(
        self, name: str, launched: float, begin: float, dur: float, *shapes: list[int], kernel: str = "kernel",
        dtype: Any = FLOAT, tid: int = 1, strides: Any = None, values: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        """Add an op that lasts 2 µs from ``launched``, its launch, which returns with it, and its kernel."""
        self.correlation += 1
        cat = next((cat for prefix, cat in CATEGORIES.items() if kernel.startswith(prefix)), "kernel")
        self.op(name, launched, 2, *shapes, dtype=dtype, tid=tid, strides=strides, values=values)
        self.call(CALLS[cat], launched + 1, 1, tid, self.correlation)
        self.work(kernel, begin, dur, correlation=self.correlation, **more)

    def count(self, name: str, ts: float, value: float, key: str = "value", device: int = 0, **more: Any) -> None:
        """Add a sample of a counter."""
        self.events.append({"ph": "C", "name": name, "pid": device, "ts": ts, "args": {key: value, **more}})

    def sample(self, ts: float, dur: float, *stack: str, tid: int = 1) -> None:
        """Add a sample: a line of the program, and lines that it called."""
        frames = self.head.setdefault("stackFrames", {})
        for name in stack:
            above = {"parent": len(frames)} if name != stack[0] else {"category": "program"}
            frames[str(len(frames) + 1)] = {"name": name, **above}
        self.events.append({"ph": "P", "pid": 1, "tid": tid, "ts": ts, "dur": dur, "sf": len(frames)})

    def text(self) -> bytes:
        return text_of(*self.events, **self.head)

    def load(self) -> fs.Trace:
        return load(*self.events, **self.head)


def ran(name: str, launched: float, begin: float, dur: float, *shapes: list[int], **more: Any) -> Program:
    """Return a program of one op, as Program.run adds it."""
    program = Program()
    program.run(name, launched, begin, dur, *shapes, **more)
    return program


def in_a_row(*ops: tuple[Any, ...], host: float | None = None, program: Program | None = None) -> Program:
    """Return a program of two steps that launches ops ahead of their kernels, which run one after another.

    Each of ``ops`` is (name, duration, shapes, more arguments of Program.run). The host needs little time.
    """
    program = program or Program()
    busy, length = host or 2 * len(ops) + 4, 10 + sum(op[1] for op in ops)
    for number in range(2):
        at, begin = number * busy, number * length + 10
        program.step(number, at, busy)
        for place, (name, duration, shapes, *more) in enumerate(ops):
            arguments = {"kernel": f"kernel_{name}", **(more[0] if more else {})}
            program.run(name, at + 1 + 2 * place, begin, duration, *shapes, **arguments)
            begin += duration
    return program
