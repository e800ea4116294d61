"""python -m flopscope: the command line."""

import sys

from flopscope.cli.program import main
from flopscope.support import own_path

own_path.restore()
sys.exit(main())
