"""Where small files are kept that can always be made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The product's directory in the user's cache, made if it is missing.

    Raises OSError where there is none to be had: no home, or not one to write to.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        place = (Path(cache) if cache else Path.home() / ".cache") / "millstream"
    except RuntimeError as error:  # this is how pathlib says that there is no home
        raise FileNotFoundError("the user has no home directory") from error
    place.mkdir(parents=True, exist_ok=True)
    return place
