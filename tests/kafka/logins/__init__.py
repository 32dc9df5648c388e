"""Logins by address: a client of millstream that is given a secured address gets the settings to log in.

Tests name a broker by its address alone. With this the same tests run on a secured listener, in this process
and in the processes that they start: their Python imports ``sitecustomize`` from here at its start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from millstream.config.client import ClientConfig
from millstream.security.properties import parse_properties

HERE: Final = Path(__file__).parent
_DIRECTORY: Final = "MILLSTREAM_TEST_LOGINS"
_ADDRESS: Final = ("bootstrap_servers", "bootstrap.servers")
_PROTOCOL: Final = ("security_protocol", "security.protocol")


def settings_of(address: object) -> dict[str, str]:
    """The settings of clients for an address, by Kafka's names; none where there is no login."""
    path = properties_of(address)
    return {} if path is None else parse_properties(path.read_text())


def properties_of(address: object) -> Path | None:
    """The file with these settings, as commands take it."""
    directory = os.environ.get(_DIRECTORY)
    if directory is None or not isinstance(address, str):
        return None
    path = Path(directory, f"{address}.properties")
    return path if path.exists() else None


@contextmanager
def log_in(address: str, settings: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Have all clients of this address log in, to the end of the block."""
    own = {name: value for name, value in settings.items() if name not in _ADDRESS}
    lines = [f"{name}={value}\n" for name, value in own.items()]
    (directory / f"{address}.properties").write_text("".join(lines))
    added = {_DIRECTORY: str(directory), "PYTHONPATH": _python_path()}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _python_path() -> str:
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, [str(HERE), str(HERE.parents[2]), given]))


def install() -> None:
    """Have every client's settings complete themselves, unless they say how to connect."""
    read: Any = ClientConfig.from_settings.__func__  # type: ignore[attr-defined]

    def from_settings(cls: type[ClientConfig], settings: Any = None, keywords: Any = None) -> ClientConfig:
        given = {**settings, **(keywords or {})} if isinstance(settings, Mapping) else dict(keywords or {})
        if not any(name in given for name in _PROTOCOL):
            address = next((given[name] for name in _ADDRESS if name in given), None)
            if login := settings_of(address):
                settings = {**(settings or {}), **login}
        config: ClientConfig = read(cls, settings, keywords)
        return config

    ClientConfig.from_settings = classmethod(from_settings)  # type: ignore[assignment]
