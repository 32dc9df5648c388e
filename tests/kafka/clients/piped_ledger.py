"""A ledger that hears of processes through pipes, and so may hear of them late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millstream import TopicPartition
from tests.system.foreign_members import Ledger


class Source(Protocol):
    """A member that tells of itself through a pipe."""

    name: str

    def catch_up(self) -> None:
        """Take all that it has told so far."""


class PipedLedger(Ledger):
    """Before it says that two members have a partition, it hears what the others had told by then."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[Source] = []

    def assigned(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        given = list(partitions)
        owners = self.owners()
        if any(owners.get(partition, member) != member for partition in given):
            for source in self.sources:
                if source.name != member:
                    source.catch_up()
        super().assigned(member, given)
