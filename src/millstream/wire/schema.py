"""Kafka's messages as Python classes, whose encoders and decoders are generated from the declaration.

An API is declared beside its request and its response. A field says its type on the wire and the versions
that carry it::

    FETCH = Api(1, "Fetch", 4, 18, flexible=12)

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1)

    class FetchRequest(Request, api=FETCH):
        topics: list[FetchTopic] = array(FetchTopic)

One class serves every version of its API: a field that a version lacks is not written, and reads as its
default. Declaring a message is cheap. The function that encodes or decodes one version is generated on first
use; to see one, print ``decoders.write(FetchRequest, 12, flexible=True).text``.

What the generated code guarantees:

- Runs of fixed-size fields are packed and unpacked by one ``struct`` call, and nested structs are read and
  written in place: one message is one function.
- Every length is checked against the end of the frame before it is used. Every count is checked against the
  bytes that its elements need at least, and against ``max_elements``: a hostile frame costs little more than
  its size.
- Record payloads are views of the frame when read, and separate chunks when written: they are never copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self, dataclass_transform

from millstream.errors import CorruptMessage, UnsupportedVersionError
from millstream.wire import decoders, encoders
from millstream.wire.fields import MISSING, NEVER, Field, HasFields, Versions
from millstream.wire.source import Source

ZERO_UUID: Final = bytes(16)
"""The topic id of a topic that has none."""

Decoder = Callable[[memoryview, int, int, int], tuple[Any, int]]
"""``(view, position, end, elements left) -> (message, position)``."""

Encoder = Callable[[Any, bytearray, list[tuple[int, Any]]], None]
"""``(message, buffer, payloads)`` appends the message to both; see ``Message.encode_into``."""


# ------------------------------------------------------------------------------------------ field types
#
# ``versions`` are those that carry the field, ``nullable`` those in which it may be null. A field without a
# ``default`` must be given. ``tag`` makes it a tagged field (KIP-482). ``ignorable=False`` marks a field of a
# request whose meaning would be lost on a broker too old to carry it: encoding such a version with the field
# set raises UnsupportedVersionError.


def _fixed(kind: str, zero: Any) -> Callable[..., Any]:
    def declare(
        versions: str | None = None, *, default: Any = MISSING, tag: int | None = None, ignorable: bool = True
    ) -> Any:
        return Field(kind, versions, default, zero, tag=tag, ignorable=ignorable)

    return declare


def _sized(kind: str, zero: Any) -> Callable[..., Any]:
    def declare(
        versions: str | None = None,
        *,
        default: Any = MISSING,
        nullable: str | None = None,
        tag: int | None = None,
        ignorable: bool = True,
    ) -> Any:
        return Field(kind, versions, default, zero, nullable=nullable, tag=tag, ignorable=ignorable)

    return declare


boolean = _fixed("bool", False)
int8 = _fixed("int8", 0)
int16 = _fixed("int16", 0)
uint16 = _fixed("uint16", 0)
int32 = _fixed("int32", 0)
int64 = _fixed("int64", 0)
float64 = _fixed("float64", 0.0)
uuid = _fixed("uuid", ZERO_UUID)
"""A topic or directory id: 16 raw bytes."""
string = _sized("string", "")
"""Text in UTF-8, at most 32,767 bytes."""
data = _sized("bytes", b"")
"""Opaque bytes, copied out of the frame: small values such as assignments."""


def records(versions: str | None = None, *, default: Any = MISSING, nullable: str | None = None) -> Any:
    """Record batches: decoded to a view of the frame and encoded as a chunk of its own, so never copied."""
    return Field("records", versions, default, None, nullable=nullable)


def array(
    element: type[Struct] | Any,
    versions: str | None = None,
    *,
    default: Any = MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """A list of structs, or of a simple type: ``array(FetchTopic)``, ``array(int32())``."""
    item = element if isinstance(element, Field) else nested(element)
    return Field(
        "array", versions, default, [], nullable=nullable, tag=tag, ignorable=ignorable, element=item
    )


def nested(
    of: type[Struct],
    versions: str | None = None,
    *,
    default: Any = MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """One struct inside another."""
    return Field(
        "struct", versions, default, None, nullable=nullable, tag=tag, ignorable=ignorable, struct_type=of
    )


# ---------------------------------------------------------------------------------- structs and messages


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


class Struct(HasFields, metaclass=StructMeta):
    """A group of fields. Built with keywords; fields without a declared default must be given."""

    def __init__(self, **values: Any) -> None:
        # The first instance compiles the real constructor, which then replaces this one.
        constructor = _constructor(type(self))
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


def _constructor(struct_type: type[Struct]) -> Callable[..., None]:
    """Compile ``__init__`` with one keyword per field. A list default is a new list for each instance."""
    source = Source(f"{struct_type.__name__}.__init__")
    parameters = []
    for field in struct_type.__fields__:
        default, value = field.default, field.name
        if isinstance(default, list):
            default, value = ..., f"[] if {field.name} is ... else {field.name}"
        parameters.append(field.name if field.required else f"{field.name}={source.constant(default)}")
        source.line(f"self.{field.name} = {value}")
    source.head = f"def __init__({', '.join(['self', *(['*', *parameters] if parameters else [])])}):"
    function: Callable[..., None] = source.compile()
    function.__qualname__ = source.title
    return function


class Message(Struct):
    """A struct that is sent or stored by itself, with the versions it has and the first flexible one."""

    versions: ClassVar[Versions]
    flexible: ClassVar[int]
    lossless: ClassVar[bool] = False
    """Whether encoding refuses fields that are set, but that the version lacks (``ignorable=False``)."""
    max_elements: ClassVar[int] = 250_000
    """The most elements, in all arrays together, that are read from one message: in a hostile frame a few
    bytes can claim an object of hundreds."""
    decoders: ClassVar[dict[int, Decoder]]
    encoders: ClassVar[dict[int, Encoder]]
    """The compiled functions, by version."""

    def __init_subclass__(cls, *, versions: Versions | None = None, flexible: int = NEVER) -> None:
        super().__init_subclass__()
        if versions is not None:
            cls.versions, cls.flexible = versions, flexible
            cls.decoders, cls.encoders = {}, {}

    def encode(self, version: int) -> bytes:
        """Return the message's bytes in this version, record payloads included."""
        buffer = bytearray()
        payloads = self.encode_into(buffer, version)
        for position, payload in reversed(payloads):
            buffer[position:position] = payload
        return bytes(buffer)

    def encode_into(self, buffer: bytearray, version: int) -> list[tuple[int, Any]]:
        """Append the message without its record payloads; return each payload with its place in the buffer.

        Raises EncodeError, which names the field, for a value that the wire cannot hold.
        """
        encoder = self.encoders.get(version) or self._compile_encoder(version)
        payloads: list[tuple[int, Any]] = []
        try:
            encoder(self, buffer, payloads)
        except (struct.error, TypeError, AttributeError, ValueError, OverflowError) as error:
            from millstream.wire import faults

            raise faults.explain(self, version, error) from error
        return payloads

    @classmethod
    def decode(cls, buffer: bytes | bytearray | memoryview, version: int) -> Self:
        """Read one message from the beginning of the buffer. Raises CorruptMessage.

        Bytes after the message are ignored, as in Kafka: newer versions of a subscription append fields.
        """
        message, _ = cls.decode_from(memoryview(buffer), 0, version)
        return message

    @classmethod
    def decode_from(cls, view: memoryview, position: int, version: int) -> tuple[Self, int]:
        """Read the message at ``position``; return it with the position of its end."""
        decoder = cls.decoders.get(version) or cls._compile_decoder(version)
        try:
            return decoder(view, position, len(view), cls.max_elements)
        except (struct.error, IndexError) as error:
            raise CorruptMessage(f"{cls.__name__} version {version} is malformed: {error}") from None

    @classmethod
    def _compile_encoder(cls, version: int) -> Encoder:
        source = encoders.write(cls, version, flexible=cls._is_flexible(version), lossless=cls.lossless)
        function: Encoder = source.compile()
        cls.encoders[version] = function
        return function

    @classmethod
    def _compile_decoder(cls, version: int) -> Decoder:
        function: Decoder = decoders.write(cls, version, flexible=cls._is_flexible(version)).compile()
        cls.decoders[version] = function
        return function

    @classmethod
    def _is_flexible(cls, version: int) -> bool:
        """Return whether a version is flexible; UnsupportedVersionError if the message does not have it."""
        lowest, highest = cls.versions
        if not lowest <= version <= highest:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {lowest} to {highest}, but not {version}"
            )
        return version >= cls.flexible


