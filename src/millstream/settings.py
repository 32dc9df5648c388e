"""How settings are declared and read: one dataclass field holds a setting's type, range, default and meaning.

::

    @dataclass(frozen=True, kw_only=True)
    class ClientConfig(Settings):
        request_timeout_ms: Int = setting(30_000, "How long one request may take before it is sent again.")

``Settings.from_settings`` reads snake_case keywords, a mapping with Kafka's dotted names, or both. It parses
strings as Kafka does and refuses unknown names. Inside, each setting has one spelling (snake_case) and one
type. A value of None means the default. ``Settings.declared`` lists the settings for the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, get_args, get_type_hints

from millstream.errors import ConfigError
from millstream.suggestions import did_you_mean

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


# ---- readers of one value: each raises ValueError, saying what it must be ----


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
    """Read a list: a string separated by commas, a collection, or a single object."""
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

_PROTOCOL = re.compile(r"(?:SASL_)?(?:PLAINTEXT|SSL)://")


def parse_address(text: str, *, lowest_port: int = 1) -> Address:
    """Read ``host:port``, or ``[address]:port`` for IPv6. ``lowest_port=0`` allows 0, for any free port."""
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
    # Providers show addresses with the protocol before them: SASL_SSL://host:9092.
    texts = [_PROTOCOL.sub("", part) for part in map(read_text, parts) if part]
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


# ---- declaring and reading a set of settings ----

Reader = Callable[[object], Any]


def setting(
    default: Any,
    meaning: str,
    *,
    shown: str | None = None,
    secret: bool = False,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a setting in the body of a Settings class; its annotation says how it is read.

    ``default``: the default value, or ``REQUIRED``.
    ``meaning``: what the setting is for and when to change it, in Markdown, for the documentation.
    ``shown``: the default as the documentation shows it, where that is not the value itself.
    ``secret``: no repr, no error and no log shows its value.
    ``aliases``: other names of the setting, in snake_case, such as librdkafka's.
    """
    metadata = {"meaning": meaning, "shown": shown, "secret": secret, "aliases": aliases}
    return field(default=default, repr=not secret, metadata=metadata)


REQUIRED: Final = MISSING


class Declared(NamedTuple):
    """A setting as the documentation shows it."""

    name: str
    default: str
    meaning: str


_READERS: dict[type[Settings], dict[str, Reader | None]] = {}


def _readers(cls: type[Settings]) -> dict[str, Reader | None]:
    """Return the reader of each setting of a class; None where any object is accepted."""
    if cls not in _READERS:
        hints = get_type_hints(cls, include_extras=True)
        _READERS[cls] = {each.name: _reader_of(hints[each.name]) for each in fields(cls)}
    return _READERS[cls]


