"""``sasl.jaas.config``: one line of Java's login configuration, as providers print it.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="key" password="secret";
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_MODULES: Final = {
    "PlainLoginModule": frozenset({"PLAIN"}),
    "ScramLoginModule": frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"}),
    "OAuthBearerLoginModule": frozenset({"OAUTHBEARER"}),
    "IAMLoginModule": frozenset({"AWS_MSK_IAM"}),
    "Krb5LoginModule": frozenset({"GSSAPI"}),
}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<end>;)|(?P<equals>=)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<word>[^\s;="']+))""",
    re.DOTALL,
)
_EXAMPLE: Final = 'write: MODULE required name="value" name="value";'


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module by its class name without the package, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> frozenset[str]:
        """The mechanisms that the module is for; none for a module that is not known."""
        return _MODULES.get(self.name, frozenset())


def parse_jaas(text: str) -> LoginModule:
    """Read the line; raises ValueError, which never quotes a value."""
    words = _words(text)
    if len(words) < 2 or words[1].lower() not in _FLAGS:
        raise ValueError(f"must name a login module and say required: {_EXAMPLE}")
    options: dict[str, str] = {}
    rest = words[2:]
    while rest:
        if len(rest) < 3 or rest[1] != "=":
            raise ValueError(f"must hold options as name=value after the login module: {_EXAMPLE}")
        options[rest[0]] = rest[2]
        rest = rest[3:]
    module = LoginModule(words[0].rpartition(".")[2], options)
    if not module.mechanisms:
        raise ValueError(f"must name one of {', '.join(_MODULES)}, not {module.name!r}")
    return module


def _words(text: str) -> list[str]:
    words: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("has a quote that is not closed")
        position = match.end()
        if match["end"]:
            if text[position:].strip():
                raise ValueError("must hold one login module, with one semicolon at its end")
            return words
        quoted = next((match[kind] for kind in ("double", "single") if match[kind] is not None), None)
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match["word"] or "=")
    raise ValueError("must end with a semicolon")
