"""Errors name what was typed: options, and settings under Kafka's names."""

from __future__ import annotations

import pytest

from millstream.terminal.spelling import as_typed


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        (
            "value_format",
            "value_format is 'x': it is one of raw, json",
            "--value-format is 'x': it is one of raw, json",
        ),
        ("schema", "schema is not for value_format=raw", "--schema is not for --value-format raw"),
        ("schema", "schema: the column id is there twice", "--schema: the column id is there twice"),
        ("schema", "schema: the column schema is there twice", "--schema: the column schema is there twice"),
        ("schema", "schema: the column group_id is wrong", "--schema: the column group_id is wrong"),
        ("checks", "check 'price >': it ends", "--check 'price >': it ends"),
        ("checks", "checks has an empty check", "--check has an empty check"),
        ("starting", "starting is 'soon': it is one of", "--starting is 'soon': it is one of"),
        (
            "target_file_size",
            "target_file_size needs compact=True: so",
            "--target-file-size needs --compact: so",
        ),
        ("partition_by", "topic:x: leave partition_by out", "topic:x: leave --partition-by out"),
        ("starting", "auto.offset.reset: use starting instead", "auto.offset.reset: use --starting instead"),
        ("topics", "topics is empty", "TOPIC is empty"),
    ],
)
def test_the_setting_that_an_error_carries(setting: str, text: str, expected: str) -> None:
    assert as_typed(text, ["load", "t"], setting=setting) == expected


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        (
            "load",
            "confirm it with fail_on_data_loss=False (--accept-data-loss); or",
            "confirm it with --accept-data-loss; or",
        ),
        (
            "load",
            'load it with on_recreated="append" (--on-recreated append), which',
            "load it with --on-recreated append, which",
        ),
        ("load", "group.instance.id is 'a b': it must have", "--instance-id is 'a b': it must have"),
        (
            "load",
            "nothing of my.group.id, and session.timeout.ms",
            "nothing of my.group.id, and session.timeout.ms",
        ),
        ("broker", "give allow_remote=True", "give --allow-remote"),
        ("consume", "the group_id is not legal", "the --group is not legal"),
        ("consume", "None of the bootstrap_servers answered", "None of the --bootstrap-servers answered"),
        ("topic", "None of the bootstrap_servers answered", "None of the --bootstrap-servers answered"),
        (
            "produce",
            "the broker's max_request_size (5): raise that",
            "the broker's max.request.size (5): raise that (--property NAME=VALUE gives a setting)",
        ),
        ("topic", "not within request_timeout_ms", "not within request.timeout.ms"),
        (
            "consume",
            "the value of t-0 at offset 1 cannot be read",
            "the value of t-0 at offset 1 cannot be read",
        ),
    ],
)
def test_an_error_in_the_words_of_the_command(command: str, text: str, expected: str) -> None:
    assert as_typed(text, [command]) == expected


def test_what_the_user_typed_stays() -> None:
    typed = ["load", "t", "--schema", "group_id STRING"]
    text = "orders-0: the column group_id is missing"
    assert as_typed(text, typed) == text


def test_what_is_quoted_stays() -> None:
    text = "topics: 'group_id' is not the user's \"client_id\", but group_id"
    assert as_typed(text, ["consume"]).endswith("""'group_id' is not the user's "client_id", but --group""")


def test_who_knows_property_is_not_told_of_it() -> None:
    typed = ["consume", "t", "--property", "heartbeat.interval.ms=99999"]
    text = "heartbeat_interval_ms (99999) must be less than session_timeout_ms (45000)"
    assert (
        as_typed(text, typed) == "heartbeat.interval.ms (99999) must be less than session.timeout.ms (45000)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "the table lacks the columns client_id. Add them with add_columns=True (--add-columns)",
            "the table lacks the columns client_id. Add them with --add-columns",
        ),
        (
            "create it with its partitions, or leave out partition_by (--partition-by)",
            "create it with its partitions, or leave out --partition-by",
        ),
        (
            "as when the table was made: partition_by=… (--partition-by 'date(_timestamp) AS day'), or",
            "as when the table was made: --partition-by 'date(_timestamp) AS day', or",
        ),
    ],
)
def test_columns_of_tables_stay(text: str, expected: str) -> None:
    assert as_typed(text, ["load", "t"], is_about_a_table=True) == expected


def test_nothing_was_typed() -> None:
    assert as_typed("something", []) == "something"
