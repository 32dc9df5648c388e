"""The broker: its parts put together, started, served and stopped.

Everything runs on the thread that calls ``run``, except what waits for the disk: syncs (``flusher``), and the
heavy part of compaction and deletion (``maintenance``).
"""

from __future__ import annotations

import base64
import logging
import random
import resource
import time
import uuid
from pathlib import Path
from typing import Final

from millstream.broker.dispatch import handler_of
from millstream.broker.fetch_sessions import FetchSessions
from millstream.broker.flusher import Flusher
from millstream.broker.group_service import GroupService
from millstream.broker.log.config import LogConfig
from millstream.broker.log.directory import Identity, LogDirectory
from millstream.broker.log.files import Files
from millstream.broker.log.topics import Topic as StoredTopic
from millstream.broker.log.topics import check_topic_name
from millstream.broker.maintenance import Maintenance
from millstream.broker.metrics import BrokerMetrics
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.server import RequestContext, Server
from millstream.broker.settings import BrokerSettings
from millstream.broker.topics import OFFSETS_TOPIC, Partition, Topic, TopicIndex
from millstream.errors import (
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.net.reactor import Reactor
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.broker")

_STALLED_FRAME_MS: Final = 30_000
_SPARE_DESCRIPTORS: Final = 256
"""Descriptors that connections may not take: the logs need some."""
_MAX_GROUP_RECORD_BYTES: Final = 64 << 20
"""A large group's generation is one record: its members' subscriptions and assignments together."""
_DRAIN_MS: Final = 1000
"""How long a stop waits for answers that are on their way."""


class Broker:
    """One broker on one data directory."""

    def __init__(self, data_directory: Path, settings: BrokerSettings, files: Files | None = None) -> None:
        self.data_directory = data_directory.absolute()
        self.settings = settings
        self.files = files or Files()
        self.reactor = Reactor()
        self.metrics = BrokerMetrics()
        self.topics = TopicIndex()
        self.flusher = Flusher(self.reactor.call_threadsafe, self.metrics)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots, lambda: random.getrandbits(31)
        )
        self.fetch_max_bytes = settings.fetch_max_bytes
        self.groups = GroupService(self)
        self.maintenance = Maintenance(self.reactor, settings, self.flusher, self.epoch_ms)
        self.address = ""
        self._server = self._make_server()
        self._stopping = False

    # --- life

    def start(self, host: str, port: int, *, allow_remote: bool = False) -> None:
        """Open the data directory and listen. When this returns, clients can connect; ``run`` serves them."""
        self.directory = self._open_directory()
        self.producer_ids = ProducerIds(self.data_directory / "producer-ids", self.files)
        for stored in self.directory.topics:
            self._serve_topic(stored)
        self.maintenance.start(self.directory)
        self.groups.load()
        bound_host, bound_port = self._server.listen(host, port, allow_remote=allow_remote)
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.address = f"{shown}:{bound_port}"
        log.info("listening on %s, data in %s", self.address, self.data_directory)

    def _open_directory(self) -> LogDirectory:
        """Open the data directory and tell what a crash did to it. A log that cannot be opened stops us."""
        new_ids = (encode_uuid(uuid.uuid4()), encode_uuid(uuid.uuid4()))
        directory = LogDirectory.open(
            self.data_directory,
            Identity(new_ids[0], self.node_id, new_ids[1]),
            now_ms=self.epoch_ms(),
            defaults=self.settings.topic_defaults,
            files=self.files,
        )
        for partition, error in directory.failed.items():
            directory.close(clean=False)
            raise KafkaStorageError(f"the log of {partition} cannot be opened: {error}")
        for partition, report in directory.recovered.items():
            if report.missing_offsets:
                lost = report.missing_offsets
                log.error("%s: the disk lost %d durable offsets: %s", partition, lost, report.reason)
            elif report.reason:
                log.warning("%s: cut %d bytes after a crash: %s", partition, report.cut_bytes, report.reason)
        return directory

    def run(self) -> None:
        """Serve until ``stop``; then close the logs cleanly."""
        self.reactor.run()
        self.flusher.close()
        self.maintenance.close()
        try:
            for partition, error in self.directory.close().items():
                log.error("%s could not be closed cleanly, and will be recovered: %s", partition, error)
        except OSError as error:
            log.error("the clean stop could not be noted, so the next start recovers all logs: %s", error)
        self.reactor.close()
        log.info("stopped")

    def stop(self) -> None:
        """Stop soon, from any thread or a signal handler: answer what can be answered, then end ``run``."""
        self.reactor.call_threadsafe(self._begin_stop)

    def _begin_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._server.stop_listening()
        self.groups.stop()
        self._finish_stop(self.reactor.now_ms() + _DRAIN_MS)

    def _finish_stop(self, deadline_ms: int) -> None:
        now_ms = self.reactor.now_ms()
        if self._server.has_answers_under_way and now_ms < deadline_ms:
            self.reactor.call_at(now_ms + 5, lambda: self._finish_stop(deadline_ms))
            return
        self._server.close()
        # Several logs at a time, on the flusher's threads: closing them would sync one after the other.
        self.flusher.when_durable(self.directory.unsynced_logs(), lambda _: self.reactor.stop())

    def _make_server(self) -> Server:
        return Server(
            self.reactor,
            self,
            self.metrics,
            max_request_bytes=self.settings.socket_request_max_bytes,
            max_connections=min(self.settings.max_connections, _raise_descriptor_limit()),
            max_frame_memory=self.settings.queued_max_request_bytes,
            idle_ms=self.settings.connections_max_idle_ms,
            stalled_frame_ms=_STALLED_FRAME_MS,
        )

    def dispatch(self, request: Request, context: RequestContext) -> Response | None:
        response: Response | None = handler_of(request.api.key)(self, request, context)
        return response

    # --- what handlers ask

    @property
    def node_id(self) -> int:
        return self.settings.node_id

    @property
    def rack(self) -> str | None:
        return self.settings.broker_rack or None

    @property
    def cluster_id(self) -> str:
        return self.directory.identity.cluster_id

    @staticmethod
    def epoch_ms() -> int:
        """The wall clock, for timestamps and retention."""
        return time.time_ns() // 1_000_000

    def advertised(self, context: RequestContext) -> tuple[str, int]:
        """The address that a client is told: the configured one, or the one that it came by."""
        configured = self.settings.advertised_listeners
        return (configured.host, configured.port) if configured is not None else context.local_address

    # --- topics

    def create_topic(
        self, name: str, partitions: int, configs: dict[str, str], validate_only: bool = False
    ) -> Topic | None:
        """Make a topic durably; None where it was only to be checked. Raises BrokerError or ConfigError."""
        check_topic_name(name)
        self._check_new(name)
        LogConfig.from_properties(configs, self.settings.topic_defaults)
        if validate_only:
            return None
        stored = StoredTopic(name, uuid.uuid4().bytes, partitions, configs)
        self.directory.create_topics([stored], self.epoch_ms())
        log.info("created topic %s with %d partitions", name, partitions)
        return self._serve_topic(stored)

    def _check_new(self, name: str) -> None:
        if self.topics.get(name) is not None:
            raise TopicAlreadyExistsError(f"topic {name} exists already")
        # Kafka's metrics have no dots, so names that differ only there would collide; it refuses them.
        twin = name.replace(".", "_")
        for topic in self.topics:
            if topic.name.replace(".", "_") == twin:
                raise InvalidTopicError(f"{name} and {topic.name} differ only in '.' and '_'")

    def auto_create(self, name: str, *, allowed: bool) -> Topic:
        """Make a topic that somebody asked about, where settings and client allow it."""
        check_topic_name(name)
        if name == OFFSETS_TOPIC and allowed:
            return self.create_offsets_topic()
        if not allowed or not self.settings.auto_create_topics_enable:
            raise UnknownTopicOrPartitionError(f"there is no topic {name}")
        topic = self.create_topic(name, self.settings.num_partitions, {})
        assert topic is not None, "it was not only checked"
        return topic

    def create_offsets_topic(self) -> Topic:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.settings.offsets_topic_segment_bytes),
            "max.message.bytes": str(_MAX_GROUP_RECORD_BYTES),
        }
        topic = self.create_topic(OFFSETS_TOPIC, self.settings.offsets_topic_num_partitions, configs)
        assert topic is not None, "it was not only checked"
        return topic

    def _serve_topic(self, stored: StoredTopic) -> Topic:
        topic = Topic(stored.name, stored.topic_id, [], dict(stored.configs))
        self._serve_partitions(topic, stored.partitions)
        self.topics.add(topic)
        return topic

    def _serve_partitions(self, topic: Topic, count: int) -> None:
        """Take up the partitions that the directory has and the topic has not yet."""
        for index in range(len(topic.partitions), count):
            where = TopicPartition(topic.name, index)
            if where in self.directory.failed:
                raise self.directory.failed[where]
            topic.partitions.append(Partition(topic.name, index, self.directory.logs[where], self.node_id))

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its data, its offsets in all groups, and its place in parked fetches."""
        trash = self.directory.delete_topic(topic.name)
        self.topics.remove(topic)
        self.maintenance.remove(trash)
        self.groups.topic_deleted(topic.name)
        for partition in topic.partitions:
            self.flusher.forget(partition.log)
            partition.notify_changed()
        log.info("deleted topic %s", topic.name)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Bring a topic to this number of partitions, durably."""
        self.directory.add_partitions(topic.name, count, self.epoch_ms())
        self._serve_partitions(topic, count)

    def set_topic_configs(self, topic: Topic, configs: dict[str, str], *, validate_only: bool) -> None:
        """Replace a topic's own settings, durably and at once. Raises ConfigError."""
        LogConfig.from_properties(configs, self.settings.topic_defaults)
        if validate_only:
            return
        self.directory.update_configs(topic.name, configs)
        topic.configs = configs


def encode_uuid(value: uuid.UUID) -> str:
    """An id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _raise_descriptor_limit() -> int:
    """Allow ourselves all the descriptors that we may have; returns how many connections may use."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(16, hard - _SPARE_DESCRIPTORS) if hard != resource.RLIM_INFINITY else 1 << 30
