"""A broker's data directory: its lock, its identity, its topics and the logs of all partitions.

::

    DATA/.lock                          locked by the broker that uses the directory
    DATA/.clean-shutdown                exists only between a clean stop and the next start
    DATA/meta.properties                which cluster and node this is
    DATA/topics.json                    the topics
    DATA/epoch-floor                    how often the broker was started after a crash
    DATA/recovery-point-checkpoint      the offset up to which each partition is known to be durable
    DATA/TOPIC-PARTITION/               one partition's log
    DATA/ID-PARTITION-delete/           a deleted one, to be removed
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from millstream.broker.log.config import LogConfig
from millstream.broker.log.durability import SyncTicket, sync_together
from millstream.broker.log.files import TEMPORARY_SUFFIX, Files, OpenFile, StrPath, write_all
from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.recovery import checkpoints
from millstream.broker.log.recovery.loading import RecoveryReport
from millstream.broker.log.segments.file_pool import FilePool, most_open_segments
from millstream.broker.log.topic_store import StoredTopic, TopicStore
from millstream.errors import ConfigError, DataDirectoryLockedError, KafkaStorageError, MillstreamError
from millstream.model import TopicPartition

LOCK_FILE = ".lock"
CLEAN_FILE = ".clean-shutdown"
META_FILE = "meta.properties"
TOPICS_FILE = "topics.json"
EPOCH_FLOOR_FILE = "epoch-floor"
RECOVERY_POINT_FILE = "recovery-point-checkpoint"
DELETE_SUFFIX = "-delete"


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The ids of the cluster, the node and the directory."""

    cluster_id: str
    node_id: int
    directory_id: str


def partition_directory(partition: TopicPartition) -> str:
    """Return the name of a partition's directory."""
    return f"{partition.topic}-{partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition of a directory; None for other directories."""
    topic, dash, number = name.rpartition("-")
    is_one = dash and topic and number.isdecimal() and str(int(number)) == number
    return TopicPartition(topic, int(number)) if is_one else None


