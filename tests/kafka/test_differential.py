"""The embedded broker answers as Apache Kafka does: see ``tests.kafka.differential``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from millstream.embedded import EmbeddedBroker
from millstream.wire.apis import all_apis
from millstream.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.kafka.brokers import apache_kafka_address
from tests.kafka.differential.generator import sequence
from tests.kafka.differential.lockstep import Difference, run
from tests.kafka.differential.shrink import shrink
from tests.kafka.differential.timed import TIMED
from tests.kafka.differential.values import Step
from tests.system.raw_client import RawClient

SEEDS = range(30)


@pytest.fixture(scope="module")
def both(millstream_broker: EmbeddedBroker) -> tuple[str, str]:
    return millstream_broker.bootstrap_servers, apache_kafka_address()


def check(steps: Sequence[Step], both: tuple[str, str]) -> None:
    """Run a sequence; a difference is made small and shown so that it can be replayed."""
    found = run(steps, *both)
    if isinstance(found, Difference):
        smaller, found = shrink(steps, found, lambda candidate: run(candidate, *both))
        lines = "\n".join(map(str, smaller))
        pytest.fail(f"{found}\nto replay: python -m tests.kafka.differential --replay FILE, with\n{lines}")


@pytest.mark.parametrize("seed", SEEDS)
def test_sequences(seed: int, both: tuple[str, str]) -> None:
    check(sequence(seed), both)


@pytest.mark.parametrize("name", TIMED)
def test_what_time_brings_about(name: str, both: tuple[str, str]) -> None:
    """On a busy machine time may pass for one broker and not for the other: a real difference comes again."""
    if not all(isinstance(run(TIMED[name], *both), Difference) for _ in range(2)):
        return
    check(TIMED[name], both)


def test_we_serve_no_version_that_kafka_does_not(both: tuple[str, str]) -> None:
    offered = [_versions(address) for address in both]
    for api in all_apis().values():
        if api.name.startswith("Sasl"):  # Kafka offers these on other listeners only
            continue
        ours, theirs = (each[api.key] for each in offered)
        assert ours[0] == theirs[0], f"{api.name} begins with {theirs[0]}"
        assert ours[1] <= theirs[1], f"{api.name} ends with {theirs[1]}"


def _versions(address: str) -> dict[int, tuple[int, int]]:
    with RawClient(address) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        found = client.call(request, 3, ApiVersionsResponse)
    return {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}


def test_a_failing_sequence_is_made_small() -> None:
    steps = [Step("Heartbeat", number % 5, {"group_id": str(number)}) for number in range(20)]
    guilty = {3, 11}

    def fails(candidate: Sequence[Step]) -> Difference | None:
        numbers = [int(step.fields["group_id"]) for step in candidate]
        if not guilty <= set(numbers):
            return None
        index = numbers.index(11)
        return Difference(index, candidate[index], ("error_code",), ({}, {}))

    found = fails(steps)
    assert found is not None
    smaller, found = shrink(steps, found, fails)
    assert [step.fields["group_id"] for step in smaller] == ["3", "11"]
    assert [Step.parse(str(step)) for step in smaller] == smaller, "what is printed can be replayed"
