"""JoinGroup: ids, protocols, leaders, waiting times and what a rejoin does."""

from __future__ import annotations

import pytest

from millstream.errors import ErrorCode
from millstream.wire.messages.groups import JoinGroupResponseMember
from tests.unit.broker.groups.bench import (
    BOTH,
    GROUP,
    INITIAL_DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Bench,
    subscription,
)


def test_a_new_member_is_told_its_id_and_must_come_again_with_it() -> None:
    bench = Bench()
    first = bench.join(client_id="app").joined
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id == "app-id1"
    assert not bench.join(first.member_id).answered


def test_versions_before_4_are_let_in_at_once() -> None:
    bench = Bench()
    join = bench.join(version=3, client_id="app")
    assert not join.answered
    bench.advance(INITIAL_DELAY_MS)
    assert join.joined.error_code == ErrorCode.NONE
    assert join.joined.member_id == "app-id1"


def test_version_0_has_one_timeout_for_both_purposes() -> None:
    bench = Bench()
    bench.join(version=0, rebalance_ms=-1, session_ms=7_000)
    bench.join(version=0, rebalance_ms=-1, session_ms=8_000)
    bench.advance(2 * INITIAL_DELAY_MS)
    # Nobody syncs: the longest rebalance timeout, 8 s, is how long the coordinator waits for that.
    bench.advance(6_999)
    assert bench.state() == "CompletingRebalance"
    bench.advance(1)  # 7 s: the first one's session
    assert bench.state() == "PreparingRebalance"


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", bytes(1_000_001)),)}, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [3, 6, 9])
def test_requests_that_make_no_sense_are_refused(
    keywords: dict[str, object], error: ErrorCode, version: int
) -> None:
    bench = Bench(member_metadata_max_bytes=1_000_000)
    assert bench.join(version=version, **keywords).error is error  # type: ignore[arg-type]
    assert not bench.log
    # As in Kafka, a join that is refused for its protocols has made the group already.
    made = [GROUP] if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL else []
    assert [group.group_id for group in bench.listed()] == made
    bench.advance(bench.settings.offsets_retention_check_interval_ms)
    assert bench.listed() == [], "an empty group without offsets goes with the next look for old ones"


def test_the_first_member_leads_and_alone_sees_who_is_there() -> None:
    bench = Bench()
    one, join_one = bench.join_new()
    two, join_two = bench.join_new(protocols=[("range", b"mine")])
    bench.advance(2 * INITIAL_DELAY_MS)
    lead, follow = join_one.joined, join_two.joined
    assert (lead.generation_id, lead.protocol_type, lead.protocol_name) == (1, "consumer", "range")
    assert lead.leader == follow.leader == one
    assert lead.members == [
        JoinGroupResponseMember(member_id=one, metadata=subscription("t")),
        JoinGroupResponseMember(member_id=two, metadata=b"mine"),
    ]
    assert follow.members == []
    assert (lead.member_id, follow.member_id) == (one, two)
    assert not lead.skip_assignment


def test_the_initial_round_goes_on_while_members_come_but_not_past_the_rebalance_timeout() -> None:
    bench = Bench()
    _, first = bench.join_new(rebalance_ms=7_000)
    bench.advance(2_999)
    bench.join_new(rebalance_ms=7_000)
    bench.advance(1)  # 3000: somebody came, so 3000 more
    assert not first.answered
    bench.advance(2_999)
    bench.join_new(rebalance_ms=7_000)
    bench.advance(1)  # 6000: somebody came, but only 1000 are left of the 7000
    assert not first.answered
    bench.join_new(rebalance_ms=7_000)
    bench.advance(999)
    assert not first.answered
    bench.advance(1)
    assert first.joined.error_code == ErrorCode.NONE
    assert len(first.joined.members) == 4


def test_the_initial_round_ends_after_one_delay_when_nobody_else_comes() -> None:
    bench = Bench()
    _, join = bench.join_new()
    bench.advance(INITIAL_DELAY_MS - 1)
    assert not join.answered
    bench.advance(1)
    assert join.joined.generation_id == 1


