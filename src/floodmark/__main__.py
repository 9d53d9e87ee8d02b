"""`python -m floodmark`: the command line, for spark-submit and machines without scripts."""

from __future__ import annotations

import sys

from floodmark.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
