"""The result of measure(): times with their spread, rates, shares of the peaks, and a one-sentence verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from flopscope import _core
from flopscope.measuring.counting import Counts, counts_text, traffic_sentence
from flopscope.measuring.distribution import Distribution
from flopscope.measuring.why import WHY, Explained, Launch
from flopscope.support.documents import Document, Field, by_name, columns, plain, record
from flopscope.support.units import MISSING, si_text
from flopscope.support.units import flop_rate_text as _flop_rate
from flopscope.support.units import long_time_text as _time
from flopscope.support.units import rate_text as _rate

Bound = Literal["compute", "memory", "launch", "latency", "inefficient", "cache", "unknown", "impossible"]
IMPOSSIBLE = "impossible: it cannot have done this work"
SOURCES = {"cupti": "device times from CUPTI", "event": "CUDA events", "cpu": "the monotonic clock"}


@dataclass(frozen=True)
class Shares:
    """Shares of the peaks that a time reaches, in percent; NaN where the work or the peak is unknown."""

    pct_peak_flops: float = math.nan
    pct_peak_bandwidth: float = math.nan
    pct_roofline: float = math.nan
    """100 x the shortest time that the peaks allow / the median."""


_ROOF = "the work, the unit that does it or the peaks are unknown"
_NO_GPU = "measured on GPUs only, and unavailable on some"
_SHARES = columns("pct_peak_flops pct_peak_bandwidth pct_roofline", why=_ROOF)
MEASUREMENT = Document(
    "measurement",
    "the time of a call, its rates and its shares of the peaks",
    (
        *columns("name$ device$ device_name$ verdict$", verdict="the time, the share and the bound in a sentence"),
        *columns("n#", n="samples"),
        *columns("median mean min max std iqr", "µs", "unknown for one sample"),
        Field("ci", "numbers", "µs", "95 % confidence interval of the median", "unknown for one sample"),
        *columns("outliers# discarded# batch# stopped$", batch="calls of a sample; times are of a call"),
        *columns("timing_source$ cache$"),
        *columns("flops bytes_total_moved bytes_read bytes_written", why="the work of the call is unknown"),
        *columns("tflops_per_s gbytes_per_s arithmetic_intensity:FLOP/byte", why="the work of the call is unknown"),
        *_SHARES,
        *columns("bound$ unit$", why="nothing computes, or the unit is unknown"),
        *columns("roofline_time headroom", "µs", _ROOF),
        *columns("clock_mhz other_cache:µs launch_to_launch:µs kernels# joules watts", why=_NO_GPU),
        *columns("peaks_source$", peaks_source='"" if the peaks are unknown'),
        by_name("shares", record("share", _SHARES), "the shares by source of the peaks"),
        by_name("counters", Field("counter"), "of a call, by the names and in the units that docs/counters.md lists"),
        *WHY,
        *columns("notes@"),
        Field("samples", "numbers", "µs", "in the order of measurement", optional=True),
        Field("clocks", "numbers", "MHz", "of the samples", "the clock of the sample is unknown", optional=True),
    ),
)


@dataclass(frozen=True)
class Measurement(Distribution, Explained):
    """The time of one call, its rates and its shares of the peaks. Times are in µs; unknown values are NaN, never 0.

    On CUDA the time of a call is how long its kernels, copies and fills keep the device busy (overlaps counted once),
    recorded by CUPTI. Where ``timing_source`` is "event" it is the time between two CUDA events around the call, which
    is launched while the device waits, so that the time does not include the launches on the host. On the CPU it is
    the time until the call returns.

    Statistics of the samples: n, median, mean, min, max, std (with n - 1), iqr, ci (bootstrap confidence interval of
    the median, 95 %), outliers.
    """

    name: str
    device: str
    """ "cpu" or "cuda:0"."""
    device_name: str
    timing_source: Literal["cupti", "event", "cpu"]
    cache: Literal["cold", "hot"]
    """Whether the caches were flushed before each sample ("cold") or not ("hot")."""
    discarded: int
    """Samples discarded because the device's clock was throttled."""
    batch: int
    """Calls per sample; the times are per call."""
    stopped: str
    """The criterion that ended sampling."""
    flops: float
    bytes_total_moved: float
    tflops_per_s: float
    gbytes_per_s: float
    arithmetic_intensity: float
    """FLOPs per byte."""
    pct_peak_flops: float
    pct_peak_bandwidth: float
    pct_roofline: float
    """Share of the peaks that were requested from measure(); ``shares`` has those of all known peaks."""
    bound: Bound
    """What bounds the time; "impossible": it is shorter than the device can do the work in."""
    unit: str | None = None
    """Compute unit that executes most of the FLOPs ("fp32", "bf16_tensor", …); None: unknown."""
    roofline_time: float = math.nan
    """Shortest time that the peaks allow."""
    headroom: float = math.nan
    """median - roofline_time."""
    clock_mhz: float = math.nan
    """Median SM clock of the samples, read through NVML."""
    other_cache: float = math.nan
    """CUDA: the median with hot caches if ``cache`` is "cold", and with cold caches if it is "hot"."""
    launch_to_launch: float = math.nan
    """CUDA: time from one call to the next in a CUDA graph of many calls, with hot caches."""
    kernels: int | None = None
    """Kernels launched by one call; None where they were not recorded."""
    peaks_source: str = ""
    """Source of the peaks behind the shares: "measured" or "datasheet"; "": the peaks are unknown."""
    shares: Mapping[str, Shares] = field(default_factory=dict)
    """Shares by source of the known peaks, "measured" and "datasheet"."""
    bytes_read: float = math.nan
    bytes_written: float = math.nan
    """The parts of ``bytes_total_moved``; NaN where only the sum is known."""
    counters: Counts = field(default_factory=lambda: Counts({}))
    """What the hardware counted for a call, in passes apart from the times, if ``measure(counters=True)``; else empty.
    Its documentation lists the names."""
    joules: float = math.nan
    """Energy of the GPU per call in J: ``watts`` for the median time; NaN where the samples took less than 0.1 s."""
    watts: float = math.nan
    """Mean power of the GPU while the samples were taken, in W, by the energy that its driver counts."""
    launch: Launch | None = None
    """CUDA: registers, shared memory and occupancy of the longest kernel; None where they are unknown."""
    notes: tuple[str, ...] = ()
    """What was unavailable, and why: NVML, CUPTI, a CUDA graph."""
    roof: _core.Roof | None = field(default=None, repr=False)
    """Roofline times behind the shares."""
    samples: tuple[float, ...] = field(default=(), repr=False)
    """µs per call in the order of measurement, without discarded samples."""
    clocks: tuple[float, ...] = field(default=(), repr=False)
    """SM clock of each sample in MHz; NaN where it is unknown. Empty on the CPU."""

    @property
    def verdict(self) -> str:
        """The time, the share of the roofline, and the bound, in one sentence."""
        half = (self.ci[1] - self.ci[0]) / 2 / self.median if self.median else math.nan
        spread = "timed once" if math.isnan(half) else f"±{100 * half:.1f} %"
        return f"{self.name} takes {_time(self.median)} ({spread}) on {self.device}: {self._rating()}."

    @property
    def traffic_ratio(self) -> float:
        """Bytes that the hardware moved, over ``bytes_total_moved``; NaN without counters."""
        return self.counters.bytes_moved / self.bytes_total_moved if self.bytes_total_moved else math.nan

    @property
    def traffic(self) -> str:
        """How the counted traffic compares with the bytes that the call must move; "" if either is unknown."""
        return traffic_sentence(self.counters, self.bytes_total_moved, self.bytes_read, self.bytes_written)

    @property
    def why_unknown(self) -> str:
        """The reason why the share of the roofline is unknown; "" where it is known."""
        if not math.isnan(self.pct_roofline):
            return ""
        if math.isnan(self.flops) and math.isnan(self.bytes_total_moved):
            return "its work is unknown; pass flops= and bytes="
        if not self.peaks_source:
            return "the requested peaks are unknown" if self.shares else "the peaks of the device are unknown"
        if self.flops > 0 and self.unit is None:
            return "the compute unit that executes the FLOPs is unknown; pass unit="
        return f"the {self.peaks_source} peaks do not include {self.unit or 'the bandwidth'}"

    def _rating(self) -> str:
        share = f"{self.pct_roofline:.0f} % of the roofline"
        return {
            "launch": "close to the time of an empty launch",
            "memory": f"{share}, bound by memory at {_rate(self.gbytes_per_s, 'GB/s')}",
            "compute": f"{share}, bound by compute at {_flop_rate(self.tflops_per_s)}",
            "latency": f"{share}: neither its bytes nor its FLOPs explain the time",
            "inefficient": f"{share}: neither its bytes nor its FLOPs explain the time, which is no short launch's",
            "cache": f"{_rate(self.gbytes_per_s, 'GB/s')} exceeds the memory bandwidth, so the data was in cache",
            "unknown": self._unknown(),
            "impossible": f"{IMPOSSIBLE} (it may cache its result, or the stated work is wrong)",
        }[self.bound]

    def _unknown(self) -> str:
        if self.flops == 0 and self.bytes_total_moved == 0:
            return "it does no FLOPs and moves no bytes"
        if self.pct_roofline > 100:
            return f"{self.pct_roofline:.0f} % of the roofline, which no cache explains: its bytes are wrong"
        if math.isnan(self.flops) and math.isnan(self.bytes_total_moved):
            return f"share of the roofline unknown: {self.why_unknown}"
        rates = [_rate(self.gbytes_per_s, "GB/s"), _flop_rate(self.tflops_per_s)]
        known = ", ".join(rate for rate in rates if rate != MISSING)
        return f"{known}; share of the roofline unknown: {self.why_unknown}"

    def to_dict(self, samples: bool = False) -> dict[str, Any]:
        """Return all fields but ``roof``, and the verdict, as a document for JSON: see docs/json.md.

        samples: include ``samples`` and ``clocks``.
        """
        return MEASUREMENT.of(self._content(samples))

    def record(self) -> dict[str, Any]:
        """Return the same fields by their own names, with the samples: None where unknown. Runs of tests store it."""
        return plain(self._content(True))  # type: ignore[no-any-return]

    def _content(self, samples: bool) -> dict[str, Any]:
        left_out = {"roof"} if samples else {"roof", "samples", "clocks"}
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        content["shares"] = {source: asdict(shares) for source, shares in self.shares.items()}
        return content | self.explained() | {"verdict": self.verdict}

    _said = verdict

    def facts(self) -> dict[str, str]:
        calls = f" of {self.batch} calls" if self.batch > 1 else ""
        facts = {
            "device": f"{self.device}, {self.device_name}",
            "time": f"median {_time(self.median)} (95 %: {_time(self.ci[0])} to {_time(self.ci[1])}), "
            f"min {_time(self.min)}, mean {_time(self.mean)}, max {_time(self.max)}",
            "spread": f"IQR {_time(self.iqr)}, standard deviation {_time(self.std)}, {self.outliers} outliers",
            "samples": f"{self.n}{calls}, caches {self.cache}, {SOURCES[self.timing_source]}; {self.stopped}",
        }
        impossible = self.bound == "impossible"
        rates = (_flop_rate(self.tflops_per_s), _rate(self.gbytes_per_s, "GB/s"))
        flop_rate, rate = ("" if impossible else f", {one}" for one in rates)
        other, moved = "hot" if self.cache == "cold" else "cold", self.bytes_total_moved
        optional = {
            f"caches {other}": (self.other_cache, _time(self.other_cache)),
            "in a graph": (self.launch_to_launch, f"{_time(self.launch_to_launch)} from launch to launch"),
            "clock": (self.clock_mhz, f"{self.clock_mhz:.0f} MHz, {self.discarded} throttled samples discarded"),
            "kernels": (math.nan if self.kernels is None else self.kernels, str(self.kernels)),
            "launch": (self.launch.registers if self.launch else math.nan, str(self.launch)),
            "compute": (self.flops, f"{si_text(self.flops, 'FLOP')}{flop_rate}"),
            "memory": (moved, f"{si_text(moved, 'B')}{rate}"),
            "energy": (self.joules, f"{1e3 * self.joules:.3g} mJ per call at {self.watts:.0f} W"),
            "intensity": (self.arithmetic_intensity, f"{self.arithmetic_intensity:.3g} FLOP/B"),
        }
        facts |= {name: text for name, (value, text) in optional.items() if not math.isnan(value)}
        if self.counters:
            facts["counted"] = counts_text(self.counters)
        facts |= ({"traffic": self.traffic} if self.traffic else {}) | self.why()
        for source, shares in () if impossible else self.shares.items():
            what = {"roofline": "pct_roofline", "bandwidth": "pct_peak_bandwidth", "FLOP/s": "pct_peak_flops"}
            found = {name: getattr(shares, share) for name, share in what.items()}
            known = [f"{share:.3g} % of the {name}" for name, share in found.items() if not math.isnan(share)]
            facts |= {f"of {source}": ", ".join(known)} if known else {}
        return facts
