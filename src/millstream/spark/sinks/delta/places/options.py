"""Storage options: how an object store is reached, spelled once for delta-rs and for obstore.

Both are built on the same Rust library and know the same options. delta-rs takes all of them in one mapping,
obstore wants those of the HTTP client and of retries apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.suggestions import did_you_mean

PREFIXES: Final = {"s3": "aws_", "gs": "google_", "abfss": "azure_"}
"""What the options of a store begin with, by the scheme of its URLs."""
_ALIASES: Final = {
    "aws_endpoint": "aws_endpoint_url",
    "aws_endpoint_url_s3": "aws_endpoint_url",
    "aws_default_region": "aws_region",
    "aws_token": "aws_session_token",
}
_CLIENT: Final = ("allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout")
_RETRIES: Final = {"max_retries": "2", "retry_timeout": "5s"}
_DEFAULTS: Final = {"connect_timeout": "3s", "timeout": "30s", **_RETRIES}
"""A store that is away is noticed within seconds: the load retries, not only the request."""
_ENVIRONMENT: Final = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "AWS_ALLOW_HTTP",
    ),
    "gs": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    "abfss": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY"),
}
"""Variables that the driver reads: tasks may run where they are not set."""
_UNSAFE: Final = "aws_s3_allow_unsafe_rename"
_CONDITIONAL: Final = "aws_conditional_put"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of one store, which may hold secrets: they are in no repr."""

    scheme: str
    _values: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def of(cls, scheme: str, given: Mapping[str, object]) -> StoreOptions:
        """The options that were given, and beneath them those of the environment. Raises ConfigError."""
        found = {**_from_environment(scheme), **_canonical(scheme, given)}
        if scheme == "s3":
            _require_safe(found)
            found[_CONDITIONAL] = "etag"
        _require_http_allowed(scheme, found)
        options = cls(scheme, tuple(sorted({**_DEFAULTS, **found}.items())))
        options.check()
        return options

    @property
    def for_delta(self) -> dict[str, str]:
        """As delta-rs takes them."""
        return dict(self._values)

    def check(self) -> None:
        """Raise ConfigError for options that the store does not know."""
        from obstore.exceptions import BaseError

        try:
            self.open(f"{self.scheme}://name@account.dfs.core.windows.net/" if self.scheme == "abfss" else "")
        except (BaseError, ValueError, TypeError) as error:
            reason = str(error).split("\n", maxsplit=1)[0]
            raise ConfigError(f"the storage options of {self.scheme}:// are wrong: {reason}") from None

    def open(self, url: str) -> Any:
        """An obstore store at ``url``. Connects to nothing."""
        from obstore.store import from_url

        values = dict(self._values)
        retries: dict[str, Any] = {
            "max_retries": int(values.pop("max_retries")),
            "retry_timeout": timedelta(seconds=_seconds(values.pop("retry_timeout"))),
        }
        client: dict[str, Any] = {name: values.pop(name) for name in _CLIENT if name in values}
        for name in ("allow_http", "allow_invalid_certificates"):
            if name in client:
                client[name] = client[name].lower() in ("true", "1")
        config: Any = values
        return from_url(
            url or f"{self.scheme}://name", config=config, client_options=client or None, retry_config=retries
        )


def _from_environment(scheme: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _ENVIRONMENT[scheme]:
        if value := os.environ.get(name):
            for option, one in _canonical(scheme, {name: value}).items():
                found.setdefault(option, one)
    return found


def _canonical(scheme: str, given: Mapping[str, object]) -> dict[str, str]:
    """One spelling for each option: lower case, with the store's prefix."""
    prefix = PREFIXES[scheme]
    found: dict[str, str] = {}
    for name, value in given.items():
        plain = name.lower().removeprefix(prefix)
        option = plain if plain in _CLIENT or plain in _RETRIES else f"{prefix}{plain}"
        option = _ALIASES.get(option, option)
        if option in found:
            raise ConfigError(f"the storage option {option} is given twice")
        found[option] = ("false", "true")[value] if isinstance(value, bool) else str(value)
    return found


def _require_safe(found: dict[str, str]) -> None:
    """Two drivers must not both create one version of the log."""
    if found.pop(_UNSAFE, "false").lower() != "false" or found.get(_CONDITIONAL, "etag") != "etag":
        raise ConfigError(
            f"a load needs conditional puts, or two drivers could overwrite each other's commits: leave out "
            f"{_UNSAFE} and {_CONDITIONAL}"
        )


def _require_http_allowed(scheme: str, found: Mapping[str, str]) -> None:
    endpoint = found.get(f"{PREFIXES[scheme]}endpoint_url", "")
    if endpoint.startswith("http://") and found.get("allow_http", "").lower() not in ("true", "1"):
        raise ConfigError(
            f"the endpoint {endpoint} is not encrypted: use https://, or add the storage option "
            "allow_http=true"
        )


def _seconds(text: str) -> float:
    number = text.strip().removesuffix("s")
    try:
        return float(number)
    except ValueError:
        raise ConfigError(f"retry_timeout is in seconds, as 5s, not {text!r}") from None


def scheme_of(typed: str) -> str:
    """The scheme of an object store's URL; raises ConfigError for one that is not supported."""
    scheme = typed.partition("://")[0].lower()
    scheme = {"s3a": "s3"}.get(scheme, scheme)
    if scheme == "hdfs":
        raise ConfigError(f"{typed}: HDFS is not supported yet. Mount it, and load into the directory")
    if scheme not in PREFIXES:
        hint = did_you_mean(scheme, [*PREFIXES], show="{}://".format)
        known = ", ".join(f"{one}://" for one in PREFIXES)
        raise ConfigError(f"{typed}: {hint or 'no such kind of store is known.'} Use a directory, {known}")
    return scheme
