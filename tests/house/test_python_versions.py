"""Pythons other than the one that runs the tests: the binding compiles for each whose headers are on this machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

import numpy
import pytest
from helpers.core_build import COMPILER, HAS_COMPILER, ROOT, SHARED_FLAGS, c_sources, is_binding

# Where distributions, pyenv and uv put the headers.
PLACES = [
    "/usr/include/python3.*",
    "/usr/local/include/python3.*",
    "~/.pyenv/versions/*/include/python3.*",
    "~/.local/share/uv/python/*/include/python3.*",
]


def found() -> Iterator[tuple[str, Path]]:
    """Yield the folder of headers of each version from 3.10 on that is here, once."""
    folders = [Path(path) for place in PLACES for path in glob(os.path.expanduser(place))]
    versions = {folder.name: folder for folder in folders if (folder / "Python.h").exists()}
    supported = [name for name in versions if re.fullmatch(r"python3\.[1-9]\dt?", name)]
    yield from ((name, versions[name]) for name in sorted(supported))


@pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler")
@pytest.mark.parametrize("headers", [pytest.param(folder, id=name) for name, folder in found()])
def test_the_binding_compiles_for_every_python_here(headers: Path) -> None:
    command = [*COMPILER, *SHARED_FLAGS, "-Werror", "-fsyntax-only", f"-I{headers}", f"-I{numpy.get_include()}"]

    def compile_one(source: Path) -> str:
        return subprocess.run([*command, str(source)], capture_output=True, text=True, cwd=ROOT).stderr

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        messages = list(pool.map(compile_one, filter(is_binding, c_sources())))
    assert not any(messages), "".join(messages)