class Data(Message):
    """A message inside another one: a record of ``__consumer_offsets``, a member's subscription."""


# ------------------------------------------------------------------------------------------------- APIs


class Api:
    """One API: its key and name, the versions that millstream supports, and the first flexible one.

    ``since`` is the Kafka release that introduced it. ``client_max_version`` is the last version that our
    clients send, if it is not the last one. Its request and response add themselves.
    """

    declared: ClassVar[dict[int, Api]] = {}
    """The APIs whose module was imported, by key. ``wire.apis`` finds the others."""

    request_type: type[Request]
    response_type: type[Response]

    def __init__(
        self,
        key: int,
        name: str,
        min_version: int,
        max_version: int,
        *,
        flexible: int = NEVER,
        since: str = "0.11",
        client_max_version: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.flexible = flexible
        self.since = since
        self.client_max_version = max_version if client_max_version is None else client_max_version
        self.declared[key] = self

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name!r}, {self.min_version}, {self.max_version})"

    @property
    def family(self) -> str:
        """The name of the module in ``wire.messages`` that declares the API."""
        return self.request_type.__module__.rpartition(".")[2]


class _ApiMessage(Message):
    """A request or a response, which share the versions of their API."""

    api: ClassVar[Api]

    def __init_subclass__(cls, *, api: Api | None = None) -> None:
        if api is None:
            super().__init_subclass__()
        else:
            cls.api = api
            super().__init_subclass__(versions=(api.min_version, api.max_version), flexible=api.flexible)


class Request(_ApiMessage):
    """The request of an API."""

    lossless = True

    def __init_subclass__(cls, *, api: Api | None = None) -> None:
        super().__init_subclass__(api=api)
        if api is not None:
            api.request_type = cls


class Response(_ApiMessage):
    """The response of an API."""

    max_elements = 10_000_000  # the metadata of a large cluster has many elements

    def __init_subclass__(cls, *, api: Api | None = None) -> None:
        super().__init_subclass__(api=api)
        if api is not None:
            api.response_type = cls
