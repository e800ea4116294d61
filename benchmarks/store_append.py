"""Cost of appending an event to the store, beside writing it to an array, and the memory of ten million events."""

from __future__ import annotations

from harness import HERE, Report, arguments, run_c, spread

CASES = {"append": "append one event", "array": "write one event to an array"}
NS, BYTES = 60, 1e9


def main() -> None:
    options = arguments(__doc__ or "")
    lines = run_c(HERE / "store_append.c", ["csrc/base/*.c", "csrc/store/*.c"])
    report = Report("store_append", ["what", "ns each", "low", "high"], options.out)
    samples = {case: [float(line["ns"]) for line in lines if line["case"] == case] for case in CASES}
    report.keep("append", samples, "ns", "append", each_of=1_000_000)
    for case, what in CASES.items():
        report.row(what, *spread(samples[case]).cells(1))
    memory = next(line for line in lines if line["case"] == "memory")
    size, events = float(memory["bytes"]), int(memory["events"])
    report.note(f"{events:,} events take {size / 1e6:.0f} MB: {size / events:.1f} bytes each.")
    report.target("one append", spread(samples["append"]).median, NS, "ns")
    report.target(f"memory of {events:,} events", size / 1e9, BYTES / 1e9, "GB")
    report.finish()


if __name__ == "__main__":
    main()
