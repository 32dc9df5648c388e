"""From the name in a client's certificate to a principal: ``ssl.principal.mapping.rules`` (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.errors import ConfigError

_RULE: Final = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_ORDER: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The attributes that RFC 2253 writes by short names; OpenSSL's long names first."""
_ESCAPED: Final = re.compile(r'([,+"\\<>;=])')


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Return the subject of a certificate, as ``ssl`` reads it, in Java's form: ``CN=ann,OU=dev,C=DE``."""
    parts = []
    for relative in certificate.get("subject", ()):
        for name, value in relative:
            text = _ESCAPED.sub(r"\\\1", value)
            parts.append(f"{_ORDER.get(name, name)}={text}")
    return ",".join(reversed(parts))


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
