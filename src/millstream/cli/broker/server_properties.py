"""Reads `millstream broker --config FILE`: settings as in Kafka's server.properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.errors import ConfigError
from millstream.security.properties import parse_properties
from millstream.security.references import resolve
from millstream.terminal.outcome import UsageError

_READ_LATER: Final = (
    "password",
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
)
"""The settings whose references the broker reads itself, again when they change."""


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """The settings of a file, and the data directory that it names, if any."""

    settings: Mapping[str, str]
    data: str = ""
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What references were replaced by, with the references: it may be secret, wherever it was put."""

    def without_secrets(self, error: ConfigError) -> ConfigError:
        """Return an error that names references, and not what they refer to."""
        text = str(error)
        for value, reference in self.references.items():
            text = text.replace(repr(value), reference)
            if len(value) > 3:  # shorter ones are no secrets, and parts of many words
                text = text.replace(value, reference)
        return ConfigError(text, setting=error.setting)


def read_server_properties(path: str) -> ServerProperties:
    """Read the file; ``log.dirs``, or else ``log.dir``, is the data directory. Raises UsageError."""
    try:
        found = parse_properties(Path(path).read_text("utf-8"))
        references = {}
        for name, value in found.items():
            if not name.endswith(_READ_LATER) and (resolved := resolve(value)) != value:
                found[name] = resolved
                references.update({resolved: value} if resolved else {})
    except OSError as error:
        raise UsageError(f"--config {path}: cannot read it: {error.strerror}") from None
    except (ValueError, ConfigError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    directory = found.pop("log.dir", "")
    directory = found.pop("log.dirs", directory)
    if "," in directory:
        raise UsageError(f"--config {path}: log.dirs names several directories: this broker has one")
    return ServerProperties(found, directory.strip(), references)
