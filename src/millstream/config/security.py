"""The settings of secured connections, in Java's spelling, with librdkafka's as other names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from millstream.errors import ConfigError
from millstream.security.login import MECHANISMS, MSK_IAM, SaslSettings, TokenCallback
from millstream.security.tls import VERSIONS, TlsSettings
from millstream.settings import Choice, Flag, Settings, Text, read_names, read_text, setting

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NO_KERBEROS: Final = (
    "Kerberos (GSSAPI) is not supported yet: use SCRAM-SHA-512, PLAIN or OAUTHBEARER over TLS"
)


def _read_protocol(value: object) -> str:
    return Choice(PROTOCOLS)(read_text(value).upper())


def _read_mechanism(value: object) -> str:
    mechanism = read_text(value).upper()
    if mechanism == "GSSAPI":
        raise ConfigError(_NO_KERBEROS)
    return mechanism and Choice(MECHANISMS)(mechanism)


def _read_verbatim(value: object) -> str:
    """Read a password or a PEM text: white space around it may belong to it."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def read_host_check(value: object) -> str:
    """Read whether host names are checked: https, or an empty string or none."""
    return Choice(("https", "", "none"))(read_text(value).lower())


def _read_versions(value: object) -> tuple[str, ...]:
    versions = tuple(map(str, read_names(value)))
    known = tuple(version for version in versions if version in VERSIONS)
    if not known or not {*versions} <= {*VERSIONS, "TLSv1", "TLSv1.1"}:
        raise ValueError(f"must list {' or '.join(VERSIONS)}")
    if len(known) < len(versions):
        raise ValueError("must not allow TLS before 1.2, which is broken")
    return known


def _read_store_type(value: object) -> str:
    kind = read_text(value).upper()
    return kind and Choice(("PEM", "PKCS12", "JKS"))(kind)


def _read_callback(value: object) -> object:
    if not callable(value):
        raise ValueError("must be a callable that returns a token")
    return value


def _read_suites(value: object) -> tuple[str, ...]:
    """Read Java's list, or OpenSSL's with colons."""
    return tuple(word for name in read_names(value) for word in str(name).split(":") if word)


Verbatim = Annotated[str, _read_verbatim]
StoreType = Annotated[str, _read_store_type]


