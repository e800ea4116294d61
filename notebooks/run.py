"""Run the notebooks of this folder and store their outputs: ``python notebooks/run.py [NAME …]``.

Requires nbclient, ipykernel and matplotlib (with its Pillow). The notebooks run with this interpreter, whatever kernels
are installed.
"""

from __future__ import annotations

import base64
import io
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
from PIL import Image

import flopscope

HERE = Path(__file__).parent
CELL_SECONDS = 300  # time limit per cell
COLOURS = 11  # of a picture


def names() -> list[str]:
    """Return the names of the notebooks in this folder, without suffix."""
    return sorted(path.stem for path in HERE.glob("*.ipynb"))


def run(name: str) -> nbformat.NotebookNode:
    """Run a notebook from top to bottom in this folder and return it with its outputs; its file is unchanged.

    Raise nbclient.exceptions.CellExecutionError if a cell fails, CellTimeoutError if a cell exceeds the time limit.
    """
    notebook = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
    own_kernel = KernelSpecManager(kernel_dirs=[])  # no folders: only this interpreter's kernel
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
    """Overwrite the notebook's file. Pictures get few colours, a fifth of the size; an output keeps one form."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            # What shows pictures and HTML shows no plain text beside them.
            if len(data) > 1:
                data.pop("text/plain", None)
            if "image/png" in data:
                data["image/png"] = _few_colours(data["image/png"])
    nbformat.write(notebook, HERE / f"{name}.ipynb", indent=0)


def _few_colours(png: str) -> str:
    """Return a PNG in base64 with a palette in place of a colour for each pixel."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    file = io.BytesIO()
    method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE  # which keep the colours of small marks
    picture.quantize(COLOURS, method=method, dither=dither).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii") + "\n"


def _environment() -> dict[str, str]:
    """Return an environment in which the kernel imports this flopscope and its pytest loads the plugin."""
    package_root = str(Path(flopscope.__file__).parent.parent)
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment["KINETO_LOG_LEVEL"] = "99"  # torch's profiler reports progress on stderr
    for variable in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"):  # set if pytest runs this
        environment.pop(variable, None)
    if not any(entry.value == "pytest_flopscope" for entry in entry_points(group="pytest11")):
        environment["PYTEST_PLUGINS"] = "pytest_flopscope"
    return environment


if __name__ == "__main__":
    for name in sys.argv[1:] or names():
        begin = time.perf_counter()
        keep(name, run(name))
        print(f"{name}: {time.perf_counter() - begin:.0f} s, {(HERE / f'{name}.ipynb').stat().st_size / 1e3:.0f} kB")
