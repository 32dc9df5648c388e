"""Growth with the number of partitions: idle cost, first record and commits, beside confluent-kafka.

Each figure comes from a consumer in a process of its own. CPU is processor time, which a busy machine changes
little; seconds are of the clock, and grow on a busy machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping

import confluent_kafka
import psutil

from benchmarks.peers import Millstream
from benchmarks.report import Section, table
from millstream import Consumer, Producer, TopicPartition
from millstream.admin import Admin

SIZES = tuple(int(size) for size in os.environ.get("BENCH_PARTITIONS", "1,100,1000,10000").split(","))
IDLE_S = float(os.environ.get("BENCH_IDLE_S", "20"))
SETTLE_S = 7.0
"""Until the first automatic commit, which stores all offsets, is over."""
CLIENTS = ("millstream", "confluent-kafka")
_BARS = 40

Figures = dict[str, float]


def run() -> list[Section]:
    """All sizes, each with a broker of its own."""
    found = {size: _measure(size) for size in SIZES}
    return [_section(found)]


def _measure(size: int) -> dict[str, Figures]:
    with Millstream() as broker:
        assert broker.process is not None, "it was started"
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("many", partitions=size)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("many", b"value", partition=size // 2).result(30)
        figures = {}
        for client in CLIENTS:
            command = [sys.executable, "-m", "benchmarks.idle_partitions", client, servers, str(size)]
            ended = subprocess.run(
                [*command, str(broker.process.pid)], check=True, capture_output=True, text=True, timeout=600
            )
            figures[client] = json.loads(ended.stdout)
            print(f"    {size} partitions, {client}: {figures[client]}", flush=True)
        return figures


def _section(found: Mapping[int, Mapping[str, Figures]]) -> Section:
    rows = [
        (
            f"{size:,}",
            client,
            f"{each['first']:.2f} s ({each['first_cpu']:.2f} s)",
            f"{each['idle']:.2f} %",
            f"{each['broker_idle']:.2f} %",
            f"{each['commit']:.3f} s ({each['commit_cpu']:.3f} s)",
            f"{each['committed']:.3f} s",
        )
        for size, clients in found.items()
        for client, each in clients.items()
    ]
    head = (
        "partitions",
        "client",
        "first record",
        "idle",
        "broker idle",
        "commit of all",
        "committed() of all",
    )
    longest = max(clients[CLIENTS[0]]["first_cpu"] for clients in found.values())
    bars = "\n".join(
        f"{size:>7,}  {'#' * max(1, round(_BARS * clients[CLIENTS[0]]['first_cpu'] / longest))} "
        f"{clients[CLIENTS[0]]['first_cpu']:.2f} s"
        for size, clients in found.items()
    )
    return Section(
        "Consumer: growth with partitions",
        "One consumer, alone in a new group, one topic on the embedded broker. Seconds are of the clock, "
        "from the consumer's making; in brackets the processor time of consumer and broker together. Idle: "
        f"processor time over {IDLE_S:.0f} s of `poll`, in percent of a core, after the first automatic "
        "commit. The commit names all partitions.\n\n"
        + table(head, rows)
        + f"\n\nProcessor time of millstream and the broker to the first record:\n\n```\n{bars}\n```",
    )


# --- in a process of its own


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def _figures(client: str, servers: str, size: int, broker: psutil.Process) -> Figures:
    own = psutil.Process()
    began, before = time.perf_counter(), _cpu(own) + _cpu(broker)
    poll, commit, committed = (_ours if client == CLIENTS[0] else _theirs)(servers, size)
    while not poll(0.2):
        continue
    first, first_cpu = time.perf_counter() - began, _cpu(own) + _cpu(broker) - before
    _poll_for(poll, SETTLE_S)
    before_own, before_broker = _cpu(own), _cpu(broker)
    _poll_for(poll, IDLE_S)
    idle, broker_idle = _cpu(own) - before_own, _cpu(broker) - before_broker
    began, before = time.perf_counter(), _cpu(own) + _cpu(broker)
    commit()
    commit_s, commit_cpu = time.perf_counter() - began, _cpu(own) + _cpu(broker) - before
    began = time.perf_counter()
    committed()
    return {
        "first": first,
        "first_cpu": first_cpu,
        "idle": 100 * idle / IDLE_S,
        "broker_idle": 100 * broker_idle / IDLE_S,
        "commit": commit_s,
        "commit_cpu": commit_cpu,
        "committed": time.perf_counter() - began,
    }


def _poll_for(poll: Callable[[float], bool], seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        poll(1.0)


Calls = tuple[Callable[[float], bool], Callable[[], object], Callable[[], object]]


def _ours(servers: str, size: int) -> Calls:
    consumer = Consumer(bootstrap_servers=servers, group_id=uuid.uuid4().hex, auto_offset_reset="earliest")
    consumer.subscribe(["many"])
    every = [TopicPartition("many", index) for index in range(size)]
    return (
        lambda seconds: bool(consumer.poll(seconds)),
        lambda: consumer.commit(dict.fromkeys(every, 1)),
        lambda: consumer.committed(every),
    )


def _theirs(servers: str, size: int) -> Calls:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["many"])
    every = [confluent_kafka.TopicPartition("many", index, 1) for index in range(size)]
    return (
        lambda seconds: consumer.poll(seconds) is not None,
        lambda: consumer.commit(offsets=every, asynchronous=False),
        lambda: consumer.committed(every, timeout=60),
    )


if __name__ == "__main__":
    name, address, count, pid = sys.argv[1:]
    print(json.dumps(_figures(name, address, int(count), psutil.Process(int(pid)))))
