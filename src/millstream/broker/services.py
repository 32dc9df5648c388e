"""What request handlers work with: topics, groups, the flusher, the settings and the event loop."""

from __future__ import annotations

import base64
import logging
import random
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from millstream.background_compile import BackgroundLoad
from millstream.broker.access.control import AccessControl
from millstream.broker.fetch_sessions import FetchSessions
from millstream.broker.flusher import Flusher
from millstream.broker.group_service import GroupService
from millstream.broker.log.directory import DirectoryIdentity, LogDirectory
from millstream.broker.log.durability import SyncTicket
from millstream.broker.log.files import Files
from millstream.broker.log.record_checks import record_loop
from millstream.broker.maintenance import Maintenance
from millstream.broker.metrics import BrokerMetrics
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.quotas.control import ClientQuotas
from millstream.broker.request_context import RequestContext
from millstream.broker.security.users import ScramUsers
from millstream.broker.served_topics import ServedTopics, Topic
from millstream.broker.settings import BrokerSettings
from millstream.errors import KafkaStorageError
from millstream.metrics.declarations import MetricReading, read
from millstream.net.reactor import Reactor
from millstream.wire.records.decode import load_check

log = logging.getLogger("millstream.broker")

_T = TypeVar("_T")
_BLOCKING_THREADS: Final = 4
_background_check: Final = BackgroundLoad(record_loop, load_check, "check of produced records")


class Services:
    """One broker's parts on one data directory. They are usable after ``open``."""

    def __init__(self, data_directory: Path, settings: BrokerSettings, files: Files | None = None) -> None:
        self.data_directory = data_directory.absolute()
        self.settings = settings
        self.files = files or Files()
        self.reactor = Reactor()
        self.metrics = BrokerMetrics()
        self.flusher = Flusher(self.reactor.call_threadsafe, self.metrics, self._sync_together)
        self.topics = ServedTopics(settings, self.epoch_ms)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots, lambda: random.getrandbits(31)
        )
        self.groups = GroupService(self.topics, settings, self.flusher, self.reactor, self.epoch_ms)
        self.scram_users = ScramUsers(self.data_directory / "users", self.files)
        self.quotas = ClientQuotas(settings, self.data_directory / "quotas", self.files, self.reactor.now_ms)
        self._threads: ThreadPoolExecutor | None = None
        self.access: AccessControl | None = None
        """The ACLs; None if everyone may do everything."""
        if settings.authorizer_class_name:
            self.access = AccessControl(settings, self.topics, self.data_directory / "acls", self.files)
            self.access.on_changed = self.fetch_sessions.look_at_all

    @staticmethod
    def epoch_ms() -> int:
        """The wall clock, for timestamps and retention."""
        return time.time_ns() // 1_000_000

    def open(self) -> None:
        """Open the data directory, serve its topics and load the groups."""
        self.directory = self._open_directory()
        self.producer_ids = ProducerIds(self.data_directory / "producer-ids", self.files)
        self.topics.open(self.directory)
        self.scram_users.open()
        self.quotas.open()
        if self.access is not None:
            self.access.open()
        self.maintenance = Maintenance(
            self.directory, self.reactor, self.settings, self.flusher, self.epoch_ms
        )
        self.groups.load()
        _background_check.on_volume()

    def _open_directory(self) -> LogDirectory:
        """Open the data directory and log what a crash did to it. A log that cannot be opened is an error."""
        directory = LogDirectory.open(
            self.data_directory,
            DirectoryIdentity(_new_uuid(), self.node_id, _new_uuid()),
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

    def _sync_together(self, tickets: Sequence[SyncTicket]) -> bool:
        return self.directory.sync_together(tickets)

    def close(self) -> None:
        """Finish background work and close the logs cleanly."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self.flusher.close()
        self.maintenance.close()
        try:
            for partition, error in self.directory.close().items():
                log.error("%s could not be closed cleanly, and will be recovered: %s", partition, error)
        except OSError as error:
            log.error("the clean stop could not be recorded, so the next start recovers all logs: %s", error)
        self.reactor.close()

    def run_blocking(self, work: Callable[[], _T], done: Callable[[_T], None]) -> None:
        """Run ``work``, which must not raise, on another thread, and then ``done`` with its result here."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_BLOCKING_THREADS, "broker")

        def run() -> None:
            result = work()
            self.reactor.call_threadsafe(lambda: done(result))

        self._threads.submit(run)

    @property
    def node_id(self) -> int:
        return self.settings.node_id

    @property
    def rack(self) -> str | None:
        return self.settings.broker_rack or None

    @property
    def cluster_id(self) -> str:
        return self.directory.identity.cluster_id

    def advertised(self, context: RequestContext) -> tuple[str, int]:
        """The address to give to a client: its listener's advertised one, or where it reached the broker."""
        return context.listener.advertised or context.local_address

    def read_metrics(self) -> list[MetricReading]:
        """Read every metric of the broker, with its kind and help text. Walks over all groups."""
        return [*read("broker", self.metrics), *self.groups.read_metrics()]

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its data and its committed offsets, and wake the fetches that wait for it."""
        self.maintenance.remove(self.topics.delete(topic))
        self.groups.topic_deleted(topic.name)
        for partition in topic.partitions:
            self.flusher.forget(partition.log)
            partition.notify_changed()
        log.info("deleted topic %s", topic.name)


def _new_uuid() -> str:
    """A new id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
