"""The settings of a schema registry, with Confluent's names as other names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from millstream.config.security import Verbatim, read_host_check
from millstream.errors import ConfigError
from millstream.security.tls import TlsSettings
from millstream.serde import Schema
from millstream.settings import Choice, Flag, PositiveInt, Settings, Text, read_names, read_text, setting

REGISTRY: Final = "registry"
"""The name of the serializer and deserializer that look schemas up."""

STRATEGIES: Final = {
    "TopicNameStrategy": "topic",
    "RecordNameStrategy": "record",
    "TopicRecordNameStrategy": "topic-record",
}
"""How a subject is named, by the names of Confluent's Java classes."""


def _read_urls(value: object) -> tuple[str, ...]:
    return tuple(_read_url(read_text(each)) for each in read_names(value))


def _read_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("must be an address such as http://localhost:8081") from None
    if parts.password or parts.username:  # not in a ValueError, whose message would show the address
        raise ConfigError(
            "the address holds a login: move it to registry_basic_auth_user_info, as user:password"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address such as http://localhost:8081, or several separated by commas")
    return url.rstrip("/")


def _read_strategy(value: object) -> str:
    word = read_text(value)
    return Choice(tuple(STRATEGIES.values()))(STRATEGIES.get(word.rpartition(".")[2], word))


Strategy = Annotated[str, _read_strategy]


@dataclass(frozen=True, kw_only=True)
class RegistrySettings(Settings):
    """Where the schema registry is, and how to log in there. `docs/registry.md` shows examples."""

    registry_url: Annotated[tuple[str, ...], _read_urls] = setting(
        (),
        "Where the schema registry is: `http://host:8081`, or several, separated by commas, which are tried "
        "in turn.",
        shown="not set",
        aliases=("schema_registry_url",),
    )
    registry_basic_auth_user_info: Verbatim = setting(
        "",
        "The login of the registry, as `user:password`; `${env:NAME}` reads it from elsewhere.",
        secret=True,
        aliases=("basic_auth_user_info", "schema_registry_basic_auth_user_info"),
    )
    registry_bearer_auth_token: Verbatim = setting(
        "",
        "The token for the registry, instead of a user and a password.",
        secret=True,
        aliases=("bearer_auth_token", "schema_registry_bearer_auth_token"),
    )
    registry_timeout_ms: PositiveInt = setting(
        10_000, "How long a request to the registry may take, with all attempts."
    )
    registry_max_schemas: PositiveInt = setting(
        1_000, "How many schemas are remembered; those not used for longest are asked for again."
    )
    registry_ssl_truststore_location: Text = setting(
        "",
        "The CAs to trust at the registry: a file in PEM or PKCS#12; the system's by default.",
        aliases=("registry_ssl_ca_location", "schema_registry_ssl_truststore_location"),
    )
    registry_ssl_truststore_certificates: Verbatim = setting(
        "", "The CAs to trust at the registry, as PEM text.", aliases=("registry_ssl_ca_pem",)
    )
    registry_ssl_truststore_password: Verbatim = setting(
        "",
        "The password of that PKCS#12 truststore.",
        secret=True,
        aliases=("schema_registry_ssl_truststore_password",),
    )
    registry_ssl_keystore_location: Text = setting(
        "",
        "This client's private key and certificates for the registry, in one file (PEM or PKCS#12).",
        aliases=("schema_registry_ssl_keystore_location",),
    )
    registry_ssl_keystore_password: Verbatim = setting(
        "",
        "The password of that PKCS#12 keystore.",
        secret=True,
        aliases=("schema_registry_ssl_keystore_password",),
    )
    registry_ssl_certificate_location: Text = setting(
        "", "This client's certificates for the registry: a PEM file."
    )
    registry_ssl_key_location: Text = setting("", "This client's private key for the registry: a PEM file.")
    registry_ssl_key_password: Verbatim = setting(
        "",
        "The password of that private key, if it is encrypted.",
        secret=True,
        aliases=("schema_registry_ssl_key_password",),
    )
    registry_ssl_endpoint_identification_algorithm: Annotated[str, read_host_check] = setting(
        "https",
        "Whether the registry's certificate must be for its host name: https, or an empty string.",
        aliases=("schema_registry_ssl_endpoint_identification_algorithm",),
    )

    @property
    def registry_tls(self) -> TlsSettings:
        """The settings of TLS for addresses with https."""
        return TlsSettings(
            truststore_location=self.registry_ssl_truststore_location,
            truststore_certificates=self.registry_ssl_truststore_certificates,
            truststore_password=self.registry_ssl_truststore_password,
            keystore_location=self.registry_ssl_keystore_location,
            keystore_password=self.registry_ssl_keystore_password,
            certificate_location=self.registry_ssl_certificate_location,
            key_location=self.registry_ssl_key_location,
            key_password=self.registry_ssl_key_password,
            verifies_host_name=self.registry_ssl_endpoint_identification_algorithm == "https",
        )

    def check_registry(self, choices: dict[str, object]) -> None:
        """Raise ConfigError for settings that contradict each other, given the (de)serializers by setting."""
        if self.registry_basic_auth_user_info and self.registry_bearer_auth_token:
            raise ConfigError(
                "registry_basic_auth_user_info and registry_bearer_auth_token are both given: leave one out",
                setting="registry_bearer_auth_token",
            )
        needing = [name for name, choice in choices.items() if choice == REGISTRY]
        if needing and not self.registry_url:
            raise ConfigError(
                f"{needing[0]} is 'registry', but registry_url is missing: set it to the registry's address",
                setting="registry_url",
            )


@dataclass(frozen=True, kw_only=True)
class RegistryWriterSettings(RegistrySettings):
    """The same for a producer: which schema is written with, and its subject."""

    registry_key_schema: Schema | None = setting(
        None, "The Avro schema of keys, as JSON or as a dict, for key_serializer='registry'."
    )
    registry_value_schema: Schema | None = setting(
        None, "The Avro schema of values, as JSON or as a dict, for value_serializer='registry'."
    )
    auto_register_schemas: Flag = setting(
        True,
        "Whether the schema is registered if it is new; otherwise it must be registered already. Turn it off "
        "in production. False with use_latest_version.",
    )
    use_latest_version: Flag = setting(
        False, "Write with the latest schema of the subject: then no schema needs to be given."
    )
    normalize_schemas: Flag = setting(
        False, "Let the registry normalize the schema before it registers it or looks it up."
    )
    key_subject_name_strategy: Strategy = setting(
        "topic", "The subject of keys: topic (`TOPIC-key`), record (the schema's name), or topic-record."
    )
    value_subject_name_strategy: Strategy = setting(
        "topic", "The subject of values: topic (`TOPIC-value`), record (the schema's name), or topic-record."
    )

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Register nothing where the latest version is used."""
        if values.get("use_latest_version"):
            values.setdefault("auto_register_schemas", False)
        return super().derive(values)

    def check_registry(self, choices: dict[str, object]) -> None:
        super().check_registry(choices)
        if self.auto_register_schemas and self.use_latest_version:
            raise ConfigError(
                "auto_register_schemas and use_latest_version are both true: leave one out",
                setting="use_latest_version",
            )
        for setting_name, choice in choices.items():
            part = setting_name.partition("_")[0]
            if choice == REGISTRY:
                self._check_part(part)

    def _check_part(self, part: str) -> None:
        name = f"registry_{part}_schema"
        if getattr(self, name) is not None:
            return
        if not self.use_latest_version:
            raise ConfigError(
                f"{part}_serializer is 'registry', but {name} is missing: give the schema, or set "
                "use_latest_version",
                setting=name,
            )
        if getattr(self, f"{part}_subject_name_strategy") != "topic":
            raise ConfigError(
                f"{part}_subject_name_strategy takes the subject from the schema's name: give {name}",
                setting=name,
            )
