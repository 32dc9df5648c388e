"""``python -m millstream`` is the command line."""

import sys

from millstream.cli import main

if __name__ == "__main__":
    sys.exit(main())
