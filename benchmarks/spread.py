"""One sender over many partitions, in a process of its own.

``python -m benchmarks.spread NAME SERVERS TOPIC PARTITIONS RECORDS ACKS`` prints what it took as JSON.
Records of 100 B go to the partitions in turn, named by the caller. Every record's outcome is kept and
checked: a future each, or a delivery report each. Both clients batch alike; the settings are those of
``senders``. The clock runs from the first record until the last one is acknowledged, after a warm-up that
has written to every partition.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle, islice
from typing import Any

from benchmarks.readers import peak_mb
from benchmarks.senders import Send, confluent_delivered, cpu_seconds, millstream_producer, values

SIZE = 100
LEAST_WARM_UP = 20_000


@contextmanager
def millstream(servers: str, topic: str, partitions: int, acks: str) -> Iterator[Send]:
    with millstream_producer(servers, acks) as producer:

        def some(count: int) -> None:
            places = cycle(range(partitions))
            records = zip(islice(cycle(values(SIZE)), count), places, strict=False)
            futures = [producer.send(topic, value, partition=partition) for value, partition in records]
            producer.flush()
            assert len(futures) == count
            assert not producer.metrics()["records_failed"]

        yield some


def confluent(servers: str, topic: str, partitions: int, acks: str) -> AbstractContextManager[Send]:
    return confluent_delivered(servers, topic, SIZE, acks, range(partitions))


SENDERS: dict[str, Callable[[str, str, int, str], Any]] = {
    "millstream": millstream,
    "confluent-kafka": confluent,
}


def measure(
    name: str, servers: str, topic: str, partitions: int, records: int, acks: str
) -> dict[str, float]:
    """Records a second, microseconds of processor time for each, and the process's largest size."""
    with SENDERS[name](servers, topic, partitions, acks) as some:
        some(max(LEAST_WARM_UP, 2 * partitions))
        cpu, began = cpu_seconds(), time.perf_counter()
        some(records)
        seconds = time.perf_counter() - began
        return {
            "rate": records / seconds,
            "cpu_us": (cpu_seconds() - cpu) / records * 1e6,
            "peak_mb": peak_mb(),
        }


def main(name: str, servers: str, topic: str, partitions: str, records: str, acks: str) -> None:
    print(json.dumps(measure(name, servers, topic, int(partitions), int(records), acks)))


if __name__ == "__main__":
    main(*sys.argv[1:])
