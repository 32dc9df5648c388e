"""The errors that millstream itself raises, and ``MillstreamError``, the base of all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from millstream.model import TopicPartition

_PACKAGE = __name__.rpartition(".")[0]


class MillstreamError(Exception):
    """Something went wrong in millstream."""

    __module__ = _PACKAGE

    meaning: ClassVar[str] = "Something went wrong in millstream."
    """The message of the class: its docstring, on one line."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(f"{_PACKAGE}."):
            cls.__module__ = _PACKAGE  # the public path, which pickles and tracebacks show
        # python -OO drops docstrings: then the name is the message.
        cls.meaning = " ".join((cls.__doc__ or cls.__name__).split())

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return self.detail or self.meaning

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return False


class MisuseError(MillstreamError):
    """The call is not valid in this state or with these arguments."""


class ConfigError(MisuseError, ValueError):
    """A setting is unknown, has a wrong value, or contradicts another one."""

    def __init__(self, detail: str = "", *, setting: str | None = None) -> None:
        super().__init__(detail)
        self.setting = setting
        """The setting that the error is about, if it is about one; a client's in snake_case."""


class ClosedError(MisuseError):
    """The object is closed: create a new one."""


class ConsumerClosedError(ClosedError):
    """The consumer is closed: create a new one."""


class ConcurrentAccessError(MisuseError):
    """Another thread is inside this consumer: use one per thread. Only wakeup() may be called from any."""


class MissingExtraError(MillstreamError, ImportError):
    """A package that an optional part of millstream needs is not installed. ``extra`` names that part."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"the package {module!r} is missing: run pip install 'millstream[{extra}]'")
        self.args = (module, extra)
        self.name = module
        self.extra = extra


class MillstreamTimeoutError(MillstreamError, TimeoutError):
    """The call timed out: raise its timeout, or check that the brokers can be reached."""

    @property
    def retriable(self) -> bool:
        return True


class BufferExhaustedError(MillstreamTimeoutError):
    """The producer's buffer stayed full for max_block_ms: send more slowly, or raise buffer_memory."""


class NoBrokersAvailableError(MillstreamTimeoutError):
    """None of the bootstrap_servers answered: check their addresses, and that a broker runs there."""


class BrokerStartError(MillstreamError):
    """The embedded broker could not start."""


class DataDirectoryLockedError(MillstreamError):
    """Another broker uses this data directory: stop that one, or choose another directory."""


class CorruptMessage(MillstreamError):  # noqa: N818 - says what the bytes are
    """The bytes are not a message of Kafka's protocol."""


class CorruptBatch(MillstreamError):  # noqa: N818 - says what the bytes are
    """The bytes are not a record batch, or fail its checksum."""


class UnsupportedMagic(CorruptBatch):
    """The record batch is not of format 2: this older or newer format is not supported."""


class SerializationError(MillstreamError):
    """A key or value could not be turned into bytes by its serializer."""


class DeserializationError(MillstreamError):
    """A record's key or value could not be read. The position stays before it: seek past it to skip it."""

    def __init__(self, detail: str, topic: str, partition: int, offset: int, raw: bytes) -> None:
        super().__init__(detail)
        self.args = (detail, topic, partition, offset, raw)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.raw = raw


class RegistryError(MillstreamError):
    """The schema registry refused a request. ``status`` is HTTP's, ``error_code`` the registry's own code."""

    def __init__(self, detail: str = "", status: int | None = None, error_code: int | None = None) -> None:
        super().__init__(detail)
        self.args = (detail, status, error_code)
        self.status = status
        self.error_code = error_code


class RegistryUnavailableError(RegistryError):
    """The schema registry did not answer: call again later, and check registry_url."""

    @property
    def retriable(self) -> bool:
        return True


class SchemaNotFoundError(RegistryError):
    """The schema registry does not have this schema, subject or version."""


class InternalError(MillstreamError):
    """millstream itself failed, a bug of it; the cause says where. Close it, and create a new one."""


class WakeupError(MillstreamError):
    """wakeup() was called: the call in progress, or the next one that would wait, was interrupted."""


class CommitFailedError(MillstreamError):
    """The offsets were not committed: the group has given these partitions to another member, because poll()
    was not called within max_poll_interval_ms. Call poll() to rejoin, and then either handle fewer records at
    a time (max_poll_records) or allow more time (max_poll_interval_ms)."""


class RetriableCommitFailedError(MillstreamError):
    """The offsets were not committed for a passing reason: commit again, with the newest offsets."""

    @property
    def retriable(self) -> bool:
        return True


class NoOffsetForPartitionError(MillstreamError):
    """There is no committed offset and auto_offset_reset is none: seek first, or set auto_offset_reset."""

    def __init__(self, partitions: Iterable[TopicPartition] = ()) -> None:
        found = tuple(sorted(partitions))
        named = ", ".join(str(partition) for partition in found)
        super().__init__(f"{named}: {self.meaning}" if found else "")
        self.args = (found,)
        self.partitions = found


class DataLostError(MillstreamError):
    """Records that were to be read are no longer in the log: retention deleted them, or the topic was deleted
    or recreated. ``ranges`` are the lost offsets, as (topic, partition, start, end)."""

    def __init__(self, detail: str, ranges: Iterable[tuple[str, int, int, int]] = ()) -> None:
        super().__init__(detail)
        self.ranges = tuple(ranges)
        self.args = (detail, self.ranges)


class LoadFailedError(MillstreamError):
    """The load failed. What it had committed stays; running it again is safe and continues there.

    ``sink`` is where it loaded to, ``ranges`` are the offsets of the failed cycle, as (topic, partition,
    start, end), and ``committed`` is the number of rows that this run had committed before.
    """

    def __init__(
        self,
        detail: str,
        sink: str = "",
        ranges: Iterable[tuple[str, int, int, int]] = (),
        committed: int = 0,
    ) -> None:
        super().__init__(detail)
        self.sink = sink
        self.ranges = tuple(ranges)
        self.committed = committed
        self.args = (detail, sink, self.ranges, committed)
