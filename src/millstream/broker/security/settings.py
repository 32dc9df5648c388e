"""The settings of listeners: TLS and SASL, for all of them, or for one as ``listener.name.NAME.…``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from millstream.broker.security.sasl import MECHANISMS
from millstream.errors import ConfigError
from millstream.settings import (
    INT_MAX,
    Choice,
    Int,
    Integer,
    Long,
    PositiveInt,
    Settings,
    Text,
    read_names,
    setting,
)

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
UNSECURED_VALIDATOR: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATORS: Final = ("OAuthBearerValidatorCallbackHandler", UNSECURED_VALIDATOR)


def _read_verbatim(value: object) -> str:
    """Read a password or a PEM text: white space around it may belong to it."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _read_words(value: object) -> tuple[str, ...]:
    return tuple(map(str, read_names(value)))


def _read_mechanisms(value: object) -> tuple[str, ...]:
    names = tuple(name.upper() for name in _read_words(value))
    if not names or not set(names) <= set(MECHANISMS):
        raise ValueError(f"must list some of {', '.join(MECHANISMS)}")
    return names


def _read_versions(value: object) -> tuple[str, ...]:
    versions = _read_words(value)
    if not versions or not set(versions) <= set(VERSIONS):
        raise ValueError(f"must list {' or '.join(VERSIONS)}")
    return versions


def _read_validator(value: object) -> str:
    name = _read_verbatim(value).strip().rpartition(".")[2]
    if name and name not in _VALIDATORS:
        raise ValueError(f"must be Kafka's {' or '.join(_VALIDATORS)}")
    return name


Verbatim = Annotated[str, _read_verbatim]
Words = Annotated[tuple[str, ...], _read_words]