def test_the_protocol_with_most_votes_wins_among_those_that_all_support() -> None:
    bench = Bench()
    a, b, c = ("a", b"1"), ("b", b"2"), ("c", b"3")
    joins = [bench.join_new(protocols=protocols)[1] for protocols in ([c, a, b], [b, a, c], [b, a], [a, b])]
    bench.advance(2 * INITIAL_DELAY_MS)
    # c is not everybody's. a: the first and the last vote for it; b: the two in the middle; a came first.
    assert {join.joined.protocol_name for join in joins} == {"a"}
    assert [member.metadata for member in joins[0].joined.members] == [b"1"] * 4


def test_a_majority_beats_the_order_of_arrival() -> None:
    bench = Bench()
    joins = [
        bench.join_new(protocols=protocols)[1]
        for protocols in (BOTH, tuple(reversed(BOTH)), tuple(reversed(BOTH)))
    ]
    bench.advance(2 * INITIAL_DELAY_MS)
    assert joins[0].joined.protocol_name == "roundrobin"


@pytest.mark.parametrize(
    "keywords", [{"protocols": [("mine", b"")]}, {"protocol_type": "connect"}], ids=["names", "type"]
)
def test_a_member_without_a_common_protocol_is_refused(keywords: dict[str, object]) -> None:
    bench = Bench()
    bench.stable_group()
    refused = bench.join(**keywords)  # type: ignore[arg-type]
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state() == "Stable"


def test_a_new_member_makes_everybody_join_again() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    three, join_three = bench.join_new()
    assert bench.state() == "PreparingRebalance"
    assert bench.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    join_one = bench.join(one)
    assert not join_one.answered and not join_three.answered
    join_two = bench.join(two)
    assert [join.joined.generation_id for join in (join_one, join_two, join_three)] == [2, 2, 2]
    assert join_one.joined.leader == one
    bench.settle(one, two, three, generation=2)


def test_members_that_do_not_rejoin_in_time_are_dropped_and_a_leader_is_found() -> None:
    bench = Bench()
    one, two, three = bench.stable_group(3, rebalance_ms=20_000, session_ms=30_000)
    two_again = bench.join(two, rebalance_ms=20_000, protocols=[("range", b"changed")])
    three_again = bench.join(three, rebalance_ms=20_000)
    bench.advance(19_999)
    assert not two_again.answered
    bench.advance(1)
    assert two_again.joined.leader == three_again.joined.leader == two
    assert [member.member_id for member in two_again.joined.members] == [two, three]
    assert bench.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_all_members() -> None:
    bench = Bench()
    one, _ = bench.join_new(rebalance_ms=20_000, session_ms=60_000)
    two, _ = bench.join_new(rebalance_ms=40_000, session_ms=60_000)
    bench.advance(2 * INITIAL_DELAY_MS)
    bench.settle(one, two, generation=1)
    again = bench.join(one, rebalance_ms=10_000)
    bench.advance(39_999)
    assert not again.answered
    bench.advance(1)
    assert again.joined.generation_id == 2


def test_a_follower_that_repeats_itself_gets_the_current_generation() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    again = bench.join(two).joined
    assert (again.error_code, again.generation_id, again.leader, again.members) == (0, 1, one, [])
    assert bench.state() == "Stable"
    assert bench.sync(two, 1).synced.assignment == f"for {two}".encode()


def test_a_follower_with_new_metadata_or_the_leader_itself_starts_a_rebalance() -> None:
    for index, protocols in ((0, RANGE), (1, [("range", subscription("t", "u"))])):
        bench = Bench()
        members = bench.stable_group()
        assert not bench.join(members[index], protocols=protocols).answered
        assert bench.state() == "PreparingRebalance"


