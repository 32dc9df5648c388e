"""TLS of the console: its certificate is read again for the first connection after it has changed."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass

from millstream.terminal.outcome import UsageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate with its chain, and its private key, in PEM. The key may be in the same file."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Read both. Raises OSError (ssl.SSLError is one)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key, password=_no_password)
        return context

    def version(self) -> tuple[int, ...]:
        """Another value when a file was replaced."""
        found = [os.stat(path) for path in (self.certificate, self.key)]
        return tuple(part for each in found for part in (each.st_mtime_ns, each.st_size, each.st_ino))


def serving_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for the server. Raises UsageError for files that cannot be used.

    A certificate that cannot be read later is logged, and the one before is used meanwhile.
    """
    try:
        seen, latest = files.version(), files.context()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"--tls-certificate {files.certificate} with --tls-key {files.key}: {reason}"
        ) from None

    def choose(connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        """Called in each handshake: the new certificate, where there is one."""
        nonlocal seen, latest
        try:
            now = files.version()
            if now != seen:
                latest, seen = files.context(), now
        except (OSError, ValueError) as error:
            log.warning("the console keeps its certificate, the new one cannot be read: %s", error)
        connection.context = latest

    serving = files.context()
    serving.sni_callback = choose
    return serving


def _no_password() -> str:
    """Called for an encrypted key: without this, OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted: give one that is not")
