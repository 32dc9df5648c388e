"""Optional dependencies: packages that only ``pip install millstream[extra]`` installs."""

from __future__ import annotations

import importlib
from types import ModuleType

from millstream.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import a package that ``millstream[extra]`` installs; raise MissingExtraError when it is not installed.

    An installed package that fails to import raises its own error: installing it again would not help.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise MissingExtraError(module, extra) from error