def test_a_join_during_the_sync_phase_repeats_the_answer_or_starts_over() -> None:
    bench = Bench()
    one, _ = bench.join_new()
    two, _ = bench.join_new()
    bench.advance(2 * INITIAL_DELAY_MS)
    assert len(bench.join(one).joined.members) == 2
    assert bench.join(two).joined.members == []
    parked = bench.sync(two, 1)
    assert bench.state() == "CompletingRebalance"
    bench.join(one, protocols=[("range", b"changed")])
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.state() == "PreparingRebalance"


def test_a_join_that_takes_the_place_of_a_parked_one_leaves_no_ticket_unanswered() -> None:
    bench = Bench()
    one, first = bench.join_new()
    second = bench.join(one)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(2 * INITIAL_DELAY_MS)
    assert second.joined.generation_id == 1


def test_an_id_that_nobody_comes_back_with_is_forgotten_and_later_its_group() -> None:
    bench = Bench()
    member_id = bench.join().joined.member_id
    assert [group.group_id for group in bench.listed()] == [GROUP]
    bench.advance(SESSION_MS)
    assert bench.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not bench.log
    bench.advance(bench.settings.offsets_retention_check_interval_ms)
    assert bench.listed() == []


def test_a_rebalance_waits_for_pending_members() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    pending = bench.join().joined.member_id
    again = bench.join(one)
    bench.join(two)
    assert not again.answered, "the pending one may still come"
    bench.join(pending)
    assert len(again.joined.members) == 3


def test_a_rebalance_does_not_wait_for_pending_members_longer_than_their_session() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.join()
    again = bench.join(one)
    bench.join(two)
    bench.advance(SESSION_MS - 1)
    assert not again.answered
    bench.advance(1)
    assert len(again.joined.members) == 2


def test_a_new_member_whose_client_is_gone_does_not_stay_for_ever() -> None:
    bench = Bench(new_member_join_timeout_ms=7_000)
    bench.stable_group(session_ms=60_000)
    _, join = bench.join_new(session_ms=60_000)
    bench.advance(6_999)
    assert not join.answered
    bench.advance(1)
    assert join.joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join.joined.member_id == ""


def test_a_full_group_takes_nobody_else_but_its_members_may_come_back() -> None:
    bench = Bench(group_max_size=2)
    one, two = bench.stable_group()
    assert bench.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.state() == "Stable"
    again_one, again_two = bench.join(one), bench.join(two)
    assert again_one.joined.generation_id == again_two.joined.generation_id == 2


def test_a_static_member_may_come_back_to_a_full_group() -> None:
    bench = Bench(group_max_size=2)
    bench.static_group(2)
    assert bench.join(instance_id="i2").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.join(instance_id="i1").error is ErrorCode.NONE


def test_only_the_first_comers_stay_when_the_limit_was_lowered() -> None:
    bench = Bench()
    one, two, three = bench.stable_group(3)
    bench.settings = type(bench.settings)(group_max_size=2)
    bench.restart()
    assert bench.state() == "PreparingRebalance"
    again = bench.join(one)
    bench.join(three)
    assert bench.join(two).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [member.member_id for member in again.joined.members] == [one, three]


def test_nobody_is_kept_waiting_by_a_group_that_was_left_by_all_in_its_initial_round() -> None:
    bench = Bench()
    one, _ = bench.join_new()
    assert bench.leave(one) == [ErrorCode.NONE]
    bench.advance(INITIAL_DELAY_MS)
    assert bench.state() == "Empty"
    _, join = bench.join_new()
    bench.advance(2 * INITIAL_DELAY_MS)
    assert join.joined.generation_id == 2, "generations only rise"


def test_a_short_rebalance_timeout_does_not_cut_the_initial_delay() -> None:
    bench = Bench()
    _, join = bench.join_new(rebalance_ms=100)
    bench.advance(INITIAL_DELAY_MS - 1)
    assert not join.answered
    bench.advance(1)
    assert join.joined.generation_id == 1
    assert REBALANCE_MS > INITIAL_DELAY_MS
