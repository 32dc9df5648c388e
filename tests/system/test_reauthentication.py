"""Many logins are renewed on connections that are in use, and no record is lost or doubled (KIP-368)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millstream import Admin, Consumer, Producer
from tests.system.secured import librdkafka, make_certificates, secured_broker
from tests.waiting import SECONDS, until

PRODUCERS = 10
RENEWALS = 1000
SESSION_MS = 200


def test_a_thousand_renewals_under_load_lose_nothing(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    listeners = "SASL_SSL://127.0.0.1:0"
    with secured_broker(certificates, listeners, connections_max_reauth_ms=SESSION_MS) as broker:
        settings = librdkafka(broker, certificates)
        with Admin(settings) as admin:
            admin.create_topics({"renewed": 3})
        sent, renewals = send_until_renewed(settings)
        assert renewals >= RENEWALS
        assert sorted(map(int, read_all(settings, sent))) == list(range(sent))


def send_until_renewed(settings: dict[str, Any]) -> tuple[int, int]:
    """Send from several producers until their logins were renewed often enough."""
    producers = [Producer({**settings, "linger.ms": 0, "batch.size": 500}) for _ in range(PRODUCERS)]
    sent = 0

    def renewals() -> int:
        return sum(int(producer.metrics()["reauthentications"]) for producer in producers)

    def enough() -> bool:
        nonlocal sent
        for producer in producers:
            producer.send("renewed", str(sent).encode())
            sent += 1
        return renewals() >= RENEWALS

    try:
        until(enough, lambda: f"{RENEWALS} renewals: {renewals()}", 3 * SECONDS)
    finally:
        for producer in producers:
            producer.close()
    return sent, renewals()


def read_all(settings: dict[str, Any], count: int) -> list[bytes]:
    values: list[bytes] = []
    with Consumer(settings) as consumer:
        consumer.assign(consumer.partitions_for("renewed"))
        consumer.seek_to_beginning()

        def all_read() -> bool:
            values.extend(record.value for record in consumer.poll(timeout=0.2))
            return len(values) >= count

        until(all_read, lambda: f"all records are read: {len(values)} of {count}")
    return values
