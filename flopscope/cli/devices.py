"""The command ``flopscope devices``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from flopscope import _core
from flopscope.support.device import DEVICE_FIELDS, devices, measure_peaks
from flopscope.support.documents import Document, rows
from flopscope.support.files import write_json

DEVICES = Document("devices", "the devices of this machine", (rows("devices", DEVICE_FIELDS),))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``devices`` to its parser."""
    parser.add_argument("--measure", action="store_true", help="measure the peaks and keep the best of all runs")
    parser.add_argument("--reset", action="store_true", help="with --measure: discard the stored peaks")
    parser.add_argument("--json", metavar="FILE", help="write the properties and peaks of the devices")
    parser.set_defaults(run=_devices)


def _devices(options: argparse.Namespace) -> None:
    if options.reset and not options.measure:
        raise ValueError("--reset replaces the stored peaks by measured ones: add --measure")
    found = devices()
    for device in found:
        if options.measure:
            measure_peaks(device, force=True, reset=options.reset)
        print(device.report())
    _explain_no_cuda(found)
    if options.json:
        write_json(options.json, DEVICES.of({"devices": [device.content() for device in found]}))


def _explain_no_cuda(found: Sequence[Any]) -> None:
    if all(device.kind == "cpu" for device in found):
        try:
            _core.cuda_device_count()
        except RuntimeError as why:
            print(f"no CUDA device: {why}")
