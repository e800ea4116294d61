"""The package's version and folder."""

from __future__ import annotations

import os

VERSION = "0.6.0"
FOLDER = os.path.dirname(os.path.dirname(__file__))
