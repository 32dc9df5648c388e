"""Consumer and AsyncConsumer have the documented methods in public, and no others."""

from __future__ import annotations

import pytest

from millstream import AsyncConsumer, Consumer

DOCUMENTED = """
subscribe unsubscribe subscription assignment enforce_rebalance
assign partitions_for topics
poll poll_arrow
commit commit_async committed
position seek seek_to_beginning seek_to_end offsets_for_times beginning_offsets end_offsets lag
pause resume paused fetch_until
wakeup close group_metadata metrics diagnose
"""


@pytest.mark.parametrize("consumer", [Consumer, AsyncConsumer])
def test_public_names_are_the_documented_ones(consumer: type) -> None:
    public = {name for name in dir(consumer) if not name.startswith("_")}
    assert public == set(DOCUMENTED.split())


def test_both_can_be_iterated_and_closed_by_a_with_statement() -> None:
    assert {"__iter__", "__enter__", "__exit__"} <= set(dir(Consumer))
    assert {"__aiter__", "__aenter__", "__aexit__"} <= set(dir(AsyncConsumer))