class LogDirectory:
    """All logs of a broker. Only one process can have a directory open."""

    def __init__(
        self, path: str, files: Files, lock: OpenFile, defaults: LogConfig, open_segments: int
    ) -> None:
        """Use ``open``."""
        self.path = path
        self.files = files
        self.defaults = defaults
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.failed: dict[TopicPartition, KafkaStorageError] = {}
        """Partitions whose files could not be opened; the files stay unchanged."""
        self.recovered: dict[TopicPartition, RecoveryReport] = {}
        """What was found in the logs that had to be scanned."""
        self._lock: OpenFile | None = lock
        self._lost_writes = False
        self._renames_unsynced = False
        self._pool = FilePool(files, open_segments)

    @classmethod
    def open(
        cls,
        path: StrPath,
        identity: DirectoryIdentity,
        *,
        now_ms: int,
        defaults: LogConfig | None = None,
        files: Files | None = None,
        open_segments: int | None = None,
    ) -> LogDirectory:
        """Open a data directory, or create one; ``now_ms`` is epoch time.

        ``open_segments``: how many segments have their file open; None: what the process's limit allows.

        An existing one keeps its cluster id and directory id. Raises DataDirectoryLockedError if another
        process has it open, ConfigError if it belongs to another node, KafkaStorageError if it is damaged.
        """
        files = files or Files()
        name = os.path.abspath(path)
        try:
            os.makedirs(name, exist_ok=True)
            open_segments = most_open_segments() if open_segments is None else open_segments
            directory = cls(name, files, _lock(files, name), defaults or LogConfig(), open_segments)
            directory._load(identity, now_ms)
        except OSError as error:
            raise KafkaStorageError(f"{name} cannot be opened: {error}") from error
        return directory

    def _load(self, identity: DirectoryIdentity, now_ms: int) -> None:
        names = set(self.files.listdir(self.path))
        is_new = META_FILE not in names
        self.was_clean = is_new or CLEAN_FILE in names
        self.topics = TopicStore(self._file(TOPICS_FILE), self.files)
        _check_complete(self.path, names, is_new, self.topics)
        self.identity = self._read_identity(identity, is_new)
        self.epoch_floor = self._read_epoch_floor(names)
        if CLEAN_FILE in names:
            self.files.unlink(self._file(CLEAN_FILE))
            self.files.sync_directory(self.path)
        self.trash = self._rename_orphans(names)
        self._open_all(names, now_ms)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    # -- identity and epochs

    def _read_identity(self, identity: DirectoryIdentity, is_new: bool) -> DirectoryIdentity:
        if is_new:
            self.files.write_atomically(self._file(META_FILE), _encode_identity(identity))
            return identity
        known = _parse_identity(self._file(META_FILE), self.files.read(self._file(META_FILE)))
        if known.node_id != identity.node_id:
            raise ConfigError(f"{self.path} belongs to node {known.node_id}, not to node {identity.node_id}")
        return known

    def _read_epoch_floor(self, names: set[str]) -> int:
        floor = 0
        if EPOCH_FLOOR_FILE in names:
            (floor,) = checkpoints.read(self.files, self._file(EPOCH_FLOOR_FILE))
        if not self.was_clean:
            floor += 1
            checkpoints.write(self.files, self._file(EPOCH_FLOOR_FILE), floor)
        return floor

    # -- opening and closing logs

    def _rename_orphans(self, names: set[str]) -> list[str]:
        """Rename what deleted topics have left; return what to remove."""
        trash = []
        for name in sorted(names):
            partition = parse_partition_directory(name)
            if name.endswith(TEMPORARY_SUFFIX):
                self.files.unlink(self._file(name))
            elif name.endswith(DELETE_SUFFIX):
                trash.append(self._file(name))
            elif partition is not None and not self._is_known(partition):
                number = next(n for n in count() if f"orphan-{n}{DELETE_SUFFIX}" not in names)
                trash.append(self._rename_deleted(name, f"orphan-{number}"))
                names.add(os.path.basename(trash[-1]))
        return trash

    def _is_known(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition < topic.partitions

    def _rename_deleted(self, name: str, new_name: str) -> str:
        target = self._file(new_name + DELETE_SUFFIX)
        self.files.rename(self._file(name), target)
        self._renames_unsynced = True
        return target

    def _open_all(self, names: set[str], now_ms: int) -> None:
        points = self._read_recovery_points(names)
        for topic in self.topics:
            try:
                config = LogConfig.from_properties(topic.configs, self.defaults)
            except ConfigError as error:
                raise KafkaStorageError(f"topic {topic.name} has an invalid setting: {error}") from error
            for number in range(topic.partitions):
                partition = TopicPartition(topic.name, number)
                exists = partition_directory(partition) in names
                point = points.get((partition, topic.topic_id), 0)
                self._open_log(
                    partition, config, now_ms, recovery_point=point, clean=self.was_clean or not exists
                )

    def _open_log(
        self, partition: TopicPartition, config: LogConfig, now_ms: int, *, recovery_point: int, clean: bool
    ) -> None:
        try:
            log = PartitionLog.open(
                self._file(partition_directory(partition)),
                config,
                pool=self._pool,
                clean=clean,
                now_ms=now_ms,
                recovery_point=recovery_point,
                epoch_floor=self.epoch_floor,
            )
        except KafkaStorageError as error:
            self.failed[partition] = error
            return
        self.logs[partition] = log
        if log.recovery.scanned:
            self.recovered[partition] = log.recovery

    def unsynced_logs(self) -> list[PartitionLog]:
        """Return the logs that are not fully synced. Sync them in parallel before a clean stop."""
        return [log for log in self.logs.values() if log.has_unsynced]

    def on_crowded(self, call: Callable[[], None]) -> None:
        """Call this, again and again, while many files are open and more are needed: sync soon."""
        self._pool.on_crowded = call

    @property
    def is_crowded(self) -> bool:
        """Whether files that wait to be synced take up a quarter of those that may be open."""
        return sum(log.unsynced_files for log in self.logs.values()) >= self._pool.share // 4

    def sync_together(self, tickets: Sequence[SyncTicket]) -> bool:
        """Sync many tickets by one sync of the file system, on one thread at a time; False: sync each."""
        lock = self._lock  # open since before the first write, so that it reports every failure since then
        if lock is None or self._lost_writes or not lock.reports_lost_writes():
            return False
        try:
            return sync_together(lock, tickets)
        except OSError:  # told once only: from now on each file is asked
            self._lost_writes = True
            return False

    def close(self, *, clean: bool = True) -> dict[TopicPartition, MillstreamError]:
        """Close all logs and unlock the directory. Return what failed; the next start then recovers."""
        failures: dict[TopicPartition, MillstreamError] = dict(self.failed)
        for partition, log in self.logs.items():
            try:
                log.close(clean)
            except KafkaStorageError as error:
                failures[partition] = error
        if clean:
            self.checkpoint()()
            if not failures:
                self.files.write_atomically(self._file(CLEAN_FILE), b"1\n")
        self._lock = None
        return failures

    # -- topics

    def create_topics(self, topics: Iterable[StoredTopic], now_ms: int) -> None:
        """Add new topics with empty logs, durably. Raises KafkaStorageError, and then changes nothing."""
        new = list(topics)
        assert not any(topic.name in self.topics for topic in new), "the topics are new"
        configs = [LogConfig.from_properties(topic.configs, self.defaults) for topic in new]
        self._change_topics(lambda: self.topics.put(new))
        for topic, config in zip(new, configs, strict=True):
            self._begin_logs(topic, config, 0, now_ms)

    def add_partitions(self, name: str, total: int, now_ms: int) -> None:
        """Grow a topic to ``total`` partitions, durably."""
        topic = self._existing(name)
        assert total > topic.partitions, "partitions can only be added"
        config = LogConfig.from_properties(topic.configs, self.defaults)
        self._change_topics(lambda: self.topics.put([replace(topic, partitions=total)]))
        self._begin_logs(replace(topic, partitions=total), config, topic.partitions, now_ms)

    def update_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's own settings, durably. Raises ConfigError for an invalid one."""
        topic = self._existing(name)
        config = LogConfig.from_properties(configs, self.defaults)
        self._change_topics(lambda: self.topics.put([replace(topic, configs=dict(configs))]))
        for partition, log in self.logs.items():
            if partition.topic == name:
                log.update_config(config)

    def delete_topic(self, name: str) -> list[str]:
        """Delete a topic durably; return the directories of its logs, to be removed on any thread."""
        topic = self._existing(name)
        self._change_topics(lambda: self.topics.remove([name]))
        trash = []
        for number in range(topic.partitions):
            partition = TopicPartition(name, number)
            self.failed.pop(partition, None)
            log = self.logs.pop(partition, None)
            if log is not None:
                log.close(clean=False)
            try:
                new_name = f"{topic.topic_id.hex()}-{number}"
                trash.append(self._rename_deleted(partition_directory(partition), new_name))
            except FileNotFoundError:
                continue  # it never had data
            except OSError:
                continue  # the next start renames it, because no topic has it
        return trash

    def _existing(self, name: str) -> StoredTopic:
        topic = self.topics.get(name)
        assert topic is not None, f"there is no topic {name}"
        return topic

    def _begin_logs(self, topic: StoredTopic, config: LogConfig, first: int, now_ms: int) -> None:
        for number in range(first, topic.partitions):
            partition = TopicPartition(topic.name, number)
            self._open_log(partition, config, now_ms, recovery_point=0, clean=True)

    def _change_topics(self, change: Callable[[], None]) -> None:
        try:
            if (
                self._renames_unsynced
            ):  # otherwise a new topic could find the data of its predecessor after a crash
                self.files.sync_directory(self.path)
                self._renames_unsynced = False
            change()
        except OSError as error:
            raise KafkaStorageError(f"{self._file(TOPICS_FILE)} cannot be written: {error}") from error

    # -- recovery points

    def checkpoint(self) -> Callable[[], None]:
        """Collect up to where each log is durable; return the function that writes it, for any thread.

        Recovery points limit what is verified after a crash. One write must end before the next begins.
        """
        lines = []
        for partition, log in self.logs.items():
            topic = self.topics.get(partition.topic)
            if topic is not None and log.durable_offset:
                point = f"{partition.topic} {partition.partition} {log.durable_offset} {topic.topic_id.hex()}"
                lines.append(point)
        data = ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()
        return lambda: self.files.write_atomically(self._file(RECOVERY_POINT_FILE), data)

    def _read_recovery_points(self, names: set[str]) -> dict[tuple[TopicPartition, bytes], int]:
        """Read the points by partition and topic id: those of a deleted topic are not for its successor."""
        if RECOVERY_POINT_FILE not in names:
            return {}
        points = {}
        try:
            _, _, *lines = self.files.read(self._file(RECOVERY_POINT_FILE)).decode("ascii").splitlines()
            for line in lines:
                topic, number, offset, topic_id = line.split()
                points[TopicPartition(topic, int(number)), bytes.fromhex(topic_id)] = int(offset)
        except ValueError:
            return {}  # everything is verified then
        return points


def _lock(files: Files, path: str) -> OpenFile:
    lock = files.lock(os.path.join(path, LOCK_FILE))
    if lock is None:
        holder = files.read(os.path.join(path, LOCK_FILE)).decode("ascii", "replace").strip() or "unknown"
        raise DataDirectoryLockedError(
            f"{path} is in use by another broker (process {holder}): stop it, or choose another directory"
        )
    lock.truncate(0)
    write_all(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _check_complete(path: str, names: set[str], is_new: bool, topics: TopicStore) -> None:
    """Refuse a directory that lost an essential file, instead of taking its logs for leftovers."""
    has_logs = any(parse_partition_directory(name) for name in names)
    for missing, name in ((is_new, META_FILE), (topics.is_new, TOPICS_FILE)):
        if missing and has_logs:
            raise KafkaStorageError(f"{path} has logs but no {name}: restore it from a copy")


def _encode_identity(identity: DirectoryIdentity) -> bytes:
    lines = [
        "version=1",
        f"cluster.id={identity.cluster_id}",
        f"node.id={identity.node_id}",
        f"directory.id={identity.directory_id}",
    ]
    return ("\n".join(lines) + "\n").encode()


def _parse_identity(path: str, data: bytes) -> DirectoryIdentity:
    pairs = dict(line.split("=", 1) for line in data.decode("utf-8", "replace").splitlines() if "=" in line)
    try:
        if pairs["version"] != "1":
            raise ValueError(f"version {pairs['version']} is not known")
        return DirectoryIdentity(pairs["cluster.id"], int(pairs["node.id"]), pairs["directory.id"])
    except (KeyError, ValueError) as error:
        raise KafkaStorageError(f"{path} is damaged ({error}): restore it from a copy") from error
