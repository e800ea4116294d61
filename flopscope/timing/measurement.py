"""What measure() gives: times with their spread, rates, shares of the peaks, and a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from flopscope import _core
from flopscope.support.columns import aligned_lines
from flopscope.support.units import MISSING, si_text
from flopscope.support.units import flop_rate_text as _flop_rate
from flopscope.support.units import long_time_text as _time
from flopscope.support.units import rate_text as _rate
from flopscope.timing.distribution import Distribution

__all__ = ["Bound", "Measurement", "Shares", "plain"]

Bound = Literal["compute", "memory", "launch", "latency", "cache", "unknown"]
TOLD_BY = {"cupti": "the device's own times by CUPTI", "event": "CUDA events", "cpu": "the monotonic clock"}


@dataclass(frozen=True)
class Shares:
    """How close a time is to what a device can do, in percent; NaN where work or peak is not known."""

    pct_peak_flops: float = math.nan
    pct_peak_bandwidth: float = math.nan
    pct_roofline: float = math.nan
    """100 x the least time that the peaks allow / the median."""

    @classmethod
    def of(cls, rating: Mapping[str, Any]) -> Shares:
        """Those of what _core.rate() gives."""
        return cls(*(rating[f.name] for f in fields(cls)))


@dataclass(frozen=True)
class Measurement(Distribution):
    """How long one call takes, and what that is worth. Times are in µs; what is not known is NaN, never 0.

    On CUDA the time of a call is what its kernels, copies and fills keep the device busy (overlaps counted once), told
    by CUPTI; or, where ``timing_source`` is "event", the time between two CUDA events around it, launched while the
    device waits, so that the host's launching is not in it. On the CPU it is the time until the call returns.

    Of the samples: n, median, mean, min, max, std (with n - 1), iqr, ci (bootstrap confidence interval of the median,
    95 %), outliers.
    """

    name: str
    """Of the function."""
    device: str
    """ "cpu" or "cuda:0"."""
    device_name: str
    timing_source: Literal["cupti", "event", "cpu"]
    cache: Literal["cold", "hot"]
    """Whether caches were emptied before each sample."""
    discarded: int
    """Samples left out since the device's clock was throttled."""
    batch: int
    """Calls in one sample, whose time is divided by it."""
    stopped: str
    """Why sampling ended: the criterion that was met."""
    flops: float
    bytes_total_moved: float
    tflops_per_s: float
    gbytes_per_s: float
    arithmetic_intensity: float
    """FLOPs per byte."""
    pct_peak_flops: float
    pct_peak_bandwidth: float
    pct_roofline: float
    """Shares of the peaks that measure() was asked for; ``shares`` has them of all that are known."""
    bound: Bound
    unit: str | None = None
    """Compute unit that does the FLOPs ("fp32", "bf16_tensor", …), most of them where several do; None: unknown."""
    roofline_time: float = math.nan
    """Least time that the peaks allow."""
    headroom: float = math.nan
    """median - roofline_time."""
    clock_mhz: float = math.nan
    """Median SM clock of the samples, by NVML."""
    other_cache: float = math.nan
    """CUDA: the median with caches hot where ``cache`` is "cold", and cold where it is "hot"."""
    launch_to_launch: float = math.nan
    """CUDA: from one call to the next in a CUDA graph of many, caches hot."""
    kernels: int | None = None
    """Kernels that one call launches; None where nobody saw them."""
    peaks_source: str = ""
    """Of the peaks behind the shares: "measured" or "datasheet"; "": there are none."""
    shares: Mapping[str, Shares] = field(default_factory=dict)
    """By source of the peaks, "measured" and "datasheet", as far as known."""
    notes: tuple[str, ...] = ()
    """What could not be had, and why: no NVML, no CUDA graph, no CUPTI."""
    roof: _core.Roof | None = field(default=None, repr=False)
    """The least times behind the shares."""
    samples: tuple[float, ...] = field(default=(), repr=False)
    """µs per call, in the order in which they were taken; discarded ones left out."""
    clocks: tuple[float, ...] = field(default=(), repr=False)
    """MHz, the SM clock of each sample; NaN where it is not known, and none on the CPU."""

    @property
    def verdict(self) -> str:
        """How long, how close to the limit, and what the limit is, in one sentence."""
        half = (self.ci[1] - self.ci[0]) / 2 / self.median if self.median else math.nan
        spread = "timed once" if math.isnan(half) else f"±{100 * half:.1f} %"
        return f"{self.name} takes {_time(self.median)} ({spread}) on {self.device}: {self._worth()}."

    @property
    def why_unknown(self) -> str:
        """Why the share of the roofline is unknown; "" where it is known."""
        if not math.isnan(self.pct_roofline):
            return ""
        if math.isnan(self.flops) and math.isnan(self.bytes_total_moved):
            return "its work is unknown; flops= and bytes= state it"
        if not self.peaks_source:
            return (
                "the peaks that were asked for are unknown" if self.shares else "there are no peaks to hold it against"
            )
        if self.flops > 0 and self.unit is None:
            return "nothing says which compute unit does the FLOPs; unit= states it"
        return f"the {self.peaks_source} peaks have none of {self.unit or 'the bandwidth'}"

    def _worth(self) -> str:
        share = f"{self.pct_roofline:.0f} % of the roofline"
        return {
            "launch": "not much more than a launch of nothing takes",
            "memory": f"{share}, bound by memory at {_rate(self.gbytes_per_s, 'GB/s')}",
            "compute": f"{share}, bound by compute at {_flop_rate(self.tflops_per_s)}",
            "latency": f"{share}: neither its bytes nor its FLOPs explain the time",
            "cache": f"{_rate(self.gbytes_per_s, 'GB/s')} is more than memory gives, so the data sat in cache",
            "unknown": self._unknown(),
        }[self.bound]

    def _unknown(self) -> str:
        if self.flops == 0 and self.bytes_total_moved == 0:
            return "it does no work that counts"
        if math.isnan(self.flops) and math.isnan(self.bytes_total_moved):
            return f"how well is unknown: {self.why_unknown}"
        rates = [_rate(self.gbytes_per_s, "GB/s"), _flop_rate(self.tflops_per_s)]
        at = ", ".join(rate for rate in rates if rate != MISSING)
        return f"{at}; how close to the limit that is, is unknown: {self.why_unknown}"

    def to_dict(self, samples: bool = False) -> dict[str, Any]:
        """All of it, and the verdict, ready for JSON: NaN is None. samples: with the single ones."""
        left_out = {"roof"} if samples else {"roof", "samples", "clocks"}
        content = {f.name: plain(getattr(self, f.name)) for f in fields(self) if f.name not in left_out}
        return {**content, "verdict": self.verdict}

    def __str__(self) -> str:
        facts = self._facts()
        lines = [f"  {line}".rstrip() for line in aligned_lines([*facts.items()], "<")]
        return "\n".join([self.verdict, *lines, *(f"  note: {note}" for note in self.notes)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """IPython's, on a terminal."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from flopscope.support.safe import markup

        rows = "".join(
            f"<tr><th>{markup(name)}</th><td>{markup(text)}</td></tr>" for name, text in self._facts().items()
        )
        notes = "".join(f"<p>{markup(note)}</p>" for note in self.notes)
        return f"<table><caption>{markup(self.verdict)}</caption>{rows}</table>{notes}"

    def _facts(self) -> dict[str, str]:
        """What is shown, in this order; what is not known is left out."""
        calls = f" of {self.batch} calls" if self.batch > 1 else ""
        facts = {
            "device": f"{self.device}, {self.device_name}",
            "time": f"median {_time(self.median)} (95 %: {_time(self.ci[0])} to {_time(self.ci[1])}), "
            f"min {_time(self.min)}, mean {_time(self.mean)}, max {_time(self.max)}",
            "spread": f"IQR {_time(self.iqr)}, standard deviation {_time(self.std)}, {self.outliers} outliers",
            "samples": f"{self.n}{calls}, caches {self.cache}, {TOLD_BY[self.timing_source]}; {self.stopped}",
        }
        other = "hot" if self.cache == "cold" else "cold"
        optional = {
            f"caches {other}": (self.other_cache, _time(self.other_cache)),
            "in a graph": (self.launch_to_launch, f"{_time(self.launch_to_launch)} from launch to launch"),
            "clock": (self.clock_mhz, f"{self.clock_mhz:.0f} MHz, {self.discarded} throttled samples left out"),
            "kernels": (math.nan if self.kernels is None else self.kernels, str(self.kernels)),
            "compute": (self.flops, f"{si_text(self.flops, 'FLOP')}, {_flop_rate(self.tflops_per_s)}"),
            "memory": (
                self.bytes_total_moved,
                f"{si_text(self.bytes_total_moved, 'B')}, {_rate(self.gbytes_per_s, 'GB/s')}",
            ),
            "intensity": (self.arithmetic_intensity, f"{self.arithmetic_intensity:.3g} FLOP/B"),
        }
        facts |= {name: text for name, (value, text) in optional.items() if not math.isnan(value)}
        for source, shares in self.shares.items():
            text = _shares(shares)
            if text:
                facts[f"of {source}"] = text
        return facts


def plain(value: Any) -> Any:
    """The same for JSON: NaN is None, tuples are lists, dataclasses dicts."""
    if isinstance(value, Shares):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shares(shares: Shares) -> str:
    what = {
        "roofline": shares.pct_roofline,
        "bandwidth": shares.pct_peak_bandwidth,
        "FLOP/s": shares.pct_peak_flops,
    }
    return ", ".join(f"{share:.3g} % of the {name}" for name, share in what.items() if not math.isnan(share))
