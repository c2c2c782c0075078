"""The command ``python -m foldwire``."""

import sys

from ._command import main

sys.exit(main())
