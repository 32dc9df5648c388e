"""Why a TLS handshake failed, in one sentence that names the remedy."""

from __future__ import annotations

import ssl
from typing import Final

_CLOCK: Final = "renew it, or set this machine's clock"
_UNTRUSTED: Final = (
    "its certificate is signed by a CA that is not trusted here: set ssl.truststore.location "
    "(ssl.ca.location) to the CA's certificate"
)
_VERIFY: Final = {
    9: f"its certificate is not valid yet: {_CLOCK}",
    10: f"its certificate has expired: {_CLOCK}",
    18: (
        "its certificate is self-signed and not trusted here: set ssl.truststore.location "
        "(ssl.ca.location) to it"
    ),
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    23: "its certificate has been revoked",
    24: "its certificate is signed by one that is no CA's",
    3: "there is no revocation list of its CA in ssl.crl.location",
    12: "the revocation list in ssl.crl.location has expired: renew it, or set this machine's clock",
}
"""By OpenSSL's codes (X509_V_ERR_*)."""
_NAME_MISMATCH: Final = frozenset({62, 63, 64})
_NEEDS_CERTIFICATE: Final = (
    "it requires a client certificate: set ssl.keystore.location (ssl.certificate.location and "
    "ssl.key.location)"
)
_REFUSED_CERTIFICATE: Final = "it does not accept this client's certificate"
_NOT_TLS: Final = (
    "it does not speak TLS on this port: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the "
    "port of its TLS listener"
)
_REASONS: Final = {
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NEEDS_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _REFUSED_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the CA of this client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this client's certificate has expired: renew it",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "this client's certificate has been revoked",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks no version of TLS that ssl.enabled.protocols allows",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that ssl.enabled.protocols allows",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it shares no cipher suite with this client (ssl.cipher.suites)",
    "TLSV1_UNRECOGNIZED_NAME": "it has no certificate for this host name",
    "TLSV1_ALERT_UNRECOGNIZED_NAME": "it has no certificate for this host name",
}


def explain(error: ssl.SSLError, host: str, *, has_certificate: bool) -> str:
    """Say what was wrong on the other side of a handshake with ``host``.

    ``has_certificate``: whether this client has a certificate of its own to present.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NAME_MISMATCH:
            return (
                f"its certificate is not for the host name {host}: use a name that is in the certificate, or "
                "set ssl.endpoint.identification.algorithm to an empty string to leave the check out"
            )
        return _VERIFY.get(error.verify_code, f"its certificate was refused: {error.verify_message}")
    reason = getattr(error, "reason", None) or str(error)
    if not has_certificate and _REASONS.get(reason) == _REFUSED_CERTIFICATE:
        return _NEEDS_CERTIFICATE
    return _REASONS.get(reason, f"the TLS handshake failed: {reason.lower().replace('_', ' ')}")
