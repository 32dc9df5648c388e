"""The catalogue of errors is complete, named by one rule, and says what to do."""

from __future__ import annotations

import pickle

import pytest

from millstream import errors
from millstream.errors import Action, BrokerError, ErrorCode, MillstreamError
from millstream.model import TopicPartition

CODES = [code for code in ErrorCode if code != ErrorCode.NONE]
ORDERS_0 = TopicPartition("orders", 0)


def all_classes() -> list[type[MillstreamError]]:
    members = vars(errors).values()
    return [member for member in members if isinstance(member, type) and issubclass(member, MillstreamError)]


def test_codes_run_without_a_gap_up_to_kafka_4_1() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_one_class_of_its_name(code: ErrorCode) -> None:
    cls = errors.for_code(code)
    assert cls.code == code
    assert cls.__name__ == errors.class_name(code)
    assert getattr(errors, cls.__name__) is cls
    assert isinstance(cls.action, Action)
    assert str(cls()) == cls.meaning
    assert cls.meaning.endswith(".")


@pytest.mark.parametrize("cls", all_classes(), ids=lambda cls: cls.__name__)
def test_names_follow_the_convention(cls: type[MillstreamError]) -> None:
    assert cls.__name__.endswith("Error") or cls.__name__ in {
        "CorruptMessage",
        "CorruptBatch",
        "UnsupportedMagic",
    }
    assert cls.__module__ == "millstream.errors"


@pytest.mark.parametrize(
    ("name", "code", "action"),
    [
        ("OffsetOutOfRangeError", 1, Action.RESET_OFFSET),
        ("NotLeaderOrFollowerError", 6, Action.REFRESH_METADATA),
        ("NetworkError", 13, Action.REFRESH_METADATA),
        ("CoordinatorLoadInProgressError", 14, Action.RETRY),
        ("NotCoordinatorError", 16, Action.FIND_COORDINATOR),
        ("InvalidTopicError", 17, Action.ABORT),
        ("RebalanceInProgressError", 27, Action.REJOIN),
        ("UnsupportedVersionError", 35, Action.ABORT),
        ("OutOfOrderSequenceNumberError", 45, Action.ABORT),
        ("KafkaStorageError", 56, Action.REFRESH_METADATA),
        ("FencedInstanceIdError", 82, Action.FATAL),
        ("FencedMemberEpochError", 110, Action.REJOIN),
        ("ShareSessionLimitReachedError", 133, Action.RETRY),
    ],
)
def test_actions(name: str, code: int, action: Action) -> None:
    cls = getattr(errors, name)
    assert (cls.code, cls.action) == (code, action)


def test_retriable_follows_the_action() -> None:
    assert errors.NotCoordinatorError().retriable
    assert errors.RequestTimedOutError().retriable
    assert not errors.RebalanceInProgressError().retriable
    assert not errors.MessageTooLargeError().retriable
    assert errors.MillstreamTimeoutError().retriable
    assert not errors.MisuseError().retriable


def test_raise_for_code() -> None:
    errors.raise_for_code(0)
    with pytest.raises(
        errors.TopicAlreadyExistsError, match=r"^orders\. A topic of this name exists already"
    ):
        errors.raise_for_code(36, "orders")


def test_a_code_from_the_future_is_reported_with_its_number() -> None:
    assert errors.for_code(999) is errors.UnknownServerError
    with pytest.raises(errors.UnknownServerError, match=r"\(error code 999\)"):
        errors.raise_for_code(999)


def test_a_message_that_explains_already_is_not_doubled() -> None:
    once = str(errors.NotCoordinatorError("group g"))
    assert once == "group g. The group has moved to another coordinator."
    assert str(errors.NotCoordinatorError(once)) == once


def test_families() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.MillstreamTimeoutError, TimeoutError)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert issubclass(errors.UnsupportedMagic, errors.CorruptBatch)
    assert issubclass(errors.ConsumerClosedError, errors.ClosedError)
    assert not issubclass(errors.CommitFailedError, BrokerError)


EXAMPLES: list[MillstreamError] = [
    errors.MissingExtraError("fastavro", "avro"),
    errors.DeserializationError("not JSON", "orders", 0, 7, b"{"),
    errors.NoOffsetForPartitionError([ORDERS_0]),
    errors.OffsetOutOfRangeError(offsets={ORDERS_0: 7}),
    errors.MillstreamTimeoutError("after 5 s"),
    errors.for_code(ErrorCode.FENCED_MEMBER_EPOCH)("g"),
    errors.CommitFailedError(),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: MillstreamError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_messages_name_what_they_are_about() -> None:
    assert "pip install 'millstream[avro]'" in str(EXAMPLES[0])
    assert str(EXAMPLES[2]).startswith("orders-0: ")
    assert str(EXAMPLES[3]).startswith("offset 7 of orders-0. ")


def test_a_config_error_names_its_setting() -> None:
    error = pickle.loads(pickle.dumps(errors.ConfigError("acks is 7: it must be all", setting="acks")))
    assert error.setting == "acks"
    assert errors.ConfigError("group_id and assign() exclude each other").setting is None
