"""The user's cache directory, for small files that can always be recreated."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Return millstream's cache directory, and create it if it is missing.

    Raises OSError when there is no home directory, or it cannot be written.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        place = (Path(cache) if cache else Path.home() / ".cache") / "millstream"
    except RuntimeError as error:  # raised by pathlib when there is no home
        raise FileNotFoundError("the user has no home directory") from error
    place.mkdir(parents=True, exist_ok=True)
    return place