@dataclass(frozen=True, kw_only=True)
class ListenerSettings(Settings):
    """How connections are encrypted, and how clients log in."""

    ssl_keystore_location: Text = setting(
        "", "The broker's private key and certificates: a PEM or PKCS#12 file, read again when it changes."
    )
    ssl_keystore_password: Verbatim = setting("", "The password of a PKCS#12 keystore.", secret=True)
    ssl_keystore_type: Annotated[str, Choice(("", "PEM", "PKCS12", "JKS"))] = setting(
        "", "Not needed: the content says whether it is PEM or PKCS12."
    )
    ssl_keystore_key: Verbatim = setting("", "The broker's private key, as PEM text.", secret=True)
    ssl_keystore_certificate_chain: Verbatim = setting("", "The broker's certificates, as PEM text.")
    ssl_key_password: Verbatim = setting("", "The password of an encrypted private key in PEM.", secret=True)
    ssl_truststore_location: Text = setting(
        "", "The CAs of clients' certificates: a PEM or PKCS#12 file, read again when it changes."
    )
    ssl_truststore_password: Verbatim = setting("", "The password of a PKCS#12 truststore.", secret=True)
    ssl_truststore_type: Annotated[str, Choice(("", "PEM", "PKCS12", "JKS"))] = setting(
        "", "Not needed: the content says whether it is PEM or PKCS12."
    )
    ssl_truststore_certificates: Verbatim = setting("", "The CAs of clients' certificates, as PEM text.")
    ssl_client_auth: Annotated[str, Choice(("none", "requested", "required"))] = setting(
        "none", "Whether clients show a certificate: none, requested or required."
    )
    ssl_principal_mapping_rules: Text = setting(
        "DEFAULT",
        "How a certificate's name becomes a user's: `RULE:pattern/replacement/[LU]`, or DEFAULT, all of it.",
    )
    ssl_enabled_protocols: Annotated[tuple[str, ...], _read_versions] = setting(
        VERSIONS, "The versions of TLS to accept.", shown=",".join(VERSIONS)
    )
    ssl_cipher_suites: Words = setting(
        (), "The cipher suites for TLS 1.2, by Java's or OpenSSL's names.", shown="all good ones"
    )
    sasl_enabled_mechanisms: Annotated[tuple[str, ...], _read_mechanisms] = setting(
        ("SCRAM-SHA-512",),
        f"How clients may log in, on listeners with SASL: {', '.join(MECHANISMS)}.",
        shown="SCRAM-SHA-512",
    )
    sasl_jaas_config: Verbatim = setting(
        "",
        'The users of PLAIN, as Kafka writes them: `…PlainLoginModule required user_ann="password";`.',
        secret=True,
    )
    sasl_server_callback_handler_class: Annotated[str, _read_validator] = setting(
        "", f"OAUTHBEARER: a name that ends in {UNSECURED_VALIDATOR} accepts unsigned tokens, for tests only."
    )
    sasl_oauthbearer_jwks_endpoint_url: Text = setting(
        "", "OAUTHBEARER: the keys that sign tokens, as `https://…` or `file:///…`."
    )
    sasl_oauthbearer_expected_audience: Words = setting(
        (), "OAUTHBEARER: a token must be for one of these audiences.", shown="any"
    )
    sasl_oauthbearer_expected_issuer: Text = setting("", "OAUTHBEARER: a token must be from this issuer.")
    sasl_oauthbearer_clock_skew_seconds: Annotated[int, Integer(0, 86_400)] = setting(
        30, "OAUTHBEARER: how much the clocks of the issuer and of the broker may differ."
    )
    sasl_oauthbearer_sub_claim_name: Text = setting("sub", "OAUTHBEARER: the claim that names the user.")
    sasl_server_max_receive_size: Annotated[int, Integer(1024, INT_MAX)] = setting(
        524_288, "The largest request of a client that has not logged in."
    )
    max_connections: Int = setting(
        INT_MAX,
        "The most open connections, as far as the limit of open files allows; also of one listener.",
    )
    max_connection_creation_rate: PositiveInt = setting(
        INT_MAX, "The most new connections per second, also of one listener; more wait to be accepted."
    )
    connections_max_reauth_ms: Long = setting(
        0, "How long a login lasts before the client must repeat it (KIP-368); 0: for ever."
    )
    connection_failed_authentication_delay_ms: Int = setting(
        100, "How long a refused login waits for its answer, so that passwords are not guessed quickly."
    )

    REFUSED: ClassVar = {
        "sasl_kerberos_*": "Kerberos (GSSAPI) is not supported yet: use SCRAM-SHA-512 or OAUTHBEARER",
        "ssl_engine_*": "TLS is OpenSSL's here: use the other ssl settings",
    }
    WITHOUT_EFFECT: ClassVar = frozenset(
        {
            "sasl_login_*",
            "sasl_mechanism_inter_broker_protocol",
            "sasl_mechanism_controller_protocol",
            "sasl_oauthbearer_*",
            "ssl_endpoint_identification_algorithm",
            "ssl_keymanager_algorithm",
            "ssl_protocol",
            "ssl_provider",
            "ssl_secure_random_implementation",
            "ssl_trustmanager_algorithm",
        }
    )


def split_overrides(properties: dict[str, object]) -> dict[str, dict[str, object]]:
    """Take ``listener.name.NAME.…`` out of the properties; return them by the listener's name in capitals.

    A mechanism before the setting (``plain.sasl.jaas.config``) is left out: what it names has it anyway.
    """
    found: dict[str, dict[str, object]] = {}
    for spelling in [each for each in properties if each.startswith("listener.name.")]:
        name, _, setting_name = spelling.removeprefix("listener.name.").partition(".")
        for mechanism in MECHANISMS:
            setting_name = setting_name.removeprefix(f"{mechanism.lower()}.")
        if not name or not setting_name:
            raise ConfigError(f"{spelling} is not a setting of a listener: write listener.name.NAME.SETTING")
        found.setdefault(name.upper(), {})[setting_name] = properties.pop(spelling)
    return found
