"""Memory-bound ops compared with torch's: every unary and binary op, sum, softmax, layer_norm, copies, cast, fill.

CPU: 4096 x 4096 float32, wall time, both with flopscope's number of threads. CUDA: 8192 x 8192 float32 and bfloat16,
CUDA events around single launches with an emptied L2 cache. Rates are compulsory bytes (each input read once, each
output written once) over time; "% copy" is relative to torch's device-to-device copy_, sampled in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

from harness import CudaTimer, Report, Sampler, Spread, arguments, interleave, optional, ratio, spread, stopwatch

import flopscope as fs

SIDE = {"cpu": 4096, "cuda": 8192}
DTYPES = {"cpu": ["float32"], "cuda": ["float32", "bfloat16"]}
ROUNDS = {"cpu": 15, "cuda": 31}
SECONDS = 0.5  # of one case
# |result - reference| <= tolerance x (|reference| + 1), the reference in float64 from the same inputs.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1.6e-2}
NEED_POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "reciprocal", "pow", "sum"}
SHARE_OF_COPY = 0.90
# The signatures of unary and binary ops.
OPERANDS = {"(x, *, out=None)": 1, "(a, b, *, out=None)": 2}
NOT_POINTWISE = {"copy", "transpose_copy"}

Call = Callable[[], Any]


@dataclass
class Case:
    """One op in both libraries. Results of ``ours`` and ``theirs`` are compared with ``reference``, in float64."""

    name: str
    form: str  # "plain", or "out=" if the result is written to an existing tensor
    ours: Call
    theirs: Call
    reference: Call
    nbytes: int
    pointwise: bool = False


class Data:
    """Random torch tensors, and flopscope tensors that share their memory."""

    def __init__(self, torch: Any, side: int, dtype: str, device: str) -> None:
        self.torch, self.side, self.dtype = torch, side, dtype
        kind = getattr(torch, dtype)
        generator = torch.Generator(device=device).manual_seed(0)
        make = partial(torch.randn, side, side, generator=generator, device=device)
        self.x, self.y = make().to(kind), make().to(kind)
        # Away from 0, where reciprocal and pow overflow.
        self.positive = make().abs_().add_(0.25).to(kind)
        self.divisor = make().abs_().add_(0.25).to(kind)
        self.weight, self.bias = self.x[0].clone(), self.y[0].clone()
        self.out = torch.empty_like(self.x)
        self.cast_to = "bfloat16" if dtype == "float32" else "float32"
        self.cast_out = torch.empty_like(self.x, dtype=getattr(torch, self.cast_to))
        self.nbytes = self.x.nbytes

    def __getattr__(self, name: str) -> Any:
        """Return the attribute without the prefix ``fs_`` as a flopscope tensor."""
        if not name.startswith("fs_"):
            raise AttributeError(name)
        tensor = fs.from_dlpack(getattr(self, name.removeprefix("fs_")))
        setattr(self, name, tensor)
        return tensor


def torch_op(torch: Any, name: str) -> Any:
    """Return torch's function of that name, or None."""
    return getattr(torch, name, None) or getattr(torch.nn.functional, name, None)


def pointwise_cases(data: Data) -> Iterator[Case]:
    torch, out = data.torch, data.out
    for name in fs._core.ops:
        ours, theirs = getattr(fs, name), torch_op(torch, name)
        count = OPERANDS.get(ours.__text_signature__)
        if theirs is None or count is None or name in NOT_POINTWISE:
            continue
        inputs = ("positive" if name in NEED_POSITIVE else "x", "divisor" if name == "div" else "y")[:count]
        mine = [getattr(data, f"fs_{which}") for which in inputs]
        peers = [getattr(data, which) for which in inputs]
        into = getattr(getattr(torch.ops.aten, name), "Tensor_Tensor_out" if name == "pow" else "out")
        reference = cache(partial(lambda op, args: op(*[arg.double() for arg in args]), theirs, peers))
        nbytes = (len(inputs) + 1) * data.nbytes
        yield Case(name, "plain", partial(ours, *mine), partial(theirs, *peers), reference, nbytes, True)
        yield Case(
            name, "out=", partial(ours, *mine, out=data.fs_out), partial(into, *peers, out=out), reference, nbytes, True
        )


def other_cases(data: Data) -> Iterator[Case]:
    torch, x, out, nbytes = data.torch, data.x, data.out, data.nbytes
    functional = torch.nn.functional
    yield Case(
        "sum",
        "plain",
        partial(fs.sum, data.fs_positive),
        partial(torch.sum, data.positive),
        lambda: data.positive.double().sum(),
        nbytes,
    )
    yield Case(
        "softmax",
        "plain",
        partial(fs.softmax, data.fs_x),
        partial(torch.softmax, x, -1),
        lambda: torch.softmax(x.double(), -1),
        2 * nbytes,
    )
    yield Case(
        "softmax",
        "out=",
        partial(fs.softmax, data.fs_x, out=data.fs_out),
        partial(torch.ops.aten._softmax.out, x, -1, False, out=out),
        lambda: torch.softmax(x.double(), -1),
        2 * nbytes,
    )
    yield Case(
        "layer_norm",
        "plain",
        partial(fs.layer_norm, data.fs_x, data.fs_weight, data.fs_bias),
        partial(functional.layer_norm, x, (data.side,), data.weight, data.bias),
        lambda: functional.layer_norm(x.double(), (data.side,), data.weight.double(), data.bias.double()),
        2 * nbytes,
    )
    yield Case(
        "cast",
        "plain",
        partial(fs.cast, data.fs_x, data.cast_to),
        partial(x.to, data.cast_out.dtype),
        x.double,
        nbytes + data.cast_out.nbytes,
    )
    yield Case(
        "cast",
        "out=",
        partial(fs.cast, data.fs_x, data.cast_to, out=data.fs_cast_out),
        partial(data.cast_out.copy_, x),
        x.double,
        nbytes + data.cast_out.nbytes,
    )
    yield Case(
        "fill_",
        "out=",
        partial(fs.fill_, data.fs_out, 0.5),
        partial(out.fill_, 0.5),
        lambda: torch.full_like(x, 0.5).double(),
        nbytes,
    )
    yield Case("copy", "plain", partial(fs.copy, data.fs_x), x.clone, x.double, 2 * nbytes)
    yield Case(
        "copy", "out=", partial(fs.copy, data.fs_x, out=data.fs_out), partial(out.copy_, x), x.double, 2 * nbytes
    )
    yield Case(
        "transpose_copy",
        "plain",
        partial(fs.transpose_copy, data.fs_x),
        lambda: x.t().contiguous(),
        lambda: x.t().double(),
        2 * nbytes,
    )
    yield Case(
        "transpose_copy",
        "out=",
        partial(fs.transpose_copy, data.fs_x, out=data.fs_out),
        lambda: out.copy_(x.t()),
        lambda: x.t().double(),
        2 * nbytes,
    )


