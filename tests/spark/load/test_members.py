"""A load's member of its group, by itself."""

from __future__ import annotations

import pytest

from millstream.admin import Admin
from millstream.errors import CommitFailedError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.engine.members import LoadMember
from tests.conftest import NewTopic
from tests.spark.burying import bury
from tests.waiting import until


def test_what_was_read_before_a_loss_is_not_committed_after_it(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    """While it was no member the group may have been empty, and its offsets moved by command."""
    where = TopicPartition(new_topic(), 0)
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": "loses"}
    member = LoadMember(
        {**settings, "enable.auto.commit": False},
        [where.topic],
        on_rebalance=lambda: None,
        give_up_seconds=60.0,
    )
    member.start()
    try:
        until(member.owned, "it owns the partition")
        before = member.losses
        member.commit({where: OffsetAndMetadata(10)}, losses=before)
        bury(admin, group, "loses")
        until(lambda: member.losses > before and member.owned(), "it has lost the partition, and is back")
        with pytest.raises(CommitFailedError, match="had lost its membership of the group"):
            member.commit({where: OffsetAndMetadata(20)}, losses=before)
        assert admin.group_offsets(group)[where].offset == 10
        member.commit({where: OffsetAndMetadata(30)}, losses=member.losses)
        assert admin.group_offsets(group)[where].offset == 30
    finally:
        member.close()
