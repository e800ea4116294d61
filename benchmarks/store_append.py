"""Cost of the store per event: appending, beginning and ending an enclosing event, looking up names and signatures."""

from __future__ import annotations

from harness import HERE, Report, arguments, run_c, spread

CASES = {
    "append": "append one event",
    "array": "write one event to an array",
    "begin+end": "begin and end one event",
    "name": "look up a name",
    "signature": "look up a signature",
}
NS, BYTES = 60, 1e9


def main() -> None:
    options = arguments(__doc__ or "")
    lines = run_c(HERE / "store_append.c", ["csrc/base/*.c", "csrc/store/*.c"])
    report = Report("store_append", ["what", "ns each", "low", "high"], options.out)
    samples = {case: [float(line["ns"]) for line in lines if line["case"] == case] for case in CASES}
    medians = {}
    for case, what in CASES.items():
        peer = {"array": samples["array"]} if case == "append" else {}
        if case != "array":
            report.keep(case, {"flopscope": samples[case]} | peer, "ns", "flopscope", each_of=1_000_000)
        summary = spread(samples[case])
        medians[case] = summary.median
        report.row(what, f"{summary.median:.1f}", f"{summary.low:.1f}", f"{summary.high:.1f}")
    memory = next(line for line in lines if line["case"] == "memory")
    size, events = float(memory["bytes"]), int(memory["events"])
    report.keep("memory", {"flopscope": [size]}, "bytes", events=events)
    report.note(f"{events:,} events take {size / 1e6:.0f} MB: {size / events:.1f} bytes each.")
    report.target("one append", medians["append"], NS, "ns")
    report.target(f"memory of {events:,} events", size / 1e9, BYTES / 1e9, "GB")
    report.finish()


if __name__ == "__main__":
    main()
