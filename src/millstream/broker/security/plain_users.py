"""The users of PLAIN on one listener, read again when what their setting refers to has changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from millstream.errors import ConfigError
from millstream.security.jaas import parse_jaas
from millstream.security.references import resolve

log = logging.getLogger("millstream.broker")

_PREFIX: Final = "user_"


class PlainUsers:
    """Passwords by user, from ``sasl.jaas.config`` of a listener."""

    def __init__(self, listener: str, config: str) -> None:
        """Read them. Raises ConfigError."""
        self._where = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        if not config:
            raise ConfigError(f"PLAIN has no users: list them in {self._where}")
        self._config = config
        self._text = resolve(config)
        self._users = self._parsed(self._text)
        self._trouble = ""

    def current(self) -> Mapping[str, str]:
        """Return the users; those from before, if the new ones cannot be read."""
        try:
            text = resolve(self._config)
            if text != self._text:
                self._users, self._text = self._parsed(text), text
                log.info("%s: the users of PLAIN were read again", self._where)
            self._trouble = ""
        except ConfigError as error:
            if str(error) != self._trouble:  # once, as strangers cause this by each login
                self._trouble = str(error)
                log.error("the users of PLAIN stay as they were: %s", error)
        return self._users

    def _parsed(self, text: str) -> dict[str, str]:
        try:
            module = parse_jaas(text)
        except ValueError as error:
            raise ConfigError(f"{self._where} {error}") from None
        users = {
            name.removeprefix(_PREFIX): password
            for name, password in module.options.items()
            if name.startswith(_PREFIX)
        }
        if not users or not all(users.values()):
            raise ConfigError(f'{self._where} must list users with passwords, as user_NAME="PASSWORD"')
        return users
