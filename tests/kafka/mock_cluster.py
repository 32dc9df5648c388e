"""librdkafka's mock cluster, from the confluent-kafka wheel: brokers that fail as they are told to."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from importlib.metadata import files
from types import TracebackType
from typing import Any, Final, Self

from millstream.wire.messages.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from millstream.wire.messages.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

_PRODUCER: Final = 0
_OK: Final = 0
_MOST: Final = {
    FIND_COORDINATOR.key: 2,
    JOIN_GROUP.key: 5,
    SYNC_GROUP.key: 3,
    HEARTBEAT.key: 3,
    LEAVE_GROUP.key: 1,
    OFFSET_COMMIT.key: 7,
    OFFSET_FETCH.key: 5,
}
"""The versions that librdkafka itself uses: the mock claims more than it can read."""


@cache
def _library() -> ctypes.CDLL:
    found = [each for each in files("confluent-kafka") or () if each.name.startswith("librdkafka")]
    assert found, "the confluent-kafka wheel has no librdkafka of its own"
    library = ctypes.CDLL(str(found[0].locate()))
    for name in ("conf_new", "new", "handle_mock_cluster", "mock_cluster_bootstraps", "mock_get_requests"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """So many brokers, numbered from 1, for as long as the block lasts."""

    def __init__(self, brokers: int = 3) -> None:
        library = _library()
        configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
        error = ctypes.create_string_buffer(512)
        for key, value in ((b"test.mock.num.brokers", str(brokers).encode()), (b"log_level", b"0")):
            library.rd_kafka_conf_set(configuration, key, value, error, ctypes.sizeof(error))
        self._handle = library.rd_kafka_new(_PRODUCER, configuration, error, ctypes.sizeof(error))
        assert self._handle, error.value
        self._cluster = library.rd_kafka_handle_mock_cluster(ctypes.c_void_p(self._handle))
        self._call("group_initial_rebalance_delay_ms", ctypes.c_int32(100))
        self._call("start_request_tracking")
        for api_key, version in _MOST.items():
            limits = (ctypes.c_int16(api_key), ctypes.c_int16(0), ctypes.c_int16(version))
            assert self._call("set_apiversion", *limits) == _OK

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _library().rd_kafka_destroy(ctypes.c_void_p(self._handle))

    @property
    def bootstrap_servers(self) -> str:
        found: bytes = _library().rd_kafka_mock_cluster_bootstraps(ctypes.c_void_p(self._cluster))
        return found.decode()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        assert self._call("topic_create", name.encode(), partitions, 1) == _OK

    def fail_next(self, api_key: int, codes: Iterable[int]) -> None:
        """Answer the next requests of an API with these errors, one each."""
        given = list(codes)
        array = (ctypes.c_int * len(given))(*given)
        self._call("push_request_errors_array", ctypes.c_int16(api_key), ctypes.c_size_t(len(given)), array)

    def asked(self, api_key: int) -> int:
        """How many requests of an API have come so far."""
        library, number = _library(), ctypes.c_size_t()
        found = library.rd_kafka_mock_get_requests(ctypes.c_void_p(self._cluster), ctypes.byref(number))
        requests = (ctypes.c_void_p * number.value).from_address(found) if number.value else ()
        try:
            keys = [library.rd_kafka_mock_request_api_key(ctypes.c_void_p(each)) for each in requests]
        finally:
            library.rd_kafka_mock_request_destroy_array(ctypes.c_void_p(found), number)
        return keys.count(api_key)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        assert self._call("partition_set_leader", topic.encode(), partition, ctypes.c_int32(broker)) == _OK

    def coordinate(self, group: str, broker: int) -> None:
        assert self._call("coordinator_set", b"group", group.encode(), ctypes.c_int32(broker)) == _OK

    def down(self, broker: int) -> None:
        assert self._call("broker_set_down", ctypes.c_int32(broker)) == _OK

    def up(self, broker: int) -> None:
        assert self._call("broker_set_up", ctypes.c_int32(broker)) == _OK

    def delay(self, broker: int, milliseconds: int) -> None:
        """Answer so much later."""
        assert self._call("broker_set_rtt", ctypes.c_int32(broker), milliseconds) == _OK

    def _call(self, name: str, *arguments: Any) -> int:
        function = getattr(_library(), f"rd_kafka_mock_{name}")
        result: int = function(ctypes.c_void_p(self._cluster), *arguments)
        return result
