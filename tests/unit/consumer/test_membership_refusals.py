"""Errors that only the user can do something about."""

from __future__ import annotations

import pytest

from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Failed, Wait
from millstream.errors import (
    AuthenticationError,
    ErrorCode,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    for_code,
)
from millstream.wire.messages.groups import FindCoordinatorRequest
from tests.unit.consumer.group_harness import Hand, settings


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_refusals_are_told_and_the_next_poll_tries_again(code: ErrorCode) -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(error=code)
    assert isinstance(hand.event(Failed).error, for_code(code))
    assert hand.phase() is MemberPhase.FAILED
    assert isinstance(hand.membership.error, for_code(code))
    assert hand.membership.waiting().what is Wait.ERROR
    hand.after(60_000)
    assert "JoinGroup" not in hand.kinds()
    hand.membership.error_raised(hand.now_ms)
    hand.step()
    assert "JoinGroup" not in hand.kinds(), "the user has to poll again"
    hand.poll()
    hand.join()
    assert hand.phase() is MemberPhase.SYNCING


def test_after_a_refused_login_commits_say_so_too() -> None:
    """Also when poll() has raised it before: what is wrong is the login, not that the member is lost."""
    hand = Hand(settings())
    hand.poll()
    refused = AuthenticationError("the user is not known")
    hand.fail(FindCoordinatorRequest, refused)
    hand.membership.error_raised(hand.now_ms)
    with pytest.raises(AuthenticationError):
        hand.membership.commit_identity()


def test_fenced_is_for_ever() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.poll()
    hand.find()
    hand.join(error=ErrorCode.FENCED_INSTANCE_ID)
    error = hand.event(Failed).error
    assert isinstance(error, FencedInstanceIdError) and "'i'" in str(error)
    hand.membership.error_raised(hand.now_ms)
    hand.poll()
    hand.after(100_000)
    assert not hand.sends
    assert hand.phase() is MemberPhase.FAILED


def test_a_group_that_is_not_ours() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(protocol="range", protocol_type="connect")
    assert isinstance(hand.event(Failed).error, InconsistentGroupProtocolError)


def test_an_assignor_that_was_never_offered() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(protocol="other")
    assert isinstance(hand.event(Failed).error, InconsistentGroupProtocolError)


def test_the_coordinator_refuses_the_client() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(hand.event(Failed).error, for_code(ErrorCode.GROUP_AUTHORIZATION_FAILED))
