"""python -m flopscope: the command line."""

import sys

from flopscope.cli.program import main

sys.exit(main())
