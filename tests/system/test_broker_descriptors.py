"""A broker that may open fewer files than it has partitions: it takes all records, and loses none."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream import Admin, Consumer, Producer
from millstream.admin.values import NewTopic
from millstream.model import TopicPartition
from tests.system.cli_process import command
from tests.waiting import SECONDS

PARTITIONS = 1_500
ROUNDS = 3
DESCRIPTORS = 1_024


@contextmanager
def limited_broker(data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker process with few descriptors, and its address."""
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]
    process = subprocess.Popen(
        [*limited, *command("broker", "--data", str(data), "--listen", "127.0.0.1:0", "--json")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["address"]
    finally:
        process.kill()
        process.communicate()


def read_all(address: str) -> Counter[tuple[int, bytes | None]]:
    """Every record, by partition and value."""
    partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
    found: Counter[tuple[int, bytes | None]] = Counter()
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while found.total() < sum(ends.values()):
            records = consumer.poll(SECONDS)
            assert records, f"{found.total()} of {sum(ends.values())} records: {consumer.diagnose()}"
            found.update((record.partition, record.value) for record in records)
    return found


@pytest.mark.parametrize("acks", ["1", "all"])
def test_more_partitions_than_descriptors(tmp_path: Path, acks: str) -> None:
    with limited_broker(tmp_path) as (process, address):
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("t", PARTITIONS)])
        with Producer(bootstrap_servers=address, acks=acks) as producer:
            for number in range(ROUNDS):
                sent = [
                    producer.send("t", b"%d" % number, partition=partition) for partition in range(PARTITIONS)
                ]
                producer.flush(SECONDS)
                for future in sent:
                    future.result(SECONDS)
        expected = Counter((part, b"%d" % number) for part in range(PARTITIONS) for number in range(ROUNDS))
        assert read_all(address) == expected
        process.terminate()
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert "ERROR" not in err, err[-2_000:]
    with limited_broker(tmp_path) as (_, address):
        assert read_all(address) == expected
