"""What processes tell through pipes may be read late; two owners of a partition are found all the same."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator

import pytest

from millstream import TopicPartition
from tests.kafka.clients.piped_ledger import PipedLedger
from tests.kafka.clients.processes import ProcessMember
from tests.waiting import SECONDS

T0 = TopicPartition("t", 0)
GIVES_UP = "gives up"


class Printing(ProcessMember):
    """Is given a partition, and gives it up if its strategy says so; what it says then is read late."""

    def __init__(self, strategy: str, ledger: PipedLedger) -> None:
        super().__init__("printing", "", "", "", strategy, ledger)
        self.read_on = threading.Event()
        self.has_told = threading.Event()

    def command(self) -> list[str]:
        names = [
            "partitions_assigned",
            *(["partitions_revoked"] if self.strategy == GIVES_UP else []),
            "told",
        ]
        lines = [json.dumps({"name": name, "partitions": [T0._asdict()]}) for name in names]
        return [sys.executable, "-c", f"print({chr(10).join(lines)!r}, flush=True)"]

    def take(self, line: str) -> None:
        if "assigned" not in line:
            self.has_told.set()
            assert self.read_on.wait(SECONDS)
        super().take(line)

    def catch_up(self) -> None:
        self.read_on.set()
        super().catch_up()


@pytest.fixture
def ledger() -> PipedLedger:
    return PipedLedger()


@pytest.fixture(params=[GIVES_UP, "keeps"])
def printing(request: pytest.FixtureRequest, ledger: PipedLedger) -> Iterator[Printing]:
    made = Printing(request.param, ledger)
    made.start()
    yield made
    made.read_on.set()
    made.stop()


def test_what_was_told_before_counts_before(ledger: PipedLedger, printing: Printing) -> None:
    assert printing.has_told.wait(SECONDS)
    assert ledger.owners() == {T0: "printing"}
    ledger.assigned("other", [T0])
    is_given_up = printing.strategy == GIVES_UP
    assert ledger.owners() == {T0: "other" if is_given_up else "printing"}
    assert bool(ledger.violations) is not is_given_up
