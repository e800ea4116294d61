"""Test modules import each other by name; measured peaks go to a folder of the test run."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("FLOPSCOPE_CACHE_DIR", tempfile.mkdtemp(prefix="flopscope-test-cache-"))
