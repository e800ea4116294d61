"""Recordings of programs on an H200 (tests/data/programs/README.md), each process's copy unpacked from one archive."""

import gzip
import shutil
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from helpers import DATA

_unpacked = TemporaryDirectory(prefix="flopscope-recordings-")  # removed at exit
RECORDINGS = Path(_unpacked.name)
FAULTS, HELD_OUT, WELL_MADE = (RECORDINGS / name for name in ("programs", "held_out", "well_made"))

for folder in (FAULTS, HELD_OUT, WELL_MADE):
    shutil.copytree(DATA / folder.name, folder)
with tarfile.open(DATA / "recordings.tar.xz") as archive:
    for member in archive:
        file = archive.extractfile(member)
        assert file is not None
        (RECORDINGS / f"{member.name}.gz").write_bytes(gzip.compress(file.read(), 1))