@dataclass(frozen=True, kw_only=True)
class SecuritySettings(Settings):
    """Whether and how a client encrypts its connections and logs in. `docs/security.md` shows examples."""

    security_protocol: Annotated[str, _read_protocol] = setting(
        "PLAINTEXT",
        "How to talk to brokers: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (a login, no encryption) or SASL_SSL.",
    )

    ssl_truststore_location: Text = setting(
        "",
        "The CAs to trust: a file in PEM or PKCS#12, or a directory of OpenSSL's; the system's by default.",
        aliases=("ssl_ca_location",),
    )
    ssl_truststore_certificates: Verbatim = setting(
        "", "The CAs to trust, as PEM text instead of a file.", aliases=("ssl_ca_pem",)
    )
    ssl_truststore_password: Verbatim = setting("", "The password of a PKCS#12 truststore.", secret=True)
    ssl_truststore_type: StoreType = setting("", "Not needed: the content says whether it is PEM or PKCS12.")
    ssl_keystore_location: Text = setting(
        "", "This client's private key and certificates in one file, in PEM or PKCS#12."
    )
    ssl_keystore_password: Verbatim = setting("", "The password of a PKCS#12 keystore.", secret=True)
    ssl_keystore_type: StoreType = setting("", "Not needed: the content says whether it is PEM or PKCS12.")
    ssl_keystore_key: Verbatim = setting(
        "", "This client's private key, as PEM text.", secret=True, aliases=("ssl_key_pem",)
    )
    ssl_keystore_certificate_chain: Verbatim = setting(
        "", "This client's certificates, as PEM text.", aliases=("ssl_certificate_pem",)
    )
    ssl_certificate_location: Text = setting("", "This client's certificates: a PEM file.")
    ssl_key_location: Text = setting("", "This client's private key: a PEM file.")
    ssl_key_password: Verbatim = setting("", "The password of an encrypted private key in PEM.", secret=True)
    ssl_crl_location: Text = setting("", "A list of revoked certificates: a PEM file.")
    ssl_endpoint_identification_algorithm: Annotated[str, read_host_check] = setting(
        "https",
        "Whether the broker's certificate must be for its host name: https, or an empty string for no check.",
    )
    enable_ssl_certificate_verification: Flag = setting(
        True, "Whether the broker's certificate is checked at all. Turn it off for a first try only."
    )
    ssl_protocol: Annotated[str, Choice(("TLS", *VERSIONS))] = setting(
        "TLSv1.3", "Accepted as in Java; ssl_enabled_protocols decides."
    )
    ssl_enabled_protocols: Annotated[tuple[str, ...], _read_versions] = setting(
        tuple(VERSIONS), "The versions of TLS to speak.", shown=",".join(VERSIONS)
    )
    ssl_cipher_suites: Annotated[tuple[str, ...], _read_suites] = setting(
        (),
        "The cipher suites for TLS 1.2, by Java's or OpenSSL's names; TLS 1.3's are always allowed.",
        shown="all good ones",
    )

    sasl_mechanism: Annotated[str, _read_mechanism] = setting(
        "", f"How to log in: {', '.join(MECHANISMS)}. Required for SASL.", aliases=("sasl_mechanisms",)
    )
    sasl_username: Text = setting("", "The user's name, for PLAIN and SCRAM.")
    sasl_password: Verbatim = setting(
        "", "The user's password. `${env:NAME}` and `${file:PATH:KEY}` read it from elsewhere.", secret=True
    )
    sasl_jaas_config: Verbatim = setting(
        "", "Java's login line, with the user's name and password or a client's id and secret.", secret=True
    )
    oauth_cb: Annotated[TokenCallback | None, _read_callback] = setting(
        None,
        "OAUTHBEARER: a callable that gets sasl_oauthbearer_config and returns `(token, expiry)`: the token, "
        "and when it expires, in seconds since 1970.",
    )
    sasl_oauthbearer_config: Verbatim = setting("", "Passed to oauth_cb.", secret=True)
    sasl_oauthbearer_method: Annotated[str, Choice(("default", "oidc"))] = setting(
        "default", "Accepted as in librdkafka: oauth_cb or a token endpoint decides."
    )
    sasl_oauthbearer_token_endpoint_url: Text = setting(
        "", "OAUTHBEARER: where to get tokens with a client's id and secret (OIDC client credentials)."
    )
    sasl_oauthbearer_client_id: Text = setting(
        "",
        "The client's id at the token endpoint.",
        aliases=("sasl_oauthbearer_client_credentials_client_id",),
    )
    sasl_oauthbearer_client_secret: Verbatim = setting(
        "",
        "The client's secret at the token endpoint.",
        secret=True,
        aliases=("sasl_oauthbearer_client_credentials_client_secret",),
    )
    sasl_oauthbearer_scope: Text = setting("", "The scope to ask the token endpoint for.")
    sasl_oauthbearer_extensions: Text = setting(
        "", "SASL extensions: `logicalCluster=lkc-1,identityPoolId=pool-2` for Confluent Cloud."
    )
    https_ca_location: Text = setting("", "The CAs to trust at the token endpoint: a PEM file.")
    https_ca_pem: Verbatim = setting("", "The CAs to trust at the token endpoint, as PEM text.")

    REFUSED: ClassVar = {
        "sasl_kerberos_*": _NO_KERBEROS,
        "ssl_engine_*": "TLS is OpenSSL's here: use the other ssl settings",
        "ssl_sigalgs_list": "OpenSSL's own configuration decides this",
        "ssl_curves_list": "OpenSSL's own configuration decides this",
        "security_providers": "TLS is OpenSSL's here, and Java's providers do not exist",
    }
    WITHOUT_EFFECT: ClassVar = frozenset(
        {
            "ssl_provider",
            "ssl_keymanager_algorithm",
            "ssl_trustmanager_algorithm",
            "ssl_secure_random_implementation",
            "sasl_client_callback_handler_class",
            "sasl_login_*",
        }
    )

    @property
    def tls(self) -> TlsSettings | None:
        """The settings of TLS; None for connections without it."""
        if not self.security_protocol.endswith("SSL"):
            return None
        return TlsSettings(
            truststore_location=""
            if self.ssl_truststore_location == "probe"
            else self.ssl_truststore_location,
            truststore_certificates=self.ssl_truststore_certificates,
            truststore_password=self.ssl_truststore_password,
            keystore_location=self.ssl_keystore_location,
            keystore_password=self.ssl_keystore_password,
            keystore_key=self.ssl_keystore_key,
            keystore_certificate_chain=self.ssl_keystore_certificate_chain,
            certificate_location=self.ssl_certificate_location,
            key_location=self.ssl_key_location,
            key_password=self.ssl_key_password,
            crl_location=self.ssl_crl_location,
            versions=self.ssl_enabled_protocols,
            cipher_suites=self.ssl_cipher_suites,
            verifies_certificate=self.enable_ssl_certificate_verification,
            verifies_host_name=self.ssl_endpoint_identification_algorithm == "https",
        )

    @property
    def sasl(self) -> SaslSettings | None:
        """The settings of the login; None for connections without one."""
        if not self.security_protocol.startswith("SASL"):
            return None
        return SaslSettings(
            mechanism=self.sasl_mechanism,
            username=self.sasl_username,
            password=self.sasl_password,
            jaas_config=self.sasl_jaas_config,
            oauth_callback=self.oauth_cb,
            oauth_config=self.sasl_oauthbearer_config,
            token_endpoint_url=self.sasl_oauthbearer_token_endpoint_url,
            client_id=self.sasl_oauthbearer_client_id,
            client_secret=self.sasl_oauthbearer_client_secret,
            scope=self.sasl_oauthbearer_scope,
            extensions=self.sasl_oauthbearer_extensions,
            https_ca_location=self.https_ca_location,
            https_ca_pem=self.https_ca_pem,
        )

    def __post_init__(self) -> None:
        """Raise ConfigError for a login that lacks something, or that the protocol would not use."""
        sasl = self.sasl
        if sasl is None:
            given = [name for name in ("sasl_password", "sasl_jaas_config") if getattr(self, name)]
            if given:
                raise ConfigError(
                    f"{given[0]} is given, but security_protocol is {self.security_protocol}, which has no "
                    "login: set it to SASL_SSL, or to SASL_PLAINTEXT where brokers do not encrypt",
                    setting="security_protocol",
                )
            return
        if not sasl.mechanism:
            raise ConfigError(
                f"sasl_mechanism is missing: set it to one of {', '.join(MECHANISMS)}",
                setting="sasl_mechanism",
            )
        if sasl.mechanism == MSK_IAM and not self.security_protocol.endswith("SSL"):
            raise ConfigError(
                f"sasl_mechanism {MSK_IAM} needs security_protocol SASL_SSL", setting="security_protocol"
            )
        sasl.check()
