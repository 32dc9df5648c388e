"""References to secrets that are kept elsewhere, as Kafka's config providers read them (KIP-297, KIP-421).

| reference | value |
|-|-|
| `${env:NAME}` | an environment variable |
| `${file:/path/to/file:key}` | a value in a properties file |
| `${dir:/path/to/directory:name}` | the content of a file in a directory, as Kubernetes mounts secrets |

A client reads them for each connection, so that a renewed secret is used without a restart.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from millstream.errors import ConfigError
from millstream.security.properties import parse_properties

_REFERENCE: Final = re.compile(r"\$\{(?P<kind>env|file|dir):(?P<place>[^}]*)\}")
_MAX_BYTES: Final = 1 << 20


def resolve(text: str) -> str:
    """Replace the references in a value; raises ConfigError, which names the place and not the secret."""
    return _REFERENCE.sub(lambda match: _KINDS[match["kind"]](match["place"]), text)


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"${{env:{name}}}: this environment variable is not set")
    return value


def _from_properties(place: str) -> str:
    path, _, key = place.rpartition(":")
    try:
        found = parse_properties(_read(path, f"${{file:{place}}}"))
    except ValueError as error:
        raise ConfigError(f"${{file:{place}}}: {error}") from None
    if key not in found:
        raise ConfigError(f"${{file:{place}}}: the file has no {key!r}")
    return found[key]


def _from_directory(place: str) -> str:
    directory, _, name = place.rpartition(":")
    if os.sep in name or name in ("", ".", ".."):
        raise ConfigError(f"${{dir:{place}}}: {name!r} is not the name of a file in this directory")
    return _read(os.path.join(directory, name), f"${{dir:{place}}}").removesuffix("\n")


def _read(path: str, reference: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{reference}: cannot read it: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{reference}: it is larger than {_MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{reference}: it is not UTF-8") from None


_KINDS: Final = {"env": _from_environment, "file": _from_properties, "dir": _from_directory}
