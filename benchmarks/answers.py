"""Accounting and advice of a recorded training trace: their time compared with that of key_averages().

The trace has ten steps of 30 000 kernels, with ops, shapes, API calls and flows, and a wait for the device every 3000
kernels: about one million events, written here in Kineto's format. Peaks are those of the datasheet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import Report, arguments, interleave, ratio, spread, timed
from load_trace import HEAD

import flopscope as fs
from flopscope.results.results import forget

STEPS, LAYERS, ROUNDS = 10, 7_500, 5
KERNELS_PER_LAYER, LAYERS_PER_WAIT = 4, 750
LAUNCH, RUN = 6_000, 700  # ns: duration of an API call; between kernels
OP = (
    '{"ph":"X","cat":"cpu_op","name":"%s","pid":403,"tid":403,"ts":%s,"dur":%s,"args":{"External id":%d,'
    '"Input type":%s,"Input Dims":%s,"Concrete Inputs":%s}}'
)
CALL = (
    '{"ph":"X","cat":"cuda_runtime","name":"%s","pid":403,"tid":403,"ts":%s,"dur":%s,'
    '"args":{"External id":%d,"cbid":211,"correlation":%d}}'
)
KERNEL = (
    '{"ph":"s","id":%d,"pid":403,"tid":403,"ts":%s,"cat":"ac2g","name":"ac2g"},\n'
    '{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%s,"dur":%s,"args":{"External id":%d,"device":0,'
    '"context":1,"stream":7,"correlation":%d,"registers per thread":32,"shared memory":0,"grid":[%d,1,1],'
    '"block":[128,1,1]}},\n'
    '{"ph":"f","id":%d,"pid":0,"tid":7,"ts":%s,"cat":"ac2g","name":"ac2g","bp":"e"}'
)
STEP = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":403,"tid":403,"ts":%s,"dur":%s,"args":{}}'


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["answer", "seconds", "low", "high", "best", "over key_averages()"]
    report = Report("answers", columns, options.out, options.device)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = Path(folder) / "trace.json"
        write(path)
        trace = fs.load_trace(path)
    check(trace)
    samples = interleave({name: timed(call) for name, call in cases(trace).items()}, ROUNDS, warmup=1)
    report.keep("answers", samples, ours=("accounting", "advice"), events=len(trace))
    base = samples["key_averages()"]
    for name, values in samples.items():
        report.row(name, *spread(values).cells(4), f"{min(values):.4f}", f"{ratio(values, base).median:.2f}")
    both = [a + b for a, b in zip(samples["accounting()"], samples["advice() after accounting()"], strict=True)]
    report.target("accounting() and advice() over key_averages()", ratio(both, base).median, 1, "x")
    report.note(f"{len(trace):,} events, {STEPS} steps")
    report.finish()


def cases(trace: fs.Trace) -> dict[str, Callable[[], object]]:
    """Return the calls to time. A call that is not cold repeats what a program would do next."""

    def cold(call: Callable[[], object]) -> Callable[[], object]:
        def forgetful() -> object:
            forget(trace)
            return call()

        return forgetful

    return {
        "key_averages()": trace.key_averages,
        "key_averages() by shape": lambda: trace.key_averages(group_by_input_shape=True),
        "accounting()": cold(trace.accounting),
        "advice() after accounting()": trace.advice,
        "advice()": cold(trace.advice),
    }


def check(trace: fs.Trace) -> None:
    """Check the counts, and that the accounting adds up to the steps."""
    counts = {row.key: row.count for row in trace.key_averages(peaks="none")}
    assert counts["aten::addmm"] == counts["gemm_128x128"] == STEPS * LAYERS
    frame = trace.accounting()
    parts = frame.drop(columns=["device", "step", "total", "mfu", "mbu"]).sum(axis=1)
    assert (abs(parts - frame.total) <= 1e-9 * frame.total).all()
    assert len(frame) == STEPS + 1


def write(path: Path) -> None:
    with path.open("w") as file:
        file.write(HEAD)
        for i, text in enumerate(events()):
            file.write(",\n" * (i > 0) + text)
        file.write('\n  ],\n  "traceName": "trace.json"\n}\n')


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def events() -> Iterator[str]:
    """Yield the events. Of a step's first part the device waits for the host; then the host waits for the device."""
    host = 4_359_896_695_937_531
    device, link = host, 0
    for step in range(STEPS):
        begin = host
        for layer in range(LAYERS):
            width = 256 + 64 * (layer % 24)
            for name, kernel, arguments_, inner in ops(width):
                link += 1
                duration = (4_000 if layer % LAYERS_PER_WAIT < LAYERS_PER_WAIT // 2 else 12_000) + 37 * (link % 50)
                if inner:
                    yield OP % ("aten::linear", us(host), us(LAUNCH + 3_000), 2 * link, *arguments_)
                    host += 500
                yield OP % (name, us(host), us(LAUNCH + 1_500), 2 * link + 1, *arguments_)
                yield CALL % ("cudaLaunchKernel", us(host + 500), us(LAUNCH), 2 * link + 1, link)
                device = max(device + RUN, host + LAUNCH)
                blocks = 8 * (1 + width % 7)
                place = (link, us(host + 500), kernel, us(device), us(duration), 2 * link + 1, link, blocks)
                yield KERNEL % (*place, link, us(device))
                device += duration
                host += LAUNCH + 3_000
            if layer % LAYERS_PER_WAIT == LAYERS_PER_WAIT - 1:
                link += 1
                end = max(device, host) + 2_000
                nothing = ("[]", "[]", "[]")
                yield OP % ("aten::item", us(host), us(end - host), 2 * link, *nothing)
                yield OP % ("aten::_local_scalar_dense", us(host + 200), us(end - host - 400), 2 * link + 1, *nothing)
                yield CALL % ("cudaStreamSynchronize", us(host + 400), us(end - host - 800), 2 * link + 1, link)
                host = end + 1_000
        yield STEP % (step, us(begin), us(host - begin))
        host += 10_000


def ops(width: int) -> list[tuple[str, str, tuple[str, str, str], bool]]:
    """Return the ops of a layer: name, kernel, arguments, and whether another op calls it."""
    matrix, weight, row = f"[512, {width}]", f"[{width}, {width}]", f"[{width}]"
    return [
        (
            "aten::addmm",
            "gemm_128x128",
            ('["float","float","float","Scalar","Scalar"]', f"[{row},{matrix},{weight},[],[]]", '["","","","1","1"]'),
            True,
        ),
        ("aten::gelu", "void gelu_kernel<float>", ('["float",""]', f"[{matrix},[]]", '["","none"]'), False),
        (
            "aten::add",
            "void add_kernel<float>",
            ('["float","float","Scalar"]', f"[{matrix},{matrix},[]]", '["","","1"]'),
            False,
        ),
        (
            "aten::_softmax",
            "softmax_warp_forward<float>",
            ('["float","Scalar","Scalar"]', f"[{matrix},[],[]]", '["","-1","False"]'),
            False,
        ),
    ]


if __name__ == "__main__":
    main()
