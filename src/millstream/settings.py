"""How settings are declared and read: frozen dataclasses whose annotations say how to read each value.

::

    @dataclass(frozen=True, kw_only=True)
    class ClientConfig(Settings):
        request_timeout_ms: Int = 30_000

``Settings.from_settings`` is the only door: it takes snake_case keywords, a mapping with Kafka's dotted
names, or both, reads strings as Kafka's own parser does, and refuses what it does not know. Inside, there is
one spelling (snake_case) and one type for each setting. None stands for the default, as if not given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_type_hints

from millstream.errors import ConfigError
from millstream.suggestions import did_you_mean

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


# ---- how one value is read: each raises ValueError with what was expected ----


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer, or its decimal digits, within bounds."""

    minimum: int
    maximum: int

    def __call__(self, value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("must be a whole number")
        if value < self.minimum:
            raise ValueError(f"must be at least {self.minimum}")
        if value > self.maximum:
            raise ValueError(f"must be at most {self.maximum}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> str:
        word = read_text(value)
        if word not in self.words:
            raise ValueError("must be " + " or ".join(self.words))
        return word


def read_text(value: object) -> str:
    """Read a string; white space around it is dropped."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value.strip()


def read_flag(value: object) -> bool:
    """Read True, False, or these words in any case."""
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("true", "false"):
        return word == "true"
    if not isinstance(word, bool):
        raise ValueError("must be true or false")
    return word


def read_names(value: object) -> tuple[object, ...]:
    """Read a list: a string separated by commas, a collection, or one object standing alone."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, Collection):
        return tuple(value)
    return (value,)


class Address(NamedTuple):
    """A host and a port, as ``host:port`` or ``[ipv6]:port``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_ADDRESS = re.compile(
    r"(?:PLAINTEXT://)?(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[\w.%-]+)):(?P<port>[0-9]+)"
)


def parse_address(text: str, *, lowest_port: int = 1) -> Address:
    """Read ``host:port``; an IPv6 address stands in brackets. ``lowest_port=0`` allows "any free port"."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not an address: write host:port, or [address]:port for IPv6")
    port = int(match["port"])
    if not lowest_port <= port <= 65535:
        raise ConfigError(f"{text!r} is not an address: its port must be {lowest_port} to 65535")
    return Address(match["v6"] or match["host"], port)


def read_addresses(value: object) -> tuple[Address, ...]:
    """Read the addresses of brokers: ``"host:port,host:port"``, or a list of such strings."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError("must be host:port, or a list of them")
    texts = [part.strip() for part in map(read_text, parts) if part.strip()]
    if not texts:
        raise ValueError("must name at least one broker, as host:port")
    return tuple(dict.fromkeys(map(parse_address, texts)))


Flag = Annotated[bool, read_flag]
Text = Annotated[str, read_text]
Int = Annotated[int, Integer(0, INT_MAX)]
Long = Annotated[int, Integer(0, LONG_MAX)]
PositiveInt = Annotated[int, Integer(1, INT_MAX)]
Addresses = Annotated[tuple[Address, ...], read_addresses]
Names = Annotated[tuple[object, ...], read_names]


# ---- how a set of them is read ----

Reader = Callable[[object], Any]


_READERS: dict[type[Settings], dict[str, Reader | None]] = {}


def _readers(cls: type[Settings]) -> dict[str, Reader | None]:
    """Return how each setting of a class is read; None where the object is taken as it comes."""
    found = _READERS.get(cls)
    if found is None:
        hints = get_type_hints(cls, include_extras=True)
        found = {field.name: _reader_of(hints[field.name]) for field in fields(cls)}
        _READERS[cls] = found
    return found


def _reader_of(hint: object) -> Reader | None:
    """Find the reader in ``Annotated[T, reader]``, also inside ``Annotated[T, reader] | None``."""
    if hasattr(hint, "__metadata__"):
        return next(filter(callable, hint.__metadata__), None)
    return next(filter(None, map(_reader_of, get_args(hint))), None)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of every set of settings."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Settings that are known but not supported, or families of them (``ssl_*``), with the reason."""
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset()
    """Settings that are accepted and do nothing, since nothing a program can see depends on them."""

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, object] | None = None, keywords: Mapping[str, object] | None = None
    ) -> Self:
        """Read settings from a mapping and from keywords; the same setting in both is an error.

        Raises ConfigError for an unknown or unsupported setting, a value that cannot be read, a required one
        that is missing, and settings that contradict each other.
        """
        values: dict[str, Any] = {}
        for name, (spelling, value) in _one_spelling(settings or {}, keywords or {}).items():
            if not cls._is_known(name, spelling):
                continue
            values[name] = _read(_readers(cls)[name], name, spelling, value)
        for field in fields(cls):
            has_default = field.default is not MISSING or field.default_factory is not MISSING
            if not has_default and field.name not in values:
                raise ConfigError(f"{field.name} is missing: it has no default", setting=field.name)
        return cls(**cls.derive(values))

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Adapt defaults to the values that were given, and to those only. Subclasses extend this."""
        return values

    @classmethod
    def _is_known(cls, name: str, spelling: str) -> bool:
        """Return whether to read a setting; False for one without effect. Raises for all others."""
        if name in _readers(cls):
            return True
        if name in cls.WITHOUT_EFFECT:
            return False
        for family, reason in cls.REFUSED.items():
            if name == family or (family.endswith("*") and name.startswith(family[:-1])):
                raise ConfigError(f"{spelling} is not supported: {reason}", setting=name)
        raise ConfigError(cls.unknown(name, spelling), setting=name)

    @classmethod
    def names(cls) -> Collection[str]:
        """Return the names of all settings, in snake_case."""
        return _readers(cls).keys()

    @classmethod
    def unknown(cls, name: str, spelling: str) -> str:
        """Say that a setting is unknown, and which known one is nearest. Subclasses may know better."""
        hint = did_you_mean(name, cls.names(), show=dotted if "." in spelling else str)
        return f"unknown setting {spelling}" + (f": {hint}" if hint else "")


def dotted(name: str) -> str:
    """Return Kafka's name of a setting."""
    return name.replace("_", ".")


def _one_spelling(*sources: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    """Gather settings under their snake_case names, each with the spelling it came in. None is left out."""
    gathered: dict[str, tuple[str, object]] = {}
    for source in sources:
        for spelling, value in source.items():
            name = spelling.replace(".", "_")
            if name in gathered:
                raise ConfigError(f"{spelling} is given twice: leave one out", setting=name)
            gathered[name] = (spelling, value)
    return {name: given for name, given in gathered.items() if given[1] is not None}


def _read(reader: Reader | None, name: str, spelling: str, value: object) -> object:
    if reader is None:
        return value
    try:
        return reader(value)
    except ConfigError as error:
        raise ConfigError(f"{spelling}: {error}", setting=name) from None
    except ValueError as error:
        raise ConfigError(f"{spelling} is {value!r}: it {error}", setting=name) from None
