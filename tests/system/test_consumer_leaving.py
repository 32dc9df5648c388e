"""A member that leaves in the middle of a rebalance is gone when ``close`` returns, whoever else is slow."""

from __future__ import annotations

import pytest

from millstream import Admin, Consumer
from tests.conftest import NewTopic
from tests.waiting import until


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_closing_while_the_group_waits_for_another_member(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str, assignor: str
) -> None:
    topic = new_topic(partitions=2)
    settings = {
        "bootstrap_servers": bootstrap_servers,
        "group_id": group,
        "session_timeout_ms": 30_000,
        "partition_assignment_strategy": assignor,
    }

    def client_ids() -> list[str]:
        return sorted(member.client_id for member in admin.describe_group(group).members)

    with Consumer(settings, client_id="busy") as busy:
        busy.subscribe([topic])
        until(lambda: busy.poll(timeout=0.1) is not None and busy.assignment(), "it has its partitions")
        joining = Consumer(settings, client_id="joining")
        joining.subscribe([topic])
        # The other one does not poll, so the join has no answer yet.
        until(
            lambda: joining.poll(timeout=0.1) is not None and client_ids() == ["busy", "joining"],
            "its join has come",
        )
        joining.close()
        assert client_ids() == ["busy"]
        until(lambda: busy.poll(timeout=0.1) is not None and len(busy.assignment()) == 2, "the group goes on")