def error_of(case: Case, data: Data) -> str | None:
    """Return a description of a wrong result, or None if both results are right."""
    reference = case.reference()
    coarse = "bfloat16" if "bfloat16" in (data.dtype, data.cast_to if case.name == "cast" else "") else data.dtype
    for who, call in (("flopscope", case.ours), ("torch", case.theirs)):
        result = call()
        values = data.torch.from_dlpack(result) if who == "flopscope" else result
        off = ((values.double() - reference).abs_() / (reference.abs() + 1)).max().item()
        if not off <= TOLERANCE[coarse]:  # NaN is wrong too
            return f"{case.name} {data.dtype} {case.form}: {who}'s result is off by {off:.2g} of |reference| + 1"
    return None


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    device = options.device
    columns = ["op", "dtype", "form", "us", "+-%", "torch us", "GB/s", "% copy", "x torch", "low", "high"]
    report = Report("pointwise", columns, options.out, device)
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: there is no peer to compare with and no reference for the results.")
        report.finish()
        return
    timed: Callable[[Call], Sampler] = stopwatch
    if device == "cuda":
        timed = CudaTimer(torch).sampler
    torch.set_num_threads(fs.num_threads())
    wrong, shares, slower, compared = [], [], [], 0
    with torch.inference_mode():
        for dtype in DTYPES[device]:
            data = Data(torch, SIDE[device], dtype, device)
            for case in chain(pointwise_cases(data), other_cases(data)):
                try:
                    problem = error_of(case, data)
                    if problem is None:
                        share, relative = measure(report, case, data, timed, device)
                except (RuntimeError, MemoryError, TypeError, ValueError) as failure:
                    problem = f"{case.name} {dtype} {case.form}: {failure}"
                if problem is not None:
                    wrong.append(problem)
                    continue
                compared += 1
                if case.pointwise:
                    shares.append((share, f"{case.name} {dtype} {case.form}"))
                if relative.low > 1:
                    slower.append(f"{case.name} {dtype} {case.form} {relative.median:.2f}")
    for problem in wrong:
        report.note(f"not timed: {problem}")
    report.note(f"slower than torch (lower quartile of the ratio above 1): {', '.join(slower) or 'none'}")
    report.target("ops whose result is wrong or that failed", len(wrong), 0, "ops")
    report.target(f"ops slower than torch, of {compared}", len(slower), 0, "ops")
    if device == "cuda" and shares:
        below = [f"{name} {share:.0%}" for share, name in sorted(shares) if share < SHARE_OF_COPY]
        report.note(f"below {SHARE_OF_COPY:.0%} of the copy: {', '.join(below) or 'none'}")
        report.target(
            f"unary and binary ops below {SHARE_OF_COPY:.0%} of the copy's bandwidth, of {len(shares)}",
            len(below),
            0,
            "ops",
        )
    report.finish()


def measure(
    report: Report, case: Case, data: Data, timed: Callable[[Call], Sampler], device: str
) -> tuple[float, Spread]:
    """Add a row. Return the share of the copy's bandwidth and the time relative to torch's."""
    samples = interleave(
        {
            "flopscope": timed(case.ours),
            "torch": timed(case.theirs),
            "torch copy_": timed(partial(data.out.copy_, data.x)),
        },
        ROUNDS[device],
        warmup=1,
        seconds=SECONDS,
    )
    report.keep(
        case.name, samples, ours="flopscope", dtype=data.dtype, form=case.form, shape=[data.side] * 2, bytes=case.nbytes
    )
    ours, theirs = spread(samples["flopscope"]), spread(samples["torch"])
    relative = ratio(samples["flopscope"], samples["torch"])
    share = case.nbytes / (2 * data.nbytes) / ratio(samples["flopscope"], samples["torch copy_"]).median
    report.row(
        case.name,
        data.dtype,
        case.form,
        f"{ours.median * 1e6:.1f}",
        f"{ours.percent:.1f}",
        f"{theirs.median * 1e6:.1f}",
        f"{case.nbytes / ours.median / 1e9:.1f}",
        f"{share * 100:.1f}",
        f"{relative.median:.3f}",
        f"{relative.low:.3f}",
        f"{relative.high:.3f}",
    )
    return share, relative


if __name__ == "__main__":
    main()
