"""How a client logs in: the ``sasl.*`` settings, and the credentials that they mean at this moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.security.jaas import LoginModule, parse_jaas
from millstream.security.references import resolve

MSK_IAM: Final = "AWS_MSK_IAM"
PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*PASSWORD_MECHANISMS, "OAUTHBEARER", MSK_IAM)

TokenCallback = Callable[[str], Any]
"""Called with ``sasl.oauthbearer.config``; returns a token, or ``(token, expiry)`` with the time at which it
expires, in seconds since 1970, or ``(token, expiry, principal, extensions)`` as in confluent-kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """The values of the ``sasl.*`` settings; an empty string is a value that was not given."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    jaas_config: str = field(default="", repr=False)
    oauth_callback: TokenCallback | None = None
    oauth_config: str = field(default="", repr=False)
    token_endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: str = ""
    https_ca_location: str = ""
    https_ca_pem: str = ""

    def login(self) -> Login:
        """Read the credentials as they are now; raises ConfigError where one is missing or unreadable."""
        module = self._module()
        options = {} if module is None else module.options
        return Login(
            mechanism=self.mechanism,
            username=resolve(self.username or options.get("username", "")),
            password=resolve(self.password or options.get("password", "")),
            client_id=resolve(self.client_id or options.get("clientId", "")),
            client_secret=resolve(self.client_secret or options.get("clientSecret", "")),
            scope=resolve(self.scope or options.get("scope", "")),
            extensions={**_jaas_extensions(options), **_extensions(self.extensions)},
            options={name: resolve(value) for name, value in options.items()},
        )

    def check(self) -> None:
        """Raise ConfigError for what is missing or contradictory, without reading anything from elsewhere."""
        if "${" in self.jaas_config:
            return
        module = self._module()
        options = {} if module is None else module.options
        if self.mechanism in PASSWORD_MECHANISMS:
            for name, value in (("username", self.username), ("password", self.password)):
                if not value and not options.get(name):
                    raise ConfigError(
                        f"sasl_{name} is missing: sasl_mechanism {self.mechanism} needs it",
                        setting=f"sasl_{name}",
                    )
        if self.mechanism == "OAUTHBEARER" and self.oauth_callback is None and not self.token_endpoint_url:
            raise ConfigError(
                "sasl_mechanism OAUTHBEARER needs a token: set oauth_cb to a callable that returns one, or "
                "sasl_oauthbearer_token_endpoint_url with sasl_oauthbearer_client_id and "
                "sasl_oauthbearer_client_secret",
                setting="sasl_oauthbearer_token_endpoint_url",
            )

    def _module(self) -> LoginModule | None:
        if not self.jaas_config:
            return None
        try:
            text = self.jaas_config if "=" in self.jaas_config.split("${")[0] else resolve(self.jaas_config)
            module = parse_jaas(text)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"sasl_jaas_config {error}", setting="sasl_jaas_config") from None
        if self.mechanism not in module.mechanisms:
            raise ConfigError(
                f"sasl_jaas_config has a {module.name}, which is for sasl_mechanism "
                f"{' or '.join(sorted(module.mechanisms))}, not {self.mechanism}",
                setting="sasl_jaas_config",
            )
        return module


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The credentials of one authentication. ``options`` are those of the login module."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def _jaas_extensions(options: Mapping[str, str]) -> dict[str, str]:
    prefix = "extension_"
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _extensions(text: str) -> dict[str, str]:
    """Read librdkafka's form: ``logicalCluster=lkc-1,identityPoolId=pool-2``."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigError("sasl_oauthbearer_extensions must be NAME=VALUE,NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}
