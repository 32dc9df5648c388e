"""From the name in a client's certificate to a principal: ``ssl.principal.mapping.rules`` (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import NameAttribute

_RULE: Final = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 writes by short names; others are written as number and bytes."""
_TEXT_TAGS: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""UTF8, Printable, T61, IA5, General and BMP strings, in DER."""
_ESCAPED: Final = re.compile(r'([,=+<>#;"\\])')


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate (DER) as Java's X500Principal writes it: ``CN=ann+UID=7,C=DE``.

    Raises ValueError for a certificate that cannot be read.
    """
    from cryptography import x509  # it takes long to import

    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(map(_attribute, relative)) for relative in reversed(subject.rdns))


def _attribute(attribute: NameAttribute[Any]) -> str:
    from cryptography import x509

    number = attribute.oid.dotted_string
    encoded = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # a sequence of sets of sequences, here with one member each
        encoded = encoded[_header_bytes(encoded) :]
    value = encoded[_header_bytes(encoded) + encoded[1] :]
    if number not in _KEYWORDS or value[0] not in _TEXT_TAGS or not isinstance(attribute.value, str):
        return f"{_KEYWORDS.get(number, number)}=#{value.hex()}"
    text = _ESCAPED.sub(r"\\\1", attribute.value).replace("\0", "\\00")
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" ")) if inner else len(text)
    after = len(text) - before - len(inner)
    escaped = "\\ " * before + inner + "\\ " * after
    return f"{_KEYWORDS[number]}={escaped}"


def _header_bytes(encoded: bytes) -> int:
    """The length of tag and length in front of a DER value; numbers of attributes have short lengths."""
    return 2 + (encoded[1] & 0x7F if encoded[1] & 0x80 else 0)


@dataclass(frozen=True, slots=True)
class _Mapping:
    """One rule: what matches the whole name is replaced, and then written in small or capital letters."""

    pattern: re.Pattern[str]
    replacement: str
    change_case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        groups = [name, *match.groups(default="")]
        replaced = re.sub(
            r"\$([0-9])",
            lambda found: groups[int(found[1])] if int(found[1]) < len(groups) else "",
            self.replacement,
        )
        return self.change_case(replaced)


class PrincipalRules:
    """The rules in order: the first that matches decides."""

    def __init__(self, text: str) -> None:
        """Read the rules, separated by commas. Raises ConfigError."""
        self._rules: list[_Mapping | None] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: cannot read {text[position:]!r}: write "
                    "RULE:pattern/replacement/, with L or U for small or capital letters, or DEFAULT"
                )
            self._rules.append(None if match[0] == "DEFAULT" else _read_rule(match))
            position = match.end()
            rest = re.match(r"\s*(?:,\s*|$)", text[position:])
            if rest is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: a comma is missing before {text[position:]!r}"
                )
            position += rest.end()

    def user(self, name: str) -> str | None:
        """Return the user of a certificate's name; None if no rule matches."""
        for rule in self._rules:
            found = name if rule is None else rule.apply(name)
            if found is not None:
                return found
        return None


def _read_rule(match: re.Match[str]) -> _Mapping:
    try:
        pattern = re.compile(match[1])
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {match[1]!r} is no pattern: {error}") from None
    change_case = {"L": str.lower, "U": str.upper}.get(match[3], str)
    return _Mapping(pattern, match[2], change_case)
