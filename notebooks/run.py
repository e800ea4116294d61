"""Run the notebooks of this folder and keep their outputs: ``python notebooks/run.py [NAME …]``.

Needs nbclient and ipykernel. The kernel is this interpreter, whatever kernels are installed elsewhere.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import nbformat
from ipykernel.kernelspec import KERNEL_NAME
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

import flopscope

HERE = Path(__file__).parent
CELL_SECONDS = 300  # a cell that takes longer hangs


def names() -> list[str]:
    """The notebooks here, without their suffix."""
    return sorted(path.stem for path in HERE.glob("*.ipynb"))


def run(name: str) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run from top to bottom, in this folder; the file stays as it is.

    Raises nbclient.exceptions.CellExecutionError for a cell that fails, CellTimeoutError for one that hangs.
    """
    notebook = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
    own_kernel = KernelSpecManager(kernel_dirs=[])  # of no folder: what is left is this interpreter's
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_name=KERNEL_NAME, kernel_spec_manager=own_kernel),
        timeout=CELL_SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(HERE)}},
    )
    client.execute(env=_environment())
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def keep(name: str, notebook: nbformat.NotebookNode) -> None:
    """Write the notebook over its file."""
    nbformat.write(notebook, HERE / f"{name}.ipynb")


def _environment() -> dict[str, str]:
    """The kernel imports this flopscope too, and its pytest finds the plugin where that is not installed."""
    found = str(Path(flopscope.__file__).parent.parent)
    paths = [found, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment["KINETO_LOG_LEVEL"] = "99"  # torch's profiler tells its progress on stderr
    for mark in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"):  # of a pytest that runs this
        environment.pop(mark, None)
    if not any(entry.value == "pytest_flopscope" for entry in entry_points(group="pytest11")):
        environment["PYTEST_PLUGINS"] = "pytest_flopscope"
    return environment


if __name__ == "__main__":
    for name in sys.argv[1:] or names():
        begin = time.perf_counter()
        keep(name, run(name))
        print(f"{name}: {time.perf_counter() - begin:.0f} s, {(HERE / f'{name}.ipynb').stat().st_size / 1e3:.0f} kB")