def _reader_of(hint: object) -> Reader | None:
    """Find the reader in ``Annotated[T, reader]``, also inside ``Annotated[T, reader] | None``."""
    if hasattr(hint, "__metadata__"):
        return next(filter(callable, hint.__metadata__), None)
    return next(filter(None, map(_reader_of, get_args(hint))), None)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of every set of settings."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Kafka's settings that are not supported, or families of them (``ssl_*``), with the reason."""
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset()
    """Kafka's settings, or families, that are accepted and ignored: no program can see a difference."""

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, object] | None = None, keywords: Mapping[str, object] | None = None
    ) -> Self:
        """Read settings from a mapping and from keywords; the same setting in both is an error.

        Raises ConfigError for an unknown or unsupported setting, an invalid value, a missing required
        setting, and settings that contradict each other.
        """
        if not isinstance(settings or {}, Mapping):
            raise ConfigError(f"settings are keywords or a mapping, not {settings!r}")
        values: dict[str, Any] = {}
        given = _one_spelling(cls.aliases(), settings or {}, keywords or {})
        secrets = cls.secrets()
        for name, (spelling, value) in given.items():
            if cls._is_known(name, spelling):
                values[name] = _read(_readers(cls)[name], name, spelling, value, is_secret=name in secrets)
        for each in fields(cls):
            if each.default is each.default_factory is MISSING and each.name not in values:
                raise ConfigError(f"{each.name} is missing: it has no default", setting=each.name)
        return cls(**cls.derive(values))

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Add defaults that depend on the given ``values``. Subclasses extend this."""
        return values

    @classmethod
    def _is_known(cls, name: str, spelling: str) -> bool:
        """Return True for a setting, False for one without effect; raise ConfigError for any other."""
        if name in _readers(cls):
            return True
        if any(_belongs(name, family) for family in cls.WITHOUT_EFFECT):
            return False
        for family, reason in cls.REFUSED.items():
            if _belongs(name, family):
                raise ConfigError(f"{spelling} is not supported: {reason}", setting=name)
        raise ConfigError(cls.unknown(name, spelling), setting=name)

    @classmethod
    def names(cls) -> Collection[str]:
        """Return the names of all settings, in snake_case."""
        return _readers(cls).keys()

    @classmethod
    def knows(cls, spelling: str) -> bool:
        """Return whether this is the name of a setting, in any spelling."""
        name = spelling.replace(".", "_")
        return name in _readers(cls) or name in cls.aliases()

    @classmethod
    def declared(cls) -> list[Declared]:
        """Return the settings that were declared with ``setting``, in the order of their declaration."""
        return [
            Declared(each.name, each.metadata["shown"] or _shown(each.default), _meaning(each.metadata))
            for each in fields(cls)
            if each.metadata
        ]

    @classmethod
    def aliases(cls) -> Mapping[str, str]:
        """Return the names of settings by their other names, all in snake_case."""
        return {alias: each.name for each in fields(cls) for alias in each.metadata.get("aliases", ())}

    @classmethod
    def secrets(cls) -> frozenset[str]:
        """Return the names of the settings whose values are never shown, under all their names."""
        names = {each.name for each in fields(cls) if each.metadata.get("secret")}
        return frozenset(names | {alias for alias, name in cls.aliases().items() if name in names})

    @classmethod
    def unknown(cls, name: str, spelling: str) -> str:
        """Return the message for an unknown setting, with the nearest known one. Subclasses may extend it."""
        hint = did_you_mean(name, [*cls.names(), *cls.aliases()], show=dotted if "." in spelling else str)
        return f"unknown setting {spelling}" + (f": {hint}" if hint else "")


def _belongs(name: str, family: str) -> bool:
    return name == family or (family.endswith("*") and name.startswith(family[:-1]))


def dotted(name: str) -> str:
    """Return Kafka's name of a setting."""
    return name.replace("_", ".")


def _shown(default: object) -> str:
    if default is REQUIRED:
        return "required"
    if default is None or default == "":
        return "not set"
    if default in (INT_MAX, LONG_MAX):
        return "no limit"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _meaning(declared: Mapping[str, Any]) -> str:
    meaning: str = declared["meaning"]
    others = ", ".join(f"`{dotted(alias)}`" for alias in declared["aliases"])
    return f"{meaning} Also: {others}." if others else meaning


def _one_spelling(
    aliases: Mapping[str, str], *sources: Mapping[str, object]
) -> dict[str, tuple[str, object]]:
    """Return settings by snake_case name, each with its original spelling. None is left out."""
    gathered: dict[str, tuple[str, object]] = {}
    for source in sources:
        for spelling, value in source.items():
            name = spelling.replace(".", "_")
            name = aliases.get(name, name)
            if name in gathered:
                other = gathered[name][0]
                also = f", as {other}" if dotted(other) != dotted(spelling) else ""
                raise ConfigError(f"{spelling} is given twice{also}: leave one out", setting=name)
            gathered[name] = (spelling, value)
    return {name: given for name, given in gathered.items() if given[1] is not None}


def _read(reader: Reader | None, name: str, spelling: str, value: object, *, is_secret: bool) -> object:
    if reader is None:
        return value
    try:
        return reader(value)
    except ConfigError as error:
        raise ConfigError(f"{spelling}: {error}", setting=name) from None
    except ValueError as error:
        shown = "" if is_secret else f" is {value!r}"
        raise ConfigError(f"{spelling}{shown}: it {error}", setting=name) from None
