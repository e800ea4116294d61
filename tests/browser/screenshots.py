"""Make pictures of the report's page: ``python tests/browser/screenshots.py FOLDER [NAME …] [--keep]``.

Each of the profiles is photographed at three widths, in light and in dark colours, each section apart where the page is
long. --keep uses the pages that are in the folder already.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # of the package helpers
import profiles
from browser import Page, driver

WIDTHS = (1000, 1280, 1600)
TALLEST = 2600  # px of a picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=[*profiles.PROFILES])
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, driver(Path(scratch)) as browser:
        for name in options.names:
            path = (options.folder / f"{name}.html").resolve()
            if not (options.keep and path.exists()):
                profiles.PROFILES[name](path)
            for dark in (False, True):
                page = Page(browser, path, dark=dark)
                page.until("document.documentElement.dataset.ready === 'true'")
                page.value("flopscope.page.mountAll()")
                for width in options.widths:
                    page.resize(width, 900)
                    page.value("new Promise((done) => setTimeout(done, 400))")
                    height = page.run("return document.documentElement.scrollHeight")
                    for part, top in enumerate(range(0, min(height, 6 * TALLEST), TALLEST)):
                        tall = min(TALLEST, height - top)
                        colours = "dark" if dark else "light"
                        page.picture(options.folder / f"{name}-{width}-{colours}-{part}.png", top=top, height=tall)
                for problem in page.problems():
                    print(f"{name}: {problem}")
            print(name, f"{path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
