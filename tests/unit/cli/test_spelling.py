"""Errors name what was typed: options, and settings under Kafka's names."""

from __future__ import annotations

import pytest

from millstream.terminal.spelling import as_typed


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        (
            "load",
            "value_format is 'x': it is one of raw, json",
            "--value-format is 'x': it is one of raw, json",
        ),
        (
            "load",
            "a schema makes no sense with value_format=raw",
            "a schema makes no sense with --value-format raw",
        ),
        ("load", "schema: the column id is there twice", "--schema: the column id is there twice"),
        ("load", "check 'price >': it ends", "--check 'price >': it ends"),
        ("load", "starting is 'soon': it is one of", "--starting is 'soon': it is one of"),
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
        ("load", "so it needs compact=True: how", "so it needs compact=True: how"),
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
    typed = ["load", "t", "--schema", "group_id STRING, group_id STRING"]
    text = "schema: the column group_id is there twice"
    assert as_typed(text, typed) == "--schema: the column group_id is there twice"


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
            "the table lacks the columns client_id. Let the load add them (add_columns=True, --add-columns)",
            "the table lacks the columns client_id. Let the load add them (--add-columns)",
        ),
        (
            "topic:x: a topic has no partition columns: leave partition_by out",
            "topic:x: a topic has no partition columns: leave out --partition-by",
        ),
        (
            "it has no group_id: allow add_columns, or add them yourself",
            "it has no group_id: give --add-columns, or add them yourself",
        ),
        (
            "as when the table was made (partition_by=…, --partition-by 'date(_timestamp) AS day'), or",
            "as when the table was made (--partition-by 'date(_timestamp) AS day'), or",
        ),
    ],
)
def test_columns_of_tables_stay(text: str, expected: str) -> None:
    assert as_typed(text, ["load", "t"], is_about_a_table=True) == expected


def test_nothing_was_typed() -> None:
    assert as_typed("something", []) == "something"
