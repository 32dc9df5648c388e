"""Which releases of Spark the source runs on."""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import MisuseError

OLDEST: Final = (4, 2)
"""Older ones give a Python stream no limits and no ``availableNow``, and tasks other types of Arrow."""


def is_supported(version: str) -> bool:
    """Whether this release of Spark is new enough; also for ``4.2.0.dev1``."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST


def check_version(version: str) -> None:
    """Raise MisuseError if this release of Spark is too old."""
    if not is_supported(version):
        oldest = ".".join(map(str, OLDEST))
        raise MisuseError(
            f"millstream needs Spark {oldest} or newer, and this is Spark {version}: "
            f"run pip install 'pyspark>={oldest}'"
        )
