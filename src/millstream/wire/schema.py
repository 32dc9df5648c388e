"""Kafka's messages as Python classes: what is declared here is compiled to encoders and decoders.

A message is a class whose fields say their type on the wire and the versions that carry them::

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1)

    class FetchRequest(Request, api=apis.FETCH):
        topics: list[FetchTopic] = array(FetchTopic)

One class serves every version of its API: a field that a version lacks is not written, and reads as its
default. Declaring costs next to nothing; the code that encodes and decodes one version of one message is
generated when it is first used (see ``compile``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, dataclass_transform

from millstream.errors import CorruptMessage
from millstream.wire import compile as compiler
from millstream.wire.apis import NEVER

if TYPE_CHECKING:
    from millstream.wire.apis import Api

ZERO_UUID: Final = bytes(16)
"""The topic id of a topic that has none."""

_MISSING: Final[Any] = object()

Versions = tuple[int, int]
_ALL: Final[Versions] = (0, NEVER)


def parse_versions(text: str) -> Versions:
    """``"3+"``, ``"2-4"`` or ``"7"`` as an inclusive range."""
    low, dash, high = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return int(low), _ALL[1]
    return int(low), int(high) if dash else int(low)


class Field:
    """One field as declared: its type on the wire, and the versions that carry it."""

    __slots__ = (
        "default",
        "element",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "required",
        "struct_type",
        "tag",
        "versions",
    )

    def __init__(
        self,
        kind: str,
        versions: str | None,
        default: Any,
        zero: Any,
        *,
        nullable: str | None = None,
        tag: int | None = None,
        ignorable: bool = True,
        element: Field | None = None,
        struct_type: type[Struct] | None = None,
    ) -> None:
        assert tag is None or 0 <= tag < 128, "the compiler writes tags as one byte"
        self.kind = kind
        self.versions = parse_versions(versions) if versions else _ALL
        self.nullable = parse_versions(nullable) if nullable else None
        self.tag = tag
        self.default = zero if default is _MISSING else default
        self.required = default is _MISSING
        self.ignorable = ignorable
        self.element = element
        self.struct_type = struct_type
        self.name = ""

    def present(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def null_allowed(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


# The field types. ``ignorable=False`` marks a field of a request whose meaning would be lost on a broker too
# old to carry it: encoding such a version with the field set raises UnsupportedVersionError.


def boolean(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """True or false, in one byte."""
    return Field("bool", versions, default, False, tag=tag, ignorable=ignorable)


def int8(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """One byte, signed."""
    return Field("int8", versions, default, 0, tag=tag, ignorable=ignorable)


def int16(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """Two bytes, signed."""
    return Field("int16", versions, default, 0, tag=tag, ignorable=ignorable)


def uint16(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """Two bytes, unsigned: a port."""
    return Field("uint16", versions, default, 0, tag=tag, ignorable=ignorable)


def int32(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """Four bytes, signed."""
    return Field("int32", versions, default, 0, tag=tag, ignorable=ignorable)


def int64(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """Eight bytes, signed."""
    return Field("int64", versions, default, 0, tag=tag, ignorable=ignorable)


def float64(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """Eight bytes of floating point."""
    return Field("float64", versions, default, 0.0, tag=tag, ignorable=ignorable)


def uuid(
    versions: str | None = None, *, default: Any = _MISSING, tag: int | None = None, ignorable: bool = True
) -> Any:
    """A topic or directory id: 16 raw bytes."""
    return Field("uuid", versions, default, ZERO_UUID, tag=tag, ignorable=ignorable)


def string(
    versions: str | None = None,
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """Text in UTF-8, of at most 32,767 bytes."""
    return Field("string", versions, default, "", nullable=nullable, tag=tag, ignorable=ignorable)


def data(
    versions: str | None = None,
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """Opaque bytes, decoded to ``bytes`` of their own: small things such as assignments."""
    return Field("bytes", versions, default, b"", nullable=nullable, tag=tag, ignorable=ignorable)


def records(versions: str | None = None, *, default: Any = _MISSING, nullable: str | None = None) -> Any:
    """Record batches: decoded to a view of the frame and encoded as a chunk of its own, so never copied."""
    return Field("records", versions, default, None, nullable=nullable)


def array(
    element: type[Struct] | Any,
    versions: str | None = None,
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """A list of structs, or of a simple type: ``array(FetchTopic)``, ``array(int32())``."""
    item = element if isinstance(element, Field) else _struct_field(element)
    return Field(
        "array", versions, default, [], nullable=nullable, tag=tag, ignorable=ignorable, element=item
    )


def nested(
    of: type[Struct],
    versions: str | None = None,
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """One struct inside another."""
    return Field(
        "struct", versions, default, None, nullable=nullable, tag=tag, ignorable=ignorable, struct_type=of
    )


def _struct_field(of: type[Struct]) -> Field:
    item: Field = nested(of)
    return item


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        int64,
        float64,
        uuid,
        string,
        data,
        records,
        array,
        nested,
    ),
)
class StructMeta(type):
    """Turns declared fields into slots, and keeps the declarations in ``__fields__``."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructMeta:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key, field in fields.items():
            field.name = key
            if field.element is not None:
                field.element.name = key
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        namespace["__fields__"] = tuple(fields.values())
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructMeta):
    """A group of fields. Built with keywords; fields without a declared default must be given."""

    __fields__: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        # The first instance pays for compiling the real constructor; the others find it in this one's place.
        constructor = compiler.constructor(type(self))
        type(self).__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.__fields__)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A struct that stands alone: it knows its versions and which of them are flexible (KIP-482)."""

    versions: ClassVar[Versions]
    flexible: ClassVar[int]
    lossless: ClassVar[bool] = False
    """Whether encoding refuses fields that are set, but that the version lacks (``ignorable=False``)."""
    max_elements: ClassVar[int] = 250_000
    """How many elements, of all arrays together, are read from one message: a few bytes of a hostile frame
    can stand for an object of hundreds."""
    decoders: ClassVar[dict[int, compiler.Decoder]]
    encoders: ClassVar[dict[int, compiler.Encoder]]
    """The compiled functions, by version."""

    def __init_subclass__(cls, *, versions: Versions | None = None, flexible: int = NEVER) -> None:
        super().__init_subclass__()
        if versions is not None:
            cls.versions, cls.flexible = versions, flexible
            cls.decoders, cls.encoders = {}, {}

    def encode(self, version: int) -> bytes:
        """The message's bytes in this version, payloads included."""
        buffer = bytearray()
        payloads = self.encode_into(buffer, version)
        for position, payload in reversed(payloads):
            buffer[position:position] = payload
        return bytes(buffer)

    def encode_into(self, buffer: bytearray, version: int) -> list[tuple[int, Any]]:
        """Append the message, but for its record payloads: each is returned with its place in the buffer.

        Raises EncodeError, naming the field, on a value that the wire cannot hold.
        """
        encoder = self.encoders.get(version) or compiler.encoder(type(self), version)
        payloads: list[tuple[int, Any]] = []
        try:
            encoder(self, buffer, payloads)
        except (struct.error, TypeError, AttributeError, ValueError, OverflowError) as error:
            from millstream.wire import faults

            raise faults.explain(self, version, error) from error
        return payloads

    @classmethod
    def decode(cls, buffer: bytes | bytearray | memoryview, version: int) -> Self:
        """Read one message from the buffer's beginning; raises CorruptMessage where there is none.

        What follows the message is ignored, as in Kafka: newer versions of a subscription add to its end.
        """
        message, _ = cls.decode_from(memoryview(buffer), 0, version)
        return message

    @classmethod
    def decode_from(cls, view: memoryview, position: int, version: int) -> tuple[Self, int]:
        """Read one message that starts at ``position``; returns it with the position of its end."""
        decoder = cls.decoders.get(version) or compiler.decoder(cls, version)
        try:
            return decoder(view, position, len(view), cls.max_elements)
        except (struct.error, IndexError) as error:
            raise CorruptMessage(f"{cls.__name__} version {version} is malformed: {error}") from None


class _ApiMessage(Message):
    """One half of an API, whose versions it shares."""

    api: ClassVar[Api]

    def __init_subclass__(cls, *, api: Api | None = None) -> None:
        if api is None:
            super().__init_subclass__()
        else:
            cls.api = api
            super().__init_subclass__(versions=(api.min_version, api.max_version), flexible=api.flexible)


class Request(_ApiMessage):
    """What a client asks; ``api`` names the API that it belongs to."""

    lossless = True


class Response(_ApiMessage):
    """What a broker answers; ``api`` as in the request. The metadata of a large cluster has many elements."""

    max_elements = 10_000_000


class Data(Message):
    """A message that travels inside others: a record of ``__consumer_offsets``, a subscription."""
