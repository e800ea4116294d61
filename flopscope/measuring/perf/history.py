"""Numbered runs: ``STORAGE/MACHINE/0001_NAME.json``, written by --perf-save, read by --perf-compare and the commands.

STORAGE is the folder of --perf-storage, else ``perf`` in the folder of the environment variable FLOPSCOPE_DATA_DIR,
else ``.flopscope/perf`` in pytest's rootdir. MACHINE names the processor and the GPUs. The number and the name of a
run are those of its file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from flopscope.measuring.perf import store
from flopscope.support.device import devices
from flopscope.support.files import require_file
from flopscope.support.lock import locked
from flopscope.support.safe import printable
from flopscope.support.suggest import did_you_mean

LAST = "last"  # a reference to the newest run
LONGEST_NAME = 100  # characters; file systems allow names of 255 bytes
SHOWN = 8  # runs named in a message
_NAME = re.compile(r"\w[\w.+-]*")
_FILE = re.compile(r"(\d{4,9})_(.+)\.json")


class Stored(NamedTuple):
    """The place of a stored run."""

    machine: str
    number: int
    name: str
    file: Path

    @property
    def label(self) -> str:
        """The name of the file without its suffix: "0003_base"."""
        return self.file.stem


# The folders ----------------------------------------------------------------------------------------------------------


def storage_of(chosen: str | None, here: Path, root: Path) -> Path:
    """Return the folder of all runs.

    chosen: the value of --perf-storage, relative to the folder ``here``. root: the folder that has, or will have,
    ``.flopscope``.
    """
    if chosen:
        return here / Path(chosen).expanduser()
    data = os.environ.get("FLOPSCOPE_DATA_DIR")
    return Path(data) / "perf" if data else root / ".flopscope" / "perf"


def folder_above(here: Path) -> Path:
    """Return ``here``, or the closest folder above it, that has stored runs; ``here`` if there is none."""
    return next((folder for folder in (here, *here.parents) if (folder / ".flopscope" / "perf").is_dir()), here)


def machine_name() -> str:
    """Return the name of this machine's folder: its processor and its GPUs, as "AMD-EPYC_NVIDIA-H200"."""
    names = dict.fromkeys(re.sub(r"[^\w.+-]+", "-", device.name).strip("-.") for device in devices())
    return "_".join(filter(None, names))[:LONGEST_NAME] or "unknown"


def runs_in(storage: Path) -> tuple[list[Stored], list[str]]:
    """Return the runs of all machines by machine and number, and the JSON files that are not named as a run is."""
    runs, others = [], []
    for file in sorted(storage.glob("*/*.json")):
        match = _FILE.fullmatch(file.name)
        if match:
            runs.append(Stored(file.parent.name, int(match[1]), match[2], file))
        else:
            others.append(f"{printable(file.name)}: the name is not NUMBER_NAME.json")
    return sorted(runs), others


# Writing --------------------------------------------------------------------------------------------------------------


def require_name(name: str) -> None:
    """Raise ValueError if no run can be stored under this name, or if it is a *.json that is not a regular file."""
    if name.endswith(".json"):
        return require_file(Path(name))
    if name and not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name of a run: use letters, digits and _ . + -, or a file *.json (to run tests, "
            "name them before --perf-save)"
        )
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name {name[:20]!r}… of a run has {len(name)} characters; at most {LONGEST_NAME} fit")
    if name.isdigit() or name == LAST:
        raise ValueError(f"{name!r} is not a valid name of a run: numbers and {LAST!r} refer to runs by their order")


def require_storage(storage: Path) -> None:
    """Raise ValueError if the folder of all runs, or one above it, is a file."""
    for folder in (storage, *storage.parents):
        if folder.exists():
            if not folder.is_dir():
                raise ValueError(f"runs cannot be stored in {storage}: {folder} is not a folder")
            return


def save(content: Mapping[str, Any], name: str, storage: Path) -> list[str]:
    """Store a run under the next number of this machine. Return lines that name the file.

    name: "" for the commit, or the date outside of git; a *.json is written as it is, without a number.
    """
    if name.endswith(".json"):
        return [*store.write(Path(name), content), f"stored: {name}"]
    folder = storage / machine_name()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with locked(handle):  # by another session, which would take the same number
            numbers = (_FILE.fullmatch(file.name) for file in folder.iterdir())
            number = max((int(match[1]) for match in numbers if match), default=0) + 1
            file = folder / f"{number:04d}_{name or _usual_name(content)}.json"
            notes = store.write(file, content)
    finally:
        os.close(handle)
    return [*notes, f"stored: {file}"]


def _usual_name(content: Mapping[str, Any]) -> str:
    commit = content.get("commit")
    if commit:
        return str(commit["id"])[:8] + ("-dirty" if commit["dirty"] else "")
    return datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")


# References -----------------------------------------------------------------------------------------------------------


def find(reference: str, storage: Path) -> Path:
    """Return the file of a run.

    reference: "last", a number ("3", "0003"), a name (its newest run), number and name ("0003_base"), any of these
    after "MACHINE/", or a file *.json. Runs of this machine come before those of others.

    Raises FileNotFoundError, with the stored runs, if there is no such run, and ValueError if several machines have
    one.
    """
    if reference.endswith(".json"):
        return Path(reference)
    runs, _ = runs_in(storage)
    machine, _, wanted = reference.rpartition("/")
    found = [run for run in runs if machine in ("", run.machine) and _matches(run, wanted)]
    newest = {run.machine: run for run in found}  # the last one of each machine
    if len(newest) > 1:
        here = machine_name()
        if here not in newest:
            names = ", ".join(f"{name}/{wanted}" for name in newest)
            raise ValueError(f"{reference!r} is a run of several machines: choose one of {names}")
        newest = {here: newest[here]}
    if newest:
        return next(iter(newest.values())).file
    old = _without_number(wanted, storage)
    if old is not None and not machine:
        return old
    raise FileNotFoundError(_no_run(reference, wanted, runs, storage))


def _matches(run: Stored, wanted: str) -> bool:
    if wanted.isdecimal():
        return run.number == int(wanted[:12])
    return wanted in (LAST, run.name, run.label)


def _without_number(name: str, storage: Path) -> Path | None:
    """Return the file of a run that flopscope stored before runs had numbers; None if there is none."""
    if not _NAME.fullmatch(name):
        return None
    from platformdirs import user_data_dir

    folders = (storage, Path(user_data_dir("flopscope")) / "perf")
    return next((file for file in (folder / f"{name}.json" for folder in folders) if file.is_file()), None)


def _no_run(reference: str, wanted: str, runs: Sequence[Stored], storage: Path) -> str:
    if not runs:
        stores = "pytest --perf-save stores one" + (", --perf-storage names another folder" if storage.is_dir() else "")
        return f"no run is stored as {reference!r} (stored runs: none) in {storage}; {stores}"
    hint = did_you_mean(wanted, [name for run in runs for name in (run.name, run.label)])
    return f"no run is stored as {printable(reference)!r}{hint} (stored runs: {_labels(runs)}) in {storage}"


def _labels(runs: Iterable[Stored]) -> str:
    labels = [printable(run.label) for run in runs]
    return ", ".join(["…", *labels[-SHOWN:]] if len(labels) > SHOWN else labels)
