"""The command ``python -m foldwire launch -n 4 program.py``."""

import sys

from ._launch import main

sys.exit(main())
